"""What decides the claims of ``gap_activations``: the gap by activation, and differential attention."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN, Ruling


def m13(
    *,
    activations: Sequence[str],
    gaps: Sequence[Sequence[float]],
    z_scores: Sequence[Sequence[float]],
    largest_after: float,
    variance: float,
    errors: float,
    kept: float,
) -> Ruling:
    """Smaller gap for ReLU and sigmoid, and its removal.

    ``gaps`` and ``z_scores`` hold, for each activation, |lambda_1|/|lambda_2|, s_1/s_2 and |lambda_1| - |lambda_2|: the
    mean, and the largest over gamma of the difference from softmax in standard errors.
    """
    ratios, singular, differences = (
        ", ".join(f"{name} {values[sense]:.3g}" for name, values in zip(activations, gaps, strict=True))
        for sense in range(3)
    )
    found = (
        f"at logit variance {variance:g}, |lambda_1|/|lambda_2|: {ratios}; s_1/s_2: {singular}; "
        f"|lambda_1| - |lambda_2|: {differences}; once the mean row sum E f is removed, the first value is at most "
        f"{largest_after:.2f} times the next"
    )
    if largest_after > kept:
        return Ruling(FALSE, f"removing the gap fails; {found}")
    z = dict(zip(activations, z_scores, strict=True))
    if missing := {"relu", "sigmoid", "sigmoid/T"} - set(activations):
        return Ruling(NOT_RUN, f"not measured: {', '.join(sorted(missing))}")
    scale_free = {name: max(z[name][:2]) < -errors for name in z}
    if scale_free["relu"] and scale_free["sigmoid"] and scale_free["sigmoid/T"]:
        return Ruling(HOLDS, found)
    either = {name: scale_free[name] or z[name][2] < -errors for name in z}
    if either["relu"] and (either["sigmoid"] or either["sigmoid/T"]):
        senses = ", ".join(
            f"{name} {'in ratio' if scale_free[name] else 'only as the difference' if either[name] else 'in no sense'}"
            for name in ("relu", "sigmoid", "sigmoid/T")
        )
        return Ruling(CONDITION, f"smaller for {senses}; {found}")
    return Ruling(FALSE, found)


def m16(
    *,
    tokens: Sequence[int],
    weights: Sequence[float],
    along_violations: int,
    top_share: Sequence[Sequence[Sequence[float]]],
    variance: float,
) -> Ruling:
    """Differential attention and the dominant direction.

    ``weights``: of softmax (0), of differential attention, of centred softmax (1). ``top_share``: by kind, gamma and T.
    """
    softmax, *between, centred = top_share
    exceptions: dict[float, set[int]] = {}
    for weight, shares in zip(weights[1:-1], between, strict=True):
        for low, share, high in zip(centred, shares, softmax, strict=True):
            shuffled = {size for size, a, b, c in zip(tokens, low, share, high, strict=True) if not a < b < c}
            exceptions[weight] = exceptions.get(weight, set()) | shuffled
    last = [f"{max(by_gamma[-1] for by_gamma in share):.3f}" for share in top_share]
    found = (
        f"share of s_1^2 at T = {tokens[-1]}, logit variance {variance:g}: softmax {last[0]}, differential "
        f"{', '.join(last[1:-1])} for lambda = {', '.join(f'{weight:.2f}' for weight in weights[1:-1])}, "
        f"centred {last[-1]}"
    )
    if along_violations:
        return Ruling(FALSE, f"{along_violations} runs do not fall along 11^T; {found}")
    at = "; ".join(
        f"lambda = {weight:.2f} at T = {', '.join(map(str, sorted(sizes)))}"
        for weight, sizes in exceptions.items()
        if sizes
    )
    if at:
        return Ruling(
            CONDITION, f"along 11^T always, but s_1 is out of order where the bulk reaches it ({at}); {found}"
        )
    return Ruling(HOLDS, found)
