"""Gradients with skips: the pass against derived formulas, its round-off against a finer pass, the laws, the judge."""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from rankcollapse.backward import Design, Problem, forward, token_gradients, unpermuted, weight_gradients
from rankcollapse.gradients import Variant, Weights, entry, linearise
from rankcollapse.judges.noci_gradients import s17
from rankcollapse.measurements.noci_gradients import measure, weight_norms
from rankcollapse.randomness import generator
from rankcollapse.settings.noci import NociGradients
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN

CPU = torch.device("cpu")
SMALL = NociGradients(
    tokens=8,
    width=16,
    layers=12,
    runs=3,
    placements=("post", "pre", "none"),
    residual_decades=10,
    residual_steps=1,
    inverse_temperatures=(0.1, 1.0, 300.0),
    depths=(1, 3),
    saturated_runs=8,
)


@pytest.fixture(scope="module")
def measured():
    return measure(SMALL, device=CPU, seed=0)


def problem(layers=2, n=5, d=6, batch=(), dtype=torch.float64):
    g = generator(0, "test_noci_gradients")
    tokens, loss = torch.randn(2, *batch, n, d, generator=g, dtype=torch.float64).to(dtype)
    weights = torch.randn(layers, 3, *batch, d, d, generator=g, dtype=torch.float64).to(dtype) / d**0.5
    return Problem(tokens, tuple(weights), loss)


ORDERS = (torch.tensor([3, 0, 4, 1, 2]), torch.tensor([5, 2, 0, 4, 1, 3]))


# ---------------------------------------------------------------- the pass


@pytest.mark.parametrize("placement", ["post", "none"])
@pytest.mark.parametrize("skip", [False, True])
def test_one_layer_against_the_derived_derivative(placement, skip):
    """dX_k = L_k dW^T b_k for queries and values, L_k dW b_k for keys: see ``gradients``."""
    given = problem(layers=1)
    found, trace = weight_gradients(given, Design(placement, skip))
    block = linearise(given.tokens, Weights(*given.weights[0]), Variant(skip=skip, norm=placement == "post"))
    torch.testing.assert_close(trace.tokens[-1], block.output, rtol=0, atol=1e-12)
    for index, name in enumerate(("queries", "keys", "values")):
        maps, inputs = entry(block, name)
        pulled = torch.einsum("tw,twi->ti", given.loss, maps)
        expected = inputs.mT @ pulled if name != "keys" else pulled.mT @ inputs
        torch.testing.assert_close(found[0, index], expected, rtol=0, atol=1e-11)  # some tens of roundings


@pytest.mark.parametrize("placement", ["post", "pre", "none"])
def test_weight_gradients_against_differences(placement):
    given = problem()
    design = Design(placement, branch=0.7, gain=1.3)
    found = weight_gradients(given, design)[0]
    step = 1e-5
    for layer, matrix in ((0, 0), (0, 1), (1, 2)):
        ends = []
        for sign in (1, -1):
            weights = [weight.clone() for weight in given.weights]
            weights[layer][matrix, 2, 3] += sign * step
            moved = forward(Problem(given.tokens, tuple(weights), given.loss), design).tokens[-1]
            ends.append((given.loss * moved).sum())
        # central differences: error step^2 times a third derivative, below 1e-8 here, and rounding 1e-16 / step
        assert found[layer, matrix, 2, 3].item() == pytest.approx((ends[0] - ends[1]).item() / 2 / step, abs=1e-7)


def test_token_gradient_of_uniform_attention_by_hand():
    given = problem(layers=1)
    by_token, by_logit, trace = token_gradients(given, Design("none", skip=False, gain=0.0))
    expected = (given.loss @ given.weights[0][2].mT).mean(0)  # 1/n sum_i W_V g_i, the same for every token
    torch.testing.assert_close(by_token, expected.expand_as(by_token), rtol=0, atol=1e-14)
    with_skip = token_gradients(given, Design("none", gain=0.0))[0]
    torch.testing.assert_close(with_skip, expected + given.loss, rtol=0, atol=1e-14)
    assert by_logit.sum(-1).abs().max() < 1e-14  # softmax does not feel a constant per row
    assert trace.logits[0].abs().max() == 0


def test_equal_tokens_have_no_query_and_key_gradients():
    given = problem(layers=2)
    equal = Problem(given.tokens[:1].expand(5, -1), given.weights, given.loss)
    found = weight_gradients(equal, Design("pre"))[0]
    assert found[:, :2].abs().max() < 1e-14
    assert found[:, 2].abs().max() > 0.1


@pytest.mark.parametrize("placement", ["post", "pre", "none"])
def test_order_of_tokens_and_channels_does_not_matter(placement):
    given = problem()
    moved = given.permuted(*ORDERS)
    found, again = (weight_gradients(each, Design(placement))[0] for each in (given, moved))
    torch.testing.assert_close(unpermuted(again, ORDERS[1], ORDERS[1]), found, rtol=0, atol=1e-12)
    found, again = (token_gradients(each, Design(placement))[0] for each in (given, moved))
    torch.testing.assert_close(unpermuted(again, *ORDERS), found, rtol=0, atol=1e-12)


