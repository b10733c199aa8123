"""The initialisations: limits and variances, input statistics, and the names that settings may use."""

from typing import get_args

import pytest
import torch

from rankcollapse.inits import INPUTS, WEIGHT_INITS, orthogonal
from rankcollapse.randomness import generator
from rankcollapse.residual import relative_residual
from rankcollapse.settings.dong import SanDepth, WeightInit

FAN_IN, FAN_OUT = 300, 100
VARIANCES = {"xavier": 2 / (FAN_IN + FAN_OUT), "bert": 0.0004, "normal1d": 1 / FAN_IN, "linear": 1 / (3 * FAN_IN)}
LIMITS = {"xavier": (6 / 400) ** 0.5, "linear": 300**-0.5}


@pytest.mark.parametrize("name", WEIGHT_INITS)
def test_weights_have_the_named_variance(name: str) -> None:
    weights = WEIGHT_INITS[name](FAN_IN, FAN_OUT, generator(0, name))
    assert weights.shape == (FAN_IN, FAN_OUT)
    assert weights.dtype == torch.float64
    # 30000 draws: the variance scatters by sqrt(2 / 30000) = 0.8 % for a Gaussian, less for a uniform; five of them
    assert weights.var().item() == pytest.approx(VARIANCES[name], rel=0.04)
    assert abs(weights.mean().item()) < 5 * (VARIANCES[name] / weights.numel()) ** 0.5
    if name in LIMITS:
        assert 0.99 * LIMITS[name] < weights.abs().max() <= LIMITS[name]


@pytest.mark.parametrize("name", WEIGHT_INITS)
def test_draws_depend_on_nothing_but_the_generator(name: str) -> None:
    first, second = (WEIGHT_INITS[name](8, 8, generator(1, name)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, WEIGHT_INITS[name](8, 8, generator(2, name)))


def test_orthogonal_matrices_are_orthogonal_and_have_random_signs() -> None:
    q = orthogonal(40, generator(0, "orthogonal"))
    torch.testing.assert_close(q @ q.mT, torch.eye(40, dtype=torch.float64), rtol=0, atol=1e-14)  # sums of 40
    traces = torch.stack([orthogonal(4, generator(0, "trace", i)).trace() for i in range(400)])
    # Haar: trace has mean 0 and variance 1; 5 standard errors of 400 draws. Unsigned QR has mean -1.2
    assert abs(traces.mean().item()) < 0.25
    assert traces.var().item() == pytest.approx(1, abs=0.4)


@pytest.mark.parametrize(("name", "relative"), [("mean", 0.5**0.5), ("iid", (1 - 1 / 64) ** 0.5)])
def test_inputs_are_normalised_and_share_what_they_should(name: str, relative: float) -> None:
    tokens = INPUTS[name](64, 512, generator(0, name))
    assert tokens.mean(-1).abs().max() < 1e-15
    # 1e-4: the epsilon 1e-5 of LayerNorm against a variance of one or two
    torch.testing.assert_close(tokens.var(-1, correction=0), torch.ones(64, dtype=torch.float64), rtol=0, atol=1e-4)
    # The shared row's squared length scatters by sqrt(2 / 512) = 6 %, a share of it in relF; the 64 rows add less
    assert relative_residual(tokens).item() == pytest.approx(relative, abs=0.03)


def test_settings_allow_exactly_the_names_that_exist() -> None:
    assert set(get_args(WeightInit)) == set(WEIGHT_INITS)
    assert set(get_args(get_args(get_args(SanDepth.__annotations__["inputs"])[0])[0])) == set(INPUTS)
