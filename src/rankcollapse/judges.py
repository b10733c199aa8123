"""The functions that decide claims, one a claim, in the table ``JUDGES``.

Each takes the measured numbers by name, then the limits that ``config/claims.yaml`` states for its claim, and returns a
ruling: the verdict and, in one sentence with the numbers, why. The criterion in words stands beside the limits.
"""

from collections.abc import Callable, Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def s01(
    *,
    hull_distance: float,
    range_ratio: float,
    frobenius_ratio: float,
    value_ratio: float,
    hull: float,
    roundoff: float,
) -> Ruling:
    """Convex hull, and no larger spread."""
    if hull_distance > hull:
        return Ruling(FALSE, f"a row of P X lies {hull_distance:.1e} diameters outside the hull")
    if range_ratio > 1 + roundoff:
        return Ruling(FALSE, f"range or diameter of P X up to {range_ratio:.6g} times that of X")
    spreads = {"the Frobenius residual of P X": frobenius_ratio, "the spread after values": value_ratio}
    wider = [f"{what} is up to {ratio:.3g} times as large" for what, ratio in spreads.items() if ratio > 1 + roundoff]
    if wider:
        return Ruling(CONDITION, f"true of the hull, ranges and the diameter of P X; but {' and '.join(wider)}")
    return Ruling(HOLDS, "every row in the hull, no spread larger than before")


def s02(*, kinds: Sequence[str], worst_ratio: Sequence[float], rate: Sequence[float], roundoff: float) -> Ruling:
    """Constant 1 in front of lambda^l."""
    worst = dict(zip(kinds, worst_ratio, strict=True))
    listed = ", ".join(f"{kind} {ratio:.3g}" for kind, ratio in worst.items())
    rates = ", ".join(f"{kind} {value:.3f}" for kind, value in zip(kinds, rate, strict=True))
    found = f"largest norm(R_l) / (lambda^l norm(R_0)): {listed}; fitted rate over lambda: {rates}"
    if max(worst.values()) <= 1 + roundoff:
        return Ruling(HOLDS, found)
    if max(worst["softmax"], worst["causal"]) <= 1 + roundoff:
        return Ruling(CONDITION, f"{found}: true of matrices that are normal")
    return Ruling(FALSE, f"{found}: lambda^l is the rate, but a constant above 1 stands in front unless P is normal")


def s03(*, per_row: float, per_column: float, without_r: float, roundoff: float) -> Ruling:
    """Shift invariance of row softmax."""
    found = f"adding 1 c^T changes an entry by {per_column:.2g}, c 1^T by {per_row:.1g}; leaving out 1 r^T changes P by {without_r:.2g}"
    return Ruling(HOLDS if per_column <= roundoff else FALSE, found)


def s04(*, uniform_slope: float, all_slope: float, row_slope: float, slope: float) -> Ruling:
    """Uniform limit and quadratic logits."""
    found = f"distance from uniform ~ scale^{uniform_slope:.2f}; logits ~ norm(R)^{all_slope:.2f}, their part that differs between rows ~ norm(R)^{row_slope:.2f}"
    if abs(uniform_slope - 1) > slope or abs(row_slope - 2) > slope:
        return Ruling(FALSE, found)
    if abs(all_slope - 2) > slope:
        return Ruling(CONDITION, f"{found}: quadratic only without a mean token, else up to the term 1 r^T")
    return Ruling(HOLDS, found)


def s05(*, largest_ratio: float, roundoff: float) -> Ruling:
    """The cubic bound."""
    share = 2 * largest_ratio  # of the constant 1/2
    found = f"norm(R') at most {share:.4f} of the bound with C = 1/2 sum_h norm(W_QK,h) norm(W_VO,h) / sqrt(d_k), over all inputs tried"
    return Ruling(HOLDS if share <= 1 + roundoff else FALSE, found)


def s06(
    *,
    order_low: float,
    order_high: float,
    gains_without_collapse: Sequence[float],
    masked_slope: float,
    small: float,
    order: float,
) -> Ruling:
    """Doubly exponential decay of base 3."""
    found = (
        f"local order between {order_low:.3f} and {order_high:.3f} wherever the relative residual is below {small:g}"
    )
    if not (3 - order <= order_low and order_high <= 3 + order):
        return Ruling(FALSE, found)
    exceptions = []
    if gains_without_collapse:
        gains = ", ".join(f"{gain:g}" for gain in gains_without_collapse)
        exceptions.append(f"not with logits scaled by {gains}, where attention saturates")
    if abs(masked_slope - 3) > order:
        exceptions.append(f"not under a causal mask or position bias, where the order is {masked_slope:.2f}")
    return Ruling(CONDITION, f"{found}; {' and '.join(exceptions)}") if exceptions else Ruling(HOLDS, found)


