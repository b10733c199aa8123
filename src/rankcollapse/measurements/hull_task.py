"""Learning which points are vertices of their convex hull, and what paths can do of it (Dong et al. 2021, sec. 4.2)."""

import torch
from torch import Tensor

from rankcollapse.checkpoint import Checkpoint
from rankcollapse.path_task import held_out, measure_task
from rankcollapse.progress import Track, silent
from rankcollapse.settings.dong import HullTask
from rankcollapse.tasks import hull
from rankcollapse.trainable import Architecture

NAME = "hull_task"


def measure(
    settings: HullTask,
    *,
    device: torch.device,
    seed: int,
    track: Track = silent,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    """Train networks without position embeddings to tell the vertices of a set's convex hull from its other points.

    Returns:
        What ``path_task.measure_task`` returns, on held-out sets.
    """
    train, test = held_out(lambda sets, random: hull(sets, settings.tokens, random), settings, NAME, seed)
    architecture = Architecture(
        width=settings.width,
        heads=settings.heads,
        layers=settings.layers,
        outputs=2,
        inputs=2,
        kind="points",
    )
    return measure_task(
        architecture,
        settings,
        train,
        test,
        task=NAME,
        device=device,
        seed=seed,
        track=track,
        checkpoint=checkpoint,
        weight_decay=settings.weight_decay,
        milestones=settings.milestones,
        decay=settings.decay,
    )
