"""One attention step on the residual: against plain attention, in its limits, closed forms, and the bounds as laws."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankcollapse.attention import softmax, token_logits
from rankcollapse.contraction import (
    Heads,
    centred,
    cubic_ratio,
    extreme_tokens,
    frobenius,
    gain_product,
    growing_attention,
    growing_tokens,
    growth_bound,
    head_logits,
    identity_head,
    leading_residual,
    next_residual,
    pair_tokens,
)
from rankcollapse.randomness import generator

COUNTS = (2, 3, 7, 64)


def normal(*size: int, key: object = 0) -> torch.Tensor:
    return torch.randn(*size, generator=generator(0, "test_contraction", key, *size), dtype=torch.float64)


def random_heads(heads: int, width: int, key: object = 0) -> Heads:
    query, key_weights, value = (normal(heads, width, 3, key=(key, name)) for name in ("q", "k", "v"))
    return Heads(query, key_weights, value, normal(heads, 3, width, key=(key, "o")))


def test_next_residual_is_that_of_plain_attention():
    heads, x, mean = random_heads(2, 6), normal(5, 6), normal(6)
    residual = centred(x)
    tokens = residual + mean
    attention = softmax(token_logits(tokens, heads.query, heads.key))
    plain = centred((attention @ (tokens @ heads.value) @ heads.output).sum(0))
    # Numbers of order 10 in sums of some 30 terms: a few hundred eps.
    torch.testing.assert_close(next_residual(residual, mean, heads), plain, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(("mean_size", "about", "order"), [(0, "p", 2), (0, "1/n", 2), (1, "p", 2), (1, "1/n", 1)])
def test_leading_order_is_approached_at_its_rate(mean_size: float, about: str, order: int):
    heads, direction, mean = random_heads(2, 6), centred(normal(5, 6)), mean_size * normal(6)
    errors = []
    for size in (1e-4, 1e-5):
        residual = size * direction
        logits = head_logits(residual, mean, heads)
        p = torch.softmax(logits.key, -1) if about == "p" else torch.full_like(logits.key, 1 / 5)
        leading = leading_residual(residual, logits, heads, p)
        errors.append((frobenius(next_residual(residual, mean, heads) - leading) / frobenius(leading)).item())
    # The next order changes the error by a few parts in a thousand; round-off is 1e-15 in an error of 1e-9 or more.
    assert math.log10(errors[0] / errors[1]) == pytest.approx(order, abs=0.02)


def test_leading_order_without_a_mean_is_the_uniform_formula():
    heads, residual = random_heads(2, 6), centred(normal(5, 6))
    logits = head_logits(residual, torch.zeros(6, dtype=torch.float64), heads)
    uniform = torch.full_like(logits.key, 1 / 5)
    product = heads.query @ heads.key.mT
    by_formula = (residual @ product @ residual.T @ residual @ heads.value @ heads.output).sum(0) / (5 * 3**0.5)
    torch.testing.assert_close(leading_residual(residual, logits, heads, uniform), by_formula, atol=1e-11, rtol=1e-12)


@pytest.mark.parametrize("tokens", COUNTS)
@pytest.mark.parametrize("logit", [1e-8, 0.1, 1.0, 4.0])
def test_closed_forms_of_the_constructed_tokens(tokens: int, logit: float):
    pair = cubic_ratio(*pair_tokens(tokens, logit), identity_head(2)).item()
    # The offset t/1000 enters squared, with a factor of at most 5 (n = 3).
    assert pair == pytest.approx(math.tanh(logit) / (2 * logit), rel=5e-6)
    extremes = cubic_ratio(*extreme_tokens(tokens, logit), identity_head(1)).item()
    closed = math.sinh(logit) / (logit * (2 * math.cosh(logit) + tokens - 2))
    assert extremes == pytest.approx(closed, rel=1e-12)  # some thousand eps


def test_one_over_n_is_not_a_bound():
    assert 64 * cubic_ratio(*pair_tokens(64, 1e-6), identity_head(2)) > 31
    u = math.log(64)
    assert 64 * cubic_ratio(*extreme_tokens(64, u), identity_head(1)) == pytest.approx(64 / (4 * u), rel=0.05)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    tokens=st.integers(2, 9),
    width=st.integers(1, 6),
    heads=st.integers(1, 3),
    log_size=st.floats(-6, 3),
    mean_size=st.sampled_from([0.0, 1.0, 30.0]),
    key=st.integers(0, 10**6),
)
def test_one_half_is_a_bound(tokens, width, heads, log_size, mean_size, key):
    residual = 10**log_size * centred(normal(tokens, width, key=key))
    ratio = cubic_ratio(residual, mean_size * normal(width, key=key), random_heads(heads, width, key))
    assert ratio <= 0.5 * (1 + 1e-10)  # round-off of the norms


def test_gain_product_by_hand():
    heads = Heads(*(scale * torch.eye(4, dtype=torch.float64)[None] for scale in (2.0, 3.0, 5.0, 7.0)))
    assert gain_product(heads).item() == pytest.approx(2 * 3 * 5 * 7 / 2, rel=1e-14)


@pytest.mark.parametrize("tokens", COUNTS)
def test_averaging_can_spread_the_tokens_up_to_the_bound(tokens: int):
    x = growing_tokens(tokens, 1e-4)
    grown = frobenius(centred(growing_attention(x, 40.0) @ x)) / frobenius(centred(x))
    # The offset enters as n / 2 times 1e-8.
    assert growth_bound(tokens) * (1 - 1e-6) <= grown.item() <= growth_bound(tokens) * (1 + 1e-12)


def test_growing_attention_is_an_attention_matrix_of_its_tokens():
    x, gain, offset = growing_tokens(6, 0.5), 3.0, 0.5
    product = torch.tensor([[0.0, 0.0], [gain / offset, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(growing_attention(x, gain), softmax(x @ product @ x.T), atol=1e-14, rtol=0)


def test_two_tokens_never_spread_and_three_can_by_hand():
    assert growth_bound(2) == 1
    assert growth_bound(3) == pytest.approx((4 / 3) ** 0.5, rel=1e-14)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tokens=st.integers(2, 9), gain=st.floats(0, 30), key=st.integers(0, 10**6))
def test_no_average_spreads_more_than_the_bound(tokens, gain, key):
    residual = centred(normal(tokens, 3, key=key))
    attention = softmax(gain * normal(tokens, tokens, key=key))
    assert frobenius(centred(attention @ residual)) <= growth_bound(tokens) * frobenius(residual) * (1 + 1e-12)


def test_errors_name_both_shapes():
    with pytest.raises(ValueError, match=r"\(5, 6\).*\(7,\)"):
        head_logits(normal(5, 6), normal(7), random_heads(1, 6))
