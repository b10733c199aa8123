"""How weights and input tokens are drawn: named samplers, each from an explicit generator, on the CPU in float64."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

Init = Callable[[int, int, Generator], Tensor]
Input = Callable[[int, int, Generator], Tensor]


def gaussian(rows: int, columns: int, generator: Generator, std: float = 1.0) -> Float[Tensor, "rows columns"]:
    """Draw independent N(0, std²) entries."""
    return std * torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def uniform(rows: int, columns: int, generator: Generator, limit: float) -> Float[Tensor, "rows columns"]:
    """Draw independent U(-limit, limit) entries."""
    return limit * (2 * torch.rand(rows, columns, generator=generator, dtype=torch.float64) - 1)


def xavier(fan_in: int, fan_out: int, generator: Generator) -> Float[Tensor, "fan_in fan_out"]:
    """Glorot & Bengio (2010), uniform: U(±sqrt(6 / (fan_in + fan_out)))."""
    return uniform(fan_in, fan_out, generator, (6 / (fan_in + fan_out)) ** 0.5)


def bert(fan_in: int, fan_out: int, generator: Generator) -> Float[Tensor, "fan_in fan_out"]:
    """Devlin et al. (2019): N(0, 0.02²), whatever the width."""
    return gaussian(fan_in, fan_out, generator, 0.02)


def normal1d(fan_in: int, fan_out: int, generator: Generator) -> Float[Tensor, "fan_in fan_out"]:
    """Signal-propagation scaling: N(0, 1 / fan_in)."""
    return gaussian(fan_in, fan_out, generator, fan_in**-0.5)


def linear(fan_in: int, fan_out: int, generator: Generator) -> Float[Tensor, "fan_in fan_out"]:
    """What ``torch.nn.Linear`` draws: U(±1 / sqrt(fan_in))."""
    return uniform(fan_in, fan_out, generator, fan_in**-0.5)


def orthogonal(width: int, generator: Generator) -> Float[Tensor, "width width"]:
    """Draw an orthogonal matrix uniformly (Haar): the Q of a Gaussian's QR, signed so that R's diagonal is positive."""
    q, r = torch.linalg.qr(gaussian(width, width, generator))
    return q * r.diagonal().sign()


def iid(tokens: int, width: int, generator: Generator) -> Float[Tensor, "tokens width"]:
    """Rows N(0, I), then LayerNorm without affine: tokens with nothing in common, relF about 1."""
    return torch.nn.functional.layer_norm(gaussian(tokens, width, generator), (width,))


def shared_mean(tokens: int, width: int, generator: Generator) -> Float[Tensor, "tokens width"]:
    """Rows N(0, I) plus one shared N(0, I) row, then LayerNorm without affine: cosine near 1/2, relF about 0.7."""
    rows = gaussian(tokens, width, generator) + gaussian(1, width, generator)
    return torch.nn.functional.layer_norm(rows, (width,))


WEIGHT_INITS: dict[str, Init] = {"xavier": xavier, "bert": bert, "normal1d": normal1d, "linear": linear}
INPUTS: dict[str, Input] = {"mean": shared_mean, "iid": iid}
