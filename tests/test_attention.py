"""Attention matrices: hand values, Hugging Face's ALiBi, mpmath for what lies below round-off."""

import math

import mpmath
import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from rankcollapse.attention import (
    ACTIVATIONS,
    POSITION_BIASES,
    alibi_bias,
    causal_bias,
    centre,
    differential,
    differential_weight,
    scaled_logits,
    softmax,
    softmax_deviation,
    token_logits,
)
from rankcollapse.randomness import generator

ROUND_OFF = 1e-14  # some tens of float64 eps (2.2e-16), for sums of at most some tens of terms of order one


def normal(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=generator(0, "test_attention", *size), dtype=torch.float64)


def test_logits_are_scaled_by_the_root_of_the_key_width():
    queries, keys = torch.tensor([[1.0, 2.0, 0.0, 1.0]]), torch.tensor([[3.0, 1.0, 5.0, -1.0], [0.0, 0.0, 0.0, 0.0]])
    assert scaled_logits(queries, keys).tolist() == [[(3 + 2 - 1) / 2, 0.0]]


def test_token_logits_agree_with_scaled_dot_product_attention():
    x, query, key, values = normal(5, 6), normal(2, 6, 3), normal(2, 6, 3), normal(2, 5, 4)
    ours = softmax(token_logits(x, query, key)) @ values
    theirs = torch.nn.functional.scaled_dot_product_attention(x @ query, x @ key, values)
    torch.testing.assert_close(ours, theirs, atol=ROUND_OFF, rtol=0)


def test_softmax_by_hand_and_its_invariance_per_row_only():
    by_hand = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    torch.testing.assert_close(softmax(torch.tensor([[0, math.log(3)]], dtype=torch.float64)), by_hand)
    logits, c = normal(4, 4), normal(4)
    torch.testing.assert_close(softmax(logits + c[:, None]), softmax(logits), atol=ROUND_OFF, rtol=0)
    assert (softmax(logits + c) - softmax(logits)).abs().max() > 0.01


