"""Time of all path lengths at once, against sampling paths to the same answer and against enumerating them.

    python benchmarks/paths.py [error]

Attention + skip at the size of BERT (n = 128, d = 768, H = 12, L = 12), one thread, bert initialisation. A sampled path
is a uniformly random one of its length; the sum over a length is C(L, k) H^k times the mean over paths, whose relative
error falls like 1/sqrt(N) from what one path has. The N that reaches ``error`` (default 1 %) for every length is worked
out from a sample and not run, and neither is the enumeration of all (H + 1)^L paths; the exact pass is.
"""

import argparse
import time
from dataclasses import replace

import torch

from rankcollapse.inits import bert, shared_mean
from rankcollapse.path_counts import path_counts
from rankcollapse.paths import path_lengths
from rankcollapse.randomness import generator
from rankcollapse.scalefree_attention import Attention, attention_matrix, plain_attention

TOKENS, WIDTH, HEADS, LAYERS = 128, 768, 12, 12
SAMPLES = 60  # paths of each length that are run


def network() -> tuple[torch.Tensor, list[Attention], float]:
    """Tokens, frozen layers, and the seconds of the forward pass that froze them."""
    output = tokens = shared_mean(TOKENS, WIDTH, generator(0, "tokens"))
    layers, seconds = [], 0.0
    for depth in range(LAYERS):
        g = generator(0, "weights", depth)
        query, key, value, out = (bert(WIDTH, WIDTH, g) for _ in range(4))
        layer = Attention(query, key, value, out, HEADS)
        start = time.perf_counter()
        layers.append(replace(layer, frozen=attention_matrix(output, layer)))
        output = output + plain_attention(output, layer)
        seconds += time.perf_counter() - start
    return tokens, layers, seconds


def one_path(residual: torch.Tensor, layers: list[Attention], length: int, g: torch.Generator) -> torch.Tensor:
    """The residual along a uniformly random path of a length."""
    own = WIDTH // HEADS
    for layer in torch.randperm(LAYERS, generator=g)[:length].sort().values.tolist():
        head = int(torch.randint(HEADS, (), generator=g))
        columns = slice(head * own, (head + 1) * own)
        moved = layers[layer].frozen[head] @ (residual @ layers[layer].value[:, columns])
        residual = (moved - moved.mean(0)) @ layers[layer].output[columns]
    return residual


def main() -> None:
    """Print the three times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("error", nargs="?", type=float, default=0.01, help="relative error of a length (default: 0.01)")
    error = parser.parse_args().error
    torch.set_num_threads(1)
    tokens, layers, forward = network()
    path_lengths(tokens, layers)
    start = time.perf_counter()
    lengths = path_lengths(tokens, layers)
    exact = time.perf_counter() - start
    print(
        f"forward pass {forward:.2f} s, all {LAYERS + 1} lengths exactly {exact:.2f} s = {exact / forward:.1f} passes"
    )
    residual, sampled, enumerated = tokens - tokens.mean(0), 0.0, 0.0
    g = generator(0, "paths")
    for length, count in enumerate(path_counts(LAYERS, HEADS)):
        start = time.perf_counter()
        draws = torch.stack([one_path(residual, layers, length, g) for _ in range(SAMPLES)])
        each = (time.perf_counter() - start) / SAMPLES
        # relative error of the sum from one path: E ||count r - R||^2 = count^2 E ||r||^2 - ||R||^2
        whole = float(lengths.log_norm[length].exp()) ** 2
        single = max(count**2 * float(draws.square().sum((1, 2)).mean()) / whole - 1, 0.0)
        needed = min(max(single / error**2, 1.0), count)  # where that is more than there are, all of them
        sampled += needed * each
        enumerated += count * each
        print(f"k = {length:2d}: {count:.2e} paths, {each * 1e3:5.1f} ms each, {needed:.1e} for an error of {error:g}")
    year = 365.25 * 24 * 3600
    print(f"sampled to {error:g}: {sampled:.1e} s = {sampled / exact:.1e} times the exact pass")
    print(f"enumerated: {enumerated:.1e} s = {enumerated / year:.0f} years, {enumerated / exact:.1e} times")


if __name__ == "__main__":
    main()
