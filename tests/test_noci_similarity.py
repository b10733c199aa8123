"""Token similarity with skips: the laws by hand and against each other, simulation against them, axes, the judge."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rankcollapse.judges.noci_similarity import s15
from rankcollapse.measurements import noci_similarity
from rankcollapse.measurements.noci_similarity import Network, measure, step
from rankcollapse.mixing import attention_entropy, overlaps
from rankcollapse.randomness import generator
from rankcollapse.settings.noci import NociSimilarity
from rankcollapse.theory import noci as theory
from rankcollapse.theory.skips import relative_residual
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN

CPU = torch.device("cpu")
SMALL = NociSimilarity(
    tokens=8,
    width=128,
    layers=16,
    runs=8,
    strengths=(1.0,),
    scales=(0.3, 1.0),
    norms=("none", "post"),
    mlps=("none", "linear", "relu"),
    depths=(2, 4),
)


@pytest.fixture(scope="module")
def measured():
    return measure(SMALL, device=CPU, seed=0)


# ---------------------------------------------------------------- the laws


def test_one_layer_by_hand():
    # n = 2, a = 1, orthogonal tokens: m = 1/2, so q = 3/2, p = 1/2; a linear MLP doubles both
    assert theory.moments(1, theory.uniform_overlaps(2, 1))[:, 1].tolist() == [1.5, 0.5]
    assert theory.moments(1, theory.uniform_overlaps(2, 1), "linear")[:, 1].tolist() == [3, 1]
    # ReLU: p = 1/2 + 3/2 kappa(1/3), kappa(1/3) = (.942809 + 1.910634/3)/pi = .502830
    q, p = theory.moments(1, theory.uniform_overlaps(2, 1), "relu")[:, 1]
    assert (q, p) == pytest.approx((3, 0.5 + 1.5 * 0.502830), abs=1e-6)
    # attention that copies one token to all: own overlap 1, mutual overlap 1
    assert theory.moments(1, np.ones((2, 1)))[:, 1].tolist() == [2, 1]


def test_the_limit_that_the_literature_scaling_has():
    # e - 1 over e - 1 + 32; and (1.01^100 - 1) over itself + 32 at a hundred layers
    assert theory.deep_limit(1, 32) == pytest.approx(1.718282 / 33.718282, abs=1e-6)
    assert theory.closed_form(0.1, 100, 32)[-1] == pytest.approx(0.0506, abs=5e-5)
    # the finite depth differs by O(1/L) from the limit
    gaps = [theory.deep_limit(1, 32) - theory.closed_form(L**-0.5, L, 32)[-1] for L in (1000, 2000)]
    assert gaps[0] / gaps[1] == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize("mlp", ["none", "linear"])
@pytest.mark.parametrize(("scale", "start"), [(0.2, 0.0), (1.0, 0.0), (0.3, 0.4)])
def test_closed_form_solves_the_recursion(mlp, scale, start):
    stepped = theory.similarity(scale, theory.uniform_overlaps(16, 60), mlp, start)
    np.testing.assert_allclose(stepped, theory.closed_form(scale, 60, 16, start), rtol=0, atol=1e-12)


def test_half_depth_is_where_the_closed_form_is_one_half():
    scale = (33 ** (1 / 20) - 1) ** 0.5  # twenty layers multiply the ratio by n + 1
    assert theory.half_depth(scale, 32) == pytest.approx(20, abs=1e-12)
    assert theory.closed_form(scale, 20, 32)[-1] == pytest.approx(0.5, abs=1e-12)


def test_the_same_law_as_for_the_relative_residual():
    cosine = theory.closed_form(0.5, 10, 4)
    grown = np.array([theory.ratio(value, 4) for value in cosine])
    # a centred residual has (1 - 1/n)(q - p) a token: relF^2 = (1 - 1/n) / (1 - 1/n + m/(q-p)), n = 4
    shares = (0.75 / (0.75 + grown)) ** 0.5
    np.testing.assert_allclose(relative_residual(shares[0], 0.25, 10, "none"), shares, rtol=1e-12)


def test_kappa_against_normal_variables():
    assert theory.kappa(np.array([-1.0, 0.0, 1.0])) == pytest.approx([0, 1 / np.pi, 1], abs=1e-12)
    u, v = np.random.default_rng(0).standard_normal((2, 400_000))
    for rho in (0.3, 0.8):
        w = rho * u + (1 - rho**2) ** 0.5 * v
        found = 2 * np.mean(np.maximum(u, 0) * np.maximum(w, 0))
        assert found == pytest.approx(theory.kappa(rho), abs=0.015)  # four standard errors: 2 sd 1.1 / sqrt(4e5)


def test_overflow_is_named():
    with pytest.raises(FloatingPointError, match="scale 1 overflows within 2000 layers"):
        theory.moments(1, theory.uniform_overlaps(4, 2000))


# ---------------------------------------------------------------- the measurement


def spread(scale, layers, width):
    """Standard deviation of one run's cosine in the middle of its curve: that of ln r over 4, its steepest slope.

    A layer multiplies |x|^2 of the mean token by |1 + a W|^2 along it: 1 + a^2 on average, with variance
    (4 a^2 + 2 a^4) / d (a normal cross term and a chi-square); an MLP of two weights does so once more.
    """
    return (layers * (4 * scale**2 + 2 * scale**4) / width).__pow__(0.5) / (1 + scale**2) / 4


@pytest.mark.parametrize("o", [0, 1])
@pytest.mark.parametrize(("m", "mlp"), [(0, "none"), (1, "linear"), (2, "relu")])
def test_uniform_attention_follows_the_recursion(measured, o, m, mlp):
    for s, scale in enumerate((0.25, 0.3, 1.0)):
        mean = measured["cosine"][0, o, m, s].mean(0).numpy()
        expected = theory.similarity(scale, theory.uniform_overlaps(8, 16), mlp)
        # four standard errors of eight runs; the first layers hold the 1/sqrt(d)/n of the start's own cosines
        allowed = 4 * spread(scale, 16 if mlp == "none" else 48, 128) / 8**0.5
        assert np.abs(mean - expected).max() < allowed


def test_softmax_follows_the_recursion_with_its_overlaps(measured):
    seen = measured["overlaps"][0, 0, 1].mean(0).numpy().T
    mean = measured["cosine"][1, 0, 0, 1].mean(0).numpy()
    # attention now depends on the tokens it mixes, which the recursion leaves out: twice the spread above
    assert np.abs(mean - theory.similarity(0.3, seen)).max() < 8 * spread(0.3, 16, 128) / 8**0.5


def test_both_collapses_at_once(measured):
    assert (measured["cosine"][1, 0, 0, 2, :, -1] > 0.99).all()
    assert (measured["entropy"][0, 0, 2, :, -1] < 0.1).all()
    assert (measured["entropy"][1, 0, 2, :, -1] > 0.99).all()  # LayerNorm keeps the logits small: all tokens alike


def test_axes(measured):
    shapes = {name: tuple(value.shape) for name, value in measured.items()}
    kinds = (2, 3, 3, 8)
    assert shapes == {
        "cosine": (2, *kinds, 17),
        "entropy": (*kinds, 16),
        "overlaps": (*kinds, 16, 2),
        "limit/cosine": (2, 1, 8),
    }


def test_one_step_by_hand():
    # d = 1, one run, one scale: tokens 1 and 3, all weights 1, a = 1/2. Uniform: each gains half the mean, 1
    tokens = torch.tensor([1.0, 3.0], dtype=torch.float64).view(1, 1, 2, 1)
    ones, half = torch.ones(5, 1, 1, 1, dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64)
    assert step(tokens, half, ones, Network("uniform", "none", "none"))[0].flatten().tolist() == [2, 4]
    # then the linear MLP: 1.5 times; ReLU: 1 + sqrt(2) / 2 times
    assert step(tokens, half, ones, Network("uniform", "none", "linear"))[0].flatten().tolist() == [3, 6]
    relu = step(tokens, half, ones, Network("uniform", "none", "relu"))[0].flatten()
    torch.testing.assert_close(relu, torch.tensor([2.0, 4.0], dtype=torch.float64) * (1 + 0.5**0.5))
    # softmax: logits x_i x_j, so token 1 sees e and e^3
    mixed, attention = step(tokens, half, ones, Network("softmax", "none", "none"))
    share = 1 / (1 + np.exp(-2))
    assert attention[0, 0, 0, 1].item() == pytest.approx(share, abs=1e-15)
    assert mixed[0, 0, 0, 0].item() == pytest.approx(1 + (1 + 2 * share) / 2, abs=1e-14)


def test_entropy_and_overlaps_of_known_attention():
    uniform, one_hot = torch.full((4, 4), 0.25, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    assert attention_entropy(torch.stack([uniform, one_hot])).tolist() == pytest.approx([1, 0], abs=1e-15)
    assert overlaps(uniform).tolist() == [0.25, 0.25]
    assert overlaps(one_hot).tolist() == [1, 0]
    all_to_one = torch.zeros(4, 4, dtype=torch.float64)
    all_to_one[:, 2] = 1
    assert overlaps(all_to_one).tolist() == [1, 1]


def test_order_of_tokens_does_not_matter():
    random = generator(0, "test_noci")
    tokens = torch.randn(2, 1, 6, 8, generator=random, dtype=torch.float64)
    weights = torch.randn(5, 2, 8, 8, generator=random, dtype=torch.float64)
    scale, order = torch.tensor([0.7], dtype=torch.float64), torch.tensor([3, 1, 5, 0, 2, 4])
    network = Network("softmax", "post", "relu")
    once, again = (step(X, scale, weights, network)[0] for X in (tokens, tokens[..., order, :]))
    torch.testing.assert_close(again, once[..., order, :], rtol=0, atol=1e-12)  # other order of summation only


def test_same_seed_same_numbers(measured):
    again = measure(replace(SMALL, mlps=("none",)), device=CPU, seed=0)
    assert torch.equal(again["cosine"][:, :, 0], measured["cosine"][:, :, 0])


def test_what_is_not_finite_is_named(monkeypatch):
    monkeypatch.setitem(noci_similarity.HIDDEN, "linear", lambda h: h * torch.inf)
    with pytest.raises(FloatingPointError, match=r"noci_similarity: cosine is not finite at index \[0, 0, 1"):
        measure(SMALL, device=CPU, seed=0)


def test_depths_must_rise():
    with pytest.raises(ValidationError, match="must rise"):
        replace(SMALL, depths=(4, 2))


# ---------------------------------------------------------------- the judge


@pytest.mark.parametrize(
    ("cosine", "verdict"),
    [
        ([[0.1, 0.6, 0.999], [0.2, 0.9, 0.995]], HOLDS),
        ([[0.1, 0.6, 0.999], [0.2, 0.9, 0.5]], CONDITION),
        ([[0.1, 0.6, 0.999], [0.7, 0.9, 0.995]], CONDITION),  # goes to 1 although the skip is not too weak
        ([[0.1, 0.6, 0.9], [0.2, 0.9, 0.5]], FALSE),
    ],
)
def test_s15(cosine, verdict):
    ruling = s15(
        networks=["first", "second"],
        scales=["small", "middle", "large"],
        half_depths=[400, 90, 5],
        layers=100,
        cosine=cosine,
        near=0.99,
        far=0.5,
        margin=2,
    )
    assert ruling.verdict == verdict
    assert ("not in second" in ruling.reason) == (verdict == CONDITION)


def test_s15_needs_weak_and_strong_skips():
    ruling = s15(networks=["x"], scales=["a"], half_depths=[5], layers=99, cosine=[[1]], near=0.99, far=0.5, margin=2)
    assert ruling.verdict == NOT_RUN
