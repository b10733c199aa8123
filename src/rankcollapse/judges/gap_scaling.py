"""What decides the claims of ``gap_scaling``: the scale of the values, and gradients of collapsed tokens."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling

Interval = tuple[float, float]


def m15(
    *,
    attentions: Sequence[str],
    norm_slopes: Sequence[Sequence[float]],
    layers: int,
    weights: Sequence[str],
    wide_intervals: Sequence[Interval],
    narrow_intervals: Sequence[Interval],
    order_one: float,
) -> Ruling:
    """Order one tokens and exploding gradients under N(0,1).

    ``norm_slopes`` has the layers from 1 on for each attention, as many as had tokens left; the intervals are those of
    the gradients' slopes under N(0,1) and N(0,1/d).
    """
    steady = {
        attention: [layer for layer, value in enumerate(slopes, 1) if abs(value) <= order_one]
        for attention, slopes in zip(attentions, norm_slopes, strict=True)
    }
    turned = [
        name
        for name, wide, narrow in zip(weights, wide_intervals, narrow_intervals, strict=True)
        if wide[0] > 0 and narrow[1] < 0
    ]
    exponents = "; ".join(
        f"{attention} {', '.join(f'{value:+.2f}' for value in slopes)}"
        for attention, slopes in zip(attentions, norm_slopes, strict=True)
    )
    growth = ", ".join(
        f"{name} {sum(wide) / 2:+.2f} and {sum(narrow) / 2:+.2f}"
        for name, wide, narrow in zip(weights, wide_intervals, narrow_intervals, strict=True)
    )
    found = (
        f"exponents of the token norm by layer: {exponents}; slopes of gradients under N(0,1) and N(0,1/d): {growth}"
    )
    if all(len(kept) == layers for kept in steady.values()) and len(turned) == len(weights):
        return Ruling(HOLDS, found)
    if any(steady.values()) and turned:
        where = "; ".join(f"{name} at {_layers(kept, layers)}" for name, kept in steady.items())
        return Ruling(CONDITION, f"tokens of order one: {where}; gradients turn for {', '.join(turned)} ({found})")
    return Ruling(FALSE, found)


def m19(
    *,
    weights: Sequence[str],
    slopes: Sequence[float],
    at_zero: Sequence[float],
    behind_uniform: Sequence[float],
    order: float,
    slope: float,
    small: float,
    zero: float,
) -> Ruling:
    """Vanishing gradients after collapse; ``at_zero`` and ``behind_uniform`` are shares of the value gradient."""
    vanishing = {
        name: abs(rate - order) <= slope and rest < zero and uniform < zero
        for name, rate, rest, uniform in zip(weights, slopes, at_zero, behind_uniform, strict=True)
    }
    rates = ", ".join(f"{name} {rate:.3f}" for name, rate in zip(weights, slopes, strict=True))
    rest = ", ".join(f"{name} {share:.0e}" for name, share in zip(weights, behind_uniform, strict=True))
    found = (
        f"order in the residual for eps <= {small:g}: {rates}; behind uniform attention, of the value gradient: {rest}"
    )
    if all(vanishing.values()):
        return Ruling(HOLDS, found)
    if vanishing["queries"] and vanishing["keys"]:
        return Ruling(CONDITION, f"true of queries and keys, not of values: {found}")
    return Ruling(FALSE, found)


def _layers(kept: Sequence[int], layers: int) -> str:
    if len(kept) == layers:
        return "every layer"
    return f"layer {', '.join(map(str, kept))} of {layers} only" if kept else "no layer"
