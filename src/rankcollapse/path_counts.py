"""How many paths of each length there are through attention layers with skips: exact integers. No torch.

A layer is passed by its skip or through one of its H heads, so of the paths through L layers C(L, k) H^k go through k
heads, and (H + 1)^L there are in all: 2^L only for H = 1, or when the heads of a layer count as one branch. Dong,
Cordonnier & Loukas (2021), section 3.1.
"""

import math
from fractions import Fraction


def path_counts(layers: int, heads: int) -> list[int]:
    """Return C(L, k) H^k for k = 0..L.

    Raises:
        ValueError: fewer than no layers or than one head.
    """
    if layers < 0 or heads < 1:
        raise ValueError(f"path_counts: {layers} layers, {heads} heads; allowed: 0 or more layers, 1 or more heads")
    return [math.comb(layers, length) * heads**length for length in range(layers + 1)]


def path_shares(layers: int, heads: int) -> list[float]:
    """Return C(L, k) H^k / (H + 1)^L for k = 0..L, each correctly rounded from the exact fraction."""
    total = (heads + 1) ** layers
    return [float(Fraction(count, total)) for count in path_counts(layers, heads)]
