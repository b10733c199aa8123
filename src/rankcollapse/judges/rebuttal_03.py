"""What decides the claims of ``rebuttal_03``: a random TinyBERT by text length."""

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m03(
    *,
    length: int,
    leading_error: float,
    bulk_radius: float,
    embedded: float,
    attended: float,
    embedded_unshared: float,
    attended_unshared: float,
    roundoff: float,
    radius: float,
    share: float,
) -> Ruling:
    """The gap for gamma above 1, and collapse following from it; stable ranks less one before and after layer 1."""
    if leading_error > roundoff or bulk_radius >= radius:
        return Ruling(FALSE, f"no gap above gamma = 1: next modulus up to {bulk_radius:.3f}")
    gap = f"the gap persists (next modulus at most {bulk_radius:.3f})"
    found = f"stable rank less one at T = {length} goes from {embedded:.4f} to {attended:.4f} in layer 1"
    if attended <= (1 - share) * embedded:
        return Ruling(HOLDS, f"{gap}; {found}")
    control = f"without the shared token-type row from {embedded_unshared:.2f} to {attended_unshared:.2f}"
    if attended_unshared <= (1 - share) * embedded_unshared:
        return Ruling(CONDITION, f"{gap}; {found}, {control}")
    return Ruling(
        FALSE,
        f"{gap}, but {found}, {control}: the embeddings had collapsed before any attention, by the row they share",
    )
