"""Closed forms, the activations themselves, and the edges against direct draws."""

import numpy as np
import pytest
import torch

from rankcollapse.attention import ACTIVATIONS
from rankcollapse.logits import orthonormal_logits
from rankcollapse.randomness import generator
from rankcollapse.theory import mind_the_gap
from rankcollapse.theory.random_attention import (
    ENTRIES,
    Moments,
    eigenvalue_gap,
    largest_entry,
    lone_entry_edge,
    moments,
    singular_edge,
    singular_gap,
    top_share,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("variance", [0.25, 1.0, 4.0])
def test_closed_forms(variance):
    s = np.sqrt(variance)
    close = {"rel": 1e-8}  # the quadrature is asked for 1e-10
    assert moments("softmax", variance, 100) == pytest.approx((1, variance, np.expm1(variance) - variance), **close)
    relu = moments("relu", variance, 100)
    assert relu.mean == pytest.approx(s / np.sqrt(2 * np.pi), **close)
    assert relu.variance == pytest.approx(variance * (0.5 - 0.5 / np.pi), **close)
    assert relu.linear == pytest.approx(variance / 4, **close)
    assert moments("sigmoid/T", variance, 100).mean == pytest.approx(0.5, **close)  # by symmetry
    assert moments("linear", variance, 100) == pytest.approx((0, variance, 0), abs=1e-8)
    assert moments("sigmoid", variance, 10**9) == pytest.approx(
        tuple(np.exp(variance / 2) ** k * x for k, x in zip((1, 2, 2), moments("softmax", variance, 1), strict=True)),
        rel=1e-4,  # the next order in e^z / T: at variance 4, 2 e^{10} / 1e9 = 4e-5
    )


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_are_those_of_the_activation(name):
    z = torch.randn(3, 400, generator=generator(0, "entries"), dtype=torch.float64)
    ours = 400 * ACTIVATIONS[name](z).numpy()
    theory = ENTRIES[name](z.numpy(), 1.0, 400)
    if name == "softmax":  # the row's denominator instead of its limit
        theory = theory / theory.mean(-1, keepdims=True)
    np.testing.assert_allclose(ours, theory, rtol=1e-10, atol=1e-12)


def test_relu_and_softmax_cross_at_variance_ln_pi():
    # 1 / sqrt(pi - 1) against 1 / sqrt(e^{s^2} - 1)
    cross = np.log(np.pi)
    assert eigenvalue_gap("relu", cross, 400) == pytest.approx(eigenvalue_gap("softmax", cross, 400), rel=1e-8)
    assert eigenvalue_gap("relu", 1.0, 400) == pytest.approx(20 / np.sqrt(np.pi - 1), rel=1e-8)
    assert eigenvalue_gap("relu", 0.9, 400) < eigenvalue_gap("softmax", 0.9, 400)


def test_softmax_radius_is_the_known_one():
    for size in (100, 900):
        known = np.sqrt(size) / mind_the_gap.bulk_radius(0, 0.7)
        assert eigenvalue_gap("softmax", 0.7, size) == pytest.approx(known, rel=1e-8)


def test_edges_of_known_laws():
    assert singular_edge(Moments(0, 0.3, 0.7), 0) == pytest.approx(2, rel=1e-12)  # quarter circle
    assert singular_edge(Moments(0, 0, 0.49), 1) == pytest.approx(1.4, rel=1e-12)
    assert singular_edge(Moments(0, 1, 0), 1) == pytest.approx(np.sqrt(27) / 2, rel=1e-6)  # Fuss-Catalan of order 2
    assert singular_edge(Moments(0, 4, 0), 1) == pytest.approx(np.sqrt(27), rel=1e-6)
    with pytest.raises(ValueError, match="allowed: 0 to 1"):
        singular_edge(Moments(0, 1, 0), 1.5)


@pytest.mark.parametrize(("linear", "noise", "ratio"), [(1.0, 0.718, 1.0), (1.0, 0.718, 0.5), (0.25, 0.09, 1.0)])
def test_edges_of_the_ideal_matrix(linear, noise, ratio):
    """Sum of a Gaussian product and independent noise: the edge depends on gamma, the radius does not."""
    size, runs = 250, 6
    random = generator(0, "edge", ratio)
    product = torch.stack([orthonormal_logits(size, ratio, random, CPU) for _ in range(runs)])
    independent = torch.randn(runs, size, size, generator=random, dtype=torch.float64)
    matrices = (linear**0.5 * product + noise**0.5 * independent) / size**0.5
    edge = torch.linalg.matrix_norm(matrices, 2).mean().item()
    # the edge is reached from inside within T^{-2/3} = .025
    assert edge == pytest.approx(singular_edge(Moments(0, linear, noise), ratio), rel=0.025)
    # the radius from outside: 4 per cent at this size (3 at twice it), each run spread by 2
    radius = torch.linalg.eigvals(matrices).abs().amax(-1).mean().item() / (linear + noise) ** 0.5
    assert 1 < radius < 1.08


@pytest.mark.parametrize("name", ["relu", "sigmoid", "sigmoid/T"])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_gaps_of_attention(name, ratio):
    size = 200
    attention = ACTIVATIONS[name](orthonormal_logits(size, ratio, generator(3, name, ratio), CPU) * 0.5)
    moduli = torch.linalg.eigvals(attention).abs().sort(descending=True).values
    singular = torch.linalg.svdvals(attention)
    # finite-size errors of order T^{-1/2} = .07 in |lambda_2|, less in s_2
    assert (moduli[0] / moduli[1]).item() == pytest.approx(eigenvalue_gap(name, 0.25, size), rel=0.14)
    assert (singular[0] / singular[1]).item() == pytest.approx(singular_gap(name, 0.25, ratio, size), rel=0.06)


@pytest.mark.parametrize(("mean", "variance"), [(1.0, 2.0), (0.3, 2.0), (0.05, 2.0)])
def test_top_share(mean, variance):
    size = 400
    normal = torch.randn(size, size, generator=generator(4), dtype=torch.float64)
    matrix = (mean + variance**0.5 * normal) / size
    share = (torch.linalg.matrix_norm(matrix, 2) ** 2 / matrix.square().sum()).item()
    # fluctuations of s_1 of order v / T; at mean .05 the outlier is inside the bulk
    assert share == pytest.approx(top_share(mean, variance, size), rel=0.05)


def test_largest_entry_and_what_it_does():
    size, runs = 200, 200
    z = torch.randn(runs, size, size, generator=generator(5), dtype=torch.float64)
    largest = (z.amax((-2, -1)).exp() / np.exp(0.5) / size**0.5).median().item()
    # the quantile 1 - 1/n of one is the 1/e quantile of the maximum of n; the median is higher by about 9 %
    assert largest_entry(1.0, size) < largest < 1.2 * largest_entry(1.0, size)
    assert lone_entry_edge(1.0, size) > 1.15 * 2 * np.sqrt(np.e - 1)
    assert lone_entry_edge(1.0, 10**6) == pytest.approx(2 * np.sqrt(np.e - 1), rel=1e-12)
    # continuous where the entry enters the bulk: at a = r, a + r^2 / a = 2 r
    assert lone_entry_edge(1.0, 4 * 10**4) == pytest.approx(2 * np.sqrt(np.e - 1), rel=0.01)
