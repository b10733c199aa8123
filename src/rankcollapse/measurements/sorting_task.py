"""Learning to sort, and what short and long paths of the trained network can do of it (Dong et al. 2021, sec. 4.2)."""

import torch
from torch import Tensor

from rankcollapse.checkpoint import Checkpoint
from rankcollapse.path_task import held_out, measure_task
from rankcollapse.progress import Track, silent
from rankcollapse.settings.dong import SortingTask
from rankcollapse.tasks import best_by, sorting
from rankcollapse.trainable import Architecture

NAME = "sorting_task"


def measure(
    settings: SortingTask,
    *,
    device: torch.device,
    seed: int,
    track: Track = silent,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    """Train networks with position embeddings to give, at position i, the i-th smallest symbol of a sequence.

    Returns:
        What ``path_task.measure_task`` returns, on held-out sequences, and
        by_position: ``[run]``: accuracy of the best answer that knows the position and not the sequence.
    """
    shape = (settings.tokens, settings.symbols)
    train, test = held_out(lambda sets, random: sorting(sets, *shape, random), settings, NAME, seed)
    architecture = Architecture(
        width=settings.width,
        heads=settings.heads,
        layers=settings.layers,
        outputs=settings.symbols,
        inputs=settings.symbols,
        kind="symbols",
        positions=settings.tokens,
    )
    tensors = measure_task(
        architecture,
        settings,
        train,
        test,
        task=NAME,
        device=device,
        seed=seed,
        track=track,
        checkpoint=checkpoint,
    )
    labels = test.labels
    position = torch.arange(settings.tokens).expand_as(labels[0])
    return tensors | {"by_position": torch.tensor([best_by(position, one) for one in labels])}
