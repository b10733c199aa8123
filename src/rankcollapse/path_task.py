"""A labelling task from its data to its tensors: train, evaluate the network, evaluate its paths."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rankcollapse.checkpoint import Checkpoint
from rankcollapse.path_accuracy import PathResult, accuracy_without_skips, draw_paths, evaluate_paths
from rankcollapse.progress import Track
from rankcollapse.randomness import generator
from rankcollapse.settings.dong import PathTask
from rankcollapse.tasks import Labelled, majority
from rankcollapse.trainable import Architecture, Weights, forward
from rankcollapse.training import CLASSES, Regime, Training, accuracy


def together(runs: Sequence[Labelled]) -> Labelled:
    """Stack the data of several runs."""
    return Labelled(*(torch.stack(part) for part in zip(*runs, strict=True)))


def held_out(
    draw: Callable[[int, Generator], Labelled], settings: PathTask, task: str, seed: int
) -> tuple[Labelled, Labelled]:
    """Return training and test data, each with an axis of runs in front; ``draw`` makes as many sets as it is told."""
    train, test = (
        together([draw(sets, generator(seed, task, part, run)) for run in range(settings.runs)])
        for part, sets in (("train", settings.sets), ("test", settings.test_sets))
    )
    return train, test


def measure_task(
    architecture: Architecture,
    settings: PathTask,
    training_data: Labelled,
    test_data: Labelled,
    *,
    task: str,
    device: torch.device,
    seed: int,
    track: Track,
    checkpoint: Checkpoint | None,
    **regime: Any,
) -> dict[str, Tensor]:
    """Train a task's networks and evaluate them and their paths; data have an axis of runs in front.

    Returns:
        train_loss, train_accuracy: ``[rate, run, epoch]``: mean over an epoch's steps, with dropout, while learning.
        test_accuracy: ``[rate, run, epoch]``: of the whole network on the test sets after the epoch, without dropout.
        accuracy: ``[rate, run]``: the same after the last epoch.
        accuracy_without_skips: ``[rate, run]``: with every head but no skip, LayerNorm without gain and shift.
        path_accuracy: ``[rate, run, count, length, repeat]``: of the sum over ``count`` random paths of a length 0..L.
        path_residual: ``[rate, run, count, length, repeat]``: relF of that sum's normalised tokens, averaged over sets.
        majority: ``[run]``: accuracy of always answering the test sets' most frequent label.
        weights/<name>: ``[rate, run, ...]``: the trained weights, float32.

    Raises:
        FloatingPointError: a loss is NaN or infinite; names the learning rate, the run and the epoch.
    """
    plan = Regime(
        rates=settings.learning_rates,
        runs=range(settings.runs),
        epochs=settings.epochs,
        batch=settings.batch,
        dropout=settings.dropout,
        **regime,
    )
    rates = len(plan.rates)
    tests = Labelled(*(part.to(device).repeat(rates, *[1] * (part.dim() - 1)) for part in test_data))
    training = Training(architecture, plan, training_data, CLASSES, task, seed, device)
    trained = training.run(lambda weights: _accuracy(architecture, weights, tests), track, checkpoint)
    models = {"accuracy_without_skips": accuracy_without_skips(architecture, trained.weights, tests)}
    models |= _along_paths(architecture, settings, trained.weights, tests, task, seed, track)
    models |= trained.curves | {"accuracy": trained.curves["test_accuracy"][:, -1]}
    models |= {f"weights/{name}": weight for name, weight in trained.weights.items()}
    by_rate = {name: value.unflatten(0, (rates, settings.runs)) for name, value in models.items()}
    return by_rate | {"majority": torch.tensor([majority(labels) for labels in test_data.labels])}


@torch.no_grad()
def _accuracy(architecture: Architecture, weights: Weights, data: Labelled) -> Float[Tensor, "models"]:
    return accuracy(forward(architecture, weights, data.inputs), data.labels)


def _along_paths(
    architecture: Architecture,
    settings: PathTask,
    weights: Weights,
    data: Labelled,
    task: str,
    seed: int,
    track: Track,
) -> Mapping[str, Float[Tensor, "models counts lengths repeats"]]:
    """Evaluate bundles of every count, length and repeat; the same bundles for every model."""
    lengths = range(architecture.layers + 1)
    results: list[PathResult] = []
    for length in track(lengths, f"{task}: lengths of paths", len(lengths)):
        bundles = [
            draw_paths(architecture, length, count, generator(seed, task, "paths", length, count, repeat))
            for count in settings.path_counts
            for repeat in range(settings.path_repeats)
        ]
        results.append(evaluate_paths(architecture, weights, data, bundles))
    grid = (len(settings.path_counts), settings.path_repeats)
    return {
        f"path_{name}": torch.stack([getattr(result, name).unflatten(1, grid) for result in results], 2)
        for name in PathResult._fields
    }
