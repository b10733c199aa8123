"""Stable rank of embeddings that all contain one shared row, before any attention. No torch."""

import numpy as np
from jaxtyping import Float


def shared_row_excess(
    tokens: Float[np.ndarray, "*sizes"], width: int, cosine: float = 1 / 3
) -> Float[np.ndarray, "*sizes"]:
    r"""Return sr(X X^T) - 1 for T distinct tokens of equal length in R^d that have a common part, to leading order.

    Tokens sqrt(c) u + sqrt(1 - c) g_i, u and g_i Gaussian of norm sqrt(d), have cosine c. Up to cross terms X X^T is
    c d 11^T + (1 - c) G G^T, with one eigenvalue c d T and the others' squares summing to (1 - c)^2 tr (G G^T)^2 =
    (1 - c)^2 d^2 T (1 + T/d), so

        sr - 1 = ((1 - c)/c)^2 (1/T + 1/d)                                     (derived here).

    c = 1/3 where a word, a position and one shared token-type row of equal variance are added: 4/T + 4/d. Small
    texts are off, as the first eigenvalue then holds some of the rest.
    """
    return ((1 - cosine) / cosine) ** 2 * (1 / np.asarray(tokens) + 1 / width)
