"""The largest eigenvalue of a positive semidefinite matrix without the others: Lanczos steps, then a proof.

S in R^{n x n} symmetric and positive semidefinite, lambda_1 its largest eigenvalue. Batched, float64, any unit.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankcollapse.randomness import generator

SMALLEST = 64  # rows; below, all eigenvalues at once cost no more
CHECKED_AFTER = (5, 8, 12, 17, 22, 28, 36, 48, 64, 80, 96)  # steps; a check costs as much as a few steps
CONVERGED = 1e-13  # relative error, by estimate, at which the iteration stops
PROVEN = 1e-12  # relative error that is certified; Cholesky's own rounding is a few 1e-14 of lambda_1


def largest_eigenvalue(psd: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    """lambda_1 of S, to a relative error of 1e-12 that is proven for each matrix.

    The Lanczos estimate theta does not exceed lambda_1. That lambda_1 does not exceed it by more than 1e-12 is shown
    from norms or, failing that, by a Cholesky decomposition of (1 + 1e-12) theta I - S. A matrix without a proof, a
    small one and one of another precision than float64 get all their eigenvalues computed instead.
    """
    if psd.shape[-1] < SMALLEST or psd.dtype != torch.float64:
        return torch.linalg.eigvalsh(psd)[..., -1]
    flat = psd.reshape(-1, *psd.shape[-2:])
    top, residual = lanczos_estimate(flat)
    doubtful = ~_bounded_by_norms(flat, top, residual)
    if doubtful.any():
        doubtful[doubtful.clone()] = ~_bounded_by_cholesky(flat[doubtful], top[doubtful])
    if doubtful.any():
        top[doubtful] = torch.linalg.eigvalsh(flat[doubtful])[..., -1]
    return top.reshape(psd.shape[:-2])


def lanczos_estimate(psd: Float[Tensor, "batch n n"]) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
    """Largest Ritz value theta = u^T S u in the Krylov space of a random vector, and its residual |S u - theta u|.

    Three-term recurrence without reorthogonalisation, which repeats Ritz values but does not move the largest one
    (Golub & Van Loan, sec. 10.1 and 10.3). The start is the same for every matrix and call. Stops when
    residual^2 / (theta - next Ritz value), an estimate of the error, is small enough, or after the last check.
    """
    start = torch.randn(1, psd.shape[-1], generator=generator(0, "lanczos"), dtype=psd.dtype).to(psd.device)
    q = (start / start.norm()).expand(len(psd), 1, -1)
    before, tiny = torch.zeros_like(q), torch.finfo(psd.dtype).tiny
    diagonal, off = [], []
    estimate, converged = psd.new_zeros(3, len(psd)), torch.zeros(len(psd), dtype=torch.bool, device=psd.device)
    for step in range(1, CHECKED_AFTER[-1] + 1):
        w = torch.baddbmm(before, q, psd, beta=-1)  # from the left: a row of a batch is much faster than a column
        diagonal.append(torch.bmm(w, q.mT))
        w = torch.addcmul(w, diagonal[-1], q, value=-1)
        off.append(torch.linalg.vector_norm(w, dim=-1, keepdim=True))
        if step in CHECKED_AFTER:
            found = _ritz(torch.cat(diagonal, -1).squeeze(1), torch.cat(off, -1).squeeze(1))
            # Later copies of a converged value would close the gap, so it is kept as it was.
            theta, gap, residual = estimate = torch.where(converged, estimate, found)
            converged = residual.square() <= CONVERGED * theta * gap
            if converged.all():
                break
        before = off[-1] * q
        q = w / off[-1].clamp_min(tiny)  # the norm is 0 when the Krylov space is exhausted: stay in it
    return theta, residual


def _ritz(diagonal: Float[Tensor, "batch steps"], off: Float[Tensor, "batch steps"]) -> Float[Tensor, "3 batch"]:
    """Largest eigenvalue of the tridiagonal matrix, its distance from the next, and its vector's residual."""
    tridiagonal = torch.diag_embed(diagonal) + torch.diag_embed(off[:, :-1], offset=-1)  # eigh reads the lower half
    values, vectors = torch.linalg.eigh(tridiagonal)
    residual = off[:, -1] * vectors[:, -1, -1].abs()
    return torch.stack([values[:, -1], values[:, -1] - values[:, -2], residual])


def _bounded_by_norms(
    psd: Float[Tensor, "batch n n"], top: Float[Tensor, "batch"], residual: Float[Tensor, "batch"]
) -> Bool[Tensor, "batch"]:
    """Tell where ||S||_F, theta and its residual show that lambda_1 <= (1 + PROVEN) theta: where sr(S) is below 2.

    On the complement of u the norm of S is at most phi, phi^2 = ||S||_F^2 - theta^2. If phi < theta, then
    lambda_1 <= theta + residual^2 / (theta - phi) (the largest root of the 2 x 2 problem of u and its complement).
    """
    complement = (torch.linalg.matrix_norm(psd).square() - top.square()).clamp_min(0).sqrt()
    return residual.square() <= PROVEN * top * (top - complement)


def _bounded_by_cholesky(psd: Float[Tensor, "batch n n"], top: Float[Tensor, "batch"]) -> Bool[Tensor, "batch"]:
    """Tell where (1 + PROVEN) theta I - S is positive definite, so that no eigenvalue of S reaches that bound."""
    shifted = -psd
    shifted.diagonal(dim1=-2, dim2=-1).add_(((1 + PROVEN) * top).unsqueeze(-1))
    return torch.linalg.cholesky_ex(shifted).info == 0
