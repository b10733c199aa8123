"""Eight-bit integers with one scale for many entries, and how much a token matrix loses by it.

X in R^{T x d}. Absmax rounding to int8: x -> q delta with q the nearest integer to x / delta and delta = max|x| / 127,
the maximum over the whole matrix or over each token. Dimensionless.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

LEVELS = 127  # of either sign: symmetric, so -128 is not used

SCALES: dict[str, Callable[[Float[Tensor, "*batch tokens width"]], Tensor]] = {
    "tensor": lambda tokens: tokens.abs().amax((-2, -1), keepdim=True),
    "token": lambda tokens: tokens.abs().amax(-1, keepdim=True),
}


def absmax_int8(tokens: Float[Tensor, "*batch tokens width"], per: str) -> Float[Tensor, "*batch tokens width"]:
    """Return the tokens rounded to int8 and back, one scale ``per`` "tensor" or "token". Zeros stay zero."""
    step = SCALES[per](tokens) / LEVELS
    step = step.where(step > 0, torch.ones_like(step))
    return (tokens / step).round() * step


def rounding_error(tokens: Float[Tensor, "*batch tokens width"], per: str) -> Float[Tensor, "*batch"]:
    """||X - int8(X)||_F / ||X||_F: about range / (127 sqrt(12)) for entries spread over many steps. 0 for X = 0."""
    size = torch.linalg.matrix_norm(tokens)
    lost = torch.linalg.matrix_norm(tokens - absmax_int8(tokens, per))
    return lost / size.where(size > 0, torch.ones_like(size))


def entry_range(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch"]:
    """max|x| / rms(x), at least 1: what absmax rounding pays for its largest entry. 0 for X = 0."""
    rms = tokens.square().mean((-2, -1)).sqrt()
    return tokens.abs().amax((-2, -1)) / rms.where(rms > 0, torch.ones_like(rms))
