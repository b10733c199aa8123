"""Time and memory of exact gradient norms: from the structure, and from the dense Jacobian of torch.func.jacrev.

    python benchmarks/gradients.py [tokens]

Both ways to ||dX_2/dW||_F^2 on the same tokens and weights, T = d, one thread, each in a process of its own; memory is
the largest resident size above that before the computation. The dense Jacobian has T^4 entries: at T = 100 it takes
0.8 GB, and its computation a few times that, so it goes in chunks of output entries.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch
from torch import Tensor
from torch.func import jacrev

from rankcollapse.attention import centre, softmax, token_logits
from rankcollapse.blocks import attention_block
from rankcollapse.gradients import Variant, Weights, chained_gradient, entry, linearise, value_gradient
from rankcollapse.measurements.gradient_norms import one_run, variant_of

CONFIGS = ("A(X)", "A(X) + skip + LN", "A(X)_perp + skip + LN")
CHUNK = 500  # rows of the dense Jacobian at a time


def block(tokens: Tensor, weights: Weights, variant: Variant) -> Tensor:
    """One block as plain torch operations, for autograd."""
    attention = softmax(token_logits(tokens, weights.queries[None], weights.keys[None])[0])
    attention = centre(attention) if variant.centred else attention
    return attention_block(tokens, attention, weights.values, skip=variant.skip, norm=variant.norm)


def dense(tokens: Tensor, heads: list[Weights], variant: Variant, name: str) -> Tensor:
    """The norm of the whole Jacobian."""

    def output(weight: Tensor) -> Tensor:
        return block(block(tokens, heads[0]._replace(**{name: weight}), variant), heads[1], variant)

    return jacrev(output, chunk_size=CHUNK)(getattr(heads[0], name)).square_().sum()


def structured(tokens: Tensor, heads: list[Weights], variant: Variant, name: str) -> Tensor:
    """The norm from the structure of the two blocks."""
    first = linearise(tokens, heads[0], variant)
    second = linearise(first.output, heads[1], variant)
    return value_gradient(first, second) if name == "values" else chained_gradient(second, *entry(first, name))


def resident() -> float:
    """Largest resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(way: Callable[..., Tensor], size: int, config: str, name: str) -> tuple[float, float, float]:
    """Seconds, MB and the norm; the best of a few repeats where one takes less than a second."""
    torch.set_num_threads(1)
    way(*one_run(0, 6, 0, torch.device("cpu")), variant_of(config), name)  # first calls load libraries
    tokens, heads = one_run(0, size, 0, torch.device("cpu"))
    before, seconds, spent = resident(), [], 0.0
    while not seconds or (spent < 1 and len(seconds) < 20):
        start = time.perf_counter()
        norm = way(tokens, heads, variant_of(config), name)
        seconds.append(time.perf_counter() - start)
        spent += seconds[-1]
    return min(seconds), resident() - before, float(norm)


def main() -> None:
    """Print one line a configuration and weight."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", nargs="?", type=int, default=100, help="T = d (default: 100)")
    size = parser.parse_args().tokens
    print(f"T = d = {size}, dense Jacobian {8 * size**4 / 1e6:.0f} MB")
    titles = ("configuration", "weight", "dense", "", "structured", "", "faster", "less memory", "difference")
    print("{:22} {:8} {:>9} {:>9} {:>10} {:>9} {:>8} {:>12} {:>11}".format(*titles))
    context = multiprocessing.get_context("spawn")
    for config in CONFIGS:
        for name in ("values", "queries", "keys"):
            results = []
            for way in (dense, structured):
                with ProcessPoolExecutor(1, mp_context=context) as fresh:
                    results.append(fresh.submit(measure, way, size, config, name).result())
            (slow, large, wanted), (fast, little, found) = results
            print(
                f"{config:22} {name:8} {slow:8.2f}s {large:7.0f}MB {fast * 1e3:8.1f}ms {little:7.1f}MB "
                f"{slow / fast:7.0f}x {large / max(little, 0.1):11.0f}x {abs(found / wanted - 1):11.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
