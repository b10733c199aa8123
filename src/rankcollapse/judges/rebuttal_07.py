"""What decides the claims of ``rebuttal_07``: random Markov attention by depth."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m07(
    *,
    configs: Sequence[str],
    last_stable_rank: Sequence[float],
    recent_fall: Sequence[float],
    fall_error: Sequence[float],
    collapsed: float,
    kept: float,
    falls: float,
    errors: float,
) -> Ruling:
    """Markov attention: collapse except without gap or attention."""
    with_gap = [name.split(" + ")[0] == "A" for name in configs]
    gone = [rank for rank, gap in zip(last_stable_rank, with_gap, strict=True) if gap]
    others = [rank for rank, gap in zip(last_stable_rank, with_gap, strict=True) if not gap]
    falling = [
        f"{name} ({rank:.2f})"
        for name, rank, fall, error, gap in zip(
            configs, last_stable_rank, recent_fall, fall_error, with_gap, strict=True
        )
        if not gap and fall >= max(falls, errors * error)
    ]
    found = (
        f"last stable rank at most {max(gone):.4f} with the gap and "
        f"at least {min(others):.2f} without it or without attention"
    )
    if max(gone) > 1 + collapsed or min(others) < kept:
        return Ruling(FALSE, found)
    if falling:
        return Ruling(CONDITION, f"{found}, within this depth: still falling are {', '.join(falling)}")
    return Ruling(HOLDS, found)
