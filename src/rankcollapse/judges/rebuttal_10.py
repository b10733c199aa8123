"""What decides the claims of ``rebuttal_10``: attention alone by width and depth."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m10(
    *, largest: int, median_at_largest: Sequence[float], correlation: Sequence[float], near: float, sure: float
) -> Ruling:
    """Collapse in width at every depth; one value a layer, from layer 1."""
    found = (
        f"median stable rank at T = {largest} at most 1 + {max(median_at_largest):.3f}; "
        f"trend with T by layer in standard errors: {', '.join(f'{value:+.0f}' for value in correlation)}"
    )
    if max(median_at_largest) >= near:
        return Ruling(FALSE, found)
    elsewhere = [layer for layer, value in enumerate(correlation, 1) if value >= -sure]
    if elsewhere:
        layers = ", ".join(map(str, elsewhere))
        return Ruling(CONDITION, f"{found}: near 1 at every depth, but in layers {layers} not falling with T")
    return Ruling(HOLDS, found)


def m11(
    *,
    exponent: float,
    low: float,
    high: float,
    largest: int,
    constant: float,
    derived: float,
    start: float,
    within: float,
) -> Ruling:
    """Rate of the collapse in width at the first layer."""
    found = (
        f"sr - 1 ~ T^-{exponent:.3f} [{low:.3f}, {high:.3f}] for T >= {start:g}, "
        f"T (sr - 1) = {constant:.2f} at T = {largest}; derived T^-1 and {derived:.2f}"
    )
    if 1 - within <= low and high <= 1 + within:
        return Ruling(HOLDS, found)
    return Ruling(CONDITION if low > 0 else FALSE, found)
