"""Softmax of n independent Gaussian logits of standard deviation sigma = beta sqrt(ln n): a random-energy model.

As n grows its partition function freezes at beta_c = sqrt 2 (Derrida 1981): above, a few logits hold all the weight.
Giorlandino & Goldt (2025, arXiv 2505.24333) describe attention at initialisation by it; the formulas are the model's.
Per row P_j = e^{z_j} / Z, Y2 = sum_j P_j^2 and H = -sum_j P_j ln P_j. Dimensionless, natural logarithms. No torch.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.signal import fftconvolve

CRITICAL = math.sqrt(2)  # beta_c
REACH = 9  # standard deviations of a logit; beyond, less than 1e-18 n of the weight
LOWEST = -40.0  # of ln(t e^z): e^{-40} is below rounding
HIGHEST = 8.0  # exp(-e^8) is 0


class Row(NamedTuple):
    """Means over rows of attention."""

    entropy: float  # H / ln n
    participation: float  # Y2


def limit(beta: float) -> Row:
    """n -> infinity: H / ln n = max(0, 1 - beta^2 / 2), Y2 = max(0, 1 - beta_c / beta).

    Below beta_c the free energy is ln Z = (1 + beta^2 / 2) ln n, and H = ln Z - beta d ln Z / d beta. Above it weights
    are Poisson-Dirichlet with parameter m = beta_c / beta, for which E Y2 = 1 - m.
    """
    return Row(max(0.0, 1 - beta**2 / 2), max(0.0, 1 - CRITICAL / beta))


def finite(beta: float, tokens: int) -> Row:
    """E H / ln n and E Y2 at n tokens, exact up to quadrature (derived here); rounding leaves about 1e-16 n.

    1/Z^2 = int_0^inf t e^{-tZ} dt and ln Z = int_0^inf (e^{-t} - e^{-tZ}) dt/t turn means over n logits into powers of
    means over one. With u = ln t, z ~ N(0, sigma^2), phi = E exp(-e^{z+u}) and psi_k = E e^{k(z+u)} exp(-e^{z+u}),

        E Y2     = n int psi_2 phi^{n-1} du,
        E ln Z   = int (exp(-e^u) - phi^n) du,
        E H      = E ln Z - n int E[z e^{z+u} exp(-e^{z+u})] phi^{n-1} du.

    Raises:
        ValueError: fewer than two tokens, or beta not above 0.
    """
    if tokens < 2 or beta <= 0:
        raise ValueError(f"random_energy: tokens {tokens}, beta {beta:g}; allowed: from 2, above 0")
    sigma = beta * math.log(tokens) ** 0.5
    step = min(0.2, sigma / 4)
    reach = math.ceil(REACH * sigma / step)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / sigma) ** 2)
    u = np.arange((LOWEST - REACH * sigma) / step, (HIGHEST + REACH * sigma) / step) * step
    m = np.concatenate([u[0] + step * np.arange(-reach, 0), u, u[-1] + step * np.arange(1, reach + 1)])
    # Far up exp(-e^m) is 0, and there e^m would overflow.
    capped = np.minimum(m, HIGHEST)
    decay = np.exp(-np.exp(capped))

    def mean(values: Float[ndarray, " m"]) -> Float[ndarray, " u"]:
        return fftconvolve(values, kernel / kernel.sum(), mode="valid")

    phi = np.clip(mean(decay), 0, 1)
    weighted, squared = np.exp(capped) * decay, np.exp(2 * capped) * decay
    others = phi ** (tokens - 1)
    log_partition = step * (np.exp(-np.exp(np.minimum(u, HIGHEST))) - others * phi).sum()
    energy = tokens * step * ((mean(m * weighted) - u * mean(weighted)) * others).sum()
    participation = tokens * step * (mean(squared) * others).sum()
    return Row(float((log_partition - energy) / math.log(tokens)), float(participation))
