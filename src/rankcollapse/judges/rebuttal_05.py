"""What decides the claims of ``rebuttal_05``: removing the outlier in a random RoBERTa, by text length."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m05(
    *,
    layers: Sequence[int],
    longest: int,
    original: Sequence[float],
    centred: Sequence[float],
    centred_low: Sequence[Sequence[float]],
    fixed_low: Sequence[Sequence[float]],
    original_exponent: Sequence[float],
    centred_exponent: Sequence[float],
    level: float,
) -> Ruling:
    """Slower collapse in width: stable ranks less one at the longest text, lower ends of the differences, exponents."""
    above = [low > 0 for row in centred_low for low in row]
    scaled = [low > 0 for row in fixed_low for low in row]
    ranks = ", ".join(
        f"{after:.4f} for {before:.4f} at layer {layer}"
        for layer, before, after in zip(layers, original, centred, strict=True)
    )
    rates = ", ".join(
        f"T^-{after:.2f} for T^-{before:.2f}" for before, after in zip(original_exponent, centred_exponent, strict=True)
    )
    found = (
        f"A - 11^T/T alone raises stable rank at {sum(above)} of {len(above)} lengths and layers (with values scaled: "
        f"{sum(scaled)}); less one, at T = {longest}: {ranks}; it falls like {rates}"
    )
    slower = [after < before for before, after in zip(original_exponent, centred_exponent, strict=True)]
    if all(above):
        return (
            Ruling(HOLDS, found) if all(slower) else Ruling(CONDITION, f"{found}: higher, but falling as fast with T")
        )
    return Ruling(CONDITION if any(above) or any(scaled) else FALSE, found)
