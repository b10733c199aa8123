"""How much faster the stable ranks of figures VII and X come than by a singular value decomposition of X X^T per run.

The same token matrices, at the published sizes, go through three ways in turn, on one thread: ours (batched over runs:
two norms of the Gram matrix, the largest eigenvalue certified), a decomposition of each run's X X^T, and its singular
values alone. Seconds are processor time, which other programs on the machine hardly change.

    python benchmarks/stable_rank.py            the whole of VII and X, with the runs of config/config.yaml
    python benchmarks/stable_rank.py --runs 5   fewer runs: less to batch, so less of an advantage
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
import yaml
from torch import Tensor

from rankcollapse.config import check_config
from rankcollapse.measurements import keyquery_depth, markov_depth
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import KeyqueryDepth, MarkovDepth
from rankcollapse.spectrum import stable_rank

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[1]


def by_decomposition(tokens: Tensor) -> Tensor:
    """sr(X X^T) of each run from the decomposition U diag(s) V^T of X X^T."""
    return torch.stack([_ratio(torch.linalg.svd(run @ run.mT).S) for run in tokens])


def by_singular_values(tokens: Tensor) -> Tensor:
    """The same from the singular values alone."""
    return torch.stack([_ratio(torch.linalg.svdvals(run @ run.mT)) for run in tokens])


def _ratio(singular: Tensor) -> Tensor:
    return (singular / singular.amax()).square().sum()


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "ours": stable_rank,
    "svd": by_decomposition,
    "svdvals": by_singular_values,
}


def figure_seven(settings: MarkovDepth) -> Iterator[Tensor]:
    """Yield every configuration's tokens at every depth."""
    start = markov_depth.orthonormal_tokens(settings, generator(0, "benchmark"))
    streams = dict.fromkeys(settings.configs, (start, torch.zeros(settings.runs, dtype=torch.float64)))
    yield from (tokens for tokens, _ in streams.values())
    for layer in range(1, settings.depth + 1):
        markov, values = markov_depth._draw(settings, 0, layer)
        streams = {config: markov_depth._layer(config, *stream, markov, values) for config, stream in streams.items()}
        yield from (tokens for tokens, _ in streams.values())


def figure_ten(settings: KeyqueryDepth) -> Iterator[Tensor]:
    """Yield the original network's tokens for every T and layer."""
    for tokens in settings.tokens:
        for streams in keyquery_depth.layers(settings, tokens, CPU, 0):
            yield streams["original"]


def main() -> None:
    """Print seconds, ratios and the largest relative difference for both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="runs of both figures instead of the configured ones")
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    sizes = check_config(yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))).measurements
    figures = {
        "VII": figure_seven(replace(sizes.markov_depth, runs=runs or sizes.markov_depth.runs)),
        "X": figure_ten(replace(sizes.keyquery_depth, runs=runs or sizes.keyquery_depth.runs)),
    }
    print(
        f"{'':6}"
        + "".join(f"{way + ' [s]':>14}" for way in WAYS)
        + f"{'svd/ours':>12}{'svdvals/ours':>14}{'error':>10}"
    )
    total, largest = dict.fromkeys(WAYS, 0.0), 0.0
    for name, batches in figures.items():
        seconds, error = _compare(batches)
        _report(name, seconds, error)
        total = {way: total[way] + seconds[way] for way in WAYS}
        largest = max(largest, error)
    _report("both", total, largest)


def _compare(batches: Iterator[Tensor]) -> tuple[dict[str, float], float]:
    """Return each way's seconds and the largest relative difference between ours and the decomposition."""
    seconds, error = dict.fromkeys(WAYS, 0.0), 0.0
    for tokens in batches:
        found = {}
        for way, function in WAYS.items():
            began = time.process_time()
            found[way] = function(tokens)
            seconds[way] += time.process_time() - began
        error = max(error, (found["ours"] / found["svd"] - 1).abs().max().item())
    return seconds, error


def _report(name: str, seconds: dict[str, float], error: float) -> None:
    ratios = (seconds["svd"] / seconds["ours"], seconds["svdvals"] / seconds["ours"])
    columns = "".join(f"{value:14.2f}" for value in seconds.values())
    print(f"{name:6}{columns}{ratios[0]:12.1f}{ratios[1]:14.1f}{error:10.0e}")


if __name__ == "__main__":
    main()
