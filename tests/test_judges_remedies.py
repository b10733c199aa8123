"""The judges of the remedies, on numbers made up for each verdict."""

import pytest

from rankcollapse.judges import noci_remedies
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS


@pytest.mark.parametrize(
    ("power", "without", "verdict"),
    [
        ([1.0, 1.4], 99, HOLDS),
        ([1.0, 30.0], 99, CONDITION),
        ([20.0, 30.0], 99, FALSE),
        ([1.0, 1.0], 1.2, FALSE),  # nothing grows anyway
    ],
)
def test_s19(power, without, verdict):
    ruling = noci_remedies.s19(networks=["a", "b"], power=power, median=[0.5, 0.75], without=without, most=1.5)
    assert ruling.verdict == verdict
    assert ("only with a:" in ruling.reason) == (verdict == CONDITION)
    assert "(0.75)" in ruling.reason


@pytest.mark.parametrize(
    ("growth", "entropy", "gained", "verdict"),
    [
        (1.1, 0.9, 0.8, HOLDS),
        (1.1, 0.9, 0.1, CONDITION),
        (1.1, 0.2, 0.8, FALSE),  # collapsed in spite of it
        (5.0, 0.9, 0.8, FALSE),  # grows in spite of it
    ],
)
def test_s20(growth, entropy, gained, verdict):
    ruling = noci_remedies.s20(
        networks=["no norm"],
        scales=[1, 10],
        growth=[[1.0, growth]],
        entropy=[[0.9, entropy]],
        growth_with_gain=[[1.0, 1.0]],
        entropy_with_gain=[[0.9, gained]],
        growth_without=[[1e40, 1e40]],
        entropy_without=[[0.1, 0.01]],
        cosine_change=0.001,
        grows=2,
        collapsed=0.3,
    )
    assert ruling.verdict == verdict
    assert ("only for a gain up to 1 " in ruling.reason) == (verdict == CONDITION)


@pytest.mark.parametrize(
    ("largest", "deepnorm", "verdict"),
    [(1.01, [1.0, 0.07], HOLDS), (1.01, [3.8, 0.04], CONDITION), (1.8, [3.8, 0.04], CONDITION), (9, [1, 0.07], FALSE)],
)
def test_s21(largest, deepnorm, verdict):
    ruling = noci_remedies.s21(
        smallest=1.0,
        largest=largest,
        scales=[1, 0.07],
        deepnorm_scales=deepnorm,
        cosine=0.2,
        deepnorm_cosine=0.003,
        preserved=0.05,
        order=2.718,
    )
    assert ruling.verdict == verdict
    assert ("not DeepNorm" in ruling.reason) == (deepnorm[0] != 1)
