"""What decides the claims of ``noci_phase``: one-hot attention, and the window between the two collapses."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def s16(*, skips: Sequence[float], beta: float, first: Sequence[float], last: Sequence[float], most: float) -> Ruling:
    """Attention becomes one-hot at large beta; ``first`` and ``last`` layer: share of one-hot rows by skip strength."""
    found = f"one-hot rows at beta = {beta:g}: {min(first):.3f} or more in the first layer, in the last " + ", ".join(
        f"{share:.2f} (alpha {skip:g})" for skip, share in zip(skips, last, strict=True)
    )
    if min(first) < most:
        return Ruling(FALSE, found)
    sharp = [f"{skip:g}" for skip, share in zip(skips, last, strict=True) if share >= most]
    if len(sharp) == len(skips):
        return Ruling(HOLDS, found)
    where = f"while tokens differ, and so in the last layer {_with(sharp)}"
    return Ruling(CONDITION, f"{where}; {found}")


def s18(
    *,
    skips: Sequence[float],
    low: Sequence[bool],
    high: Sequence[bool],
    trained_skips: Sequence[float],
    trained_low: Sequence[bool],
    trained_high: Sequence[bool],
    window: Sequence[bool],
    later_window: Sequence[bool],
    agreement: float,
    overflowed: int,
    cosine: float,
    entropy: float,
    gradient: float,
    trained: float,
) -> Ruling:
    """Low beta collapses rank, high beta entropy, a window between trains.

    By skip strength at the published and at the trained sizes: is the smallest beta rank-collapsed (``low``), the
    largest entropy-collapsed (``high``), and does a beta train between two that do not (``window``; ``later_window`` at
    the last checkpoint, told but not judged by).
    """
    sides = (
        (f"smallest beta rank-collapsed (cosine above {cosine:g})", low, trained_low),
        (f"largest entropy-collapsed (H / ln n below {entropy:g})", high, trained_high),
    )
    parts = [
        f"{what} at {sum(large)} of {len(skips)} skip strengths ({sum(small)} of {len(trained_skips)} at trained sizes)"
        for what, large, small in sides
    ]
    parts.append(f"a window of beta trains (accuracy above {trained:g}) at {sum(window)} of {len(trained_skips)}")
    parts.append(f"balanced cells (gradient up to {gradient:g}) and trainable ones agree in {agreement:.2f} of all")
    if overflowed:
        parts.append(f"{overflowed} trained cells overflowed and count as not trained")
    later = _common(trained_skips, trained_low, trained_high, later_window)
    parts.append(f"at the last checkpoint all three are so {_with(later)}")
    found = "; ".join(parts)
    if all((*low, *high, *trained_low, *trained_high, *window)):
        return Ruling(HOLDS, found)
    common = _common(trained_skips, trained_low, trained_high, window)
    if common:
        return Ruling(CONDITION, f"only with a skip of {', '.join(common)}; {found}")
    return Ruling(FALSE, f"at no trained skip strength are all three so; {found}")


def _with(skips: Sequence[str]) -> str:
    return f"only with a skip of {', '.join(skips)}" if skips else "with no skip tried"


def _common(skips: Sequence[float], *parts: Sequence[bool]) -> list[str]:
    return [f"{skip:g}" for skip, *each in zip(skips, *parts, strict=True) if all(each)]
