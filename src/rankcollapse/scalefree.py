"""Following the residual far below machine precision: the state, and the steps that need no weights matrix.

A pure self-attention network cubes its residual in every layer, so after a few layers ‖R‖ is below 1e-16 ‖X‖ and a
plain forward pass shows round-off; after a few more it is below the smallest double. Here the residual is carried as
a direction of unit norm and the LOGARITHM of its norm, and every step is an exact identity for the difference of two
tokens, written without cancellation (derived here). The residual then keeps full relative precision at any size.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.residual import composite_norm


@dataclass(frozen=True)
class State:
    """Tokens X = 1 x + e^ρ S: mean token x (a row), direction S (1ᵀS = 0, ‖S‖_F = 1), log norm ρ = ln ‖R‖_F.

    Any leading axes are a batch; the three broadcast. e^ρ may underflow to zero: no step ever divides by it. Tokens
    that are exactly equal have S = 0 and ρ = -inf.
    """

    mean: Float[Tensor, "*#batch 1 width"]
    direction: Float[Tensor, "*#batch tokens width"]
    log_norm: Float[Tensor, "*#batch"]

    @property
    def scale(self) -> Float[Tensor, "*#batch 1 1"]:
        """‖R‖_F itself, zero where it is below the smallest double."""
        return self.log_norm.exp()[..., None, None]

    @property
    def tokens(self) -> Float[Tensor, "*#batch tokens width"]:
        """X as plain numbers, in which a residual below 1e-16 ‖X‖ is lost."""
        return self.mean + self.scale * self.direction

    @property
    def log_relative(self) -> Float[Tensor, "*#batch"]:
        """ln relF = ρ - ln ‖X‖_F, with ‖X‖² = n ‖x‖² + ‖R‖²: natural logarithm, finite at any depth."""
        count = self.direction.shape[-2]
        log_common = self.mean.square().sum((-2, -1)).mul(count).log()
        return self.log_norm - torch.logaddexp(log_common, 2 * self.log_norm) / 2

    @property
    def log_relative_composite(self) -> Float[Tensor, "*#batch"]:
        """ln of the same ratio in the norm ‖·‖_{1,inf}."""
        return self.log_norm + (composite_norm(self.direction) / composite_norm(self.tokens)).log()


def state(
    mean: Float[Tensor, "*#batch 1 width"],
    residual: Float[Tensor, "*#batch tokens width"],
    log_scale: Float[Tensor, "*#batch"],
) -> State:
    """Return the state of the tokens 1 x + e^log_scale T, for a T that need be neither centred nor of unit norm.

    T is centred twice, since the first mean is itself rounded at the size of T. T = 0 gives ρ = -inf. Raises
    FloatingPointError when T is not finite.
    """
    common = residual.mean(-2, keepdim=True)
    centred = residual - common
    centred = centred - centred.mean(-2, keepdim=True)
    size = torch.linalg.norm(centred, dim=(-2, -1))
    if not bool(size.isfinite().all()):
        raise FloatingPointError(f"residual norm: {size.flatten().tolist()}; it must be finite")
    unit = torch.where(size > 0, size, 1.0)[..., None, None]
    return State(mean + log_scale.exp()[..., None, None] * common, centred / unit, log_scale + size.log())


def from_tokens(tokens: Float[Tensor, "*#batch tokens width"]) -> State:
    """Return the state of plain tokens."""
    zero = tokens.new_zeros(tokens.shape[:-2])
    return state(torch.zeros_like(tokens[..., :1, :]), tokens, zero)


def add(first: State, second: State) -> State:
    """Return the state of the sum of two token matrices: a skip connection is ``add(state, branch(state))``.

    The larger residual sets the scale, so neither factor overflows, whichever branch dominates.
    """
    top = torch.maximum(first.log_norm, second.log_norm)
    top = torch.where(top.isneginf(), 0.0, top)
    weights = [(branch.log_norm - top).exp()[..., None, None] for branch in (first, second)]
    residual = weights[0] * first.direction + weights[1] * second.direction
    return state(first.mean + second.mean, residual, top)


def layer_norm(
    before: State,
    gain: Tensor | float = 1.0,
    bias: Tensor | float = 0.0,
    epsilon: float = 1e-5,
) -> State:
    """Apply LayerNorm, y = gain (u - ū) / sqrt(var u + epsilon) + bias, to every token.

    With c = x - x̄ the centred mean token, s_i the centred row of S, v = c·c/d + epsilon and
    D_i = 2 c·s_i/d + e^ρ s_i·s_i/d, a token's variance is v_i = v + e^ρ D_i exactly, and so its change is
    e^ρ T_i with T_i = gain [s_i / sqrt(v_i) - c D_i / (sqrt(v v_i) (sqrt(v) + sqrt(v_i)))].
    ``gain`` and ``bias`` are rows of the width, or numbers.
    """
    scale = before.scale
    c = before.mean - before.mean.mean(-1, keepdim=True)
    s = before.direction - before.direction.mean(-1, keepdim=True)
    shared = ((c * c).mean(-1, keepdim=True) + epsilon).sqrt()
    change = (2 * c * s + scale * s * s).mean(-1, keepdim=True)
    own = (shared * shared + scale * change).sqrt()
    residual = gain * (s / own - c * change / (shared * own * (shared + own)))
    return state(gain * c / shared + bias, residual, before.log_norm)