def test_roundoff_has_the_size_of_the_true_error():
    """In 32 bits the error can be seen, against 64. Two orders' difference is sqrt(2) of it, for one sum in common."""
    given, batch = problem(layers=4, batch=(50,)), (50,)
    coarse = problem(layers=4, batch=batch, dtype=torch.float32)
    # the same numbers in both: those that 32 bits can hold
    same = Problem(coarse.tokens.double(), tuple(w.double() for w in coarse.weights), coarse.loss.double())
    assert (same.tokens - given.tokens).abs().max() < 1e-6
    exact, found = (weight_gradients(each, Design("post"))[0] for each in (same, coarse))
    error = torch.linalg.matrix_norm(found.double() - exact)
    roundoff = weight_norms(coarse, Design("post"), ORDERS)[1].double()
    ratio = (roundoff / error).median().item()
    assert 0.7 < ratio < 2.5


def test_non_finite_tokens_are_named():
    given = problem()
    with pytest.raises(FloatingPointError, match="not finite after layer 1"):
        forward(given, Design("none", branch=math.inf))


# ---------------------------------------------------------------- the measurement


def test_axes(measured):
    depth, rows = (3, 2, 3, 3, 12), (2, 2, 3, 8, 8)
    assert {name: tuple(value.shape) for name, value in measured.items()} == {
        **dict.fromkeys(("depth/gradient", "depth/roundoff"), depth),
        **dict.fromkeys(("depth/cosine", "depth/entropy"), (3, 2, 3, 12)),
        "collapse/residual_sizes": (11,),
        **dict.fromkeys(("collapse/gradient", "collapse/roundoff"), (3, 3, 11, 3)),
        **dict.fromkeys(
            (f"saturated/{kind}_{what}" for kind in ("token", "logit") for what in ("gradient", "roundoff")), rows
        ),
        "saturated/attended": rows,
    }


def test_queries_and_keys_fall_as_the_square_of_the_residual(measured):
    sizes, norms, roundoff = (measured[f"collapse/{name}"] for name in ("residual_sizes", "gradient", "roundoff"))
    assert sizes[3] == pytest.approx(1e-3)
    fall = (norms[:, :2, 3] / norms[:, :2, 4]).log10()
    torch.testing.assert_close(fall, torch.full_like(fall, 2), rtol=0, atol=0.05)  # the next order is 1e-3 relative
    torch.testing.assert_close(norms[:, 2, 3], norms[:, 2, 6], rtol=0.05, atol=0)
    # eps^2 = 1e-20 is below the rounding of numbers of order one; at 1e-6 it is above
    assert (norms[:, :2, -1] < 10 * roundoff[:, :2, -1]).float().mean() > 0.9
    assert (norms[:, :2, 6] > 10 * roundoff[:, :2, 6]).all()


def test_scaled_branches_keep_query_gradients(measured):
    ratio = measured["depth/gradient"][:, :, 0] / measured["depth/gradient"][:, :, 2]
    assert (ratio[:, 1, :, -1] > 0.3).all()
    # post-LN, a = 1: the last of 12 layers has tokens of cosine near 1
    assert (measured["depth/cosine"][0, 0, :, -1] > 0.9).all()
    assert (ratio[0, 0, :, -1] < 0.1).all()


def test_every_network_starts_from_the_same_attention(measured):
    entropy = measured["depth/entropy"][..., 0]
    # post-LN and none see the raw tokens; pre-LN the normalised ones
    assert torch.equal(entropy[0], entropy[2])
    attended = measured["saturated/attended"]
    assert torch.equal(attended, attended[:1, :1].expand_as(attended))


def test_without_skip_unattended_tokens_act_through_their_own_row_only(measured):
    attended = measured["saturated/attended"][0, 0, -1]
    lone = attended < 1e-12
    gradient, row = (measured[f"saturated/{name}_gradient"][:, 0, -1][:, lone] for name in ("token", "logit"))
    assert lone.sum() > 5
    # beta sqrt(ln n) |W_Q W_K^T x| is at most some thousand: no gradient of the logits, none of the token
    assert (gradient[0] <= 1e5 * row[0] + 1e-9).all()
    assert (gradient[0] < 1e-6).float().mean() > 0.5
    assert (gradient[1].median() > 1e-2).all()  # with skip


def test_same_seed_same_numbers(measured):
    again = measure(replace(SMALL, placements=("pre",)), device=CPU, seed=0)
    assert torch.equal(again["depth/gradient"][0], measured["depth/gradient"][1])


def test_depths_must_rise():
    with pytest.raises(ValidationError, match=r"depths: .* must rise"):
        replace(SMALL, depths=(3, 1))


# ---------------------------------------------------------------- the judge


@pytest.mark.parametrize(
    ("typical", "whole", "unattended", "verdict"),
    [
        ([1e-9, 1e-9], [1e-3, 1e-3], 9, HOLDS),
        ([1e-9, 0.5], [1.0, 1.0], 9, CONDITION),
        ([1e-9, 1e-9], [1e-3, 1.0], 9, CONDITION),
        ([0.1, 0.5], [1.0, 1.0], 9, FALSE),
        ([0.0, 0.0], [0.0, 0.0], 0, NOT_RUN),
    ],
)
def test_s17(typical, whole, unattended, verdict):
    ruling = s17(
        networks=["no skip", "skip"],
        unattended=unattended,
        attended_share=0.6,
        typical=typical,
        whole=whole,
        little=0.01,
        most=0.5,
        gone=0.01,
    )
    assert ruling.verdict == verdict
    assert ruling.reason.startswith("only in no skip") == (verdict == CONDITION)
