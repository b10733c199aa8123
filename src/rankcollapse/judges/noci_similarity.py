"""What decides the claim of ``noci_similarity``: skips too weak for the depth."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN, Ruling


def s15(
    *,
    networks: Sequence[str],
    scales: Sequence[str],
    half_depths: Sequence[float],
    layers: int,
    cosine: Sequence[Sequence[float]],
    near: float,
    far: float,
    margin: float,
) -> Ruling:
    """Token cosine goes to 1 when the skip is too weak for the depth; ``cosine`` by network and scale, at the end."""
    weak = [i for i, depth in enumerate(half_depths) if layers >= margin * depth]
    strong = [i for i, depth in enumerate(half_depths) if layers * margin <= depth]
    if not weak or not strong:
        return Ruling(
            NOT_RUN, f"nothing to compare: {len(weak)} scales too weak for {layers} layers, {len(strong)} not"
        )
    short = {
        name: (min(row[i] for i in weak), max(row[i] for i in strong))
        for name, row in zip(networks, cosine, strict=True)
        if min(row[i] for i in weak) < near or max(row[i] for i in strong) >= far
    }
    found = f"cosine after {layers} layers, least and most over {len(networks)} networks: " + ", ".join(
        f"{scales[i]} {min(row[i] for row in cosine):.4f} to {max(row[i] for row in cosine):.4f}"
        f" ({'too weak' if i in weak else 'not too weak'}, half after {half_depths[i]:.0f})"
        for i in weak + strong
    )
    if not short:
        return Ruling(HOLDS, found)
    against = "; ".join(f"{name}: too weak {low:.4f}, not too weak {high:.4f}" for name, (low, high) in short.items())
    if len(short) < len(networks):
        return Ruling(
            CONDITION, f"in {len(networks) - len(short)} of {len(networks)} networks; not in {against}; {found}"
        )
    return Ruling(FALSE, found)
