"""How the relative residual falls when uniform attention feeds the mean token and a skip keeps the residual."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rankcollapse.settings.dong import NormPlacement


def relative_residual(
    initial: float, value_gain: float, layers: int, placement: NormPlacement
) -> Float[ndarray, " layers+1"]:
    """Return relF_l for l = 0..layers of attention with skip, attention being uniform (derived here).

    Uniform attention adds nothing to the residual r = ‖R‖² and, on average over W_V W_O with E‖y W_V W_O‖² = σ²‖y‖²,
    adds to the energy of the mean token m = n ‖x‖²: without LayerNorm m' = (1 + σ²) m; with LayerNorm on the branch,
    which gives the tokens unit variance, so that the mean token has the share m / (m + r) of n d,
    m' = m + σ² n d m / (m + r) with m + r = n d at the start; with LayerNorm after the sum, m and r are divided by the
    same number, and the ratio moves as without. relF² = r / (m + r). As l grows: (1 + σ²)^{-l/2}, and 1 / (σ sqrt(l)).

    ``initial``: relF_0 in (0, 1]. Raises ValueError outside it.
    """
    if not 0 < initial <= 1:
        raise ValueError(f"initial relative residual {initial:g}; allowed: above 0, at most 1")
    residual, mean = initial**2, 1 - initial**2  # in units of n d
    shares = [initial]
    for _ in range(layers):
        mean += value_gain * (mean / (mean + residual) if placement == "pre" else mean)
        shares.append((residual / (mean + residual)) ** 0.5)
    return np.array(shares)