HAND = {  # of the row (ln 3, 0, -inf): a masked key gets nothing
    "softmax": [3 / 4, 1 / 4, 0],
    "relu": [math.log(3) / 3, 0, 0],
    "sigmoid": [1 / 2, 1 / 4, 0],  # e^z / (T + e^z) with T = 3
    "sigmoid/T": [3 / 4 / 3, 1 / 2 / 3, 0],
    "linear": [math.log(3) / 3, 0, 0],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_by_hand(name: str):
    row = torch.tensor([[math.log(3), 0.0, -math.inf]], dtype=torch.float64)
    expected = torch.tensor([HAND[name]], dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[name](row), expected, atol=ROUND_OFF, rtol=0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_do_not_care_how_keys_are_numbered(name: str):
    logits, order = normal(2, 5, 7), torch.tensor([3, 0, 6, 2, 5, 1, 4])
    permuted = ACTIVATIONS[name](logits[..., order])
    torch.testing.assert_close(permuted, ACTIVATIONS[name](logits)[..., order], atol=ROUND_OFF, rtol=0)


def test_only_softmax_ignores_a_shift_and_only_linear_adds():
    logits = normal(6, 6)
    shifted = {name: (f(logits + 1) - f(logits)).abs().max() > 0.01 for name, f in ACTIVATIONS.items()}
    assert shifted == {"softmax": False, "relu": True, "sigmoid": True, "sigmoid/T": True, "linear": True}
    relu, linear = ACTIVATIONS["relu"], ACTIVATIONS["linear"]
    torch.testing.assert_close(relu(3 * logits), 3 * relu(logits), atol=ROUND_OFF, rtol=0)
    torch.testing.assert_close(linear(logits + logits.mT), linear(logits) + linear(logits.mT), atol=ROUND_OFF, rtol=0)


def test_sigmoid_tends_to_softmax_without_its_row_sum():
    # e^z / (T + e^z) = e^z / T (1 - e^z / T + ...); |z| stays below 5
    logits = normal(1, 100_000)
    torch.testing.assert_close(
        ACTIVATIONS["sigmoid"](logits) * 100_000, logits.exp(), atol=0, rtol=math.exp(5) / 100_000
    )


def test_differential_rows_sum_to_one_less_the_weight():
    first, second = normal(2, 4, 4), normal(2, 4, 4).mT
    sums = differential(first, second, 0.3).sum(-1)
    torch.testing.assert_close(sums, torch.full_like(sums, 0.7), atol=ROUND_OFF, rtol=0)
    assert differential(first, first, 1.0).abs().max() == 0
    # zero logits in the second softmax and weight 1 are centring
    uniform = differential(first, torch.zeros_like(first), 1.0)
    torch.testing.assert_close(uniform, centre(softmax(first)), atol=ROUND_OFF, rtol=0)


def test_differential_weight_of_the_first_layers():
    assert differential_weight(1) == pytest.approx(0.2, abs=1e-15)
    assert differential_weight(2) == pytest.approx(0.8 - 0.6 * 0.7408182206817179, abs=1e-15)
    assert differential_weight(100) == pytest.approx(0.8, abs=1e-12)  # 0.6 e^{-29.7} = 8e-14
    with pytest.raises(ValueError, match="layer 0; layers are counted from 1"):
        differential_weight(0)


@pytest.mark.parametrize("name", POSITION_BIASES)
def test_every_bias_leaves_a_row_stochastic_matrix(name: str):
    attention = ACTIVATIONS["softmax"](normal(2, 7, 7) + POSITION_BIASES[name](7, 2))
    assert (attention >= 0).all()
    torch.testing.assert_close(attention.sum(-1), torch.ones(2, 7, dtype=torch.float64), atol=ROUND_OFF, rtol=0)


def test_causal_attention_at_zero_logits_averages_the_past():
    expected = torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)
    torch.testing.assert_close(softmax(causal_bias(3, 1))[0], expected, atol=ROUND_OFF, rtol=0)


def test_causal_alibi_is_that_of_bloom():
    tokens, heads = 6, 8  # a power of two: elsewhere their code interleaves two sequences of slopes
    theirs = build_alibi_tensor(torch.ones(1, tokens), heads, torch.float64)  # heads, 1, tokens: m_h j
    logits = normal(heads, tokens, tokens) + causal_bias(tokens, heads)
    ours = softmax(logits + alibi_bias(tokens, heads))
    # Their slopes are built in float32, which moves a logit of at most 3 by 3 * 6e-8.
    torch.testing.assert_close(ours, softmax(logits + theirs), atol=2e-7, rtol=0)


def test_two_sided_alibi_depends_on_the_distance_alone():
    bias = alibi_bias(4, 2)
    assert torch.equal(bias, bias.mT)
    assert bias[0, 0].tolist() == [0, -1 / 16, -2 / 16, -3 / 16]  # H = 2: m_1 = 2^-4


def test_centring_moves_only_the_eigenvalue_one():
    attention = softmax(normal(5, 5))
    before, after = (
        sorted(torch.linalg.eigvals(a).tolist(), key=lambda z: (abs(z), z.imag)) for a in (attention, centre(attention))
    )
    assert before[-1] == pytest.approx(1, abs=1e-12)  # eigenvalues of 5 x 5, condition numbers below 100
    assert after[0] == pytest.approx(0, abs=1e-12)
    assert after[1:] == pytest.approx(before[:-1], abs=1e-12)


def test_centring_takes_out_any_mean():
    attention = normal(6, 6)
    centred = centre(attention, float(attention.sum()) / 6)
    assert centred.sum().item() == pytest.approx(0, abs=1e-13)  # 36 terms of order one


def exact_deviation(pairwise: list[float], key: list[float]) -> list[mpmath.mpf]:
    def weights(logits: list[mpmath.mpf]) -> list[mpmath.mpf]:
        exponentials = [mpmath.exp(z) for z in logits]
        return [e / mpmath.fsum(exponentials) for e in exponentials]

    with mpmath.workdps(60):
        r = [mpmath.mpf(z) for z in key]
        both = [mpmath.mpf(e) + z for e, z in zip(pairwise, r, strict=True)]
        return [a - b for a, b in zip(weights(both), weights(r), strict=True)]


@pytest.mark.parametrize("size", [1e-20, 1e-9, 1e-3, 0.3, 3.0, 30.0])
def test_deviation_keeps_its_digits_against_mpmath(size: float):
    pairwise, key = size * normal(6, 8), normal(8)
    ours = softmax_deviation(pairwise, key)
    for row, expected in zip(
        ours.tolist(), (exact_deviation(row, key.tolist()) for row in pairwise.tolist()), strict=True
    ):
        largest = max(abs(e) for e in expected)
        # Round-off relative to the row: cancellation inside a row is of order 8 tokens x eps.
        assert max(abs(a - e) for a, e in zip(row, expected, strict=True)) <= ROUND_OFF * largest


def test_deviation_has_a_gradient_on_both_branches():
    pairwise = torch.tensor([[0.1, -0.2, 0.3], [5.0, -4.0, 1.0]], dtype=torch.float64, requires_grad=True)
    key = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(softmax_deviation, (pairwise, key))


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (lambda: scaled_logits(normal(2, 3), normal(2, 4)), (r"\(2, 3\)", r"\(2, 4\)")),
        (lambda: token_logits(normal(5, 3), normal(1, 4, 2), normal(1, 4, 2)), (r"\(5, 3\)", r"\(1, 4, 2\)")),
        (lambda: softmax_deviation(normal(2, 3), normal(4)), (r"\(2, 3\)", r"\(4,\)")),
    ],
)
def test_errors_name_both_shapes(call, shapes):
    with pytest.raises(ValueError, match=".*".join(shapes)):
        call()
