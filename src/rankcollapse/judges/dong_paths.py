"""What decides the claim of ``dong_paths``: how many paths there are, and which of them carry the residual."""

from collections.abc import Mapping

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def s09(
    *,
    layers: int,
    heads: int,
    paths: int,
    random_shares: Mapping[str, float],
    trained_shares: Mapping[str, float],
    short_paths: float,
    share: float,
) -> Ruling:
    """Return whether there are 2^L paths and the short ones carry the residual."""
    listed = ", ".join(f"{name} {value:.4f}" for name, value in {**random_shares, **trained_shares}.items())
    counted = (
        f"{paths} paths through {layers} layers of {heads} heads, {heads + 1}^{layers}, not 2^{layers} = {2**layers}"
    )
    if paths == 2**layers:
        counted = f"2^{layers} = {paths} paths through {layers} layers"
    found = (
        f"{counted}; those through fewer than L/2 heads are {short_paths:.1e} of them "
        f"and carry at least these parts of the residual: {listed}"
    )
    if min(random_shares.values()) < share:
        return Ruling(FALSE, found)
    conditions = []
    if paths != 2**layers:
        conditions.append(f"2^{layers} counts the heads of a layer as one branch")
    if min(trained_shares.values()) < share:
        conditions.append("the short paths carry the residual at initialisation only")
    if conditions:
        return Ruling(CONDITION, f"{found}: {', and '.join(conditions)}")
    return Ruling(HOLDS, found)
