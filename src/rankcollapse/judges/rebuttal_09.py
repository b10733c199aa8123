"""What decides the claims of ``rebuttal_09``: spectra of tokens that are not isometric."""

from collections.abc import Sequence
from itertools import pairwise

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m09(
    *,
    ratios: Sequence[float],
    leading_error: float,
    bulk_radius: Sequence[Sequence[float]],
    circular_distance: Sequence[float],
    roundoff: float,
    radius: float,
    circular: float,
) -> Ruling:
    """The gap for tokens that are not isometric, and the bulk's shape."""
    largest = max(max(row) for row in bulk_radius)
    shrinks = all(later < earlier for row in bulk_radius for earlier, later in pairwise(row))
    distances = ", ".join(f"{value:.3f} at {ratio:g}" for ratio, value in zip(ratios, circular_distance, strict=True))
    found = f"next modulus at most {largest:.3f}; distance from the circular law by gamma: {distances}"
    if leading_error > roundoff or largest >= radius or not shrinks:
        return Ruling(FALSE, found if shrinks else f"{found}; the gap does not widen with T")
    changes = all((value > circular) == (ratio > 1) for ratio, value in zip(ratios, circular_distance, strict=True))
    return Ruling(HOLDS if changes else CONDITION, found)
