import math

import pytest
import torch
from pydantic import ValidationError

from rankcollapse.judges.gap_activations import m13, m16
from rankcollapse.measurements import gap_activations
from rankcollapse.settings.gap import GapActivations

CPU = torch.device("cpu")
ACTIVATIONS = ("softmax", "relu", "sigmoid", "sigmoid/T", "linear")
SMALL = {
    "activations": ACTIVATIONS,
    "logit_variances": (0.25, 1.0),
    "ratios": (0.0, 1.0),
    "tokens": (10, 40),
    "runs": 2,
    "differential_layers": (1, 4),
}


@pytest.fixture(scope="module")
def measured():
    return gap_activations.measure(GapActivations(**SMALL), device=CPU, seed=0)


def test_axes(measured):
    assert measured["eigenvalue"].shape == measured["singular"].shape == (5, 2, 2, 2, 2, 3, 2)
    assert measured["share/top"].shape == measured["share/uniform"].shape == (4, 2, 2, 2, 2)
    assert measured["share/weight"] == pytest.approx([0, 0.2, 0.8 - 0.6 * math.exp(-0.9), 1], abs=1e-15)
    assert all(value.is_contiguous() and value.dtype == torch.float64 for value in measured.values())


def test_softmax_has_the_eigenvalue_one_until_it_is_removed(measured):
    eigenvalue = measured["eigenvalue"][0]
    ones = torch.ones_like(eigenvalue[..., 0, 0])
    torch.testing.assert_close(eigenvalue[..., 0, 0], ones, atol=1e-12, rtol=0)  # 40 x 4 eps
    # removed, the next one leads: row-stochastic, so 11^T/T and E f 11^T/T are the same
    torch.testing.assert_close(eigenvalue[..., 1, 0], eigenvalue[..., 0, 1], atol=1e-12, rtol=0)
    torch.testing.assert_close(eigenvalue[..., 2, :], eigenvalue[..., 1, :], atol=1e-9, rtol=0)


def test_relu_and_linear_follow_the_scale_of_the_logits(measured):
    for k in (1, 4):  # the logits of variance 1 are twice those of 1/4; what is removed is twice as large too
        small, large = measured["singular"][k][..., [0, 2], :]
        torch.testing.assert_close(2 * small, large, atol=1e-9, rtol=0)


def test_removing_the_mean_leaves_no_outlier(measured):
    last = measured["singular"][:, :, :, -1]  # at T = 40 outliers stand at 3 and more times the edge
    before, after = (last[..., k, 0] / last[..., k, 1] for k in (0, 2))
    assert (before[:4] > 2).all()
    assert (after < 1.6).all()  # neighbouring values at the edge, and the largest entry of softmax


def test_energy_along_the_ones(measured):
    share = measured["share/uniform"]
    assert (share.diff(dim=0) < 0).all()
    assert share[-1].abs().max() < 1e-28  # rounding squared
    # s_1^2 is at least the energy along any pair of directions
    assert (measured["share/top"] >= share).all()


def test_seed_decides(measured):
    again = gap_activations.measure(GapActivations(**SMALL), device=CPU, seed=0)
    assert all(torch.equal(again[name], measured[name]) for name in measured)
    other = gap_activations.measure(GapActivations(**SMALL), device=CPU, seed=1)
    assert not torch.equal(other["singular"], measured["singular"])


def test_bad_logits_are_named(monkeypatch):
    monkeypatch.setattr(
        gap_activations, "orthonormal_logits", lambda tokens, *_: torch.full((tokens, tokens), math.nan)
    )
    with pytest.raises(FloatingPointError, match="gap_activations: gamma = 0, T = 10, run 0: "):
        gap_activations.measure(GapActivations(**SMALL), device=CPU, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activations": ("gelu",)}, "Input should be 'softmax'"),
        ({"activations": ("relu",)}, "activations: relu; softmax and others"),
        ({"activations": ("softmax", "softmax")}, "each at most once"),
        ({"logit_variances": (2.0,)}, "1 must be among them"),
        ({"ratios": (2.0,)}, "less than or equal to 1"),
        ({"tokens": (3,)}, "greater than or equal to 4"),
        ({"runs": 1}, "greater than or equal to 2"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValidationError, match=message):
        GapActivations(**SMALL | changes)


@pytest.mark.parametrize(
    ("z", "after", "verdict"),
    [
        ([(0, 0, 0), (-9, -9, -9), (-9, -9, -9), (-9, -9, -9), (-9, -9, -9)], 1.1, "holds"),
        ([(0, 0, 0), (-9, 1, -9), (9, 9, 9), (9, 9, -9), (-9, -9, -9)], 1.1, "holds with a condition"),
        ([(0, 0, 0), (-9, -9, -9), (9, 9, 9), (9, 9, 9), (-9, -9, -9)], 1.1, "false as written"),
        ([(0, 0, 0), (-9, -9, -9), (-9, -9, -9), (-9, -9, -9), (-9, -9, -9)], 1.9, "false as written"),
        ([(0, 0, 0), (-1, -9, -1), (-9, -9, -9), (-9, -9, -9), (-9, -9, -9)], 1.1, "false as written"),
    ],
)
def test_m13(z, after, verdict):
    gaps = [(10.0, 5.0, 1.0)] * 5
    limits = {"variance": 1, "errors": 2, "kept": 1.5}
    assert m13(activations=ACTIVATIONS, gaps=gaps, z_scores=z, largest_after=after, **limits).verdict == verdict


def test_m13_without_an_activation_is_not_run():
    limits = {"variance": 1, "errors": 2, "kept": 1.5}
    row = [(1.0, 1.0, 1.0)]
    ruling = m13(activations=("softmax",), gaps=row, z_scores=row, largest_after=1, **limits)
    assert ruling.reason == "not measured: relu, sigmoid, sigmoid/T"


@pytest.mark.parametrize(
    ("violations", "centred", "verdict"),
    [
        (0, [[0.2, 0.01]], "holds"),
        (0, [[0.31, 0.01]], "holds with a condition"),
        (1, [[0.2, 0.01]], "false as written"),
    ],
)
def test_m16(violations, centred, verdict):
    share = [[[0.4, 0.4]], [[0.3, 0.3]], centred]
    ruling = m16(tokens=(50, 100), weights=(0, 0.2, 1), along_violations=violations, top_share=share, variance=1)
    assert ruling.verdict == verdict
    assert ("T = 50" in ruling.reason) == (verdict == "holds with a condition")
