"""The measurement ``residual_bounds`` at small size: its tensors, and the relations between bound and residual."""

from dataclasses import asdict

import pytest
import torch
from pydantic import ValidationError

from rankcollapse.measurements.residual_bounds import measure
from rankcollapse.settings.dong import ResidualBounds

SMALL = ResidualBounds(
    shapes=((2, 4, 1), (8, 12, 3)),
    inits=("xavier", "bert"),
    inputs=("mean", "iid"),
    runs=2,
    layers=4,
    skip_layers=2,
    power_steps=20,
    value_scales=(1.0, 2.0, 4.0),
)


@pytest.fixture(scope="module")
def measured() -> dict[str, torch.Tensor]:
    return measure(SMALL, device=torch.device("cpu"), seed=0)


def test_every_tensor_has_the_axes_of_the_docstring(measured: dict[str, torch.Tensor]) -> None:
    cell = (2, 2, 2, 2)
    assert {name: tuple(tensor.shape) for name, tensor in measured.items()} == {
        "log_residual": (2, *cell, 5),
        "log_relative": (2, *cell, 5),
        "log_constant": (5, *cell, 4),
        "log_slack": (5, *cell, 4),
        "log_iterated": (5, *cell, 5),
        "log_trivial": (2, *cell, 4),
        "gamma": (*cell, 4),
        "skip/step": (*cell, 2),
        "skip/contraction": (3, *cell, 2),
        "value/step": (2, 2, 3),
        "value/contraction": (3, 2, 2, 3),
        "pair/step": (3,),
        "pair/contraction": (2, 3),
        "pair/attention": (2, 2),
    }


def test_no_proved_bound_is_violated(measured: dict[str, torch.Tensor]) -> None:
    assert (measured["log_slack"][:4] > -1e-9).all()
    assert (measured["gamma"] > 1 - 1e-12).all()
    residual = measured["log_residual"]
    for row in range(2):
        assert (residual[row, ..., 1:] - residual[row, ..., :-1] <= measured["log_trivial"][row] + 1e-9).all()
    for bound in (0, 2, 3):
        norm = residual[0 if bound < 3 else 1]
        # where every step is below its bound, so is the whole
        assert (norm <= measured["log_iterated"][bound] + 1e-6 * norm.abs().clamp(min=1)).all()


def test_the_whole_branch_bounds_from_below_and_attention_alone_does_not(measured: dict[str, torch.Tensor]) -> None:
    alone, here, branch = measured["skip/contraction"]
    step = measured["skip/step"]
    assert (step >= 1 - here - 1e-12).all()
    assert (here <= branch + 1e-12).all()
    assert measured["pair/attention"].tolist() == [pytest.approx([0.75, 0.25]), pytest.approx([0.25, 0.75])]
    assert measured["pair/step"].tolist() == pytest.approx([0.5, 0.0, 1.0], abs=1e-15)
    assert measured["pair/contraction"][0].tolist() == pytest.approx([0.5] * 3, abs=1e-15)
    assert measured["pair/contraction"][1].tolist() == pytest.approx([0.5, 1.0, 2.0], abs=1e-15)
    assert (measured["value/step"] >= 1 - measured["value/contraction"][2] - 1e-12).all()
    assert (alone > 0).all()


def test_the_contraction_of_a_branch_grows_with_the_values(measured: dict[str, torch.Tensor]) -> None:
    alone, here, branch = measured["value/contraction"]
    torch.testing.assert_close(alone[..., 0], alone[..., 2], rtol=0, atol=0)
    torch.testing.assert_close(4 * here[..., 0], here[..., 2], rtol=1e-14, atol=0)
    torch.testing.assert_close(branch[..., 0], alone[..., 0], rtol=1e-2, atol=0)  # one head, W_VO = -I: from below


def test_equal_seeds_give_equal_tensors(measured: dict[str, torch.Tensor]) -> None:
    again, other = (measure(SMALL, device=torch.device("cpu"), seed=seed) for seed in (0, 1))
    assert all(torch.equal(again[name], tensor) for name, tensor in measured.items())
    assert not torch.equal(measured["log_slack"], other["log_slack"])


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValidationError, match=r"shapes: \(4, 6, 4\) needs"):
        ResidualBounds(**(asdict(SMALL) | {"shapes": ((4, 6, 4),)}))
