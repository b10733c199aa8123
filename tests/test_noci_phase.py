"""The phase diagram and the training grid: axes, laws, regions, and the judges."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rankcollapse.judges.noci_phase import s16, s18
from rankcollapse.measurements import phase_diagram, training_grid
from rankcollapse.phases import confusion, regions, window
from rankcollapse.settings.phase import PhaseDiagram, TrainingGrid
from rankcollapse.theory.phase import cosine_by_layer
from rankcollapse.theory.random_energy import finite
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS

CPU = torch.device("cpu")
DIAGRAM = PhaseDiagram(
    tokens=16,
    width=128,
    layers=8,
    runs=4,
    skips=(0.0, 1.0, 3.0),
    beta_decades=(-1, 1),
    beta_points=3,
    sharp_betas=(1000.0,),
    ratio_layers=2,
)
GRID = TrainingGrid(
    tokens=4,
    vocabulary=3,
    width=16,
    layers=2,
    skips=(0.0, 3.0),
    beta_decades=(-1, 1),
    beta_points=3,
    runs=2,
    batch=16,
    rate=2e-2,
    momenta=(0.9, 0.98),
    warmup=5,
    checkpoints=(5, 40),
    test_sequences=50,
    ratio_layers=1,
)


@pytest.fixture(scope="module")
def diagram():
    return phase_diagram.measure(DIAGRAM, device=CPU, seed=0)


@pytest.fixture(scope="module")
def grid():
    return training_grid.measure(GRID, device=CPU, seed=0)


def shapes(measured):
    return {name: tuple(tensor.shape) for name, tensor in measured.items()}


def test_the_diagram_has_the_axes_of_its_docstring(diagram):
    by_layer = dict.fromkeys(("entropy", "participation", "overlap", "sharp", "gradient"), (3, 3, 4, 8))
    far = dict.fromkeys(("far/entropy", "far/sharp"), (3, 1, 4, 8))
    last = dict.fromkeys(("query_value_ratio", "stable_rank"), (3, 3, 4))
    assert shapes(diagram) == by_layer | far | last | {"cosine": (3, 3, 4, 9), "beta": (3,)}


def test_the_grid_has_the_axes_of_its_docstring(grid):
    outer = (2, 2, 3, 2)
    by_step = dict.fromkeys(("training_loss", "training_accuracy"), (*outer, 40))
    layers = {"init/entropy": (*outer, 2), "init/cosine": (*outer, 3), "init/gradient": (*outer, 2)}
    cells = dict.fromkeys(("overflow_step", "init/query_value_ratio", "init/stable_rank"), outer)
    assert shapes(grid) == {"beta": (3,), "accuracy": (*outer, 2)} | by_step | layers | cells
    assert (grid["overflow_step"] == -1).all()


def test_all_cells_start_from_the_same_tokens(diagram):
    start = diagram["cosine"][..., 0]
    assert torch.equal(start, start[:1, :1].expand_as(start))
    # and the first layer's attention knows nothing of the skip
    entropy = diagram["entropy"][..., 0]
    torch.testing.assert_close(entropy, entropy[:1].expand_as(entropy), rtol=1e-13, atol=0)


def test_cells_do_not_depend_on_their_number(diagram):
    alone = phase_diagram.measure(replace(DIAGRAM, skips=(1.0, 3.0)), device=CPU, seed=0)
    for name in ("cosine", "gradient", "far/sharp"):
        torch.testing.assert_close(alone[name][1], diagram[name][2], rtol=1e-9, atol=1e-12)  # order of sums


def test_the_same_seed_trains_the_same(grid):
    again = training_grid.measure(replace(GRID, skips=(2.0, 3.0), runs=1), device=CPU, seed=0)
    # float32, other batches of matrices: rounding grows over 40 steps of Adam
    torch.testing.assert_close(
        again["training_loss"][:, 1, :, 0, :10], grid["training_loss"][:, 1, :, 0, :10], rtol=1e-3, atol=1e-3
    )
    assert torch.equal(again["init/cosine"][:, 1], grid["init/cosine"][:, 1, :, :1])


def test_a_strong_skip_learns(grid):
    assert (grid["accuracy"][:, 1, 1, :, 1] > 0.95).all()
    assert (grid["accuracy"][..., 1] <= 1).all()
    assert (grid["training_loss"][..., 0] > 0.5).all()


def test_the_first_layer_follows_the_random_energy_model(diagram):
    for column, beta in enumerate(diagram["beta"].tolist()):
        exact = finite(beta, DIAGRAM.tokens)
        # 64 rows, whose logits share queries and keys; finite width widens the logits' spread by 1/sqrt(128)
        assert diagram["entropy"][0, column, :, 0].mean() == pytest.approx(exact.entropy, abs=0.05)
        assert diagram["participation"][0, column, :, 0].mean() == pytest.approx(exact.participation, abs=0.05)


def test_the_recursion_follows_the_simulation(diagram):
    skips = np.array(DIAGRAM.skips)[:, None, None]
    simulated = diagram["cosine"].numpy()
    found = cosine_by_layer(simulated[..., 0], skips, diagram["participation"].numpy(), diagram["overlap"].numpy())
    off = np.abs((found - simulated).mean(2)).max(-1)
    # A layer changes ln r, r the odds of the mean token, by 2 / (alpha sqrt d) at random, the product of alpha x with
    # x W_V, so rho by at most a quarter of sqrt(8) of that; three times it, for the mean of 4 runs: 0.19 and 0.0625.
    # One-hot attention without a strong skip depends on the tokens it mixes, which the recursion leaves out.
    assert (off[1, :2] < 0.19).all()
    assert (off[2] < 0.0625).all()


def test_no_skip_and_small_logits_collapse(diagram):
    assert (diagram["cosine"][0, 0, :, -1] > 1 - 1e-6).all()
    assert (diagram["query_value_ratio"][0, 0] < 1e-4).all()


@pytest.mark.parametrize(
    ("settings", "changed", "said"),
    [
        (DIAGRAM, {"ratio_layers": 9}, "at most layers"),
        (DIAGRAM, {"beta_decades": (1, -1)}, "must rise"),
        (DIAGRAM, {"skips": (1, 0)}, "two or more, rising"),
        (DIAGRAM, {"sharp_betas": (10,)}, r"above 10\^1"),
        (GRID, {"checkpoints": (5, 5)}, "must rise"),
        (GRID, {"ratio_layers": 3}, "at most layers"),
        (GRID, {"momenta": (0.9, 1.0)}, "less than 1"),
    ],
)
def test_settings_that_cannot_be(settings, changed, said):
    with pytest.raises(ValidationError, match=said):
        replace(settings, **changed)


def test_a_value_that_is_not_finite_is_named():
    broken = torch.zeros(2, 3)
    broken[1, 2] = torch.nan
    with pytest.raises(FloatingPointError, match=r"phase_diagram: cosine is not finite at alpha 4, index \[1, 2\]"):
        phase_diagram.check_finite("phase_diagram", {"cosine": broken}, (0, 4))


# ---------------------------------------------------------------- regions

LIMITS = {"cosine": 0.9, "entropy": 0.3, "gradient": 10}


def test_regions_by_hand():
    cosine, entropy = np.array([0.95, 0.1, 0.1, 0.1, 0.1]), np.array([0.9, 0.2, 0.9, 0.9, 0.2])
    gradient = np.array([1.0, 1, -1, 1, 11])  # -1: overflowed
    found = regions(cosine, entropy, gradient, LIMITS)
    assert found.T.astype(int).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 1, 1]]


def test_confusion_by_hand():
    found = confusion(np.array([1, 1, 0, 0, 0], bool), np.array([1, 0, 1, 0, 0], bool))
    assert found == (1, 1, 1, 2)
    assert found.agreement == 0.6


def test_a_window_lies_between():
    rows = np.array([[0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 0, 1], [0, 0, 0]], bool)
    assert window(rows).tolist() == [True, False, False, False, False]


# ---------------------------------------------------------------- the judges


@pytest.mark.parametrize(
    ("first", "last", "verdict", "words"),
    [
        ([1, 1], [0.96, 1], HOLDS, "0.96 (alpha 0)"),
        ([1, 1], [0.3, 1], CONDITION, "with a skip of 3"),
        ([1, 1], [0.3, 0.4], CONDITION, "with no skip tried"),
        ([0.9, 0.9], [1, 1], FALSE, "0.900 or more in the first layer"),
    ],
)
def test_s16(first, last, verdict, words):
    ruling = s16(skips=[0, 3], beta=1000, first=first, last=last, most=0.95)
    assert ruling.verdict == verdict
    assert words in ruling.reason


def ruling_18(**changed):
    yes = [True, True]
    parts = dict.fromkeys(("low", "high", "trained_low", "trained_high", "window", "later_window"), yes)
    return s18(
        skips=[0, 3],
        trained_skips=[0, 2],
        agreement=0.75,
        **{"overflowed": 0} | parts | changed,
        **LIMITS,
        trained=0.95,
    )


def test_s18_tells_of_cells_that_overflowed():
    assert "2 trained cells overflowed" in ruling_18(overflowed=2).reason


def test_s18():
    assert ruling_18().verdict == HOLDS
    some = ruling_18(low=[True, False])
    assert some.verdict == CONDITION
    assert "only with a skip of 0, 2" in some.reason
    assert "1 of 2 skip strengths (2 of 2 at trained sizes)" in some.reason
    one = ruling_18(trained_low=[True, False], window=[True, False])
    assert one.verdict == CONDITION
    assert "only with a skip of 0;" in one.reason
    none = ruling_18(window=[False, False], trained_low=[True, False])
    assert none.verdict == FALSE
    assert "last checkpoint all three are so only with a skip of 0" in none.reason
    assert "0.75" in none.reason
    assert "with no skip tried" in ruling_18(trained_high=[False, False]).reason
