"""What decides the claims of ``rebuttal_01``: the spectrum of a random RoBERTa on text."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m01(
    *,
    lengths: Sequence[int],
    leading_error: float,
    bulk_radius: Sequence[float],
    off_diagonal_share: float,
    roundoff: float,
    radius: float,
    offdiagonal: float,
) -> Ruling:
    """The gap on text in a random RoBERTa."""
    radii = ", ".join(f"{value:.3f} at T = {size}" for size, value in zip(lengths, bulk_radius, strict=True))
    found = f"next modulus at most {radii}; inputs' off-diagonal {off_diagonal_share:.2f} of the diagonal"
    gaps = [leading_error <= roundoff and value < radius for value in bulk_radius]
    if off_diagonal_share < offdiagonal:
        return Ruling(CONDITION, f"{found}, so they are nearly orthogonal")
    return Ruling(HOLDS if all(gaps) else CONDITION if any(gaps) else FALSE, found)
