"""What paths through a trained network can do on their own (Dong, Cordonnier & Loukas 2021, section 4.2, as released).

A path of length k takes one head in each of k of the L blocks and leaves the others out. Along it, attention is
computed from the path's own tokens, there is no skip connection, and LayerNorm has neither gain nor shift. The final
tokens of several paths are added, normalised, and read by the network's head.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rankcollapse.residual import relative_residual
from rankcollapse.tasks import Labelled
from rankcollapse.trainable import Architecture, Block, Weights, attend, blocks, embed, plain_norm, read_out
from rankcollapse.training import accuracy

LEFT_OUT = -1

Path = tuple[int, ...]  # the head in each block, or LEFT_OUT


def draw_paths(architecture: Architecture, length: int, count: int, random: Generator) -> list[Path]:
    """Draw paths of a length: which blocks they pass, uniformly, and in each of those a head, uniformly.

    Raises:
        ValueError: a length that no path has.
    """
    if not 0 <= length <= architecture.layers:
        raise ValueError(f"draw_paths: length {length}; between 0 and the {architecture.layers} blocks")
    paths = []
    for _ in range(count):
        heads = torch.randint(architecture.heads, (architecture.layers,), generator=random)
        heads[torch.randperm(architecture.layers, generator=random)[length:]] = LEFT_OUT
        paths.append(tuple(heads.tolist()))
    return paths


def sums_over_paths(
    tokens: Float[Tensor, "models sets tokens width"],
    layers: Sequence[Block],
    heads: int,
    bundles: Sequence[Sequence[Path]],
) -> Float[Tensor, "bundles models sets tokens width"]:
    """Return the sum of the final tokens over each bundle of paths; what paths share from the start, computed once."""
    counts = [Counter(bundle) for bundle in bundles]
    total = torch.zeros(len(bundles), *tokens.shape, dtype=tokens.dtype, device=tokens.device)
    for path, final in _ends(tokens, layers, heads, sorted(set().union(*counts)), 0):
        for row, count in zip(total, counts, strict=True):
            if count[path]:
                row.add_(final, alpha=count[path])
    return total


def _ends(
    tokens: Tensor, layers: Sequence[Block], heads: int, paths: Sequence[Path], depth: int
) -> Iterator[tuple[Path, Tensor]]:
    """Yield each path with its final tokens; all ``paths`` agree on the blocks before ``depth``."""
    if depth == len(layers):
        yield paths[0], tokens
        return
    for head in sorted({path[depth] for path in paths}):
        passed = tokens
        if head != LEFT_OUT:
            passed = plain_norm(attend(tokens, layers[depth].head(head, heads), 1))
        yield from _ends(passed, layers, heads, [path for path in paths if path[depth] == head], depth + 1)


class PathResult(NamedTuple):
    """What bundles of paths achieve."""

    accuracy: Float[Tensor, "models bundles"]
    residual: Float[Tensor, "models bundles"]  # relF of the normalised sum, averaged over sets


@torch.no_grad()
def evaluate_paths(
    architecture: Architecture, weights: Weights, data: Labelled, bundles: Sequence[Sequence[Path]]
) -> PathResult:
    """Return accuracy and relative residual of every bundle of paths, for every model on its own data."""
    start = embed(architecture, weights, data.inputs)
    results = []
    for total in sums_over_paths(start, blocks(weights), architecture.heads, bundles):
        tokens = plain_norm(total)
        right = accuracy(read_out(weights, tokens), data.labels)
        results.append((right, relative_residual(tokens).mean(-1)))
    return PathResult(*(torch.stack(part, -1) for part in zip(*results, strict=True)))


@torch.no_grad()
def accuracy_without_skips(architecture: Architecture, weights: Weights, data: Labelled) -> Float[Tensor, "models"]:
    """Return the accuracy of all paths of full length together: every head in every block, no skip, plain LayerNorm."""
    tokens = embed(architecture, weights, data.inputs)
    for block in blocks(weights):
        tokens = plain_norm(attend(tokens, block, architecture.heads))
    return accuracy(read_out(weights, tokens), data.labels)
