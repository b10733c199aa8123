"""What decides the claims of ``graph_smoothing``: dense attention against graph networks, and the remedies."""

from collections.abc import Mapping, Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling

SMALLEST = 1e-100  # shares are told no smaller


def s23(
    *,
    cases: Sequence[str],
    networks: Sequence[str],
    faster_share: Sequence[Sequence[float]],
    dense_layers: Sequence[Sequence[float]],
    network_layers: Sequence[Sequence[float]],
    layers: int,
    smoothed: float,
) -> Ruling:
    """Dense attention over-smooths faster than a graph neural network.

    By case, standard attention alone first: for each network the smallest share, over graphs, of runs in which dense
    attention is faster; the fewest and most layers, over graphs, that dense attention and any network take. More than
    ``layers``: not within this depth.
    """

    def span(values: Sequence[float]) -> str:
        return " to ".join(f"{value:.1f}" if value <= layers else f"more than {layers}" for value in values)

    found = "; ".join(
        f"{case}: {span(dense)} layers against {span(other)}, faster in at least "
        + ", ".join(f"{share:.0%} of runs than {name}" for name, share in zip(networks, shares, strict=True))
        for case, dense, other, shares in zip(cases, dense_layers, network_layers, faster_share, strict=True)
    )
    found = f"layers to {smoothed:.0%} of the initial relative residual, {found}"
    slower = [case for case, shares in zip(cases, faster_share, strict=True) if min(shares) < 1]
    if not slower:
        return Ruling(HOLDS, found)
    if cases[0] not in slower:
        return Ruling(CONDITION, f"not always {', '.join(slower)}; {found}")
    return Ruling(FALSE, found)


def _share(value: float) -> str:
    return f"{value:.2g}" if value > SMALLEST else f"below {SMALLEST:g}"


def s24(
    *,
    kinds: Mapping[str, Sequence[str]],
    kept_share: Mapping[str, float],
    late_share: Mapping[str, float],
    layers_ratio: Mapping[str, float],
    kept: float,
    still: float,
) -> Ruling:
    """Virtual nodes, structural encodings or residual scaling prevent over-smoothing.

    ``kinds``: the forms of each kind of remedy; by form, the smallest shares over networks and graphs, and how many
    times as many layers as without it a network takes to smooth (median).
    """
    prevents = {form for form, share in kept_share.items() if share >= kept and late_share[form] >= still}
    found = "smallest share of the initial relative residual at the end (and of that at half the depth): " + ", ".join(
        f"{form} {_share(share)} ({_share(late_share[form])})" for form, share in kept_share.items()
    )
    times = "layers to smooth, times those without a remedy (never: one more than the depth): " + ", ".join(
        f"{form} {ratio:.2f}" for form, ratio in layers_ratio.items()
    )
    without = [kind for kind, forms in kinds.items() if not prevents & set(forms)]
    if not without and prevents >= {form for forms in kinds.values() for form in forms}:
        return Ruling(HOLDS, f"{found}; {times}")
    who = f"{', '.join(sorted(prevents))} prevent it" if len(prevents) > 1 else f"{next(iter(prevents), 'none')} does"
    if without:
        return Ruling(
            FALSE,
            f"no form of {', '.join(without)} prevents it for every network on every graph, {who}; {found}; {times}",
        )
    return Ruling(CONDITION, f"only {who}; {found}; {times}")
