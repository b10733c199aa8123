"""The largest eigenvalue of a positive semidefinite matrix without the others: Lanczos steps, then a proof.

S in R^{n x n} symmetric and positive semidefinite, lambda_1 its largest eigenvalue. Batched, float64, any unit.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.randomness import generator

SMALLEST = 64  # rows; below, all eigenvalues at once cost no more
CHECKED_AFTER = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96)  # steps; each check costs as much as a few steps
STAGNATION = 1e-13  # relative rise of the estimate between two checks at which the iteration stops
PROVEN = 1e-12  # relative error that is certified; Cholesky's own rounding is a few 1e-14 of lambda_1


def largest_eigenvalue(psd: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    """lambda_1 of S, to a relative error of 1e-12 that is proven for each matrix.

    The Lanczos estimate never exceeds lambda_1. That lambda_1 does not exceed it by more than 1e-12 is shown by a
    Cholesky decomposition of (1 + 1e-12) theta I - S. A matrix without such a proof, a small one and one of another
    precision than float64 get all their eigenvalues computed instead (Golub & Van Loan, sec. 10.1 and 4.2).
    """
    if psd.shape[-1] < SMALLEST or psd.dtype != torch.float64:
        return torch.linalg.eigvalsh(psd)[..., -1]
    flat = psd.reshape(-1, *psd.shape[-2:])
    top = lanczos_estimate(flat)
    doubtful = ~_is_upper_bound(top * (1 + PROVEN), flat)
    if doubtful.any():
        top[doubtful] = torch.linalg.eigvalsh(flat[doubtful])[..., -1]
    return top.reshape(psd.shape[:-2])


def lanczos_estimate(psd: Float[Tensor, "batch n n"]) -> Float[Tensor, "batch"]:
    """Lower bound of lambda_1: the largest Ritz value of the Krylov space of a random vector, once it stands still.

    Three-term recurrence without reorthogonalisation, which repeats Ritz values but does not move the largest one. The
    start is the same for every matrix and call.
    """
    start = torch.randn(psd.shape[-1], generator=generator(0, "lanczos"), dtype=psd.dtype).to(psd.device)
    q = (start / start.norm()).expand(len(psd), 1, -1)
    diagonal, off, before = [], [], torch.zeros_like(q)
    top = psd.new_zeros(len(psd))
    for step in range(1, CHECKED_AFTER[-1] + 1):
        w = q @ psd - before  # a row vector from the left: for a batch much faster than a column from the right
        diagonal.append(w @ q.mT)
        w = w - diagonal[-1] * q
        off.append(torch.linalg.vector_norm(w, dim=-1, keepdim=True))
        if step in CHECKED_AFTER:
            earlier, top = top, _largest_ritz(diagonal, off)
            if (top - earlier <= STAGNATION * top).all():
                break
        before = off[-1] * q
        q = w / off[-1].where(off[-1] > 0, torch.ones_like(off[-1]))  # 0: the Krylov space is exhausted, stay there
    return top


def _largest_ritz(diagonal: list[Tensor], off: list[Tensor]) -> Float[Tensor, "batch"]:
    tridiagonal = torch.diag_embed(torch.cat(diagonal, -1).squeeze(-2))
    tridiagonal += torch.diag_embed(torch.cat(off[:-1], -1).squeeze(-2), offset=-1)  # eigvalsh reads the lower half
    return torch.linalg.eigvalsh(tridiagonal)[..., -1]


def _is_upper_bound(bound: Float[Tensor, "batch"], psd: Float[Tensor, "batch n n"]) -> Tensor:
    """Tell whether bound I - S is positive definite, so that no eigenvalue of S reaches the bound."""
    shifted = -psd
    shifted.diagonal(dim1=-2, dim2=-1).add_(bound.unsqueeze(-1))
    return torch.linalg.cholesky_ex(shifted).info == 0
