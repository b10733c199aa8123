"""What decides the claim of ``gap_finite_size``: whether practical sizes are at the limits already."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN, Ruling


def m14(
    *,
    tokens: Sequence[int],
    radius_error: Sequence[float],
    top_error: Sequence[float],
    edge_error: Sequence[float],
    fewest: float,
    most: float,
    error: float,
) -> Ruling:
    """Finite size. Each error is the largest over gamma <= 1 at each number of tokens."""
    sizes = [size for size in tokens if fewest <= size <= most]
    if not sizes:
        return Ruling(NOT_RUN, f"no T between {fewest:g} and {most:g} was measured")
    named = {"|lambda_2|": radius_error, "s_1": top_error, "s_2": edge_error}
    judged = {
        name: [e for size, e in zip(tokens, errors, strict=True) if size in sizes] for name, errors in named.items()
    }
    found = "; ".join(f"{name} {', '.join(f'{e:.1%}' for e in errors)}" for name, errors in judged.items())
    found = f"relative error at T = {', '.join(map(str, sizes))}: {found}"
    if all(max(errors) <= error for errors in judged.values()):
        return Ruling(HOLDS, found)
    good = [max(pair) <= error for pair in zip(judged["|lambda_2|"], judged["s_1"], strict=True)]
    if not good[-1]:
        return Ruling(FALSE, found)
    start = sizes[max((n + 1 for n, ok in enumerate(good) if not ok), default=0)]
    beyond = "" if max(judged["s_2"]) <= error else ", but not s_2"
    return Ruling(CONDITION, f"within {error:.0%} are |lambda_2| and s_1 from T = {start} on{beyond}; {found}")
