"""Time of a training step: many networks in one tensor program, and one network of torch.nn modules at a time.

    python benchmarks/training.py [--rounds 5]

The networks, data and dropout rates of the training tasks, one thread. "plain" is one network in the usual loop of
modules and torch.optim.Adam, with its defaults and with its fused step; "batched" trains every run and learning rate
of config/config.yaml together, and its time is divided by their number. The ways take turns, each timed in processor
seconds, and the ratio is that of their fastest rounds. The last columns: what a step's matrix products alone take at
the speed of one large product, and their share of the batched step.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from rankcollapse.config import check_config
from rankcollapse.path_task import together
from rankcollapse.randomness import generator
from rankcollapse.tasks import Labelled, hull, memorization, sorting
from rankcollapse.trainable import EPSILON, Architecture
from rankcollapse.training import CLASSES, Regime, Training

ROOT = Path(__file__).parents[1]


class Plain(nn.Module):
    """One network from torch.nn's own modules."""

    def __init__(self, architecture: Architecture, dropout: float) -> None:
        super().__init__()
        d = architecture.width
        self.architecture = architecture
        symbols = architecture.kind == "symbols"
        self.embed = nn.Embedding(architecture.inputs, d) if symbols else nn.Linear(architecture.inputs, d)
        self.position = nn.Parameter(torch.zeros(architecture.positions, d)) if architecture.positions else None
        self.mix = nn.Linear(d, d) if architecture.mixed else nn.Identity()
        self.attention = nn.ModuleList(
            nn.MultiheadAttention(d, architecture.heads, dropout, batch_first=True) for _ in range(architecture.layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d, eps=EPSILON) for _ in range(architecture.layers + 1))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(d, architecture.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the head's output for every token."""
        tokens = self.embed(inputs)
        if self.position is not None:
            tokens = tokens + self.position
        if self.architecture.mixed and self.architecture.kind == "points":
            tokens = nn.functional.gelu(tokens)
        tokens = self.dropout(self.norms[0](self.mix(tokens)))
        for attention, norm in zip(self.attention, self.norms[1:], strict=True):
            added, _ = attention(tokens, tokens, tokens, need_weights=False)
            tokens = norm(tokens + self.dropout(added))
        return self.head(self.dropout(tokens))

    def load(self, weights: dict[str, Tensor], model: int) -> "Plain":
        """Take over the weights of one of the batched networks."""
        own = {name: weight[model].detach() for name, weight in weights.items()}
        with torch.no_grad():
            self.embed.weight.copy_(own["embed"] if self.architecture.kind == "symbols" else own["embed"].T)
            if self.architecture.kind == "points":
                self.embed.bias.copy_(own["embed_bias"])
            if self.position is not None:
                self.position.copy_(own["position"])
            if self.architecture.mixed:
                self._linear(self.mix, own["mix"], own["mix_bias"])
            self._norm(self.norms[0], own["embed_gain"], own["embed_shift"])
            for layer, (attention, norm) in enumerate(zip(self.attention, self.norms[1:], strict=True)):
                attention.in_proj_weight.copy_(self._grouped(own["qkv"][layer]).T)
                attention.in_proj_bias.copy_(self._grouped(own["qkv_bias"][layer]))
                self._linear(attention.out_proj, own["output"][layer], own["output_bias"][layer])
                self._norm(norm, own["gain"][layer], own["shift"][layer])
            self._linear(self.head, own["head"], own["head_bias"])
        return self

    def _grouped(self, columns: Tensor) -> Tensor:
        """Put all heads' queries first, then the keys, then the values."""
        return columns.unflatten(-1, (self.architecture.heads, 3, -1)).transpose(-2, -3).flatten(-3)

    @staticmethod
    def _linear(module: nn.Linear, matrix: Tensor, bias: Tensor) -> None:
        module.weight.copy_(matrix.T)
        module.bias.copy_(bias)

    @staticmethod
    def _norm(module: nn.LayerNorm, gain: Tensor, shift: Tensor) -> None:
        module.weight.copy_(gain)
        module.bias.copy_(shift)


def plain_steps(network: Plain, data: Labelled, batch: int, **adam: Any) -> Callable[[], int]:
    """Return what makes one pass over the data with the usual loop and gives the number of steps."""
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, **adam)

    def one_pass() -> int:
        steps = 0
        for inputs, labels in zip(data.inputs.split(batch), data.labels.split(batch), strict=True):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(network(inputs).flatten(0, 1), labels.flatten())
            loss.backward()
            optimiser.step()
            steps += 1
        return steps

    return one_pass


