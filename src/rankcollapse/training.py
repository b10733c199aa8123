"""Training of many small networks in one tensor program: Adam, one learning rate a group, resumable after any epoch.

All weights of all models lie in one buffer, [rate, column, weight], so an Adam step is one pass over it. The gradient
of the sum of all models' losses is each model's own gradient, since no model sees another. A column is a run, or a run
of one variant; columns of the same run share their initial weights and dropout masks, as all learning rates do.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from rankcollapse.checkpoint import Checkpoint
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.tasks import Labelled
from rankcollapse.trainable import Architecture, Weights, forward, masks

ALIGNED = 16  # floats: each weight starts at a multiple of a cache line


class Regime(NamedTuple):
    """How to train."""

    rates: Sequence[float]  # learning rates
    runs: Sequence[int]  # the run of each column
    epochs: int
    batch: int  # sets in a step
    dropout: float = 0.0
    weight_decay: float = 0.0  # an L2 penalty, as in Adam
    milestones: Sequence[int] = ()  # epochs from which on the learning rates are multiplied by decay once more
    decay: float = 1.0
    shuffled: bool = False  # a new order of the sets in every epoch


class Objective(NamedTuple):
    """What is minimised, a number a model, and for labels that are classes the share of them that is right."""

    loss: Callable[[Tensor, Tensor], Float[Tensor, "models"]]
    accuracy: Callable[[Tensor, Tensor], Float[Tensor, "models"]] | None = None


def mean_cross_entropy(
    outputs: Float[Tensor, "models sets tokens classes"], labels: Int[Tensor, "models sets tokens"]
) -> Float[Tensor, "models"]:
    """Return -ln of the softmax probability of the label, averaged over tokens."""
    return cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="none").view(len(outputs), -1).mean(1)


def summed_squares(
    outputs: Float[Tensor, "models sets tokens 2"], labels: Float[Tensor, "models sets tokens 2"]
) -> Float[Tensor, "models"]:
    """Return the squared error, summed over sets, tokens and coordinates as released."""
    return (outputs - labels).square().flatten(1).sum(1)


def accuracy(
    outputs: Float[Tensor, "models sets tokens classes"], labels: Int[Tensor, "models sets tokens"]
) -> Float[Tensor, "models"]:
    """Return the share of tokens whose largest output is the label's."""
    return (outputs.argmax(-1) == labels).flatten(1).float().mean(1)


CLASSES = Objective(mean_cross_entropy, accuracy)
POINTS = Objective(summed_squares)


