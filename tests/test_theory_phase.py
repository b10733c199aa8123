"""Theory of the phase diagram: hand values, limits, and Monte Carlo."""

import math

import numpy as np
import pytest

from rankcollapse.theory.bag_of_tokens import plateau
from rankcollapse.theory.phase import cosine_by_layer, rank_boundary
from rankcollapse.theory.random_energy import CRITICAL, finite, limit


def test_one_step_of_the_recursion_by_hand():
    # rho = 1/2, alpha = 1, Y2 = 1/2, O = 1/4: 1 - rho' = 1/2 (1/4 + 1) / (1/2 + 1/4 + 1) = 5/14
    found = cosine_by_layer(np.array(0.5), np.array(1.0), np.array([0.5]), np.array([0.25]))
    assert found == pytest.approx([0.5, 9 / 14], abs=1e-15)


def test_the_recursion_at_its_ends():
    ones = np.ones(3)
    # No skip and uniform attention: equal tokens after one layer. One-hot attention to oneself: nothing changes.
    assert cosine_by_layer(np.array(0.1), np.array(0.0), ones / 4, ones / 4)[1:] == pytest.approx(1)
    assert cosine_by_layer(np.array(0.1), np.array(2.0), ones, 0 * ones) == pytest.approx(0.1)
    # A skip without bound keeps the tokens; all cells of a grid at once
    found = cosine_by_layer(np.zeros(2), np.array([1e9, 0]), np.full((2, 3), 0.25), np.full((2, 3), 0.25))
    assert found[:, -1] == pytest.approx([0, 1], abs=1e-15)


@pytest.mark.parametrize("cosine", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("tokens", "layers"), [(8, 16), (64, 48)])
def test_the_boundary_is_where_the_recursion_arrives(cosine, tokens, layers):
    skip, uniform = rank_boundary(cosine, tokens, layers), np.full(layers, 1 / tokens)
    assert cosine_by_layer(np.array(0.0), np.array(skip), uniform, uniform)[-1] == pytest.approx(cosine, abs=1e-12)


def test_the_boundary_by_hand():
    # One layer: rho' = (1/n) / (1/n + alpha^2), so rho = 1/2 at alpha^2 = 1/n
    assert rank_boundary(0.5, 16, 1) == pytest.approx(0.25)
    # (1 + 64 * 9)^(1/48) = 1.14164
    assert rank_boundary(0.9, 64, 48) == pytest.approx(2.657, abs=5e-4)
    with pytest.raises(ValueError, match="above 0, below 1"):
        rank_boundary(1, 8, 8)


def test_the_limit_of_many_tokens():
    assert limit(1) == (0.5, 0)
    assert limit(2 * CRITICAL) == (0, 0.5)
    # convergence is logarithmic in n: at beta_c, Y2 is still far from 0 at 65536 tokens
    at_critical = [finite(CRITICAL, n).participation for n in (32, 64, 65536, 10**9)]
    assert at_critical[:3] == pytest.approx([0.339, 0.308, 0.184], abs=5e-4)
    assert at_critical == sorted(at_critical, reverse=True)
    assert finite(0.5, 10**8).entropy == pytest.approx(limit(0.5).entropy, abs=1e-5)  # n^(beta^2 - 1) = 1e-6
    assert finite(4, 10**6).participation == pytest.approx(limit(4).participation, abs=0.03)  # 1 / ln n = 0.07


@pytest.mark.parametrize("beta", [0.1, 1, 3, 30])
@pytest.mark.parametrize("tokens", [2, 64])
def test_the_mean_row_against_draws(beta, tokens):
    rows = 20000
    logits = beta * math.log(tokens) ** 0.5 * np.random.default_rng(0).standard_normal((rows, tokens))
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(1) / math.log(tokens)
    for drawn, exact in zip((entropy, (weights**2).sum(1)), finite(beta, tokens), strict=True):
        assert abs(drawn.mean() - exact) < 4 * drawn.std() / rows**0.5  # four standard errors


def test_small_beta_is_uniform():
    # H / ln n = 1 - beta^2 / 2 (1 - 1/n) to leading order: the variance of the logits less that of their mean
    assert finite(1e-3, 8).entropy == pytest.approx(1 - 0.5e-6 * 7 / 8, abs=1e-9)
    assert finite(1e-3, 8).participation == pytest.approx(1 / 8, abs=1e-6)
    with pytest.raises(ValueError, match="from 2, above 0"):
        finite(0, 8)


def test_the_bag_of_two_tokens_by_hand():
    # Equal with probability 1/2: certain, loss 0. Else a coin.
    assert plateau(2, 2) == pytest.approx((0.75, math.log(2) / 2))


def test_the_bag_of_eight():
    """The optimum by enumeration, against the mean over drawn bags."""
    bags = np.random.default_rng(0).integers(0, 8, (40000, 8))
    shares = (bags[:, :, None] == np.arange(8)).mean(1)
    loss = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)
    exact = plateau(8, 8)
    assert exact == pytest.approx((0.32465, 1.55666), abs=5e-6)
    for drawn, value in ((shares.max(1), exact.accuracy), (loss, exact.loss)):
        assert abs(drawn.mean() - value) < 4 * drawn.std() / 200
