"""What decides the claim of ``rebuttal_08``: gradients of two blocks by width."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling

Interval = tuple[float, float]


def m08(
    *,
    configs: Sequence[str],
    slopes: Sequence[float],
    slope_intervals: Sequence[Interval],
    changes: Sequence[float],
    change_intervals: Sequence[Interval],
    plotted_changes: Sequence[float],
    explodes: float,
) -> Ruling:
    """Exploding gradients, slowed by removing the gap; ``configs`` and slopes are those with the gap."""
    grown = [low > explodes for low, _ in slope_intervals]
    slowed = [high < 0 for _, high in change_intervals]
    listed = ", ".join(f"{name} {value:.2f}" for name, value in zip(configs, slopes, strict=True))
    changed = ", ".join(
        f"{value:+.2f} ({low:+.2f} to {high:+.2f})"
        for value, (low, high) in zip(changes, change_intervals, strict=True)
    )
    plotted = ", ".join(f"{value:+.2f}" for value in plotted_changes)
    found = (
        f"slopes in log T with the gap: {listed}; removing it changes them by {changed}; "
        f"the quantity that was plotted by {plotted}"
    )
    if all(grown) and all(slowed):
        return Ruling(HOLDS, found)
    if all(grown) and any(slowed):
        return Ruling(CONDITION, f"{found}: slowed in some configurations only")
    if all(grown):
        return Ruling(FALSE, f"gradients explode, but removing the gap does not slow them: {found}")
    return Ruling(FALSE, found)
