"""What decides the claim of ``noci_gradients``: gradients of tokens that are not attended."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN, Ruling


def s17(
    *,
    networks: Sequence[str],
    unattended: int,
    attended_share: float,
    typical: Sequence[float],
    whole: Sequence[float],
    little: float,
    most: float,
    gone: float,
) -> Ruling:
    """Vanishing gradients of tokens that are not attended.

    ``typical`` and ``whole``, by network: median and root mean square of their gradients over those of the attended
    tokens' gradients. ``attended_share``: how many tokens are attended.
    """
    if not unattended or not attended_share:
        return Ruling(NOT_RUN, f"{unattended} tokens are not attended, {attended_share:.0%} are: nothing to compare")
    measured = list(zip(networks, typical, whole, strict=True))
    found = (
        f"{unattended} tokens get at most {little:g} of any query's attention, {attended_share:.0%} of all more than "
        f"{most:g} of some; gradients of the former over those of the latter, medians (root mean squares): "
        + ", ".join(f"{name} {middle:.1e} ({size:.1e})" for name, middle, size in measured)
    )
    if all(size <= gone for _, _, size in measured):
        return Ruling(HOLDS, found)
    vanishing = [name for name, middle, size in measured if min(middle, size) <= gone]
    if vanishing:
        return Ruling(CONDITION, f"only in {'; '.join(vanishing)}, there of the typical token: {found}")
    return Ruling(FALSE, found)
