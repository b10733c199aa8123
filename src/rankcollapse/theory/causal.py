"""Uniform causal attention, the zero-logit limit of a causal head: U_ij = 1/i for j <= i, else 0. No torch."""

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh_tridiagonal


def uniform_causal_singular_values(tokens: int, count: int = 2) -> Float[np.ndarray, "count"]:
    """Return the largest singular values of U in R^{T x T}, in descending order.

    U averages the tokens so far, so U^{-1} takes differences: (U^{-1} y)_i = i y_i - (i-1) y_{i-1}. Hence (U U^T)^{-1}
    is tridiagonal, with diagonal 2 i^2 (but T^2 at the end) and i (i+1), negative, beside it, and its smallest
    eigenvalues are 1/s^2 (derived here). The eigenvalues of U are its diagonal 1, 1/2, ..., 1/T at every T; its
    singular values all tend to 2, the norm of the averaging operator on sequences (Hardy's inequality), so the gap
    between any two of them closes, as slowly as a power of log T.

    Rounding grows like T^2: an absolute 4 T^2 eps of 1/s^2, which is 4e-6 of a 1/4 at T = 10^5.

    Raises:
        ValueError: fewer tokens than singular values asked for.
    """
    if tokens < count:
        raise ValueError(f"uniform_causal_singular_values: {count} of {tokens} tokens asked for")
    i = np.arange(1.0, tokens + 1)
    diagonal = 2 * i**2
    diagonal[-1] = tokens**2
    beside = -(i * (i + 1))[:-1]
    smallest = eigh_tridiagonal(diagonal, beside, eigvals_only=True, select="i", select_range=(0, count - 1))
    return 1 / np.sqrt(smallest)