def products(architecture: Architecture, tokens: int, batch: int) -> float:
    """Return the floating-point operations of a step's matrix products: forward, and twice that backward."""
    d, rows = architecture.width, tokens * batch
    block = 2 * rows * 4 * d * d + 2 * 2 * rows * tokens * d
    return 3.0 * (architecture.layers * block + 2 * rows * d * d)


def speed() -> float:
    """Return the floating-point operations a second of a large matrix product, float32, one thread."""
    a, best = torch.randn(1024, 1024), float("inf")
    for _ in range(5):
        began = time.process_time()
        a @ a
        best = min(best, time.process_time() - began)
    return 2 * 1024**3 / best


def compare(name: str, settings: Any, architecture: Architecture, data: list[Labelled], rounds: int) -> None:
    """Print one line."""
    regime = Regime(settings.learning_rates, range(len(data)), 1, settings.batch, settings.dropout)
    training = Training(architecture, regime, together(data), CLASSES, name, 0, torch.device("cpu"))
    training.run()
    sets = len(data[0].inputs)

    def batched() -> int:
        training._epoch(0)
        return -(-sets // settings.batch) * len(regime.rates) * len(data)

    ways = {
        "plain": plain_steps(Plain(architecture, settings.dropout), data[0], settings.batch),
        "fused": plain_steps(Plain(architecture, settings.dropout), data[0], settings.batch, fused=True),
        "batched": batched,
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, one_pass in ways.items():
            began = time.process_time()
            steps = one_pass()
            best[way] = min(best[way], (time.process_time() - began) / steps)
    least = products(architecture, settings.tokens, settings.batch) / speed()
    print(
        f"{name:13}{len(regime.rates) * len(data):7}"
        + "".join(f"{seconds * 1e3:12.2f}" for seconds in best.values())
        + f"{best['plain'] / best['batched']:12.2f}{best['fused'] / best['batched']:12.2f}"
        + f"{least * 1e3:14.2f}{least / best['batched']:10.0%}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="passes of each way (default: 5)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    sizes = check_config(yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))).measurements
    one, two, three = sizes.sorting_task, sizes.hull_task, sizes.memorization_task
    print(
        "milliseconds a step and network\n"
        f"{'task':13}{'models':>7}{'plain':>12}{'plain fused':>12}{'batched':>12}{'plain/b.':>12}{'fused/b.':>12}"
        f"{'products':>14}{'share':>10}"
    )
    numbers = [generator(0, "benchmark", run) for run in range(one.runs)]
    shape = Architecture(one.width, one.heads, one.layers, one.symbols, one.symbols, "symbols", one.tokens)
    compare("sorting", one, shape, [sorting(300, one.tokens, one.symbols, random) for random in numbers], rounds)
    shape = Architecture(two.width, two.heads, two.layers, 2, 2, "points")
    compare("hull", two, shape, [hull(300, two.tokens, random) for random in numbers[: two.runs]], rounds)
    shape = Architecture(three.width, three.heads, three.layers, 2, three.symbols, "symbols")
    texts = [memorization(16, three.tokens, three.symbols, three.exponent, random) for random in numbers[: three.runs]]
    compare("memorization", three, shape, texts, rounds)


if __name__ == "__main__":
    main()
