"""One attention block applied again and again to two points on a circle (Dong et al. 2021, sec. 4.3)."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.checkpoint import Checkpoint
from rankcollapse.progress import Track, silent
from rankcollapse.settings.dong import CircleTask
from rankcollapse.tasks import Labelled, circle
from rankcollapse.trainable import Architecture, Weights, forward
from rankcollapse.training import POINTS, Regime, Training

NAME = "circle_task"
VARIANTS = ((True, True), (True, False), (False, True), (False, False))  # skip in the block, skip across steps


def measure(
    settings: CircleTask,
    *,
    device: torch.device,
    seed: int,
    track: Track = silent,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    """Train one block to move each of two points one step along its half circle, then apply it to its own output.

    There are two skip connections: the block's own, around its attention, and one across steps, which adds the output
    of a step to its input before the next. What is released as "no skip" lacks the second only. With the skip across
    steps networks are trained, as released, on a pair plus the pair at the same place of the batch before.

    Returns:
        variants: ``[variant, 2]``, int64: whether the block has its skip, and whether there is one across steps.
        loss: ``[variant, rate, run, epoch]``: summed squared error of a batch, averaged over an epoch's sets.
        trajectory: ``[variant, rate, run, step, token, coordinate]``: the starting points, then what is predicted.
        weights/<name>: ``[variant, rate, run, ...]``: the trained weights, float32.

    Raises:
        FloatingPointError: a loss is NaN or infinite; names the learning rate, the run and the epoch.
    """
    architecture = Architecture(
        width=settings.width, heads=settings.heads, layers=1, outputs=2, inputs=2, kind="points", mixed=False
    )
    rates, runs = len(settings.learning_rates), settings.runs
    plan = Regime(
        rates=settings.learning_rates,
        runs=[*range(runs)] * len(VARIANTS),
        epochs=settings.epochs,
        batch=settings.batch,
        dropout=settings.dropout,
    )
    pairs = circle(settings.sets)
    plain, across = pairs.inputs, pairs.inputs + before(pairs.inputs, settings.batch)
    inputs = torch.stack([across if skip else plain for _, skip in VARIANTS]).repeat_interleave(runs, 0)
    data = Labelled(inputs, pairs.labels.expand_as(inputs))
    own, recurrent = (_switch([one[part] for one in VARIANTS], rates, runs, device) for part in (0, 1))
    trained = Training(architecture, plan, data, POINTS, NAME, seed, device, own).run(
        track=track, checkpoint=checkpoint
    )
    path = follow(architecture, trained.weights, pairs.inputs[0].to(device), settings.steps, own, recurrent)
    models = {"loss": trained.curves["train_loss"], "trajectory": path}
    models |= {f"weights/{name}": weight for name, weight in trained.weights.items()}
    by_variant = {
        name: value.unflatten(0, (rates, len(VARIANTS), runs)).movedim(1, 0).contiguous()
        for name, value in models.items()
    }
    return by_variant | {"variants": torch.tensor(VARIANTS).long()}


def before(inputs: Float[Tensor, "sets tokens 2"], batch: int) -> Float[Tensor, "sets tokens 2"]:
    """Return the set at the same place of the batch before, and 0 in the first batch."""
    return torch.cat([torch.zeros_like(inputs[:batch]), inputs])[: len(inputs)]


@torch.no_grad()
def follow(
    architecture: Architecture,
    weights: Weights,
    start: Float[Tensor, "tokens 2"],
    steps: int,
    own: Float[Tensor, "models 1 1 1"],
    recurrent: Float[Tensor, "models 1 1 1"],
) -> Float[Tensor, "models steps+1 tokens 2"]:
    """Apply the block ``steps`` times, z <- f(z) + c z, c the skip across steps; return the start and every f(z)."""
    state = start.expand(len(own), 1, *start.shape)
    predicted = [state]
    for _ in range(steps):
        predicted.append(forward(architecture, weights, state.contiguous(), skip=own))
        state = predicted[-1] + recurrent * state
    return torch.cat(predicted, 1)


def _switch(on: list[bool], rates: int, runs: int, device: torch.device) -> Float[Tensor, "models 1 1 1"]:
    """Return 1 or 0 for every model, learning rate first, then variant, then run."""
    by_column = torch.tensor(on).float().repeat_interleave(runs)
    return by_column.repeat(rates).view(-1, 1, 1, 1).to(device)
