r"""Token similarity by depth in a residual stream, in the limit of a large width (derived here).

Noci et al. (2022) ask how the inner products of tokens move through skips and branches of scale a. With q = E|x_i|^2/d
and p = E<x_i, x_j>/d for i != j, weights of variance 1/d and attention P that does not depend on the tokens'
fluctuations, one branch a P X W_V adds

    q <- q + a^2 (p + (q - p) S),   p <- p + a^2 (p + (q - p) O),   S = mean_i sum_j P_ij^2,
                                                                  O = mean_{i != i'} sum_j P_ij P_i'j.

Uniform attention has S = O = 1/n: it adds m = (q + (n-1) p)/n, the mean token's second moment, to both, so that
q - p stays and m grows by 1 + a^2. A linear MLP multiplies both by 1 + a^2; a ReLU MLP with He's weights does so with q
and adds a^2 q kappa(p/q) to p. Normalisation after the sum divides q and p alike, so rho = p/q moves as without.
``theory.skips`` has the same law for relF^2 = r/(m + r), whose m/r is ratio(rho) / (1 - 1/n) here. Dimensionless.
"""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rankcollapse.settings.noci import MlpKind


def kappa(cosine: Float[ndarray, "*points"] | float) -> Float[ndarray, "*points"]:
    """E relu(u) relu(v) / E relu(u)^2 for normal u, v of equal variance and correlation rho (Cho & Saul 2009, n = 1).

    kappa(rho) = (sqrt(1 - rho^2) + rho (pi - arccos rho)) / pi: 1/pi at 0, 1 at 1, and
    1 - kappa(1 - e) = e - (2 sqrt(2) / (3 pi)) e^{3/2} + O(e^{5/2}).
    """
    cosine = np.clip(cosine, -1, 1)
    return (np.sqrt(1 - cosine**2) + cosine * (np.pi - np.arccos(cosine))) / np.pi


def uniform_overlaps(tokens: int, layers: int) -> Float[ndarray, "2 layers"]:
    """S and O of uniform attention over n tokens, both 1/n, for every layer."""
    return np.full((2, layers), 1 / tokens)


def moments(
    scale: float, overlaps: Float[ndarray, "2 layers"], mlp: MlpKind = "none", cosine: float = 0.0
) -> Float[ndarray, "2 layers+1"]:
    """Return q_l and p_l for l = 0..L from q_0 = 1, p_0 = cosine; branches of scale a, S and O of each layer given.

    Raises:
        FloatingPointError: q is beyond the largest double.
    """
    q, p = 1.0, cosine
    path = [(q, p)]
    with np.errstate(over="ignore", invalid="ignore"):
        for own, other in overlaps.T:
            q, p = q + scale**2 * (p + (q - p) * own), p + scale**2 * (p + (q - p) * other)
            if mlp != "none":
                q, p = q * (1 + scale**2), p + scale**2 * (p if mlp == "linear" else q * kappa(p / q))
            path.append((q, p))
    found = np.array(path, dtype=float).T
    if not np.isfinite(found).all():
        raise FloatingPointError(f"moments: scale {scale:g} overflows within {overlaps.shape[1]} layers")
    return found


def similarity(
    scale: float, overlaps: Float[ndarray, "2 layers"], mlp: MlpKind = "none", cosine: float = 0.0
) -> Float[ndarray, " layers+1"]:
    """rho_l = p_l / q_l of ``moments``."""
    q, p = moments(scale, overlaps, mlp, cosine)
    return p / q


def ratio(cosine: float, tokens: int) -> float:
    """m / (q - p) = (1 + (n-1) rho) / (n (1 - rho)): the mean token over the residual."""
    return (1 + (tokens - 1) * cosine) / (tokens * (1 - cosine))


def closed_form(scale: float, layers: int, tokens: int, cosine: float = 0.0) -> Float[ndarray, " layers+1"]:
    """rho_l of uniform attention with a linear MLP or none.

    The ratio of ``ratio`` grows by exactly 1 + a^2 a layer, r_l = (1 + a^2)^l r_0, and
    rho_l = (r_l - 1/n) / (r_l + 1 - 1/n).
    """
    grown = (1 + scale**2) ** np.arange(layers + 1) * ratio(cosine, tokens)
    return (grown - 1 / tokens) / (grown + 1 - 1 / tokens)


def deep_limit(strength: float, tokens: int) -> float:
    """Limit of rho_L for a = t / sqrt(L) as L grows, rho_0 = 0: (e^{t^2} - 1) / (e^{t^2} - 1 + n)."""
    grown = np.expm1(strength**2)
    return float(grown / (grown + tokens))


def half_depth(scale: float, tokens: int) -> float:
    """Layers after which uniform attention alone has made rho = 1/2 from rho_0 = 0: ln(n + 1) / ln(1 + a^2)."""
    return float(np.log(tokens + 1) / np.log1p(scale**2))
