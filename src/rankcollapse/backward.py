r"""One backward pass through a network of attention alone, and how much of what it returns is round-off.

A layer is X <- s X + a softmax(g Z) Y W_V with Z = Y W_Q W_K^T Y^T / sqrt(d) and Y = X, or Y = LN X with LayerNorm
before ("pre"); with LayerNorm after ("post") the sum is normalised. s is 1 with a skip, else 0. The loss is <G, X_L>.
All leading axes are a batch of independent networks. Derivatives are torch's, in the precision of the input.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankcollapse.attention import scaled_logits, softmax
from rankcollapse.blocks import layer_norm
from rankcollapse.settings.dong import NormPlacement

WEIGHTS = ("queries", "keys", "values")


class Design(NamedTuple):
    """What the networks of a batch have in common, and the two factors they may differ in."""

    placement: NormPlacement
    skip: bool = True
    branch: Tensor | float = 1.0  # a, broadcast to the tokens
    gain: Tensor | float = 1.0  # g, broadcast to the logits


@dataclass(frozen=True)
class Problem:
    """The inputs of a pass: tokens, the weights of each layer (queries, keys, values first) and the loss G."""

    tokens: Float[Tensor, "*batch tokens width"]
    weights: tuple[Float[Tensor, "3 *#batch width width"], ...]
    loss: Float[Tensor, "*batch tokens width"]

    def permuted(self, tokens: Int[Tensor, "tokens"], channels: Int[Tensor, "width"]) -> Self:
        """Return the same problem with tokens and channels in another order: every sum runs in another order."""
        weights = tuple(weight[..., channels, :][..., channels] for weight in self.weights)
        start, loss = (matrix[..., tokens, :][..., channels] for matrix in (self.tokens, self.loss))
        return type(self)(start, weights, loss)


class Trace(NamedTuple):
    """What a forward pass leaves: the tokens before each layer and after the last, and the scaled logits g Z."""

    tokens: list[Tensor]
    logits: list[Tensor]


def forward(problem: Problem, design: Design) -> Trace:
    """Run the network forward.

    Raises:
        FloatingPointError: the tokens are not finite; names the layer.
    """
    tokens, logits = [problem.tokens], []
    for layer, (queries, keys, values) in enumerate(problem.weights, 1):
        X = tokens[-1]
        inner = layer_norm(X) if design.placement == "pre" else X
        logits.append(design.gain * scaled_logits(inner @ queries, inner @ keys))
        mixed = design.branch * (softmax(logits[-1]) @ (inner @ values))
        mixed = X + mixed if design.skip else mixed
        tokens.append(layer_norm(mixed) if design.placement == "post" else mixed)
        if not torch.isfinite(tokens[-1]).all():
            raise FloatingPointError(f"forward: tokens are not finite after layer {layer}")
    return Trace(tokens, logits)


def weight_gradients(problem: Problem, design: Design) -> tuple[Float[Tensor, "layers 3 *batch width width"], Trace]:
    """Return d<G, X_L>/dW of every layer's queries, keys and values, and the forward pass."""
    leaves = tuple(weight.detach().clone().requires_grad_() for weight in problem.weights)
    trace = forward(Problem(problem.tokens, leaves, problem.loss), design)
    return torch.stack(torch.autograd.grad((problem.loss * trace.tokens[-1]).sum(), leaves)), trace


def token_gradients(problem: Problem, design: Design) -> tuple[Tensor, Tensor, Trace]:
    """Return d<G, X_L>/dX_0, d<G, X_L>/d(g Z_1) of the first layer's logits, and the forward pass."""
    start = problem.tokens.detach().clone().requires_grad_()
    trace = forward(Problem(start, problem.weights, problem.loss), design)
    by_token, by_logit = torch.autograd.grad((problem.loss * trace.tokens[-1]).sum(), [start, trace.logits[0]])
    return by_token, by_logit, trace


def unpermuted(
    matrix: Float[Tensor, "*batch rows columns"], rows: Int[Tensor, "rows"], columns: Int[Tensor, "columns"]
) -> Float[Tensor, "*batch rows columns"]:
    """Undo a permutation of rows and columns."""
    return matrix[..., rows.argsort(), :][..., columns.argsort()]