class Ensemble:
    """The weights of all models in one buffer, with their gradients and Adam's state."""

    def __init__(self, architecture: Architecture, regime: Regime, device: torch.device) -> None:
        shapes, models = architecture.shapes(), len(regime.rates) * len(regime.runs)
        space = {name: -(-math.prod(shape) // ALIGNED) * ALIGNED for name, shape in shapes.items()}

        def parts(buffer: Tensor) -> dict[str, Tensor]:
            pieces = buffer.view(models, -1).split(list(space.values()), dim=1)
            return {
                name: piece[:, : math.prod(shape)].view(models, *shape)
                for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
            }

        self.values = torch.zeros(len(regime.rates), len(regime.runs) * sum(space.values()), device=device)
        gradients = torch.zeros_like(self.values)
        self.weights = {name: part.detach().requires_grad_() for name, part in parts(self.values).items()}
        self.slots = list(parts(gradients).values())  # where each weight's gradient goes
        by_rate = [torch.nn.Parameter(row) for row in self.values]  # the same memory
        for row, gradient in zip(by_rate, gradients, strict=True):
            row.grad = gradient
        groups = [{"params": [row], "lr": rate} for row, rate in zip(by_rate, regime.rates, strict=True)]
        self.adam = torch.optim.Adam(groups, weight_decay=regime.weight_decay, fused=device.type in ("cpu", "cuda"))

    def fill(self, columns: Sequence[Mapping[str, Float[Tensor, "*shape"]]]) -> None:
        """Give the weights of each column to its models of every learning rate."""
        with torch.no_grad():
            for name, weight in self.weights.items():
                value = torch.stack([column[name] for column in columns])
                weight.copy_(value.repeat(len(self.values), *[1] * (value.dim() - 1)))

    def step(self, loss: Float[Tensor, ""]) -> None:
        """Make one Adam step down the gradient of the summed loss."""
        found = torch.autograd.grad(loss, list(self.weights.values()))
        torch._foreach_copy_(self.slots, found)
        self.adam.step()

    def set_rates(self, regime: Regime, epoch: int) -> None:
        """Set the learning rates of an epoch."""
        factor = regime.decay ** sum(epoch >= milestone for milestone in regime.milestones)
        for group, rate in zip(self.adam.param_groups, regime.rates, strict=True):
            group["lr"] = rate * factor

    def state(self) -> dict[str, Tensor]:
        """Return everything that a later step depends on."""
        adam = self.adam.state_dict()["state"]
        return {"values": self.values} | {
            f"adam/{group}/{name}": value for group, by_name in adam.items() for name, value in by_name.items()
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over a state that was saved."""
        self.values.copy_(state["values"])
        adam: dict[int, dict[str, Tensor]] = {}
        for key, value in state.items():
            if key.startswith("adam/"):
                _, group, name = key.split("/")
                adam.setdefault(int(group), {})[name] = value
        self.adam.load_state_dict({"state": adam, "param_groups": self.adam.state_dict()["param_groups"]})


class Trained(NamedTuple):
    """What training leaves: weights with a leading axis of models (rate first), and curves ``[models, epochs]``."""

    weights: Weights
    curves: dict[str, Float[Tensor, "models epochs"]]


@dataclass
class Training:
    """The training of all models on ``data``, which has an axis of columns in front.

    Every draw is named by task, run and epoch, so weights, Adam's state and the curves are all that has to be kept to
    go on after an interruption with the same numbers to the last bit.
    """

    architecture: Architecture
    regime: Regime
    data: Labelled
    objective: Objective
    task: str  # names the draws
    seed: int
    device: torch.device
    skip: Float[Tensor, "models 1 1 1"] | float = 1.0
    curves: dict[str, list[Tensor]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        rates = len(self.regime.rates)
        self.models = Ensemble(self.architecture, self.regime, self.device)
        self.everyone = [part.to(self.device).repeat(rates, *[1] * (part.dim() - 1)) for part in self.data]

    def run(
        self,
        evaluate: Callable[[Weights], Float[Tensor, "models"]] | None = None,
        track: Track = silent,
        checkpoint: Checkpoint | None = None,
    ) -> Trained:
        """Train to the last epoch, from the checkpoint if there is one that fits, and evaluate after every epoch.

        Raises:
            FloatingPointError: a loss is NaN or infinite; names the learning rate, the run and the epoch.
        """
        self._begin(checkpoint.load() if checkpoint else {})
        done, saved = len(self.curves.get("train_loss", [])), time.monotonic()
        epochs = self.regime.epochs
        for epoch in track(range(done, epochs), f"{self.task}: epochs", epochs - done):
            measured = self._epoch(epoch)
            self._check(measured["train_loss"], epoch)
            if evaluate:
                measured["test_accuracy"] = evaluate(self.models.weights).cpu()
            for name, value in measured.items():
                self.curves.setdefault(name, []).append(value)
            if checkpoint and epoch + 1 < epochs and time.monotonic() - saved >= checkpoint.interval:
                checkpoint.save(self._state())
                saved = time.monotonic()
        weights = {name: weight.detach().clone() for name, weight in self.models.weights.items()}
        return Trained(weights, {name: torch.stack(values, 1) for name, values in self.curves.items()})

    def _begin(self, state: dict[str, Tensor]) -> None:
        """Take over a saved state, or draw the initial weights of every run and give them to all its models."""
        if state:
            self.models.restore(state)
            prefix = "curve/"
            self.curves = {
                name.removeprefix(prefix): list(value.T) for name, value in state.items() if name.startswith(prefix)
            }
            return
        random = {run: generator(self.seed, self.task, "weights", run) for run in set(self.regime.runs)}
        drawn = {run: self.architecture.draw(one) for run, one in random.items()}
        self.models.fill([drawn[run] for run in self.regime.runs])

    def _state(self) -> dict[str, Tensor]:
        curves = {f"curve/{name}": torch.stack(values, 1) for name, values in self.curves.items()}
        return self.models.state() | curves

    def _epoch(self, epoch: int) -> dict[str, Float[Tensor, "models"]]:
        """Make one pass over the data; return what was measured on the way, averaged over sets."""
        self.models.set_rates(self.regime, epoch)
        random = {
            run: generator(self.seed, self.task, "dropout", run, epoch) for run in dict.fromkeys(self.regime.runs)
        }
        inputs, labels = self._in_order(epoch)
        sets, tokens = inputs.shape[1:3]
        sums: dict[str, Tensor] = {}
        for rows in torch.arange(sets).split(self.regime.batch):
            some = slice(int(rows[0]), int(rows[-1]) + 1)
            drop = masks(self.architecture, (len(rows), tokens), self.regime.dropout, random, self.regime.runs)
            outputs = forward(self.architecture, self.models.weights, inputs[:, some], drop, self.skip)
            loss = self.objective.loss(outputs, labels[:, some])
            self.models.step(loss.sum())
            found = {"train_loss": loss.detach()}
            if self.objective.accuracy:
                found["train_accuracy"] = self.objective.accuracy(outputs.detach(), labels[:, some])
            for name, value in found.items():
                sums[name] = sums.get(name, 0) + value * (len(rows) / sets)
        return {name: value.cpu() for name, value in sums.items()}

    def _in_order(self, epoch: int) -> list[Tensor]:
        """Return inputs and labels in the order of an epoch."""
        if not self.regime.shuffled:
            return self.everyone
        sets = self.everyone[0].shape[1]
        keys = ((self.seed, self.task, "order", run, epoch) for run in self.regime.runs)
        orders = torch.stack([torch.randperm(sets, generator=generator(*key)) for key in keys])
        rows = orders.repeat(len(self.regime.rates), 1).to(self.device)
        return [part[torch.arange(len(rows), device=self.device)[:, None], rows] for part in self.everyone]

    def _check(self, loss: Float[Tensor, "models"], epoch: int) -> None:
        for model in (~loss.isfinite()).nonzero().flatten().tolist():
            rate, column = divmod(model, len(self.regime.runs))
            raise FloatingPointError(
                f"{self.task}: loss {float(loss[model])} in epoch {epoch + 1} of run {self.regime.runs[column]} "
                f"with learning rate {self.regime.rates[rate]:g}"
            )
