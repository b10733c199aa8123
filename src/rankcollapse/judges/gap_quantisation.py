"""What decides the claim of ``gap_quantisation``: bounded singular values and eight-bit integers."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m17(
    *,
    attentions: Sequence[str],
    growth_singular: Sequence[float],
    growth_entry: Sequence[float],
    error_ratio: Sequence[float],
    distinct_ratio: Sequence[float],
    annihilated: int,
    growth: float,
    helps: float,
) -> Ruling:
    """Bounds and quantisation. Each number is the largest over T (and both scales), without the gap or over with it."""
    bounded = [max(pair) <= growth for pair in zip(growth_singular, growth_entry, strict=True)]
    literal = [ratio <= helps for ratio in error_ratio]
    either = [ok or ratio <= helps for ok, ratio in zip(literal, distinct_ratio, strict=True)]
    grown = ", ".join(f"{name} {value:.3g}" for name, value in zip(attentions, growth_singular, strict=True))
    ratios, distinct = (", ".join(f"{value:.2g}" for value in values) for values in (error_ratio, distinct_ratio))
    found = (
        f"without the gap s_1 grows over the layers by {grown}; int8 error over that with the gap, at most: "
        f"{ratios} relative to the tokens, {distinct} relative to their differences"
    )
    found += f"; {annihilated} runs annihilated" if annihilated else ""
    if all(bounded) and all(literal):
        return Ruling(HOLDS, found)
    if not any(a and b for a, b in zip(bounded, either, strict=True)):
        return Ruling(FALSE, found)
    unbounded = [name for name, ok in zip(attentions, bounded, strict=True) if not ok]
    conditions = [f"not bounded for {', '.join(unbounded)}"] if unbounded else []
    if not all(literal):
        conditions.append("what int8 keeps better is the differences between tokens, not the tokens")
    return Ruling(CONDITION, f"{'; '.join(conditions)}; {found}")
