"""Eigenvalues of attention whose softmax has saturated: rows nearly one-hot, keys that no query attends to.

A one-hot A is a map of the tokens into themselves. Its eigenvalues are 0 for every token off the map's cycles and the
n-th roots of unity for a cycle of n, but the zeros sit in Jordan blocks, where an eigensolver's error is not eps but a
root of it, and some solvers give up. Removing unattended keys first leaves the cycles alone, exactly.
"""

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

UNATTENDED = 1e-16  # largest entry of a column below which it is lost in the rounding of the row sums


def attended_core(attention: Float[Tensor, "tokens tokens"]) -> Float[Tensor, "core core"]:
    """A on the tokens that are attended to, among themselves, again and again until all are.

    A token whose column is 0 contributes an eigenvalue 0 and nothing else: put it last and A is block triangular. For a
    one-hot A what is left are the cycles of the map, for positive A all of A.
    """
    while not (attended := attention.amax(0) > UNATTENDED).all():
        attention = attention[attended][:, attended]
    return attention


def attention_eigenvalues(attention: Float[Tensor, "*batch tokens tokens"]) -> Complex[Tensor, "*batch tokens"]:
    """Eigenvalues by descending modulus, the positive imaginary part first; 0 for every token off the attended core.

    Raises:
        FloatingPointError: A has a NaN or an infinite entry.
    """
    if not torch.isfinite(attention).all():
        raise FloatingPointError(f"attention_eigenvalues: A {tuple(attention.shape)} has NaN or infinite entries")
    flat = attention.double().cpu().reshape(-1, *attention.shape[-2:])
    found = torch.zeros(flat.shape[:-1], dtype=torch.complex128)
    for row, matrix in zip(found, flat, strict=True):
        values = _eigenvalues(attended_core(matrix))
        values = values[values.imag.argsort(stable=True, descending=True)]
        row[: len(values)] = values[values.abs().argsort(stable=True, descending=True)]
    return found.reshape(attention.shape[:-1])


def _eigenvalues(core: Float[Tensor, "core core"]) -> Complex[Tensor, "core"]:
    try:
        return torch.linalg.eigvals(core)
    except torch.linalg.LinAlgError:  # one library's QR iteration can give up where another's does not
        return torch.from_numpy(np.linalg.eigvals(core.numpy()).astype(complex))


def second_modulus(attention: Float[Tensor, "*batch tokens tokens"]) -> Float[Tensor, "*batch"]:
    """|lambda_2|: 1 less the spectral gap. 1 if the saturated map has two cycles or one of length above 1."""
    return attention_eigenvalues(attention)[..., 1].abs()
