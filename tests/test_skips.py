"""Skips, whole blocks and hulls: blocks against plain numbers, the law of uniform attention, the measurement's axes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rankcollapse.inits import WEIGHT_INITS, gaussian, shared_mean
from rankcollapse.measurements.skips_depth import measure
from rankcollapse.randomness import generator
from rankcollapse.scalefree import from_tokens
from rankcollapse.scalefree_attention import Attention, plain_attention
from rankcollapse.scalefree_blocks import block
from rankcollapse.scalefree_mlp import Mlp, plain_mlp
from rankcollapse.settings.dong import SkipsDepth
from rankcollapse.theory.skips import relative_residual

SMALL = SkipsDepth(
    tokens=8,
    width=32,
    heads=4,
    mlp_ratio=2,
    layers=5,
    runs=2,
    inits=("xavier", "bert"),
    placements=("none", "pre", "post"),
    activation="relu",
    hull_widths=(2, 16),
    hull_activations=("relu", "tanh"),
    hull_rows=3,
    hull_runs=1,
)


@pytest.fixture(scope="module")
def measured():
    return measure(SMALL, device=torch.device("cpu"), seed=1)


def weights(width=12, heads=3):
    g = generator(0, "test_skips")
    matrices = [WEIGHT_INITS["xavier"](width, width, g) for _ in range(4)]
    mlp = Mlp(WEIGHT_INITS["xavier"](width, 2 * width, g), WEIGHT_INITS["xavier"](2 * width, width, g), "gelu")
    return Attention(*matrices, heads), mlp


@pytest.mark.parametrize("placement", ["none", "pre", "post"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_block_equals_the_plain_forward_pass(placement, whole):
    attention, mlp = weights()
    tokens = shared_mean(6, 12, generator(0, "test_skips", "tokens"))

    def norm(x, where):
        return torch.nn.functional.layer_norm(x, (12,)) if placement == where else x

    plain = norm(tokens + plain_attention(norm(tokens, "pre"), attention), "post")
    if whole:
        plain = norm(plain + plain_mlp(norm(plain, "pre"), mlp), "post")
    found = block(from_tokens(tokens), attention, mlp if whole else None, placement)
    torch.testing.assert_close(found.tokens, plain, rtol=0, atol=1e-13)  # some hundred roundings of numbers near 1


def test_uniform_attention_by_hand():
    # m = r = 1/2 of the start. Without LayerNorm and gain 1: m = 1, so relF = sqrt(1/3). With it: m = 1/2 + 1/2.
    assert relative_residual(0.5**0.5, 1, 1, "none") == pytest.approx([0.5**0.5, 3**-0.5], abs=1e-15)
    assert relative_residual(0.5**0.5, 1, 1, "pre")[1] == pytest.approx(3**-0.5, abs=1e-15)
    # and the second layer, in which the mean token has 2/3 of a normalised token: m = 1 + 2/3
    assert relative_residual(0.5**0.5, 1, 2, "pre")[2] == pytest.approx((0.5 / (0.5 + 5 / 3)) ** 0.5, abs=1e-15)


@pytest.mark.parametrize(("placement", "rate"), [("none", 1.25**-0.5), ("post", 1.25**-0.5), ("pre", 1)])
def test_uniform_attention_far_on(placement, rate):
    far = relative_residual(0.7, 0.25, 4000 if placement == "pre" else 200, placement)
    # geometric to the last digits, or algebraic: sigma sqrt(l) relF -> 0.7, its residual, up to ln(l) / l
    assert far[-1] / far[-2] == pytest.approx(rate, abs=2e-4)
    if placement == "pre":
        assert far[-1] * 0.5 * 4000**0.5 == pytest.approx(0.7, rel=0.01)


def test_uniform_attention_refuses_a_residual_of_no_tokens():
    with pytest.raises(ValueError, match="above 0, at most 1"):
        relative_residual(1.2, 1, 3, "none")


@pytest.mark.parametrize("placement", ["none", "pre", "post"])
def test_uniform_attention_predicts_the_blocks(placement):
    """Small logits make attention uniform; 256 channels leave 1/sqrt(256) of noise in each of 8 layers' mean token."""
    draw = generator(0, "test_skips", "law", placement)
    start = from_tokens(shared_mean(16, 256, draw))
    state, gains = start, []
    for _ in range(8):
        value, output = gaussian(256, 256, draw, 256**-0.5), gaussian(256, 256, draw, 256**-0.5)
        zero = torch.zeros(256, 256, dtype=torch.float64)
        state = block(state, Attention(zero, zero, value, output, 4), None, placement)
        gains.append((value @ output).square().sum().item() / 256)
    expected = relative_residual(start.log_relative.exp().item(), np.mean(gains), 8, placement)[-1]
    assert state.log_relative.exp().item() == pytest.approx(expected, rel=0.15)


def test_the_measurement_has_the_axes_of_its_docstring(measured):
    depth = (2, 2, 3, 2, 6)
    assert {name: tuple(value.shape) for name, value in measured.items()} == {
        **dict.fromkeys(("log10_relative", "log10_stable_rank_excess", "cosine"), depth),
        "value_gain": (2, 2),
        "separation": (2, 2, 3, 2, 3),
    }


def test_every_network_starts_from_the_same_tokens(measured):
    start = measured["log10_relative"][..., 0]
    assert torch.equal(start, start[:1, :1, :1].expand_as(start))


def test_relative_residual_and_cosine_agree(measured):
    """After the last LayerNorm all tokens have one length, and then 1 - relF^2 = (1 + (n - 1) cos) / n exactly."""
    relative = 10 ** measured["log10_relative"][:, :, 2, :, 1:]  # post-LN
    from_cosine = 1 - (1 + 7 * measured["cosine"][:, :, 2, :, 1:]) / 8
    # epsilon of LayerNorm, 1e-5 of the variance, keeps the lengths from being quite equal
    torch.testing.assert_close(relative.square(), from_cosine, rtol=0, atol=1e-5)


def test_every_map_leaves_a_flat_hull_and_attention_like_shrinking_does_not(measured):
    assert (measured["separation"][:, 1] > 1e-6).all()  # 16 dimensions, 8 tokens
    assert (measured["separation"][1, 0, :, 0] <= 1e-6).all()  # plane, weights 0.02: all tokens near the middle


def test_same_seed_same_numbers(measured):
    again = measure(replace(SMALL, inits=("xavier",)), device=torch.device("cpu"), seed=1)
    assert torch.equal(again["cosine"][:, 0], measured["cosine"][:, 0])


@pytest.mark.parametrize(("changed", "said"), [({"heads": 5}, "does not divide"), ({"hull_rows": 9}, "at most tokens")])
def test_settings_that_cannot_be(changed, said):
    with pytest.raises(ValidationError, match=said):
        replace(SMALL, **changed)
