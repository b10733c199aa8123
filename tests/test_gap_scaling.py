import numpy as np
import pytest
import torch

from rankcollapse.judges import gap_scaling as judges
from rankcollapse.judges.rebuttal_08 import m08
from rankcollapse.measurements import gap_scaling
from rankcollapse.settings.gap import GapScaling
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS

CPU = torch.device("cpu")
SETTINGS = GapScaling(
    sizes=((16, 3), (64, 6)),
    layers=2,
    gradient_sizes=((6, 2), (8, 3)),
    collapsed_tokens=8,
    collapsed_runs=2,
    residual_decades=4,
    residual_steps=1,
    collapsed_layers=4,
)


@pytest.fixture(scope="module")
def measured():
    return gap_scaling.measure(SETTINGS, device=CPU, seed=0)


def test_axes(measured):
    assert {key: tuple(values.shape) for key, values in measured.items()} == {
        "token_norm/16": (2, 2, 2, 3, 3),
        "token_norm/64": (2, 2, 2, 6, 3),
        "gradients/6": (2, 2, 3, 2),
        "gradients/8": (2, 2, 3, 3),
        "collapse/residual_sizes": (6,),
        "collapse/gradients": (3, 6, 2),
        "depth/relative_residual": (4, 2, 4),
        "depth/gradients": (4, 3, 2, 4),
    }
    assert all(values.dtype == torch.float64 and values.is_contiguous() for values in measured.values())


def test_the_seed_decides(measured):
    again = gap_scaling.measure(SETTINGS, device=CPU, seed=0)
    assert all(torch.equal(values, measured[key]) for key, values in again.items())


def test_first_layer_norms_follow_the_law(measured):
    # ||X_1||^2/T = |row of A|^2 d with entries of A of mean 1/T and squared coefficient of variation v:
    # 1 + v with the gap and v without; v = e - 1 from orthonormal tokens, 1 for the Markov matrix
    squares = measured["token_norm/64"][0, :, :, :, 1].square().mean(-1)
    # finite T and heavy tails take up to 20 % off the lognormal moments at T = 64
    np.testing.assert_allclose(squares, [[np.e, np.e - 1], [2, 1]], rtol=0.25)
    np.testing.assert_allclose(measured["token_norm/64"][..., 0], 1, rtol=1e-12)


def test_scale_of_the_values_factors_out_of_markov_attention(measured):
    wide, narrow = measured["token_norm/16"][:, 1]
    layer = torch.arange(3, dtype=torch.float64)
    torch.testing.assert_close(narrow, wide * 16 ** (-layer / 2), rtol=1e-12, atol=0)


def test_query_and_key_gradients_fall_as_the_square_of_the_residual(measured):
    sizes, gradients = measured["collapse/residual_sizes"], measured["collapse/gradients"]
    assert sizes[-1] == 0
    # the next order is one power of eps = 1e-3 smaller
    fall = (gradients[1:, 3] / gradients[1:, 4]).log10()
    np.testing.assert_allclose(fall, 2, atol=0.02)
    assert (gradients[1:, -1] < 1e-25 * gradients[0, -1]).all()
    np.testing.assert_allclose(gradients[0, 4] / gradients[0, -1], 1, rtol=0.01)


def test_uniform_attention_collapses_in_one_layer(measured):
    assert (measured["depth/relative_residual"][0, :, 1:] < 1e-14).all()
    own = measured["depth/gradients"][0, :, :, 1:]
    assert (own[1:] < 1e-25).all()
    # dX/dW_V = A X ⊗ I and all tokens are one vector of squared norm d: T d d
    np.testing.assert_allclose(own[0], np.sqrt(8 * 8 * 8), rtol=1e-12)


def test_non_finite_tokens_are_named(monkeypatch):
    monkeypatch.setitem(gap_scaling.SCALINGS, "N(0,1)", lambda width: float("inf"))
    with pytest.raises(FloatingPointError, match=r"gap_scaling: A\(X\), N\(0,1\), T = 16: not finite at layer 1"):
        gap_scaling.token_norms(SETTINGS, 0, 16, 2, CPU)


# ---------------------------------------------------------------- the judges


def ruling_15(**changes):
    measured = {
        "attentions": ["A(X)", "A"],
        "norm_slopes": [[0.0, 0.1], [0.1, 0.0]],
        "layers": 2,
        "weights": ["values", "queries"],
        "wide_intervals": [(1, 2), (2, 3)],
        "narrow_intervals": [(-2, -1), (-3, -2)],
        "order_one": 0.25,
    }
    return judges.m15(**measured | changes)


def test_m15():
    assert ruling_15().verdict == HOLDS
    first = ruling_15(norm_slopes=[[0.0, 0.5], [0.1, 0.0]])
    assert first.verdict == CONDITION
    assert "A(X) at layer 1 of 2 only; A at every layer" in first.reason
    assert ruling_15(norm_slopes=[[0.0], [0.1, 0.0]]).verdict == CONDITION  # nothing left of the tokens at layer 2
    assert ruling_15(narrow_intervals=[(-2, 1), (-3, -2)]).verdict == CONDITION
    assert ruling_15(narrow_intervals=[(-2, 1), (-3, 2)]).verdict == FALSE
    assert ruling_15(norm_slopes=[[0.4, 0.5], [0.4, 0.5]]).verdict == FALSE


@pytest.mark.parametrize(
    ("slopes", "behind", "verdict"),
    [
        ([2, 2, 2], [0, 0, 0], HOLDS),
        ([0, 2.01, 1.99], [1, 1e-40, 1e-40], CONDITION),
        ([0, 2, 1], [1, 0, 0], FALSE),
        ([0, 2, 2], [1, 0.1, 0], FALSE),
    ],
)
def test_m19(slopes, behind, verdict):
    found = judges.m19(
        weights=["values", "queries", "keys"],
        slopes=slopes,
        at_zero=[0, 0, 0],
        behind_uniform=behind,
        order=2,
        slope=0.05,
        small=0.1,
        zero=1e-12,
    )
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("growth", "change", "verdict"),
    [
        ([(1.5, 2), (2, 3)], [(-0.5, -0.1), (-0.4, -0.2)], HOLDS),
        ([(1.5, 2), (2, 3)], [(-0.5, -0.1), (-0.4, 0.2)], CONDITION),
        ([(1.5, 2), (2, 3)], [(-0.5, 0.1), (-0.4, 0.2)], FALSE),
        ([(0.9, 2), (2, 3)], [(-0.5, -0.1), (-0.4, -0.2)], FALSE),
    ],
)
def test_m08(growth, change, verdict):
    found = m08(
        configs=["A(X)", "A(X) + LN"],
        slopes=[1.7, 2.5],
        slope_intervals=growth,
        changes=[-0.3, -0.1],
        change_intervals=change,
        plotted_changes=[-0.5, -0.5],
        explodes=1,
    )
    assert found.verdict == verdict
