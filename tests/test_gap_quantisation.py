import math

import pytest
import torch
from pydantic import ValidationError

from rankcollapse.judges.gap_quantisation import m17
from rankcollapse.measurements import gap_quantisation
from rankcollapse.settings.gap import GapQuantisation

CPU = torch.device("cpu")
SMALL = {"tokens": (12, 32), "runs": 3, "depth": 3, "logit_variance": math.log(2)}
QUANTITIES = ("singular", "entry", "range", "residual", "error/tensor", "error/token", "distinct/tensor")


@pytest.fixture(scope="module")
def measured():
    return gap_quantisation.measure(GapQuantisation(**SMALL), device=CPU, seed=0)


def test_axes(measured):
    assert set(measured) == {*QUANTITIES, "distinct/token", "annihilated"}
    assert all(value.shape == (4, 2, 2, 3, 4) and value.is_contiguous() for value in measured.values())
    assert measured["annihilated"].dtype == torch.bool
    assert not measured["annihilated"].any()


def test_start_is_orthonormal_and_the_same_for_both(measured):
    start = measured["singular"][0, :, :, :, 0]
    torch.testing.assert_close(start, torch.ones_like(start), atol=1e-13, rtol=0)
    for quantity in QUANTITIES:
        assert torch.equal(measured[quantity][:, 0, ..., 0], measured[quantity][:, 1, ..., 0])


def test_entries_are_bounded_by_the_largest_singular_value(measured):
    assert (measured["entry"] <= measured["singular"] * (1 + 1e-12)).all()
    # and by the width: ||x||_2 <= sqrt(T d) max|x|
    size = torch.tensor(SMALL["tokens"], dtype=torch.float64)[:, None, None]
    assert (measured["singular"] <= size * measured["entry"] * (1 + 1e-12)).all()
    assert (measured["residual"] <= 1 + 1e-12).all()


def test_layer_norm_fixes_the_size(measured):
    # unit variance of T x T entries up to eps = 1e-5 of a variance above .1
    rms = measured["entry"][[1, 3]] / measured["range"][[1, 3]]
    torch.testing.assert_close(rms, torch.ones_like(rms), atol=1e-3, rtol=0)


def test_only_attention_with_its_gap_collapses(measured):
    kept, removed = measured["residual"][:2, :, 1, :, -1].transpose(0, 1)
    assert (kept < 0.1).all()
    assert (removed > 0.9).all()


def test_one_layer_by_hand(measured):
    settings = GapQuantisation(**SMALL)
    start = gap_quantisation._start(settings, 12, 0, CPU)["A", "kept"]
    markov, values, *_ = gap_quantisation._draw(settings, 12, 1, 0, CPU)
    after = (markov - 1 / 12) @ start @ values
    ours = measured["entry"][0, 1, 0, :, 1]
    torch.testing.assert_close(ours, after.abs().amax((-2, -1)), atol=1e-13, rtol=0)


def test_equal_tokens_are_annihilated_and_counted():
    tokens = torch.ones(2, 5, 5, dtype=torch.float64)
    weights = gap_quantisation._draw(GapQuantisation(**SMALL | {"runs": 2}), 5, 1, 0, CPU)
    assert gap_quantisation._layer("A(X)", "removed", tokens, weights).abs().max() == 0
    nothing = gap_quantisation._observe({("A(X)", "removed"): torch.zeros_like(tokens)}, 5, 1)
    assert nothing[:, 0, 0].tolist() == [0, 0, 0, 0, 0, 0, 1, 1]


def test_int8_cannot_tell_apart_what_lies_within_a_step():
    tokens = torch.ones(1, 4, 6, dtype=torch.float64)
    tokens[0, 0, 0] += 1e-3  # a step is 1/127
    assert gap_quantisation._distinct_error(tokens, "tensor").item() == pytest.approx(1, abs=1e-9)


def test_non_finite_tokens_are_named():
    bad = {("A", "kept"): torch.full((2, 3, 3), math.nan)}
    with pytest.raises(FloatingPointError, match="gap_quantisation: A, gap kept, T = 3, depth 7"):
        gap_quantisation._observe(bad, 3, 7)


@pytest.mark.parametrize(
    ("changes", "message"), [({"depth": 1}, "greater than or equal to 2"), ({"tokens": (2,)}, "4")]
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValidationError, match=message):
        GapQuantisation(**SMALL | changes)


@pytest.mark.parametrize(
    ("growth", "error", "distinct", "verdict"),
    [
        ((2, 2), (0.5, 0.5), (0.1, 0.1), "holds"),
        ((2, 99), (0.5, 0.5), (0.1, 0.1), "holds with a condition"),
        ((2, 2), (1.5, 0.5), (0.1, 0.1), "holds with a condition"),
        ((99, 99), (0.5, 0.5), (0.1, 0.1), "false as written"),
        ((2, 2), (1.5, 1.5), (1.0, 1.0), "false as written"),
        ((2, 99), (1.5, 0.5), (1.0, 0.1), "false as written"),
    ],
)
def test_m17(growth, error, distinct, verdict):
    ruling = m17(
        attentions=("A", "A(X)"),
        growth_singular=growth,
        growth_entry=(1, 1),
        error_ratio=error,
        distinct_ratio=distinct,
        annihilated=2,
        growth=10,
        helps=0.95,
    )
    assert ruling.verdict == verdict
    assert "2 runs annihilated" in ruling.reason
