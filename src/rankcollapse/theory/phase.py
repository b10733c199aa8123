"""How alike tokens become under X <- LN(alpha X + P X W_V), W_V with entries of variance 1/d (derived here). No torch.

rho is the cosine of two tokens. On average over W_V the covariance C of the tokens becomes alpha^2 C + P C P^T. For
C = (1 - rho) I + rho 11^T, rows of P that sum to 1, Y2 = mean_i sum_j P_ij^2 and O = mean_{i != i'} sum_j P_ij P_i'j,
a token's mean square becomes alpha^2 + rho + (1 - rho) Y2 and the mean product of two alpha^2 rho + rho + (1 - rho) O.
"""

import numpy as np
from jaxtyping import Float
from numpy import ndarray


def cosine_by_layer(
    start: Float[ndarray, "*cells"],
    skip: Float[ndarray, "*cells"],
    participation: Float[ndarray, "*cells layers"],
    overlap: Float[ndarray, "*cells layers"],
) -> Float[ndarray, "*cells layers+1"]:
    """rho_l for l = 0..L from rho_0, alpha and each layer's Y2 and O,

        1 - rho' = (1 - rho) (Y2 - O + alpha^2) / (rho + (1 - rho) Y2 + alpha^2).

    It is the ratio of averages, not the average ratio: in one network ln(rho / (1 - rho)) wanders from it by about
    (2/alpha) sqrt(l/d) in l layers. And it takes P as independent of how single pairs of tokens deviate from rho, which
    one-hot attention is not.
    """
    shares = [1 - np.asarray(start, dtype=float)]
    for together, apart in zip(np.moveaxis(participation, -1, 0), np.moveaxis(overlap, -1, 0), strict=True):
        left = shares[-1]
        shares.append(left * (together - apart + skip**2) / (1 - left + left * together + skip**2))
    return 1 - np.stack(np.broadcast_arrays(*shares), -1)


def rank_boundary(cosine: float, tokens: int, layers: int) -> float:
    """alpha at which uniform attention takes uncorrelated tokens to the given cosine in L layers,

        alpha_c = [(1 + n rho_c / (1 - rho_c))^{1/L} - 1]^{-1/2}.

    With Y2 = O = 1/n the ratio r = (1 + (n-1) rho) / (n (1 - rho)) grows by 1 + alpha^-2 a layer, from 1/n. Below
    alpha_c tokens are more alike than rho_c.

    Raises:
        ValueError: a cosine outside (0, 1).
    """
    if not 0 < cosine < 1:
        raise ValueError(f"rank_boundary: cosine {cosine:g}; allowed: above 0, below 1")
    return float(np.expm1(np.log1p(tokens * cosine / (1 - cosine)) / layers) ** -0.5)