def s07(
    *,
    inits: Sequence[str],
    first_layers: Sequence[int],
    first_layers_by_gain: Sequence[float],
    epsilon: float,
    first: float,
    last: float,
) -> Ruling:
    """Machine precision within 5 to 7 layers."""
    found = ", ".join(f"{init} {layer}" for init, layer in zip(inits, first_layers, strict=True))
    claimed = [first <= layer <= last for layer in first_layers]
    verdict = HOLDS if all(claimed) else CONDITION if any(claimed) else FALSE
    return Ruling(verdict, f"first layer below {epsilon:g}: {found}")


def s08(*, log10_residual_last: float, log10_effective_rank_excess_last: float) -> Ruling:
    """Effective rank exactly 1."""
    if log10_residual_last == float("-inf"):
        return Ruling(HOLDS, "the residual is exactly zero at the last layer")
    return Ruling(
        FALSE,
        f"the residual is positive at every layer (10^{log10_residual_last:.0f} at the last), effective rank less one is "
        f"10^{log10_effective_rank_excess_last:.0f}: 1 only to working precision",
    )


def s12(*, activations: Sequence[str], tail_order_low: float, tail_order_high: float, order: float) -> Ruling:
    """Singly exponential with MLPs."""
    found = f"order of the last steps {tail_order_low:.3f} to {tail_order_high:.3f} for {', '.join(activations)}, with and without LayerNorm"
    if max(abs(tail_order_low - 1), abs(tail_order_high - 1)) <= order:
        return Ruling(HOLDS, found)
    if max(abs(tail_order_low - 3), abs(tail_order_high - 3)) <= order:
        return Ruling(FALSE, f"{found}: still doubly exponential, only the onset moves")
    return Ruling(CONDITION, found)


def m01(
    *,
    lengths: Sequence[int],
    leading_error: float,
    bulk_radius: Sequence[float],
    off_diagonal_share: float,
    roundoff: float,
    radius: float,
    offdiagonal: float,
) -> Ruling:
    """The gap on text in a random RoBERTa."""
    radii = ", ".join(f"{value:.3f} at T = {size}" for size, value in zip(lengths, bulk_radius, strict=True))
    found = f"next modulus at most {radii}; inputs' off-diagonal {off_diagonal_share:.2f} of the diagonal"
    gaps = [leading_error <= roundoff and value < radius for value in bulk_radius]
    if off_diagonal_share < offdiagonal:
        return Ruling(CONDITION, f"{found}, so they are nearly orthogonal")
    return Ruling(HOLDS if all(gaps) else CONDITION if any(gaps) else FALSE, found)


def m07(
    *,
    configs: Sequence[str],
    last_stable_rank: Sequence[float],
    recent_fall: Sequence[float],
    collapsed: float,
    kept: float,
    falls: float,
) -> Ruling:
    """Markov attention: collapse except without gap or attention."""
    with_gap = [name.split(" + ")[0] == "A" for name in configs]
    gone = [rank for rank, gap in zip(last_stable_rank, with_gap, strict=True) if gap]
    others = [rank for rank, gap in zip(last_stable_rank, with_gap, strict=True) if not gap]
    falling = [
        f"{name} ({rank:.2f})"
        for name, rank, fall, gap in zip(configs, last_stable_rank, recent_fall, with_gap, strict=True)
        if not gap and fall >= falls
    ]
    found = f"last stable rank at most {max(gone):.4f} with the gap and at least {min(others):.2f} without it or without attention"
    if max(gone) > 1 + collapsed or min(others) < kept:
        return Ruling(FALSE, found)
    if falling:
        return Ruling(CONDITION, f"{found}, within this depth: still falling are {', '.join(falling)}")
    return Ruling(HOLDS, found)


def m09(
    *,
    ratios: Sequence[float],
    leading_error: float,
    bulk_radius: Sequence[Sequence[float]],
    circular_distance: Sequence[float],
    roundoff: float,
    radius: float,
    circular: float,
) -> Ruling:
    """The gap for tokens that are not isometric, and the bulk's shape."""
    largest = max(max(row) for row in bulk_radius)
    shrinks = all(later < earlier for row in bulk_radius for earlier, later in zip(row, row[1:], strict=False))
    distances = ", ".join(f"{value:.3f} at {ratio:g}" for ratio, value in zip(ratios, circular_distance, strict=True))
    found = f"next modulus at most {largest:.3f}; distance from the circular law by gamma: {distances}"
    if leading_error > roundoff or largest >= radius or not shrinks:
        return Ruling(FALSE, found if shrinks else f"{found}; the gap does not widen with T")
    changes = all((value > circular) == (ratio > 1) for ratio, value in zip(ratios, circular_distance, strict=True))
    return Ruling(HOLDS if changes else CONDITION, found)


JUDGES: dict[str, Callable[..., Ruling]] = {
    "S01": s01,
    "S02": s02,
    "S03": s03,
    "S04": s04,
    "S05": s05,
    "S06": s06,
    "S07": s07,
    "S08": s08,
    "S12": s12,
    "M01": m01,
    "M07": m07,
    "M09": m09,
}


def judge_of(claim: str) -> Callable[..., Ruling]:
    """Return the function that decides a claim; ``KeyError`` when none is written."""
    return JUDGES[claim]
