"""The data of the training tasks of Dong, Cordonnier & Loukas (2021), section 4.2: inputs, and a label for every token.

Everything is drawn from an explicit generator on the CPU.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from scipy.spatial import ConvexHull
from torch import Generator, Tensor

SIDE = 10.0  # of the square in which points are uniform
SHIFT = 3.3  # standard deviation of the shift that all points of a set share
RADIUS = 0.3  # of the circle


class Labelled(NamedTuple):
    """Sets of tokens and the label of every token."""

    inputs: Int[Tensor, "sets tokens"] | Float[Tensor, "sets tokens 2"]
    labels: Int[Tensor, "sets tokens"] | Float[Tensor, "sets tokens 2"]


def sorting(sets: int, tokens: int, symbols: int, random: Generator) -> Labelled:
    """Sequences of uniform symbols, repeats allowed; the label of position i is the i-th smallest symbol."""
    drawn = torch.randint(symbols, (sets, tokens), generator=random)
    return Labelled(drawn, drawn.sort(dim=-1).values)


def hull(sets: int, tokens: int, random: Generator) -> Labelled:
    """Points uniform in a square of side 10, each set shifted by N(0, 3.3^2 I); label 1: a vertex of the set's hull.

    Raises:
        ValueError: fewer than 3 points, which have no hull.
    """
    if tokens < 3:
        raise ValueError(f"hull: {tokens} points; at least 3 needed")
    uniform = SIDE * torch.rand(sets, tokens, 2, generator=random, dtype=torch.float64)
    points = uniform + SHIFT * torch.randn(sets, 1, 2, generator=random, dtype=torch.float64)
    labels = torch.zeros(sets, tokens, dtype=torch.int64)
    for row, one in zip(labels, points.numpy(), strict=True):
        row[torch.from_numpy(ConvexHull(one).vertices).long()] = 1
    return Labelled(points.float(), labels)


def memorization(sets: int, tokens: int, symbols: int, exponent: float, random: Generator) -> Labelled:
    """Texts of independent symbols with P(s) ~ s^-exponent (Zipf's law), and a fair coin as the label of every token.

    Without position embeddings equal symbols in a text look the same to the network, so not every label can be learnt.
    """
    frequency = torch.arange(1, symbols + 1, dtype=torch.float64) ** -exponent
    drawn = torch.multinomial(frequency, sets * tokens, replacement=True, generator=random).view(sets, tokens)
    return Labelled(drawn, torch.randint(2, (sets, tokens), generator=random))


def circle(points: int) -> Labelled:
    """Pairs of points half a circle apart, labelled with each one's successor; all divide a circle of radius 0.3.

    Pair i is (z_i, z_{i+h}) with h = points/2 - 1, i = 0..h-1, as released: the two move along the two half circles.
    """
    angle = torch.arange(points, dtype=torch.float64) * (2 * math.pi / points)
    place = (RADIUS * torch.stack([angle.cos(), angle.sin()], -1)).float()
    half = points // 2 - 1
    now = torch.arange(half)
    return Labelled(
        torch.stack([place[now], place[now + half]], 1), torch.stack([place[now + 1], place[now + half + 1]], 1)
    )


def majority(labels: Int[Tensor, "sets tokens"]) -> float:
    """Return the accuracy of always answering the most frequent label."""
    return float(labels.unique(return_counts=True)[1].max() / labels.numel())


def best_by(group: Int[Tensor, "sets tokens"], labels: Int[Tensor, "sets tokens"]) -> float:
    """Return the best accuracy of an answer that depends on a token's group alone: the share of its majority label."""
    classes = int(labels.max()) + 1
    pairs, counts = (group * classes + labels).unique(return_counts=True)
    groups, member = (pairs // classes).unique(return_inverse=True)
    best = torch.zeros(len(groups), dtype=counts.dtype).scatter_reduce(0, member, counts, "amax")
    return float(best.sum() / labels.numel())
