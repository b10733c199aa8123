"""A feed-forward layer on plain tokens and on a scale-free state, by exact divided differences of its activation."""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.scalefree import State, state

Function = Callable[[Tensor], Tensor]
# Gauss-Legendre nodes that give the mean of f' over [a, a + h] to the last bit while |h| stays below the bound: the
# error is (m!)^4 / ((2m + 1) (2m)!^3) h^{2m} f^{(2m + 1)} for m nodes. Beyond the last, f(a + h) - f(a) loses none.
NODES_BY_STEP = ((1e-8, 1), (1e-4, 2), (1e-2, 4), (1.0, 10))


def gelu_slope(a: Tensor) -> Tensor:
    """Derivative of gelu(a) = a Φ(a): Φ(a) + a φ(a)."""
    return torch.special.ndtr(a) + a * torch.exp(-a * a / 2) / (2 * pi) ** 0.5


def tanh_slope(a: Tensor) -> Tensor:
    """Derivative of tanh: 1 / cosh², which keeps its relative precision where 1 - tanh² does not."""
    return torch.cosh(a).reciprocal().square()


def smooth_quotient(f: Function, slope: Function, a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """Return (f(a + e b) - f(a)) / e for a smooth f, as b times the mean of f' over [a, a + e b].

    The mean is a Gauss-Legendre rule for steps |e b| <= 1; beyond, the difference itself loses no digits. e may be 0.
    """
    step = scale * b
    largest = float(step.abs().amax())
    count = next((count for bound, count in NODES_BY_STEP if largest <= bound), NODES_BY_STEP[-1][1])
    nodes, weights = np.polynomial.legendre.leggauss(count)
    quotient = torch.zeros_like(step)
    for node, weight in zip(nodes, weights, strict=True):
        quotient += float(weight) / 2 * slope(a + (float(node) + 1) / 2 * step)
    quotient *= b
    far = step.abs() > NODES_BY_STEP[-1][0]
    if not bool(far.any()):
        return quotient
    return torch.where(far, (f(a + step) - f(a)) / torch.where(scale > 0, scale, 1.0), quotient)


def relu_quotient(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    """Return (relu(a + e b) - relu(a)) / e by cases of the two signs, exactly; e may be 0.

    Both positive: b; both not: 0; in between a / e is at most |b|. At a = 0 it is relu(b), at any e.
    """
    after = a + scale * b
    ratio = a / torch.where(scale > 0, scale, 1.0)
    rising, falling = (a < 0) & (after > 0), (a > 0) & (after <= 0)
    kept = torch.where(a > 0, b, torch.where(a == 0, b.relu(), 0.0))
    return torch.where(rising, ratio + b, torch.where(falling, -ratio, kept))


@dataclass(frozen=True)
class Activation:
    """A scalar function f and its quotient (a, b, e) -> (f(a + e b) - f(a)) / e."""

    function: Function
    quotient: Callable[[Tensor, Tensor, Tensor], Tensor]


def _smooth(f: Function, slope: Function) -> Activation:
    return Activation(f, lambda a, b, scale: smooth_quotient(f, slope, a, b, scale))


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(torch.relu, relu_quotient),
    "tanh": _smooth(torch.tanh, tanh_slope),
    "gelu": _smooth(torch.nn.functional.gelu, gelu_slope),
}


@dataclass(frozen=True)
class Mlp:
    """The parameters of f(X W1 + b1) W2 + b2; a bias may be a number or a row. ``activation``: a key of ACTIVATIONS."""

    first: Float[Tensor, "width hidden"]
    second: Float[Tensor, "hidden width"]
    activation: str
    first_bias: Tensor | float = 0.0
    second_bias: Tensor | float = 0.0


def plain_mlp(tokens: Float[Tensor, "*#batch tokens width"], layer: Mlp) -> Float[Tensor, "*#batch tokens width"]:
    """Return f(X W1 + b1) W2 + b2 in the tokens' own precision."""
    hidden = ACTIVATIONS[layer.activation].function(tokens @ layer.first + layer.first_bias)
    return hidden @ layer.second + layer.second_bias


def transform(before: State, layer: Mlp) -> State:
    """Apply the feed-forward layer, without its skip, to a scale-free state (derived here).

    With a = x W1 + b1: x' = f(a) W2 + b2, and token i departs from it by e^ρ T_i, T = quotient(a, S W1, e^ρ) W2.
    """
    activation = ACTIVATIONS[layer.activation]
    a = before.mean @ layer.first + layer.first_bias
    quotient = activation.quotient(a, before.direction @ layer.first, before.scale)
    mean = activation.function(a) @ layer.second + layer.second_bias
    return state(mean, quotient @ layer.second, before.log_norm)
