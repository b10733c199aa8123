"""The phase diagram trained: which cells of skip strength and inverse temperature learn, with QK-norm and without."""

from itertools import product

import torch
from torch import Tensor

from rankcollapse.grid_training import Optimiser, Parameters, Progress, embed, initial, shared, train
from rankcollapse.inits import gaussian
from rankcollapse.measurements.phase_diagram import check_finite, grid
from rankcollapse.phase_signal import signal
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.phase import TrainingGrid
from rankcollapse.skip_attention import Cells, cells

NAME = "training_grid"
QK_NORM = (False, True)
CELLS_ON_CPU = 21  # cells of one tensor program on a CPU: their activations stay in its cache
AT_INIT = ("cosine", "entropy", "gradient", "query_value_ratio", "stable_rank")


def measure(settings: TrainingGrid, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Train every cell of the grid from the same weights on the same fresh data, and observe it at initialisation.

    float32, as training is done; the observables at initialisation are float64.

    - ``beta`` [beta], the columns.
    - Axes [QK-norm no/yes, alpha, beta, run, ...]: ``accuracy`` [checkpoint], on test sequences; ``training_loss`` and
      ``training_accuracy`` [step 1..], on each step's fresh batch before the step; all -1 from the step of an overflow
      on. ``overflow_step``, int64: steps taken when the loss was first not finite; -1 for never.
    - The same network before training, on the first batch, axes [QK-norm, alpha, beta, run, ...]: ``init/entropy``
      [layer 1..L], ``init/cosine`` [layer 0..L], ``init/gradient`` [layer 0..L-1], ``init/query_value_ratio``,
      ``init/stable_rank``, as in the measurement ``phase_diagram``.

    Raises FloatingPointError, naming the cell, when an observable at initialisation is not finite.
    """
    betas = torch.logspace(*settings.beta_decades, settings.beta_points, dtype=torch.float64)
    points = grid(settings.skips, betas)
    at_once = CELLS_ON_CPU if device.type == "cpu" else len(points)
    found: dict[str, list[Tensor]] = {}
    jobs = list(product(range(settings.runs), QK_NORM, points.split(at_once)))
    for run, qk_norm, part in track(jobs, NAME, len(jobs)):
        one = initial(*_sizes(settings), generator(seed, NAME, "weights", run))
        sequences = data(settings, seed, run)
        point = cells(part.to(device), settings.tokens, qk_norm=qk_norm)
        results = learn(settings, one, sequences, point, device)._asdict()
        before = at_init(settings, one, sequences[0], point, seed, run)
        results |= {f"init/{name}": values for name, values in before.items()}
        for name, values in results.items():
            found.setdefault(name, []).append(values.cpu())
    outer = (settings.runs, len(QK_NORM), len(settings.skips), len(betas))
    tables = {name: torch.cat(parts).unflatten(0, outer).movedim(0, 3).contiguous() for name, parts in found.items()}
    check_finite(NAME, {name: table.movedim(0, 1) for name, table in tables.items()}, settings.skips)
    return {"beta": betas} | tables


def data(settings: TrainingGrid, seed: int, run: int) -> list[Tensor]:
    """Return the batches of all steps and, last, the test sequences; tokens uniform and independent."""
    random, n = generator(seed, NAME, "data", run), settings.tokens
    sizes = [settings.batch] * settings.checkpoints[-1] + [settings.test_sequences]
    return [torch.randint(settings.vocabulary, (size, n), generator=random) for size in sizes]


def learn(
    settings: TrainingGrid, one: Parameters, sequences: list[Tensor], point: Cells, device: torch.device
) -> Progress:
    """Train the given cells, all from the same weights."""
    parameters = shared(one, len(point.skip), device)
    optimiser = Optimiser(parameters, settings.rate, settings.momenta, settings.warmup)
    *batches, test = (x.to(device) for x in sequences)
    point = Cells(point.skip.float(), point.scale.float(), point.qk_norm)
    return train(parameters, point, optimiser, batches, test, settings.checkpoints)


def at_init(settings: TrainingGrid, one: Parameters, x: Tensor, point: Cells, seed: int, run: int) -> dict[str, Tensor]:
    """Observables of the untrained cells on one batch, in float64."""
    device, n, d = point.skip.device, settings.tokens, settings.width
    probe = gaussian(n, d, generator(seed, NAME, "probe", run), (n * d) ** -0.5).to(device)
    parameters = Parameters(*(tensor.double().to(device) for tensor in one))
    tokens = embed(parameters, x.to(device)).expand(len(point.skip), -1, -1, -1)
    found = signal(tokens, list(parameters.layers[:, 0]), point, probe, settings.ratio_layers)
    return {name: found[name] for name in AT_INIT}


def _sizes(settings: TrainingGrid) -> tuple[int, int, int, int]:
    return settings.tokens, settings.vocabulary, settings.width, settings.layers
