"""Training of many small networks of ``skip_attention`` at once: every cell has its own weights, in one tensor each.

The task is to predict the previous token of a cyclic sequence, y_i = x_{i-1}, from x drawn uniformly: it needs
positions, and attention that finds the neighbour. X_0 = LN(token + position), both learned; logits X_L W_out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import layer_norm

from rankcollapse.inits import gaussian
from rankcollapse.skip_attention import Cells, attend, project

NEVER = -1  # step of an overflow that did not happen
OVERFLOWED = -1.0  # stands for the loss or accuracy of a cell that has overflowed


class Parameters(NamedTuple):
    """The weights of all cells; every tensor has a cell axis, and an entry of one cell acts on no other's loss."""

    token: Float[Tensor, "cells vocabulary width"]
    position: Float[Tensor, "cells tokens width"]
    layers: Float[Tensor, "layers cells width three_widths"]  # W_Q, W_K, W_V side by side
    readout: Float[Tensor, "cells width vocabulary"]

    def of_cell(self, cell: int) -> "Parameters":
        """Return the parameters of one cell, as a grid of a single cell."""
        here = slice(cell, cell + 1)
        return Parameters(self.token[here], self.position[here], self.layers[:, here], self.readout[here])


def initial(tokens: int, vocabulary: int, width: int, layers: int, random: torch.Generator) -> Parameters:
    """Draw one cell: embeddings N(0, 1), all else N(0, 1/d); float32."""
    drawn = (
        gaussian(vocabulary, width, random),
        gaussian(tokens, width, random),
        torch.stack([gaussian(width, 3 * width, random, width**-0.5) for _ in range(layers)]),
        gaussian(width, vocabulary, random, width**-0.5),
    )
    token, position, blocks, readout = (tensor.float() for tensor in drawn)
    return Parameters(token[None], position[None], blocks[:, None], readout[None])


def shared(one: Parameters, cells: int, device: torch.device) -> Parameters:
    """Return trainable copies of one cell's parameters for every cell."""
    copies = (tensor.expand(*tensor.shape[:-3], cells, *tensor.shape[-2:]) for tensor in one)
    return Parameters(*(copy.to(device, copy=True).contiguous().requires_grad_() for copy in copies))


def embed(parameters: Parameters, x: Int[Tensor, "batch tokens"]) -> Float[Tensor, "cells batch tokens width"]:
    """X_0 = LN(token embedding + position embedding)."""
    width = parameters.token.shape[-1]
    return layer_norm(parameters.token[:, x] + parameters.position[:, None], (width,))


def predict(
    parameters: Parameters, x: Int[Tensor, "batch tokens"], grid: Cells
) -> Float[Tensor, "cells batch tokens vocabulary"]:
    """Logits of the previous token at every position."""
    tokens = embed(parameters, x)
    for weights in parameters.layers.unbind(0):
        tokens, _ = attend(tokens, weights, grid)
    return project(tokens, parameters.readout)


def losses(
    logits: Float[Tensor, "cells batch tokens vocabulary"], x: Int[Tensor, "batch tokens"]
) -> Float[Tensor, "cells"]:
    """Mean cross-entropy of the previous token, nats, by cell."""
    previous = x.roll(1, -1).expand(logits.shape[:-1]).unsqueeze(-1)
    return -logits.log_softmax(-1).gather(-1, previous).mean((1, 2, 3))


def accuracies(
    logits: Float[Tensor, "cells batch tokens vocabulary"], x: Int[Tensor, "batch tokens"]
) -> Float[Tensor, "cells"]:
    """Share of positions whose most likely token is the previous one, by cell."""
    return (logits.argmax(-1) == x.roll(1, -1)).float().mean((1, 2))


class Optimiser:
    """Adam with linear warm-up on the sum of the cells' losses.

    Adam acts on every entry alone, so on stacked weights the library's own is Adam for each cell by itself.
    """

    def __init__(self, parameters: Parameters, rate: float, momenta: tuple[float, float], warmup: int) -> None:
        self.adam = torch.optim.Adam(parameters, lr=rate, betas=momenta, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.adam, lambda step: min(1.0, (step + 1) / warmup))

    def step(self, loss: Float[Tensor, "cells"]) -> None:
        """Take one step down all losses."""
        self.adam.zero_grad()
        loss.sum().backward()
        self.adam.step()
        self.schedule.step()


class Progress(NamedTuple):
    """What a training leaves behind."""

    training_loss: Float[Tensor, "cells steps"]  # of each step's fresh batch, before the step
    training_accuracy: Float[Tensor, "cells steps"]  # on the same batch
    accuracy: Float[Tensor, "cells checkpoints"]  # on the test sequences
    overflow_step: Int[Tensor, "cells"]  # steps taken when the loss was first not finite, or ``NEVER``


def train(
    parameters: Parameters,
    grid: Cells,
    optimiser: Optimiser,
    batches: Sequence[Int[Tensor, "batch tokens"]],
    test: Int[Tensor, "sequences tokens"],
    checkpoints: Sequence[int],
) -> Progress:
    """Train all cells, one step a batch; take the accuracy on ``test`` after the steps in ``checkpoints``.

    A cell whose weights or activations overflow has a loss that is not finite from then on; no other cell sees it. Its
    losses and accuracies are ``OVERFLOWED`` from that step.
    """
    history, tested = [], []
    overflow = torch.full((len(parameters.token),), NEVER, device=parameters.token.device)
    for step, x in enumerate(batches, 1):
        logits = predict(parameters, x, grid)
        loss = losses(logits, x)
        overflow = _first(overflow, loss, step - 1)
        history.append(torch.stack([loss.detach(), accuracies(logits.detach(), x)]))
        optimiser.step(loss)
        if step in checkpoints:
            with torch.no_grad():
                logits = predict(parameters, test, grid)
                overflow = _first(overflow, losses(logits, test), step)
                tested.append(accuracies(logits, test))
    steps, at = torch.arange(len(batches)), torch.tensor(checkpoints)
    lost = overflow.cpu()[:, None]
    loss, accuracy = torch.stack(history, -1).cpu().masked_fill((lost != NEVER) & (steps >= lost), OVERFLOWED)
    found = torch.stack(tested, -1).cpu().masked_fill((lost != NEVER) & (at >= lost), OVERFLOWED)
    return Progress(loss, accuracy, found, overflow.cpu())


def _first(overflow: Int[Tensor, "cells"], loss: Float[Tensor, "cells"], step: int) -> Int[Tensor, "cells"]:
    return overflow.where((overflow != NEVER) | loss.isfinite(), step)
