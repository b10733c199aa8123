"""Scale-free propagation against plain passes, against mpmath at thousands of digits, and against the theory's laws."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from rankcollapse.inits import gaussian, orthogonal
from rankcollapse.randomness import generator
from rankcollapse.residual import local_order
from rankcollapse.scalefree import State, add, from_tokens, layer_norm
from rankcollapse.scalefree_attention import (
    Attention,
    attend,
    attention_matrix,
    departure,
    leading_residual,
    logit_parts,
    plain_attention,
)
from rankcollapse.scalefree_mlp import ACTIVATIONS, Mlp, plain_mlp, transform
from rankcollapse.scalefree_spectrum import (
    log_effective_rank_excess,
    log_singular_values,
    log_stable_rank_excess,
)

TOKENS, WIDTH, HEADS, HIDDEN = 4, 6, 2, 8


@dataclass(frozen=True)
class Layer:
    """Everything one layer of the variants may need."""

    attention: Attention
    mlp: Mlp
    gain: torch.Tensor
    bias: torch.Tensor


def draw_layer(key: object, activation: str = "gelu", gain: float = 1.0, **changes: object) -> Layer:
    g = generator(0, "layer", key)
    square = [gaussian(WIDTH, WIDTH, g, gain * WIDTH**-0.5) for _ in range(4)]
    rows = [gaussian(1, WIDTH, g, 0.3) for _ in range(5)]
    attention = Attention(*square, heads=HEADS, query_bias=rows[0], value_bias=rows[1], output_bias=rows[2], **changes)
    first, second = gaussian(WIDTH, HIDDEN, g, WIDTH**-0.5), gaussian(HIDDEN, WIDTH, g, HIDDEN**-0.5)
    mlp = Mlp(first, second, activation, gaussian(1, HIDDEN, g, 0.3), gaussian(1, WIDTH, g, 0.3))
    return Layer(attention, mlp, 1 + rows[3], rows[4])


def draw_tokens(*batch: int) -> torch.Tensor:
    count = int(np.prod(batch, dtype=int))
    return gaussian(count * TOKENS, WIDTH, generator(0, "tokens")).reshape(*batch, TOKENS, WIDTH)


causal = torch.full((TOKENS, TOKENS), -torch.inf, dtype=torch.float64).triu(1)
place = torch.arange(TOKENS, dtype=torch.float64)
alibi = torch.stack([-slope * (place - place[:, None]).abs() for slope in (0.5, 0.1)])

# A variant: attention skip, norm, MLP, MLP skip; and what its attention is changed to.
VARIANTS: dict[str, tuple[bool, bool, bool, bool, str, dict[str, object]]] = {
    "san": (False, False, False, False, "gelu", {}),
    "san+skip": (True, False, False, False, "gelu", {}),
    "san+skip+ln": (True, True, False, False, "gelu", {}),
    "san+mlp relu": (False, False, True, False, "relu", {}),
    "san+mlp tanh": (False, False, True, False, "tanh", {}),
    "san+mlp gelu": (False, False, True, False, "gelu", {}),
    "san+mlp+skip+ln relu": (False, True, True, True, "relu", {}),
    "san+mlp+skip+ln gelu": (False, True, True, True, "gelu", {}),
    "full": (True, True, True, True, "gelu", {}),
    "full tanh": (True, True, True, True, "tanh", {}),
    "causal": (False, False, False, False, "gelu", {"position": causal}),
    "alibi": (False, False, False, False, "gelu", {"position": alibi}),
    "full causal": (True, True, True, True, "gelu", {"position": causal}),
    "frozen": (False, False, False, False, "gelu", {"frozen": torch.softmax(alibi, -1)}),
}


def step(before: State, layer: Layer, variant: str) -> State:
    attention_skip, norm, mlp, mlp_skip, _, _ = VARIANTS[variant]
    after = attend(before, layer.attention)
    after = add(before, after) if attention_skip else after
    after = layer_norm(after, layer.gain, layer.bias) if norm else after
    if mlp:
        moved = transform(after, layer.mlp)
        after = add(after, moved) if mlp_skip else moved
        after = layer_norm(after, layer.gain, layer.bias) if norm else after
    return after


# ---------------------------------------------------------------- the reference: a plain pass in mpmath numbers

exact = np.vectorize(mpf, otypes=[object])
exp, tanh, root = (np.vectorize(f, otypes=[object]) for f in (mp.exp, mp.tanh, mp.sqrt))
MP_ACTIVATIONS = {
    "relu": np.vectorize(lambda a: max(a, mpf(0)), otypes=[object]),
    "tanh": tanh,
    "gelu": np.vectorize(lambda a: a * mp.erfc(-a / mp.sqrt(2)) / 2, otypes=[object]),
}


def mp_attention(tokens: np.ndarray, layer: Attention) -> np.ndarray:
    width = WIDTH // HEADS
    q, k, v, o = (exact(w.numpy()) for w in (layer.query, layer.key, layer.value, layer.output))
    q, k, v = tokens @ q + exact(layer.query_bias.numpy()), tokens @ k, tokens @ v + exact(layer.value_bias.numpy())
    mixed = []
    for h in range(HEADS):
        part = slice(h * width, (h + 1) * width)
        logits = q[:, part] @ k[:, part].T / mp.sqrt(width)
        if layer.position is not None:
            logits = logits + exact(layer.position.expand(HEADS, TOKENS, TOKENS)[h].numpy())
        weights = exp(logits)
        weights = weights / weights.sum(-1, keepdims=True)
        if layer.frozen is not None:
            weights = exact(layer.frozen[h].numpy())
            weights = weights / weights.sum(-1, keepdims=True)  # rows of doubles sum to 1 only within 1e-16
        mixed.append(weights @ v[:, part])
    return np.concatenate(mixed, -1) @ o + exact(layer.output_bias.numpy())


def mp_norm(tokens: np.ndarray, gain: torch.Tensor, bias: torch.Tensor) -> np.ndarray:
    centred = tokens - tokens.sum(-1, keepdims=True) / WIDTH
    variance = (centred * centred).sum(-1, keepdims=True) / WIDTH
    return exact(gain.numpy()) * centred / root(variance + mpf(1e-5)) + exact(bias.numpy())


def mp_step(tokens: np.ndarray, layer: Layer, variant: str) -> np.ndarray:
    attention_skip, norm, mlp, mlp_skip, activation, _ = VARIANTS[variant]
    after = mp_attention(tokens, layer.attention)
    after = tokens + after if attention_skip else after
    after = mp_norm(after, layer.gain, layer.bias) if norm else after
    if mlp:
        first, second = exact(layer.mlp.first.numpy()), exact(layer.mlp.second.numpy())
        hidden = MP_ACTIVATIONS[activation](after @ first + exact(layer.mlp.first_bias.numpy()))
        moved = hidden @ second + exact(layer.mlp.second_bias.numpy())
        after = after + moved if mlp_skip else moved
        after = mp_norm(after, layer.gain, layer.bias) if norm else after
    return after


def mp_errors(tokens: np.ndarray, got: State) -> tuple[float, float, float]:
    """Errors of ln ‖R‖, of the direction and of the mean token against tokens in mpmath numbers."""
    mean = tokens.sum(0, keepdims=True) / len(tokens)
    residual = tokens - mean
    norm = mp.sqrt((residual * residual).sum())
    return (
        float(abs(mp.log(norm) - mpf(got.log_norm.item()))),
        float(np.abs(residual / norm - exact(got.direction.numpy())).max()),
        float(np.abs(mean - exact(got.mean.numpy())).max()),
    )


def propagate(tokens: torch.Tensor, layers: list[Layer], variant: str) -> list[State]:
    states = [from_tokens(tokens)]
    for layer in layers:
        states.append(step(states[-1], layer, variant))
    return states


def amplification(layers: list[Layer], variant: str) -> float:
    """By how much the network itself multiplies a relative change of its input, in ln ‖R_L‖: five random changes."""
    tokens, last = draw_tokens(), []
    for draw in range(5):
        sign = gaussian(TOKENS, WIDTH, generator(0, "change", draw)).sign()
        last.append(propagate(tokens * (1 + 1e-8 * sign), layers, variant)[-1].log_norm.item())
    return max(abs(value - propagate(tokens, layers, variant)[-1].log_norm.item()) / 1e-8 for value in last)


@pytest.mark.parametrize("variant", VARIANTS)
def test_scale_free_equals_mpmath_for_six_layers(variant: str) -> None:
    layers = [draw_layer(i, VARIANTS[variant][4], 1.0, **VARIANTS[variant][5]) for i in range(6)]
    states = propagate(draw_tokens(), layers, variant)
    # 3^6 is what six cubing layers make of a relative error, here of 1e-15. A network that amplifies more, as one
    # with LayerNorm may, is allowed in proportion: its exact result moves as much with the last digit of an input.
    tolerance = 1e-12 * max(1.0, amplification(layers, variant) / 3**6)
    digits = 40 - int(states[-1].log_norm / np.log(10))  # fewer digits than the residual has and the reference is wrong
    with mp.workdps(max(digits, 40)):
        tokens = exact(draw_tokens().numpy())
        for depth, layer in enumerate(layers, start=1):
            tokens = mp_step(tokens, layer, variant)
            assert max(mp_errors(tokens, states[depth])) < tolerance, depth


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("log_norm", [1.0, -3.0, -30.0, -400.0])
def test_one_step_equals_mpmath_to_rounding(variant: str, log_norm: float) -> None:
    layer = draw_layer("one step", VARIANTS[variant][4], 1.0, **VARIANTS[variant][5])
    base = from_tokens(draw_tokens())
    before = State(base.mean, base.direction, torch.tensor(log_norm, dtype=torch.float64))
    with mp.workdps(600):
        tokens = exact(before.mean.numpy()) + mp.exp(mpf(log_norm)) * exact(before.direction.numpy())
        # 2e-14: some tens of roundings; and ln ‖R‖ itself, up to 1200, is stored to 1e-16 of its size
        assert max(mp_errors(mp_step(tokens, layer, variant), step(before, layer, variant))) < 2e-14 - 3e-16 * min(
            3 * log_norm, 0
        )


def test_san_equals_mpmath_down_to_1e_minus_3700() -> None:
    layers = [draw_layer(i).attention for i in range(9)]
    after = from_tokens(draw_tokens())
    for layer in layers:
        after = attend(after, layer)
    log10 = after.log_norm.item() / np.log(10)
    assert log10 < -3700
    with mp.workdps(40 - int(log10)):
        tokens = exact(draw_tokens().numpy())
        for layer in layers:
            tokens = mp_attention(tokens, layer)
        # 2e-11: 3^9 x 1e-15, the relative error of ‖R‖ tripled by each of nine layers
        assert max(mp_errors(tokens, after)) < 2e-11


@pytest.mark.parametrize("asked", [30.0, 1e3, 5e4])
def test_attention_that_is_nearly_one_hot_keeps_relative_precision(asked: float) -> None:
    layer = draw_layer("one-hot").attention
    layer = replace(layer, query_bias=asked * layer.query_bias)
    before = from_tokens(0.1 * draw_tokens() + 1)
    quadratic, linear = logit_parts(before, layer)
    p = departure(quadratic, linear, before.scale[..., None])[0]
    with mp.workdps(400):
        tokens = exact(before.mean.numpy()) + mp.exp(mpf(before.log_norm.item())) * exact(before.direction.numpy())
        error = max(mp_errors(mp_attention(tokens, layer), attend(before, layer)))
    # The rounding of a few operations, and of the largest logit, which an exponential makes a relative error
    assert error < 1e-14 + 1e-15 * (before.scale * linear).abs().max()
    # At the last of them the tokens that are not picked weigh less than the square of a rounding error
    assert (p.sort(-1).values[..., -2].amax() < 1e-32) == (asked == 5e4)


# ---------------------------------------------------------------- the state


def test_state_of_two_tokens_by_hand() -> None:
    two = from_tokens(torch.tensor([[1.0, 0.0], [3.0, 0.0]], dtype=torch.float64))
    assert two.mean.tolist() == [[2.0, 0.0]]
    assert two.log_norm.item() == pytest.approx(np.log(2) / 2, abs=1e-15)  # residual rows -1 and +1: one rounding
    # ‖R‖ = sqrt 2, ‖X‖ = sqrt 10
    assert two.log_relative.exp().item() == pytest.approx(0.2**0.5, abs=1e-15)
    torch.testing.assert_close(two.direction, torch.tensor([[-1.0, 0], [1, 0]], dtype=torch.float64) / 2**0.5)


def test_state_has_a_centred_unit_direction_and_returns_its_tokens() -> None:
    tokens = 100 + draw_tokens(3)
    got = from_tokens(tokens)
    assert got.direction.sum(-2).abs().max() < 1e-15  # centred twice: the rounding of a unit matrix, not of 100
    torch.testing.assert_close(torch.linalg.norm(got.direction, dim=(-2, -1)), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(got.tokens, tokens, rtol=1e-14, atol=0)  # two roundings


def test_equal_tokens_have_no_residual_and_stay_equal() -> None:
    layer = draw_layer("equal")
    tokens = torch.ones(TOKENS, WIDTH, dtype=torch.float64)
    equal = from_tokens(tokens)
    assert equal.log_norm.item() == -torch.inf
    for variant in ("full", "san+mlp relu", "causal"):
        after = step(equal, draw_layer("equal", **VARIANTS[variant][5]), variant)
        assert after.log_norm.item() == -torch.inf
        assert after.mean.isfinite().all()
    assert add(equal, from_tokens(draw_tokens())).log_norm.item() == from_tokens(draw_tokens()).log_norm.item()
    assert add(equal, equal).log_norm.item() == -torch.inf
    # 1e-14: plain attention to the rounding of sums over 6 channels
    torch.testing.assert_close(
        attend(equal, layer.attention).tokens, plain_attention(tokens, layer.attention), rtol=0, atol=1e-14
    )


def test_a_residual_that_is_not_finite_is_refused() -> None:
    bad = draw_tokens()
    bad[0, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="residual norm"):
        from_tokens(bad)


def test_addition_is_exact_and_ignores_order_when_one_branch_is_far_below_the_other() -> None:
    big, small = from_tokens(draw_tokens()), from_tokens(draw_tokens(2)[1])
    faint = State(small.mean, small.direction, torch.tensor(-5000.0, dtype=torch.float64))
    assert (
        add(big, faint).log_norm.item()
        == add(faint, big).log_norm.item()
        == pytest.approx(big.log_norm.item(), abs=1e-15)
    )
    # 1e-14: a few roundings of numbers of order one
    torch.testing.assert_close(add(big, small).tokens, big.tokens + small.tokens, rtol=0, atol=1e-14)


# ---------------------------------------------------------------- against plain passes


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_batched_step_equals_a_plain_pass(variant: str) -> None:
    attention_skip, norm, mlp, mlp_skip, activation, changes = VARIANTS[variant]
    layer, tokens = draw_layer("plain", activation, **changes), draw_tokens(2, 3)
    after = plain_attention(tokens, layer.attention) + attention_skip * tokens

    def normalise(rows: torch.Tensor) -> torch.Tensor:
        return layer.gain * torch.nn.functional.layer_norm(rows, (WIDTH,)) + layer.bias

    after = normalise(after) if norm else after
    if mlp:
        after = plain_mlp(after, layer.mlp) + mlp_skip * after
        after = normalise(after) if norm else after
    # 1e-13: some tens of roundings, and LayerNorm divides by standard deviations of a few tenths
    torch.testing.assert_close(step(from_tokens(tokens), layer, variant).tokens, after, rtol=0, atol=1e-13)


def test_attention_commutes_with_a_permutation_of_the_tokens() -> None:
    layer, order = draw_layer("permute").attention, torch.tensor([2, 0, 3, 1])
    before = attend(from_tokens(draw_tokens()), layer)
    after = attend(from_tokens(draw_tokens()[order]), layer)
    # 1e-13: sums over tokens in another order
    torch.testing.assert_close(after.direction, before.direction[order], rtol=0, atol=1e-13)
    assert after.log_norm.item() == pytest.approx(before.log_norm.item(), abs=1e-13)


def test_logits_are_the_quadratic_part_plus_what_the_mean_token_asks() -> None:
    layer, before = draw_layer("logits").attention, from_tokens(draw_tokens())
    quadratic, linear = logit_parts(before, layer)
    logits = before.scale**2 * quadratic + before.scale * linear
    # 1e-14: weights of order one, a few roundings
    torch.testing.assert_close(torch.softmax(logits, -1), attention_matrix(before.tokens, layer), rtol=0, atol=1e-14)
    # Leaving 1 rᵀ out is wrong in the first digit
    assert (torch.softmax(before.scale**2 * quadratic, -1) - attention_matrix(before.tokens, layer)).abs().max() > 0.1


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-12, 1e-5, 1e-3, 0.3, 4.0, 100.0])
def test_activation_quotients_equal_mpmath(name: str, scale: float) -> None:
    g = generator(0, "quotient")
    a, b = 2 * gaussian(1, 60, g), gaussian(5, 60, g)
    got = ACTIVATIONS[name].quotient(a, b, torch.tensor([[scale]], dtype=torch.float64))
    with mp.workdps(60 if scale > 1e-20 else 700):
        f, e = MP_ACTIVATIONS[name], mpf(scale) if scale else mpf("1e-600")  # the limit, to 600 digits
        a_mp, b_mp = exact(a.numpy()), exact(b.numpy())
        want = (f(a_mp + e * b_mp) - f(a_mp)) / e
        # 1e-14 of the largest |b|, about 3: ten quadrature terms; for far steps |f| / (e b) roundings
        assert np.abs(want - exact(got.numpy())).max() < 3e-14


def test_relu_quotient_at_the_kink_is_one_sided() -> None:
    b = torch.tensor([[-2.0, 3.0]], dtype=torch.float64)
    for scale in (0.0, 1e-300, 1.0):
        got = ACTIVATIONS["relu"].quotient(torch.zeros(1, 2, dtype=torch.float64), b, torch.tensor(scale))
        assert got.tolist() == [[0.0, 3.0]]


@pytest.mark.parametrize("log_norm", [3.0, -2.0, -11.0, -14.5, -40.0, -5000.0])
def test_singular_values_and_ranks_equal_mpmath(log_norm: float) -> None:
    base = from_tokens(draw_tokens() + 1)
    collapsed = State(base.mean, base.direction, torch.tensor(log_norm, dtype=torch.float64))
    log_sigma = log_singular_values(collapsed)
    with mp.workdps(60 + int(abs(log_norm))):
        tokens = exact(base.mean.numpy()) + mp.exp(mpf(log_norm)) * exact(base.direction.numpy())
        sigma = sorted(
            (mp.sqrt(v) for v in mp.eigsy(mp.matrix((tokens @ tokens.T).tolist()), eigvals_only=True)), reverse=True
        )
        shares = [s / sum(sigma) for s in sigma]
        stable = mp.log(sum(s**2 for s in sigma[1:]) / sigma[0] ** 2)
        effective = mp.log(mp.expm1(-sum(p * mp.log(p) for p in shares)))
        logs = [float(mp.log(s)) for s in sigma]
    # 1e-9: an SVD of a matrix with relF 1e-6 knows its small singular values to 1e-10 of their size
    np.testing.assert_allclose(log_sigma.numpy(), logs, rtol=0, atol=1e-9)
    assert log_stable_rank_excess(log_sigma).item() == pytest.approx(float(stable), abs=1e-9)
    assert log_effective_rank_excess(log_sigma).item() == pytest.approx(float(effective), abs=1e-9)


# ---------------------------------------------------------------- the theory's laws, at 16 tokens of 32 channels

N, D = 16, 64


def wide_attention(key: object, heads: int = 4) -> Attention:
    g = generator(0, "wide", key)
    return Attention(*(gaussian(D, D, g, D**-0.5) for _ in range(4)), heads=heads)


def wide_state(zero_mean: bool = False) -> State:
    before = from_tokens(gaussian(N, D, generator(0, "wide tokens")) + gaussian(1, D, generator(0, "wide mean")))
    return State(0 * before.mean, before.direction, before.log_norm) if zero_mean else before


def ladder(zero_mean: bool, bottom: int) -> State:
    start = wide_state(zero_mean)
    decades = -torch.arange(2, bottom, dtype=torch.float64)
    return State(start.mean, start.direction, decades * np.log(10))


@pytest.mark.parametrize("zero_mean", [False, True])
def test_full_attention_has_order_three_whether_or_not_r_is_zero(zero_mean: bool) -> None:
    before = ladder(zero_mean, 13)
    slope = attend(before, wide_attention(0)).log_norm.diff() / before.log_norm.diff()
    assert (slope - 3).abs().max() < 0.01  # for ‖R‖ <= 1e-2


@pytest.mark.parametrize("kind", ["causal", "alibi"])
def test_masked_and_biased_attention_has_order_one(kind: str) -> None:
    place = torch.arange(N, dtype=torch.float64)
    distance = (place - place[:, None]).abs()
    position = {"alibi": -distance / 4, "causal": torch.full((N, N), -torch.inf, dtype=torch.float64).triu(1)}[kind]
    before = ladder(False, 13)
    layer = replace(wide_attention(0), position=position)
    slope = attend(before, layer).log_norm.diff() / before.log_norm.diff()
    assert (slope - 1).abs().max() < 0.01  # for ‖R‖ <= 1e-2


@pytest.mark.parametrize(
    ("zero_mean", "softmax_weights", "power"), [(False, False, 1), (True, False, 2), (False, True, 2)]
)
def test_leading_order_is_approached_linearly_or_quadratically(
    zero_mean: bool, softmax_weights: bool, power: int
) -> None:
    before, layer = ladder(zero_mean, 6), wide_attention(0)
    after, leading = attend(before, layer), leading_residual(before, layer, softmax_weights)
    actual = (after.log_norm - 3 * before.log_norm).exp()[:, None, None] * after.direction
    size = torch.linalg.norm(leading, dim=(-2, -1))
    deviation = torch.linalg.norm(actual - leading, dim=(-2, -1)) / size
    slope = deviation.log().diff() / before.log_norm.diff()
    assert (slope - power).abs().max() < 0.02  # the next order is ‖R‖ <= 1e-2 of it


def test_frobenius_bound_on_the_leading_order() -> None:
    before, layer = wide_state(zero_mean=True), wide_attention(0)
    norms = [
        torch.linalg.matrix_norm(layer.query[:, c] @ layer.key[:, c].T, 2)
        * torch.linalg.matrix_norm(layer.value[:, c] @ layer.output[c], 2)
        for c in torch.arange(D).split(D // 4)
    ]
    bound = sum(norms) / (N * (D / 4) ** 0.5)
    assert torch.linalg.norm(leading_residual(before, layer)) <= bound


def test_order_of_a_pure_network_is_three_once_the_residual_is_small() -> None:
    states = [wide_state()]
    for depth in range(8):
        states.append(attend(states[-1], wide_attention(depth)))
    order = local_order(torch.stack([s.log_norm for s in states]))
    small = torch.stack([s.log_relative for s in states])[1:-1] < np.log(1e-2)
    assert small.sum() >= 4
    assert (order[small] - 3).abs().max() < 0.1
    assert (order[4:] - 3).abs().max() < 0.01  # layer 5 and on


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", [False, True])
def test_an_mlp_without_attention_skip_leaves_the_order_at_three(activation: str, norm: bool) -> None:
    after, logs = wide_state(), []
    for depth in range(9):
        g = generator(0, "wide mlp", depth)
        mlp = Mlp(gaussian(D, 4 * D, g, D**-0.5), gaussian(4 * D, D, g, (4 * D) ** -0.5), activation)
        after = transform(attend(after, wide_attention(depth)), mlp)
        after = layer_norm(after) if norm else after
        logs.append(after.log_norm)
    assert abs(local_order(torch.stack(logs))[-1] - 3) < 0.05


def test_causal_attention_with_orthogonal_values_halves_the_residual() -> None:
    position = torch.full((N, N), -torch.inf, dtype=torch.float64).triu(1)
    after, logs = wide_state(), []
    for depth in range(40):
        value = orthogonal(D, generator(0, "value", depth))
        layer = Attention(
            **{
                **vars(wide_attention(depth)),
                "value": value,
                "output": torch.eye(D, dtype=torch.float64),
                "position": position,
            }
        )
        after = attend(after, layer)
        logs.append(after.log_norm)
    rate = torch.stack(logs)[-5:].diff().exp()
    assert (rate - 0.5).abs().max() < 0.005  # eigenvalues 1, 1/2, 1/3, ...: (2/3)^35 = 7e-7 of the next one is left


def test_a_skip_keeps_the_residual_while_relf_falls_by_the_value_gain() -> None:
    after, logs = wide_state(), []
    for depth in range(60):
        value = orthogonal(D, generator(0, "value", depth))
        layer = replace(wide_attention(depth), value=value, output=torch.eye(D, dtype=torch.float64))
        after = add(after, attend(after, layer))
        logs.append(after.log_relative)
    rate = ((logs[-1] - logs[19]) / 40).exp()
    # 1/sqrt(1 + σ²) with σ² = 1. One layer's gain scatters by the cosine of x and Q x, 1/sqrt(32) = 0.18, half that in
    # ln: 40 layers average to 0.014 in ln, 0.01 in the rate; three of them.
    assert abs(rate - 0.5**0.5) < 0.03


def test_gain_multiplies_the_query_key_product() -> None:
    layer = wide_attention(0)
    doubled = replace(layer, query=2 * layer.query)
    gains = torch.tensor([1.0, 2.0], dtype=torch.float64)[:, None, None, None]
    both = attend(wide_state(), replace(layer, gain=gains))
    # 1e-14: a factor of two is exact, the order of the products is not
    torch.testing.assert_close(both.direction[0], attend(wide_state(), layer).direction, rtol=0, atol=1e-14)
    torch.testing.assert_close(both.direction[1], attend(wide_state(), doubled).direction, rtol=0, atol=1e-14)
