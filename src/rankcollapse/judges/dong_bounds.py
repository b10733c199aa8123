"""What decides the claim of ``dong_bounds``: the lower bound on the residual with skips."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def s10(
    *,
    margin_attention: float,
    margin_branch: float,
    violations: int,
    layers: int,
    pair_step: float,
    pair_bound: float,
    inits: Sequence[str],
    largest_gamma: Sequence[float],
    vacuous: Sequence[float],
    roundoff: float,
) -> Ruling:
    """Return whether norm(R') >= (1 - gamma) norm(R), and with which gamma; margins are of the ratio over the bound."""
    listed = ", ".join(
        f"{init} {gamma:.2g} ({share:.0%} of layers at 1 or more)"
        for init, gamma, share in zip(inits, largest_gamma, vacuous, strict=True)
    )
    found = (
        f"with gamma of the attention matrices alone {violations} of {layers} layers break it, and two tokens with "
        f"W_V = -2 I have norm(R_1) = {pair_step:.2g} norm(R_0) where it says {pair_bound:.2g}; "
        f"with gamma of the whole branch the smallest margin is {margin_branch:.2g}; that gamma is at most {listed}"
    )
    if margin_attention >= -roundoff:
        return Ruling(HOLDS, found)
    if margin_branch >= -roundoff and min(largest_gamma) < 1:
        return Ruling(CONDITION, f"{found}: true with gamma of the whole branch, W_V W_O included, and below 1")
    return Ruling(FALSE, found)
