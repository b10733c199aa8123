"""Time of a training step of the grid: all cells in one tensor program, and one cell at a time.

    python benchmarks/training_grid.py [cells]

The published sizes, one thread, the same weights and data. A cell alone is a network of torch.nn modules with an Adam
of its own, as one would write it, or the grid's own program with a single cell, which shows what batching alone gains.
Milliseconds of the processor's time a cell and step, so that other work on the machine counts little: forward pass,
loss, backward pass and Adam; the best of several steps. Adam's state exists before the first of them.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from rankcollapse.grid_training import Optimiser, Parameters, initial, losses, predict, shared
from rankcollapse.measurements.training_grid import CELLS_ON_CPU
from rankcollapse.randomness import generator
from rankcollapse.settings.phase import TrainingGrid
from rankcollapse.skip_attention import cells
from rankcollapse.validation import read_yaml, validate

CONFIG = Path(__file__).parents[1] / "config/config.yaml"
STEPS = 5
FLOATING_OPERATIONS = 2 * 3 * 3  # of a weight of W_Q, W_K or W_V a token: forwards, and twice backwards


class PlainCell(nn.Module):
    """One cell with torch.nn's own modules."""

    def __init__(self, one: Parameters, skip: float, beta: float, *, qk_norm: bool) -> None:
        super().__init__()
        (vocabulary, width), (count, _) = one.token[0].shape, one.position[0].shape
        self.skip, self.scale = skip, beta * math.log(count) ** 0.5 / width**0.5
        self.token = nn.Embedding.from_pretrained(one.token[0].clone(), freeze=False)
        self.position = nn.Parameter(one.position[0].clone())
        self.maps = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in one.layers)
        self.readout = nn.Linear(width, vocabulary, bias=False)
        for layer, weights in zip([*self.maps, self.readout], [*one.layers[:, 0], one.readout[0]], strict=True):
            layer.weight.data = weights.T.contiguous()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.rms = nn.RMSNorm(width, elementwise_affine=False) if qk_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the previous token."""
        tokens = self.norm(self.token(x) + self.position)
        for layer in self.maps:
            query, key, value = layer(tokens).chunk(3, -1)
            attention = torch.softmax(self.scale * self.rms(query) @ self.rms(key).mT, -1)
            tokens = self.norm(self.skip * tokens + attention @ value)
        return self.readout(tokens)


def plain(settings: TrainingGrid, one: Parameters, points: Tensor, *, qk_norm: bool) -> Callable[[Tensor], Tensor]:
    """Return a step of one plain cell."""
    cell = PlainCell(one, *points[0].tolist(), qk_norm=qk_norm)
    adam = torch.optim.Adam(cell.parameters(), lr=settings.rate, betas=settings.momenta)

    def step(x: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(cell(x).flatten(0, 1), x.roll(1, -1).flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.detach()[None]

    return step


def batched(settings: TrainingGrid, one: Parameters, points: Tensor, *, qk_norm: bool) -> Callable[[Tensor], Tensor]:
    """Return a step of all given cells."""
    parameters, grid = shared(one, len(points), torch.device("cpu")), cells(points, settings.tokens, qk_norm=qk_norm)
    optimiser = Optimiser(parameters, settings.rate, settings.momenta, 1)

    def step(x: Tensor) -> Tensor:
        loss = losses(predict(parameters, x, grid), x)
        optimiser.step(loss)
        return loss.detach()

    return step


def seconds(step: Callable[[Tensor], Tensor], settings: TrainingGrid) -> tuple[float, Tensor]:
    """Return the processor's seconds of the best step and the losses of the last one."""
    random, spent = generator(0, "benchmark"), []
    for _ in range(STEPS + 1):
        x = torch.randint(settings.vocabulary, (settings.batch, settings.tokens), generator=random)
        start = time.process_time()
        loss = step(x)
        spent.append(time.process_time() - start)
    return min(spent[1:]), loss


def main() -> None:
    """Print one line for attention without and with QK-norm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="?", type=int, default=CELLS_ON_CPU, help=f"default: {CELLS_ON_CPU}")
    count = parser.parse_args().cells
    torch.set_num_threads(1)
    settings: TrainingGrid = validate(TrainingGrid, read_yaml(CONFIG)["measurements"]["training_grid"], "config")
    one = initial(
        settings.tokens, settings.vocabulary, settings.width, settings.layers, generator(0, "benchmark", "weights")
    )
    points = torch.stack([torch.full((count,), 3.0), torch.logspace(-1, 1, count)], 1)
    work = FLOATING_OPERATIONS * settings.batch * settings.tokens * settings.layers * settings.width**2
    print(f"{count} cells, milliseconds a cell and step; projections alone: {work / 1e6:.0f} million operations")
    for qk_norm in (False, True):
        alone, wanted = seconds(plain(settings, one, points, qk_norm=qk_norm), settings)
        single, _ = seconds(batched(settings, one, points[:1], qk_norm=qk_norm), settings)
        together, found = seconds(batched(settings, one, points, qk_norm=qk_norm), settings)
        each, rate = together / count, work * count / together / 1e9
        print(
            f"{'QK-norm' if qk_norm else 'plain  '}  torch.nn {1e3 * alone:.2f}, grid of one {1e3 * single:.2f}, grid "
            f"{1e3 * each:.2f}: {alone / each:.1f} and {single / each:.1f} times faster; {rate:.0f} GFLOP/s in "
            f"projections; loss differs by {(found[0] - wanted[0]).abs():.0e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
