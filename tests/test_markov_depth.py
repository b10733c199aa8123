import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rankcollapse import agreement, published
from rankcollapse.measurements import markov_depth
from rankcollapse.settings.gap import MarkovDepth

CONFIGS = (
    "A",
    "A + LN",
    "A + skip",
    "A + skip + LN",
    "A_perp",
    "A_perp + LN",
    "A_perp + skip",
    "A_perp + skip + LN",
    "Identity A",
)
CPU = torch.device("cpu")


def small(**changes):
    return MarkovDepth(**({"configs": CONFIGS, "tokens": 20, "width": 24, "depth": 3, "runs": 4} | changes))


@pytest.fixture(scope="module")
def measured():
    return markov_depth.measure(small(), device=CPU, seed=0)


def test_axes(measured):
    assert measured["stable_rank"].shape == (9, 4, 4)
    assert measured["stable_rank"].dtype == torch.float64
    # both ways to the same number; squaring the singular values costs stable_rank a few more roundings
    torch.testing.assert_close(measured["stable_rank_excess"], measured["stable_rank"] - 1, rtol=1e-9, atol=1e-12)
    assert measured["last_float32_depth"].shape == (9, 4)
    assert not measured["last_float32_depth"].is_floating_point()


def test_depth_zero_is_orthonormal(measured):
    # sr(I) = T; 20 eigenvalues 1, each to a few 1e-16
    np.testing.assert_allclose(measured["stable_rank"][..., 0], 20, rtol=1e-12)
    tokens = markov_depth.orthonormal_tokens(small(), torch.Generator().manual_seed(0))
    np.testing.assert_allclose(tokens @ tokens.mT, torch.eye(20).expand(4, 20, 20), atol=1e-13)


def test_stable_rank_stays_between_one_and_the_tokens(measured):
    ranks = measured["stable_rank"]
    assert (ranks >= 1).all()
    assert (ranks <= 20 * (1 + 1e-12)).all()


def test_only_plain_attention_has_collapsed(measured):
    at_end = measured["stable_rank"][..., -1]
    # a layer multiplies the excess by about 2/T^2 = 5e-3 (the square of the bulk's share), a little more with skip;
    # without plain attention sr falls like T over the number of factors, and stays of order one
    assert (at_end[:4] - 1 < 1e-3).all()
    assert (at_end[4:].mean(-1) > 1.2).all()


def test_subset_has_the_same_numbers(measured):
    # same tokens, attention and values whichever configurations are asked for, in their order
    part = markov_depth.measure(small(configs=("A_perp + LN", "A")), device=CPU, seed=0)
    torch.testing.assert_close(part["stable_rank"], measured["stable_rank"][[5, 0]], rtol=0, atol=0)


def test_seed_decides(measured):
    again = markov_depth.measure(small(), device=CPU, seed=0)
    other = markov_depth.measure(small(), device=CPU, seed=1)
    assert torch.equal(again["stable_rank"], measured["stable_rank"])
    assert not torch.allclose(other["stable_rank"][..., 1:], measured["stable_rank"][..., 1:])


def as_released(settings, seed, skip):
    """Last depth with a finite stable rank when everything is float32 and a block with skip comes out doubled."""
    random = markov_depth.generator(seed, "markov_depth", "tokens")
    tokens = markov_depth.orthonormal_tokens(settings, random).float()
    last = torch.zeros(settings.runs, dtype=torch.int64)
    for layer in range(1, settings.depth + 1):
        markov, values = (matrix.float() for matrix in markov_depth._draw(settings, seed, layer))
        tokens = 2 * (tokens + markov @ tokens @ values) if skip else markov @ tokens @ values
        squares = torch.linalg.matrix_norm(tokens @ tokens.mT, 2).square()
        last[torch.isfinite(squares) & (last == layer - 1)] = layer
    return last


@pytest.mark.parametrize(("config", "skip"), [("A", False), ("A + skip", True)])
def test_last_float32_depth_is_that_of_a_float32_run(config, skip):
    settings = small(configs=(config,), tokens=64, width=64, depth=13, runs=4)
    last = markov_depth.measure(settings, device=CPU, seed=0)["last_float32_depth"][0]
    assert last.tolist() == as_released(settings, 0, skip).tolist()
    assert (last < 13).all()


def test_one_layer_without_attention_agrees_with_the_published_runs():
    settings = small(configs=("Identity A", "A_perp"), tokens=150, width=150, depth=1, runs=8)
    ours = markov_depth.measure(settings, device=CPU, seed=0)["stable_rank"][..., 1].numpy()
    curves = [published.curve("fig_VII", "depth", "stable_rank", {"config": config}) for config in settings.configs]
    theirs = np.array([curve.loc[1, "mean"] for curve in curves])
    # |z| of Student's t with 7 degrees of freedom: 4 is passed by 5 in 1000
    assert (np.abs(agreement.z_score(theirs, ours.T, 5, published.RESOLUTION["fig_VII"])) < 4).all()


def test_non_finite_tokens_are_named():
    bad = {"A + skip": (torch.full((2, 3, 3), math.nan), torch.zeros(2))}
    with pytest.raises(FloatingPointError, match=r"markov_depth: A \+ skip at depth 7"):
        markov_depth._observe(bad, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 25}, "tokens: 25 cannot be orthonormal in width 24; at most 24"),
        ({"configs": ("A", "A")}, "each at most once"),
        ({"configs": ("B",)}, "Input should be 'A', 'A \\+ LN'"),
        ({"runs": 1}, "greater than or equal to 2"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValidationError, match=message):
        small(**changes)
