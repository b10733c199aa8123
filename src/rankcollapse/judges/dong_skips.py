"""What decides the claims of ``dong_skips``: rank with skips and MLPs, and the hull after an MLP."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def s11(
    *,
    configurations: Sequence[str],
    kept_share: Sequence[float],
    late_share: Sequence[float],
    kept: float,
    still: float,
) -> Ruling:
    """Skips preserve full rank at arbitrary depth."""
    shares = list(zip(configurations, kept_share, late_share, strict=True))
    keeping = [name for name, share, late in shares if share >= kept and late >= still]
    found = "relative residual at the end over the start (over half the depth): " + "; ".join(
        f"{name} {share:.2g} ({late:.2g})" for name, share, late in shares
    )
    if len(keeping) == len(shares):
        return Ruling(HOLDS, found)
    if keeping:
        return Ruling(CONDITION, f"only with {'; '.join(keeping)}: {found}")
    return Ruling(FALSE, found)


def s13(
    *,
    configurations: Sequence[str],
    kept_share: Sequence[float],
    late_share: Sequence[float],
    cosine: Sequence[float],
    kept: float,
    still: float,
) -> Ruling:
    """Whole blocks suppress rank collapse entirely: the rule of S11, with the cosines told."""
    ruling = s11(configurations=configurations, kept_share=kept_share, late_share=late_share, kept=kept, still=still)
    return Ruling(
        ruling.verdict, f"{ruling.reason}; cosine of two tokens at the end {min(cosine):.2f} to {max(cosine):.2f}"
    )


def s14(
    *,
    widths: Sequence[int],
    tokens: int,
    outside: Sequence[float],
    outside_linear: Sequence[float],
    gap: float,
    most: float,
) -> Ruling:
    """A non-linear MLP moves tokens out of their hull; ``outside``: by width, the smallest share over all else."""
    found = "share outside, smallest over MLPs, inits and skips: " + ", ".join(
        f"width {width}: {share:.2f}" for width, share in zip(widths, outside, strict=True)
    )
    control = f"without the activation up to {max(outside_linear):.2f} are outside"
    if min(outside) >= most and max(outside_linear) <= 1 - most:
        return Ruling(HOLDS, f"{found}; {control}")
    flat = [share for width, share in zip(widths, outside, strict=True) if width >= tokens]
    if flat and min(flat) >= most:
        limit = f"only where the width reaches the number of tokens, {tokens}, whose hull is then flat"
        return Ruling(CONDITION, f"{limit}; {found}; {control}")
    return Ruling(FALSE, f"{found}; {control}")
