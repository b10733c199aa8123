"""What decides the claims of ``dong_step``: one step of attention."""

from collections.abc import Sequence

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
    found = (
        f"adding 1 c^T changes an entry by {per_column:.2g}, c 1^T by {per_row:.1g}; "
        f"leaving out 1 r^T changes P by {without_r:.2g}"
    )
    return Ruling(HOLDS if per_column <= roundoff else FALSE, found)


def s04(*, uniform_slope: float, all_slope: float, row_slope: float, slope: float) -> Ruling:
    """Uniform limit and quadratic logits."""
    found = (
        f"distance from uniform ~ scale^{uniform_slope:.2f}; logits ~ norm(R)^{all_slope:.2f}, "
        f"their part that differs between rows ~ norm(R)^{row_slope:.2f}"
    )
    if abs(uniform_slope - 1) > slope or abs(row_slope - 2) > slope:
        return Ruling(FALSE, found)
    if abs(all_slope - 2) > slope:
        return Ruling(CONDITION, f"{found}: quadratic only without a mean token, else up to the term 1 r^T")
    return Ruling(HOLDS, found)


def s05(*, largest_ratio: float, roundoff: float) -> Ruling:
    """The cubic bound."""
    share = 2 * largest_ratio  # of the constant 1/2
    bound = "C = 1/2 sum_h norm(W_QK,h) norm(W_VO,h) / sqrt(d_k)"
    found = f"norm(R') at most {share:.4f} of the bound with {bound}, over all inputs tried"
    return Ruling(HOLDS if share <= 1 + roundoff else FALSE, found)
