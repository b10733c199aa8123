"""What decides the claims of ``rebuttal_02``: a random RoBERTa with random word embeddings."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m02(
    *,
    lengths: Sequence[int],
    off_diagonal_share: Sequence[float],
    stable_rank_share: Sequence[float],
    leading_error: float,
    bulk_radius: Sequence[float],
    roundoff: float,
    radius: float,
    offdiagonal: float,
    rank: float,
) -> Ruling:
    """Near the identity, and the gap persists."""
    ranks = ", ".join(f"{share:.2f} of T = {size}" for size, share in zip(lengths, stable_rank_share, strict=True))
    found = (
        f"mean off-diagonal at most {max(off_diagonal_share):.3f} of the diagonal, next modulus at most "
        f"{max(bulk_radius):.3f}, stable rank of the covariance down to {ranks}"
    )
    if leading_error > roundoff or max(bulk_radius) >= radius or max(off_diagonal_share) >= offdiagonal:
        return Ruling(FALSE, found)
    if min(stable_rank_share) < rank:
        return Ruling(CONDITION, f"{found}: near the identity entry by entry on average, not as a matrix")
    return Ruling(HOLDS, found)
