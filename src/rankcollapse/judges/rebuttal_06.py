"""What decides the claims of ``rebuttal_06``: removing the outlier in a random RoBERTa, by layer."""

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m06(
    *,
    layer: int,
    original: float,
    centred: float,
    no_attention: float,
    fixed: float,
    centred_low: float,
    factor: float,
    level: float,
) -> Ruling:
    """Slower collapse in depth, remarkably; stable ranks less one at the last layer."""
    found = (
        f"stable rank less one at layer {layer}: original {original:.4f}, A - 11^T/T alone {centred:.4f} "
        f"({centred / original:.1f} times), no attention at all {no_attention:.4f}, "
        f"with values scaled too {fixed:.3f} ({fixed / original:.0f} times)"
    )
    if centred_low > 0 and centred >= factor * original:
        return Ruling(HOLDS, found)
    if centred_low > 0 and fixed >= factor * original:
        return Ruling(CONDITION, f"{found}: remarkable only with the value scaling")
    return Ruling(FALSE, found)


def m18(
    *,
    layer: int,
    width: float,
    depth: float,
    depth_of_first_layer: float,
    centred_width: float,
    centred_depth: float,
    scaled_depth: float,
    small: float,
    drastic: float,
) -> Ruling:
    """Small in width, drastic in depth: factors on stable rank less one at layer 1 and at the last."""
    found = (
        f"the published fix: {width:.2f} times at layer 1, {depth:.0f} times at layer {layer}; in layer 1 only: "
        f"{depth_of_first_layer:.2f} times at layer {layer}; A - 11^T/T alone: {centred_width:.2f} and "
        f"{centred_depth:.1f} times; value scaling without centring: {scaled_depth:.2g} times at layer {layer}"
    )
    if not 1 < width <= small or depth < drastic:
        return Ruling(FALSE, found)
    if depth_of_first_layer >= drastic:
        return Ruling(HOLDS, found)
    return Ruling(CONDITION, f"{found}: drastic in depth because every layer is changed, not because layer 1 is")
