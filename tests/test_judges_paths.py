"""The judges of paths and bounds, on numbers made up for each verdict."""

import pytest

from rankcollapse.judges import dong_bounds, dong_paths
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS


@pytest.mark.parametrize(
    ("heads", "random", "trained", "verdict", "words"),
    [
        (1, 0.99, 0.95, HOLDS, "2^3 = 8 paths"),
        (2, 0.99, 0.95, CONDITION, "27 paths through 3 layers of 2 heads, 3^3, not 2^3 = 8"),
        (1, 0.99, 0.5, CONDITION, "at initialisation only"),
        (2, 0.8, 0.95, FALSE, "0.8000"),
    ],
)
def test_s09(heads, random, trained, verdict, words):
    ruling = dong_paths.s09(
        layers=3,
        heads=heads,
        paths=(heads + 1) ** 3,
        random_shares={"a": 0.999, "b": random},
        trained_shares={"c": trained},
        short_paths=0.1,
        share=0.9,
    )
    assert ruling.verdict == verdict
    assert words in ruling.reason


@pytest.mark.parametrize(
    ("attention", "branch", "gammas", "verdict", "words"),
    [
        (0.0, 0.1, [0.5, 2.0], HOLDS, "3 of 40 layers"),
        (-0.5, -1e-16, [0.5, 2.0], CONDITION, "W_V W_O included"),
        (-0.5, 0.1, [1.5, 2.0], FALSE, "xavier 1.5 (0% of layers"),
        (-0.5, -0.1, [0.5, 2.0], FALSE, "-0.1"),
    ],
)
def test_s10(attention, branch, gammas, verdict, words):
    ruling = dong_bounds.s10(
        margin_attention=attention,
        margin_branch=branch,
        violations=3,
        layers=40,
        pair_step=0.0,
        pair_bound=0.5,
        inits=["xavier", "bert"],
        largest_gamma=gammas,
        vacuous=[0.0, 0.5],
        roundoff=1e-9,
    )
    assert ruling.verdict == verdict
    assert words in ruling.reason
