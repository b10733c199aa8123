"""Row-stochastic matrices: what each kind promises, hand values for their mixing, numpy's eigenvalues."""

import math

import numpy as np
import pytest
import torch

from rankcollapse.markov import (
    deflate,
    dobrushin,
    gaussian_logits,
    lazy_path,
    log_norms,
    random_markov,
    reversible_markov,
    stationary,
    subdominant_modulus,
    symmetric_markov,
)
from rankcollapse.randomness import generator

ROUND_OFF = 1e-13  # 12 terms of order one, some hundred eps
RUNS, TOKENS = 3, 12
KINDS = {
    "random": lambda g: random_markov(TOKENS, RUNS, g, 0.0, 1.0),
    "reversible": lambda g: reversible_markov(TOKENS, RUNS, g, 1.0),
    "symmetric": lambda g: symmetric_markov(TOKENS, RUNS, g, 1.0),
}


def draw(kind: str) -> torch.Tensor:
    return KINDS[kind](generator(0, "test_markov", kind))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_sum_to_one(kind: str):
    markov = draw(kind)
    assert markov.shape == (RUNS, TOKENS, TOKENS)
    assert (markov > 0).all()
    assert (markov.sum(-1) - 1).abs().max() < ROUND_OFF


def test_symmetric_and_reversible_are():
    symmetric, reversible = draw("symmetric"), draw("reversible")
    assert (symmetric - symmetric.mT).abs().max() < ROUND_OFF
    flow = stationary(reversible)[..., None] * reversible
    assert (flow - flow.mT).abs().max() < ROUND_OFF


def test_random_markov_forgets_the_mean_of_its_logits():
    first, second = (random_markov(4, 2, generator(0, "mean"), mean, math.log(2)) for mean in (0.0, -math.log(2) / 2))
    assert (first - second).abs().max() < ROUND_OFF


def test_random_markov_has_the_circular_law_radius():
    # sqrt((e^v - 1) / T) as T grows; the largest modulus of 200 eigenvalues lies a few per cent off it.
    radius = subdominant_modulus(random_markov(200, 1, generator(0, "radius"), 0.0, math.log(2)))
    assert radius.item() == pytest.approx(200**-0.5, rel=0.15)


def test_negative_variance_is_refused():
    with pytest.raises(ValueError, match="logit_variance is -1"):
        gaussian_logits(2, 1, generator(0), 0.0, -1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_subdominant_modulus_is_the_second_of_numpys_eigenvalues(kind: str):
    markov = draw(kind)
    moduli = np.sort(np.abs(np.linalg.eigvals(markov.numpy())), axis=-1)
    np.testing.assert_allclose(subdominant_modulus(markov), moduli[:, -2], atol=1e-12)  # 12 x 12, well conditioned


def test_subdominant_modulus_by_hand():
    two = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    assert subdominant_modulus(two).item() == pytest.approx(0.6, abs=1e-14)
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert subdominant_modulus(swap).item() == pytest.approx(1, abs=1e-14)
    assert subdominant_modulus(lazy_path(40)).item() == 0.5  # exact: one Jordan block of size 39


def test_stationary_by_hand_and_unique_only_with_one_closed_class():
    two = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    assert stationary(two).tolist() == pytest.approx([0.75, 0.25], abs=1e-14)
    assert stationary(lazy_path(4)).tolist() == pytest.approx([1, 0, 0, 0], abs=1e-14)
    with pytest.raises(torch.linalg.LinAlgError):
        stationary(torch.eye(3, dtype=torch.float64))


def test_dobrushin_by_hand_and_bounds_the_diameter():
    two = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    assert dobrushin(two).item() == pytest.approx(0.6, abs=1e-14)
    assert dobrushin(torch.eye(3, dtype=torch.float64)).item() == 1
    markov = draw("random")
    x = torch.randn(RUNS, TOKENS, 2, generator=generator(0, "diameter"), dtype=torch.float64)
    before, after = (torch.cdist(y, y).amax((-2, -1)) for y in (x, markov @ x))
    assert (after <= dobrushin(markov) * before * (1 + 1e-12)).all()  # round-off of the distances


@pytest.mark.parametrize("reference", ["mean", "stationary"])
def test_deflated_steps_are_the_powers_seen_from_the_reference(reference: str):
    markov, layers = draw("random"), 4
    x = torch.randn(RUNS, TOKENS, 5, generator=generator(0, "powers"), dtype=torch.float64)
    weights = {"mean": markov.mean(-2), "stationary": stationary(markov)}[reference]

    def rest(y: torch.Tensor) -> torch.Tensor:
        average = stationary(markov) if reference == "stationary" else torch.full_like(weights, 1 / TOKENS)
        return y - average[:, None] @ y

    direct = rest(torch.linalg.matrix_power(markov, layers) @ x)
    ours = log_norms(deflate(markov, weights), rest(x), layers)
    # Four steps shrink by about 30 each way of computing: round-off relative to X is 1e-15 against 1e-2.
    torch.testing.assert_close(ours[:, -1], torch.linalg.matrix_norm(direct).log(), atol=1e-11, rtol=0)


def test_lazy_path_by_hand():
    # From (0, 1, 0): X_l = 2^-l (0, 1, l), so 2^l ||X_l|| = sqrt(1 + l^2).
    start = torch.tensor([[0.0], [1.0], [0.0]], dtype=torch.float64)
    layer = torch.arange(9, dtype=torch.float64)
    expected = torch.log1p(layer**2) / 2 - layer * math.log(2)
    torch.testing.assert_close(log_norms(lazy_path(3), start, 8), expected, atol=ROUND_OFF, rtol=0)


def test_log_norms_pass_underflow_and_reach_minus_infinity():
    half = torch.eye(2, dtype=torch.float64) / 2
    ones = torch.ones(2, 1, dtype=torch.float64)
    expected = math.log(2) / 2 - 5000 * math.log(2)  # 2^-5000 is no float64
    assert log_norms(half, ones, 5000)[-1].item() == pytest.approx(expected, rel=1e-12)
    shift = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    assert log_norms(shift, ones, 3).tolist()[1:] == pytest.approx([0, -math.inf, -math.inf], abs=1e-15)
