import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rankcollapse.judges.gap_finite_size import m14
from rankcollapse.measurements import gap_finite_size
from rankcollapse.settings.gap import GapFiniteSize

CPU = torch.device("cpu")
SMALL = {
    "tokens": (20, 80),
    "runs": (3, 2),
    "logit_variance": 1.0,
    "orthonormal_ratios": (0.0, 1.0),
    "gaussian_ratios": (4.0,),
}


@pytest.fixture(scope="module")
def measured():
    return gap_finite_size.measure(GapFiniteSize(**SMALL), device=CPU, seed=0)


def test_axes(measured):
    shapes = {name: tuple(value.shape) for name, value in measured.items()}
    expected = {20: (4, 3), 80: (4, 2)}
    assert shapes == {
        f"{name}/tokens_{size}": expected[size] for size in expected for name in ("radius", "top", "edge", "entry")
    }


def test_quantities_are_those_of_the_matrix(measured):
    settings = GapFiniteSize(**SMALL)
    assert list(gap_finite_size.inputs(settings)) == ["orthonormal 0", "orthonormal 1", "gaussian 4", "control"]
    draw = gap_finite_size.inputs(settings)["orthonormal 1"]
    attention = draw(20, gap_finite_size.generator(0, "gap_finite_size", "orthonormal 1", 20, 2), CPU).numpy()
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-14)
    moduli = np.sort(np.abs(np.linalg.eigvals(attention)))[::-1]
    singular = np.linalg.svd(attention, compute_uv=False)
    ours = [measured[f"{name}/tokens_20"][1, 2].item() for name in ("radius", "top", "edge", "entry")]
    theirs = [20**0.5 * moduli[1], singular[0], 20**0.5 * singular[1], 20**0.5 * attention.max()]
    assert ours == pytest.approx(theirs, rel=1e-10)  # eigenvalue of a 20 x 20 matrix, condition below 1e4


def test_inequalities(measured):
    for size in (20, 80):
        radius, top, edge, entry = (measured[f"{name}/tokens_{size}"] for name in ("radius", "top", "edge", "entry"))
        assert (top[:3] >= 1 - 1e-14).all()  # row sums are 1
        assert (entry <= size**0.5 * top).all()
        # |lambda_1 lambda_2| <= s_1 s_2 (Weyl), lambda_1 = 1
        assert (radius[:3] <= top[:3] * edge[:3] * (1 + 1e-12)).all()


def test_control_has_the_mean_and_variance():
    draw = gap_finite_size.inputs(GapFiniteSize(**SMALL))["control"]
    entries = 200 * draw(200, gap_finite_size.generator(0, "control"), CPU)
    # 40000 entries of standard deviation 1.31
    assert entries.mean().item() == pytest.approx(1, abs=4 * 1.31 / 200)
    assert entries.var().item() == pytest.approx(np.expm1(1), rel=4 * 2**0.5 / 200)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": (2,)}, "runs: 1 values for 2 numbers of tokens"),
        ({"gaussian_ratios": (30.0,)}, "at most the fewest tokens, 20"),
        ({"orthonormal_ratios": (1.5,)}, "less than or equal to 1"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValidationError, match=message):
        GapFiniteSize(**SMALL | changes)


@pytest.mark.parametrize(
    ("radius", "edge", "verdict", "words"),
    [
        ((0.9, 0.04, 0.03, 0.9), (0.9, 0.04, 0.03, 0.9), "holds", "s_2 4.0%, 3.0%"),
        ((0.9, 0.04, 0.03, 0.9), (0.9, 0.04, 0.2, 0.9), "holds with a condition", "from T = 100 on, but not s_2"),
        ((0.9, 0.06, 0.03, 0.9), (0.9, 0.04, 0.2, 0.9), "holds with a condition", "from T = 1000 on, but not s_2"),
        ((0.9, 0.06, 0.03, 0.9), (0.9, 0.04, 0.03, 0.9), "holds with a condition", "from T = 1000 on; relative"),
        ((0.9, 0.04, 0.06, 0.9), (0.9, 0.04, 0.03, 0.9), "false as written", ""),
    ],
)
def test_m14(radius, edge, verdict, words):
    ruling = m14(
        tokens=(50, 100, 1000, 2000),
        radius_error=radius,
        top_error=(0.01,) * 4,
        edge_error=edge,
        fewest=100,
        most=1000,
        error=0.05,
    )
    assert ruling.verdict == verdict
    assert words in ruling.reason


def test_m14_without_sizes_is_not_run():
    limits = {"fewest": 100, "most": 1000, "error": 0.05}
    assert m14(tokens=(12,), radius_error=(0,), top_error=(0,), edge_error=(0,), **limits).verdict == "not run"
