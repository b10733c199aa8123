"""Limits, as T grows, of the spectra of random attention with any activation on orthonormal tokens.

The logits z are N(0, s^2) and the entries A_ij = f(z_ij) / T. In Hermite polynomials of z,

    T A = m 11^T + (c / s) M + N,    m = E f,  c = s E f'(z),  nu = Var f - c^2:

one outlier from the mean, the logits M themselves (of rank d, gamma = T/d), and terms of higher order that act like
independent noise of variance nu. Softmax counts as f(z) = e^{z - s^2/2}, its denominator replaced by the limit. All
derived here; lengths in units of 1 (outlier) or T^{-1/2} (bulk). Dimensionless. No torch.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import integrate, optimize, special, stats

Entry = Callable[[np.ndarray, float, int], np.ndarray]

# T A_ij as a function of the logit z, the logits' variance s^2 and the number of tokens T.
ENTRIES: dict[str, Entry] = {
    "softmax": lambda z, variance, tokens: np.exp(z - variance / 2),
    "relu": lambda z, variance, tokens: np.maximum(z, 0),
    "sigmoid": lambda z, variance, tokens: tokens * special.expit(z - np.log(tokens)),
    "sigmoid/T": lambda z, variance, tokens: special.expit(z),
    "linear": lambda z, variance, tokens: z,
}


class Moments(NamedTuple):
    """What the spectrum depends on: of T A_ij, the mean m, the linear part's variance c^2 and the rest's nu."""

    mean: float
    linear: float
    noise: float

    @property
    def variance(self) -> float:
        """Var f = c^2 + nu."""
        return self.linear + self.noise


@lru_cache
def moments(activation: str, logit_variance: float, tokens: int) -> Moments:
    """Return m = E f(z), c^2 = (E z f(z))^2 / s^2 and nu = Var f - c^2 for z ~ N(0, s^2), by quadrature.

    ReLU: m = s / sqrt(2 pi), Var f = s^2 (1/2 - 1/(2 pi)). Softmax: m = 1, Var f = e^{s^2} - 1, c = s.
    """
    std = np.sqrt(logit_variance)
    far = 10 + 2 * std  # where e^{2z} times the Gaussian weight has dropped below rounding

    def mean_of(function: Callable[[float, float], float]) -> float:
        def weighted(x: float) -> float:
            density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
            return function(x, float(ENTRIES[activation](std * x, logit_variance, tokens))) * density

        return float(integrate.quad(weighted, -far, far, points=[0], limit=200, epsabs=0, epsrel=1e-10)[0])

    # Odd moments of an odd f are 0, which a relative tolerance cannot reach.
    mean = 0.0 if activation == "linear" else mean_of(lambda x, f: f)
    slope = mean_of(lambda x, f: x * f)
    return Moments(mean, slope**2, max(mean_of(lambda x, f: (f - mean) ** 2) - slope**2, 0.0))


def eigenvalue_gap(activation: str, logit_variance: float, tokens: int) -> float:
    """|lambda_1| / |lambda_2| = sqrt(T) |m| / sd f, at least 1; the same for every gamma <= 1.

    The bulk's radius is sd f / sqrt(T): for orthonormal tokens the logits' product form changes how the eigenvalues lie
    in the disc, not where they end. A mean below sd f / sqrt(T) is no outlier.
    """
    m = moments(activation, logit_variance, tokens)
    return max(1.0, float(np.sqrt(tokens / m.variance) * abs(m.mean)))


def singular_edge(moment: Moments, ratio: float) -> float:
    r"""Limit of sqrt(T) s_2, the end of the bulk of singular values.

    Both parts are R-diagonal, so their R-transforms add: nu z for the noise and, for a product of a T x d and a d x T
    Gaussian matrix, c^2 z / (1 - gamma c^2 z^2). The edge is

        min over 0 < z < 1 / (c sqrt(gamma)) of 1/z + nu z + c^2 z / (1 - gamma c^2 z^2),

    which is 2 sd f for independent logits (gamma = 0, the quarter circle) and 3 sqrt(3)/2 c for two square Gaussian
    factors (nu = 0, gamma = 1).

    Raises:
        ValueError: gamma < 0 or > 1, where tokens cannot be orthonormal.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"singular_edge: ratio {ratio}; allowed: 0 to 1")
    pole = ratio * moment.linear

    def slope(w: float) -> float:  # of the function above, w = z^2
        return moment.noise + moment.linear * (1 + pole * w) / (1 - pole * w) ** 2 - 1 / w

    most = 1 / moment.variance
    w = optimize.brentq(slope, 1e-6 * most, most * (1 - 1e-12), xtol=1e-15 * most) if pole else most
    return float((1 + moment.noise * w + moment.linear * w / (1 - pole * w)) / np.sqrt(w))


def singular_gap(activation: str, logit_variance: float, ratio: float, tokens: int) -> float:
    """s_1 / s_2 = sqrt(T) |m| / ``singular_edge``, at least 1."""
    m = moments(activation, logit_variance, tokens)
    return max(1.0, float(np.sqrt(tokens) * abs(m.mean) / singular_edge(m, ratio)))


def top_share(mean: float, variance: float, tokens: int) -> float:
    """s_1^2 / ||A||_F^2 when T A has mean m and independent deviations of variance v.

    (Benaych-Georges & Nadakuditi 2012, a rank-one matrix plus noise.) An outlier above the bulk, m^2 > v/T, has
    s_1 = m + v / (T m); below, s_1 is the bulk's edge 2 sqrt(v/T).
    """
    outlier = mean**2 > variance / tokens
    top = mean + variance / (tokens * mean) if outlier else 2 * np.sqrt(variance / tokens)
    return float(top**2 / (mean**2 + variance))


def largest_entry(logit_variance: float, tokens: int) -> float:
    """sqrt(T) times the typical largest entry of softmax attention, the quantile 1 - 1/T^2 of e^{z - s^2/2} / T."""
    z = np.sqrt(logit_variance) * stats.norm.isf(1 / tokens**2)
    return float(np.exp(z - logit_variance / 2) / np.sqrt(tokens))


def lone_entry_edge(logit_variance: float, tokens: int) -> float:
    """sqrt(T) s_2 of softmax attention with independent logits while one entry stands out of the bulk.

    e^z is log-normal. Its largest of T^2 values, a, is a rank-one matrix of norm a on top of noise of variance v/T: it
    leaves the bulk when sqrt(T) a > sqrt(v), to sqrt(T) a + v / (sqrt(T) a). It returns only at T of about 10^5.
    """
    alone, noise = largest_entry(logit_variance, tokens), np.expm1(logit_variance)
    return float(alone + noise / alone) if alone**2 > noise else float(2 * np.sqrt(noise))
