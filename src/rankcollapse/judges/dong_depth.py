"""What decides the claims of ``dong_depth``: pure self-attention by depth."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


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
        f"the residual is positive at every layer (10^{log10_residual_last:.0f} at the last), "
        f"effective rank less one is 10^{log10_effective_rank_excess_last:.0f}: 1 only to working precision",
    )


def s12(*, activations: Sequence[str], tail_order_low: float, tail_order_high: float, order: float) -> Ruling:
    """Singly exponential with MLPs."""
    tried = f"{', '.join(activations)}, with and without LayerNorm"
    found = f"order of the last steps {tail_order_low:.3f} to {tail_order_high:.3f} for {tried}"
    if max(abs(tail_order_low - 1), abs(tail_order_high - 1)) <= order:
        return Ruling(HOLDS, found)
    if max(abs(tail_order_low - 3), abs(tail_order_high - 3)) <= order:
        return Ruling(FALSE, f"{found}: still doubly exponential, only the onset moves")
    return Ruling(CONDITION, found)
