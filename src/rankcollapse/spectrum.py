"""Spectra of attention and of token matrices: eigenvalues split into outlier and bulk, stable and effective rank.

X in R^{T x d} holds one token a row, S = X X^T is its covariance, A in R^{T x T} an attention matrix. Everything is
batched over leading axes, dimensionless, and computed in the precision of the input except eigenvalues (float64).
"""

from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from rankcollapse.lanczos import largest_eigenvalue


class Spectrum(NamedTuple):
    """Eigenvalues of a row-stochastic matrix: the outlier lambda_1 = 1 and the bulk, by descending modulus."""

    outlier: Complex[Tensor, "*batch"]
    bulk: Complex[Tensor, "*batch others"]


def stable_rank(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch"]:
    """Stable rank of the covariance, sr(S) = ||S||_F^2 / ||S||_2^2 with S = X X^T; from 1 (collapsed) to min(T, d).

    Both norms are those of the smaller of X X^T and X^T X: the sum of its squared entries, and its largest eigenvalue
    alone, so neither a singular value decomposition nor a whole spectrum is needed. X is divided by its largest entry
    first: the answer has no scale and cannot overflow.
    An annihilated X = 0 has stable rank 0, its rank. (Nait Saada, Naderi & Tanner 2025, their measure of collapse.)

    Raises:
        FloatingPointError: X has a NaN or an infinite entry.
    """
    largest = tokens.abs().amax((-2, -1), keepdim=True)
    _require_finite("stable_rank", tokens, largest)
    scaled = tokens / largest.where(largest > 0, torch.ones_like(largest))
    gram = scaled @ scaled.mT if scaled.shape[-2] <= scaled.shape[-1] else scaled.mT @ scaled
    top = largest_eigenvalue(gram)
    ratio = (torch.linalg.matrix_norm(gram) / top.where(top > 0, torch.ones_like(top))).square()
    return ratio.clamp_min(1).where(top > 0, torch.zeros_like(ratio))  # rounding may put a collapsed one just below 1


def stable_rank_excess(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch"]:
    """Return sr(S) - 1 = sum_{i>1} (s_i / s_1)^4 over the singular values of X, for X that has nearly collapsed.

    Subtracting 1 from ``stable_rank`` leaves nothing below 1e-16; this follows the collapse down to 1e-60, where
    s_2 / s_1 reaches the rounding of X. An annihilated X = 0 gives -1.

    Raises:
        FloatingPointError: X has a NaN or an infinite entry.
    """
    _require_finite("stable_rank_excess", tokens)
    singular = torch.linalg.svdvals(tokens)
    top, rest = singular[..., :1], singular[..., 1:]
    excess = (rest / top.where(top > 0, torch.ones_like(top))).pow(4).sum(-1)
    return excess.where(top.squeeze(-1) > 0, -torch.ones_like(excess))


def effective_rank(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch"]:
    """Effective rank exp(-sum_i p_i ln p_i), p_i = s_i / sum_j s_j over the singular values of X (Roy & Vetterli 2007).

    The singular values come from X itself, not from its Gram matrix, whose rounding would put a floor of 1e-8 under
    every s_i / s_1 and keep the answer away from 1. X = 0 gives 1, the exponential of an empty entropy.

    Raises:
        FloatingPointError: X has a NaN or an infinite entry.
    """
    _require_finite("effective_rank", tokens)
    singular = torch.linalg.svdvals(tokens)
    total = singular.sum(-1, keepdim=True)
    share = singular / total.where(total > 0, torch.ones_like(total))
    return torch.special.entr(share).sum(-1).exp()


def eigenvalues(attention: Float[Tensor, "*batch tokens tokens"]) -> Complex[Tensor, "*batch tokens"]:
    """Eigenvalues of a general real matrix in float64, by descending modulus, the positive imaginary part first.

    The order is that of the numbers, not of the solver, so it is the same on every machine.

    Raises:
        FloatingPointError: A has a NaN or an infinite entry.
    """
    _require_finite("eigenvalues", attention)
    values = torch.linalg.eigvals(attention.double())
    values = values.gather(-1, values.imag.argsort(stable=True, dim=-1, descending=True))
    return values.gather(-1, values.abs().argsort(stable=True, dim=-1, descending=True))


def split(eigenvalues: Complex[Tensor, "*batch tokens"]) -> Spectrum:
    """Separate the largest eigenvalue from the rest, the bulk.

    For a row-stochastic A the largest is the Perron eigenvalue lambda_1 = 1 with eigenvector 1 (Perron-Frobenius).
    """
    return Spectrum(eigenvalues[..., 0], eigenvalues[..., 1:])


def bulk_radius(eigenvalues: Complex[Tensor, "*batch tokens"]) -> Float[Tensor, "*batch"]:
    """Largest modulus in the bulk, |lambda_2|; the spectral gap of a row-stochastic A is 1 minus this."""
    return split(eigenvalues).bulk.abs().amax(-1)


def _require_finite(function: str, matrix: Tensor, largest: Tensor | None = None) -> None:
    """Raise unless all entries are finite, or the largest ones where these are known: a maximum passes NaN on."""
    if not torch.isfinite(matrix if largest is None else largest).all():
        raise FloatingPointError(f"{function}: the matrix {tuple(matrix.shape)} has NaN or infinite entries")
