"""Learning random labels of the words of texts by heart, and what paths can do of it (Dong et al. 2021, sec. 4.2)."""

import torch
from torch import Tensor

from rankcollapse.checkpoint import Checkpoint
from rankcollapse.path_task import measure_task, together
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.dong import MemorizationTask
from rankcollapse.tasks import Labelled, best_by, memorization
from rankcollapse.trainable import Architecture

NAME = "memorization_task"


def measure(
    settings: MemorizationTask,
    *,
    device: torch.device,
    seed: int,
    track: Track = silent,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Tensor]:
    """Train networks without position embeddings on texts of Zipf-distributed symbols with random labels, 0 or 1.

    Nothing is held out: the first ``test_sets`` of the texts are evaluated.

    Returns:
        What ``path_task.measure_task`` returns, and
        ceiling: ``[run]``: the most that can be right without positions: equal symbols of a text get equal answers.
        by_symbol: ``[run]``: accuracy of the best answer that knows a token's symbol and not its text.
    """
    shape = (settings.sets, settings.tokens, settings.symbols, settings.exponent)
    data = together([memorization(*shape, generator(seed, NAME, "texts", run)) for run in range(settings.runs)])
    tests = Labelled(*(part[:, : settings.test_sets] for part in data))
    architecture = Architecture(
        width=settings.width,
        heads=settings.heads,
        layers=settings.layers,
        outputs=2,
        inputs=settings.symbols,
        kind="symbols",
    )
    tensors = measure_task(
        architecture,
        settings,
        data,
        tests,
        task=NAME,
        device=device,
        seed=seed,
        track=track,
        checkpoint=checkpoint,
        shuffled=True,
    )
    text = torch.arange(settings.test_sets)[:, None] * settings.symbols
    return tensors | {
        "ceiling": torch.tensor([best_by(text + symbols, labels) for symbols, labels in zip(*tests, strict=True)]),
        "by_symbol": torch.tensor([best_by(symbols, labels) for symbols, labels in zip(*tests, strict=True)]),
    }
