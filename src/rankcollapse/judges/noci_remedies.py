"""What decides the claims of ``noci_remedies``: norms and the variance, QK-norm and attention, scaled branches."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def s19(
    *, networks: Sequence[str], power: Sequence[float], median: Sequence[float], without: float, most: float
) -> Ruling:
    """A norm before the branches: no exponential growth; ``power``: largest of all runs, ``median``: of them."""
    found = "; ".join(
        f"{name} {value:.2f} ({middle:.2f})" for name, value, middle in zip(networks, power, median, strict=True)
    )
    found = (
        f"power of the depth over its second half, largest of all runs (median): {found}; without a norm {without:.0f}"
    )
    slow = [name for name, value in zip(networks, power, strict=True) if value <= most]
    if without <= most:
        return Ruling(FALSE, f"nothing to prevent: {found}")
    if len(slow) == len(networks):
        return Ruling(HOLDS, found)
    return Ruling(CONDITION, f"only with {'; '.join(slow)}: {found}") if slow else Ruling(FALSE, found)


def s20(
    *,
    networks: Sequence[str],
    scales: Sequence[float],
    growth: Sequence[Sequence[float]],
    entropy: Sequence[Sequence[float]],
    growth_with_gain: Sequence[Sequence[float]],
    entropy_with_gain: Sequence[Sequence[float]],
    growth_without: Sequence[Sequence[float]],
    entropy_without: Sequence[Sequence[float]],
    cosine_change: float,
    grows: float,
    collapsed: float,
) -> Ruling:
    """QK-norm bounds logits and keeps the entropy; all [network, scale], of W_Q or of the gain behind the norm."""

    def fine(growth: Sequence[Sequence[float]], entropy: Sequence[Sequence[float]]) -> bool:
        return max(map(max, growth)) <= grows and min(map(min, entropy)) >= collapsed

    found = (
        f"{', '.join(networks)}, W_Q up to {scales[-1]:g} times as large: with QK-norm logits grow at most "
        f"{max(map(max, growth)):.2f} times with depth and H/ln n is at least {min(map(min, entropy)):.2f}, without it "
        f"{max(map(max, growth_without)):.2g} and {min(map(min, entropy_without)):.2g}; with the norm's own gain "
        f"scaled so, {max(map(max, growth_with_gain)):.2f} and {min(map(min, entropy_with_gain)):.2g}; "
        f"it changes the cosine at the end by at most {cosine_change:.2g}"
    )
    if not fine(growth, entropy):
        return Ruling(FALSE, found)
    if fine(growth_with_gain, entropy_with_gain):
        return Ruling(HOLDS, found)
    kept = [
        scale
        for k, scale in enumerate(scales)
        if fine([[row[k]] for row in growth_with_gain], [[row[k]] for row in entropy_with_gain])
    ]
    return Ruling(CONDITION, f"only for a gain up to {max(kept, default=1):g} behind the norm; {found}")


def s21(
    *,
    smallest: float,
    largest: float,
    scales: Sequence[float],
    deepnorm_scales: Sequence[float],
    cosine: float,
    deepnorm_cosine: float,
    preserved: float,
    order: float,
) -> Ruling:
    """Branches over sqrt(2L) preserve the variance and are DeepNorm; ``scales``: of skip and branch."""
    found = (
        f"second moment over the initial one between {smallest:.3f} and {largest:.3f}; "
        f"skip and branch times {scales[0]:.3g} and {scales[1]:.3g}, DeepNorm {deepnorm_scales[0]:.3g} and "
        f"{deepnorm_scales[1]:.3g} with LayerNorm; cosine at the end {cosine:.2f}, DeepNorm {deepnorm_cosine:.3f}"
    )
    same = all(abs(one - other) <= preserved * other for one, other in zip(scales, deepnorm_scales, strict=True))
    if abs(smallest - 1) <= preserved and abs(largest - 1) <= preserved and same:
        return Ruling(HOLDS, found)
    if smallest >= 1 / order and largest <= order:
        name = "" if same else ", and it is not DeepNorm"
        return Ruling(CONDITION, f"up to a factor below {order:.2f}{name}: {found}")
    return Ruling(FALSE, found)
