"""The judges of attention alone and of the modules, on numbers made up for each verdict."""

import pytest

from rankcollapse.judges import gap_depth, rebuttal_10
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS


@pytest.mark.parametrize(
    ("medians", "correlation", "verdict"),
    [
        ([0.01, 0.02], [-9, -3], HOLDS),
        ([0.01, 0.02], [-9, -1], CONDITION),
        ([0.01, 0.02], [-9, 5], CONDITION),
        ([0.01, 0.2], [-9, -9], FALSE),
    ],
)
def test_m10(medians, correlation, verdict):
    ruling = rebuttal_10.m10(largest=9, median_at_largest=medians, correlation=correlation, near=0.05, sure=2)
    assert ruling.verdict == verdict
    assert ("layers 2" in ruling.reason) == (verdict == CONDITION)


@pytest.mark.parametrize(("low", "high", "verdict"), [(0.95, 1.02, HOLDS), (0.8, 1, CONDITION), (-0.1, 1, FALSE)])
def test_m11(low, high, verdict):
    found = {"exponent": 0.9, "low": low, "high": high, "largest": 9, "constant": 9.0, "derived": 9.9}
    assert rebuttal_10.m11(**found, start=100, within=0.1).verdict == verdict


@pytest.mark.parametrize(
    ("unit", "scaled", "ratio", "verdict"),
    [
        ([0.1, 0.1], [0.1, 0.1], 0.5, CONDITION),  # nobody addresses it
        ([0.1, 2.0], [0.1, 0.1], 0.95, HOLDS),  # one does, without a gap
        ([0.1, 2.0], [0.1, 0.1], 0.5, FALSE),  # one does, with its gap
        ([0.1, 2.0], [3.0, 0.1], 0.95, HOLDS),
        ([0.1, 0.1], [3.0, 0.1], 0.5, FALSE),  # also with other weights
        ([0.1, 0.1], [3.0, 0.1], 0.95, CONDITION),  # only with other weights
    ],
)
def test_m12(unit, scaled, ratio, verdict):
    ruling = gap_depth.m12(
        weights=["unit", "scaled"],
        modules=["A + skip"],
        alone=[[0.1, 0.1], [0.1, 0.1]],
        with_module=[[unit], [scaled]],
        mixing_ratio=[[[ratio] * 2]] * 2,
        kept=0.5,
        gone=0.9,
    )
    assert ruling.verdict == verdict


def test_m12_needs_a_module_that_does_better_than_attention_alone():
    ruling = gap_depth.m12(
        weights=["unit"],
        modules=["A + skip"],
        alone=[[2.0]],
        with_module=[[[2.0]]],
        mixing_ratio=[[[0.1]]],
        kept=0.5,
        gone=0.9,
    )
    assert ruling.verdict == CONDITION


@pytest.mark.parametrize(
    ("unit", "xavier", "verdict"),
    [
        ((0.1, 0.01), (0.1, 0.01), HOLDS),
        ((1.0, 0.01), (0.1, 0.01), CONDITION),
        ((0.1, 0.3), (0.1, 0.01), CONDITION),
        ((0.1, 0.3), (0.9, 0.01), FALSE),
    ],
)
def test_m20(unit, xavier, verdict):
    ruling = gap_depth.m20(
        weights=["unit", "xavier"],
        layers=[1, 5],
        modules=["A + LN"],
        second_modulus=[[0.9, unit[0]], [0.9, xavier[0]]],  # the first layer is not a deeper one
        spectrum_tokens=9,
        largest=9,
        excess=[[[0.01, unit[1]]], [[0.01, xavier[1]]]],
        radius=0.5,
        near=0.1,
    )
    assert ruling.verdict == verdict
