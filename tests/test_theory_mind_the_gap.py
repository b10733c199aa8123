import numpy as np
import pytest
from scipy import special, stats

from rankcollapse.theory.mind_the_gap import (
    as_plotted,
    bulk_modulus,
    bulk_radius,
    circular_distance,
    first_layer_constant,
    mixing_ratio,
    product_stable_rank,
)

RATIOS = (0.1, 0.5, 1.0, 2.0, 10.0)


@pytest.mark.parametrize("variance", [0.1, np.log(2), 1.0])
def test_radius_of_independent_logits(variance):
    assert bulk_radius(0, variance) == pytest.approx(np.sqrt(np.exp(variance) - 1), rel=1e-12)  # one rounding each


@pytest.mark.parametrize("ratio", RATIOS)
def test_radius_of_small_logits_is_that_of_the_logits(ratio):
    variance = 1e-4
    # without the noise nu = variance^2 / 2 the radius is sqrt(variance (1 + ratio)); nu / variance = 5e-5
    assert bulk_radius(ratio, variance) / np.sqrt(variance) == pytest.approx(np.sqrt(1 + ratio), rel=5e-5)


def ideal_moduli(ratio, variance, tokens, runs):
    """Moduli of K^{1/2} G_1 G_2 K^{1/2} + sqrt(nu) C, drawn directly."""
    g = np.random.default_rng(0)
    width = round(tokens / ratio)
    noise = np.expm1(variance) - variance
    found = []
    for _ in range(runs):
        x = g.standard_normal((tokens, width)) / np.sqrt(width)
        w, v = np.linalg.eigh(x @ x.T)
        half = v * np.sqrt(np.maximum(w, 0)) @ v.T
        product = g.standard_normal((tokens, width)) @ g.standard_normal((width, tokens)) / np.sqrt(width * tokens)
        matrix = np.sqrt(variance) * half @ product @ half
        matrix += np.sqrt(noise / tokens) * g.standard_normal((tokens, tokens))
        found.append(np.abs(np.linalg.eigvals(matrix)))
    return np.concatenate(found)


@pytest.mark.parametrize(("ratio", "variance"), [(0.1, 1.0), (0.5, 1.0), (2.0, 1.0), (10.0, 1.0), (2.0, 0.3)])
def test_law_is_that_of_the_ideal_matrix(ratio, variance):
    moduli = ideal_moduli(ratio, variance, tokens=240, runs=4)
    # the law is a limit: eigenvalues on the real axis are of order T^{-1/2} = .06 too many, which moves few of them by
    # much; .03 also holds 240 x 4 eigenvalues' own noise (repelling, so well below 1.36 / sqrt(960) = .044)
    assert stats.ks_1samp(moduli, bulk_modulus(ratio, variance).cdf).statistic < 0.03
    # the circular law of the same edge is told apart by far more
    assert stats.ks_1samp(moduli, stats.powerlaw(2, scale=bulk_radius(ratio, variance)).cdf).statistic > 0.03


def dyson(r, ratio, variance):
    """P(modulus <= r) from the Dyson equations of the doubled matrix, iterated without any reduction.

    [[-z + sqrt(nu) C, s K^{1/2} G_1 / sqrt(d)], [G_2 K^{1/2} / sqrt(T), -1]], regularised by w; K's law by 400
    quantiles of its Marchenko-Pastur density, an atom at 0 for ratio > 1.
    """
    edges = (1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2
    fine = edges[0] + (edges[1] - edges[0]) * np.sin(np.linspace(0, np.pi / 2, 40_001)) ** 2
    middle, step = (fine[1:] + fine[:-1]) / 2, np.diff(fine)
    mass = np.sqrt((edges[1] - middle) * (middle - edges[0])) / (2 * np.pi * ratio * middle) * step
    k = np.append(np.interp((np.arange(400) + 0.5) / 400, np.cumsum(mass) / mass.sum(), middle), 0.0)
    weight = np.append(np.full(400, min(1, 1 / ratio) / 400), max(0, 1 - 1 / ratio))
    noise, w = np.expm1(variance) - variance, 1e-7
    v1, v2, b1, b2 = np.ones_like(k), np.ones_like(k), 1.0, 1.0
    for _ in range(3000):
        right, left = w + noise * weight @ v2 + variance * k * b2, w + noise * weight @ v1 + k * b1 / ratio
        low_right, low_left = w + weight @ (k * v2), w + variance * ratio * weight @ (k * v1)
        top, low = r**2 + right * left, 1 + low_right * low_left
        v1, v2 = (v1 + left / top) / 2, (v2 + right / top) / 2
        b1, b2 = (b1 + low_left / low) / 2, (b2 + low_right / low) / 2
    return weight @ (r**2 / top)


@pytest.mark.parametrize(("ratio", "variance"), [(0.1, 1.0), (0.5, 1.0), (2.0, 1.0), (10.0, 1.0), (2.0, 0.3)])
def test_law_solves_the_unreduced_equations(ratio, variance):
    points = np.array([0.1, 0.3, 0.6, 0.85]) * bulk_radius(ratio, variance)
    expected = [dyson(r, ratio, variance) for r in points]
    # 400 quantiles instead of the density, and the interpolation between 400 radii: a few 1e-5
    np.testing.assert_allclose(bulk_modulus(ratio, variance).cdf(points), expected, atol=1e-4)


def test_law_tends_to_the_circular_law():
    radius = bulk_radius(0, 1.0)
    points = np.linspace(0.1, 1, 10) * radius
    # at gamma = 1e-6 the law differs in order gamma
    np.testing.assert_allclose(bulk_modulus(1e-6, 1.0).cdf(points), (points / radius) ** 2, atol=1e-5)


@pytest.mark.parametrize("ratio", RATIOS)
def test_law_is_a_distribution_with_its_density(ratio):
    law = bulk_modulus(ratio, 1.0)
    low, high = law.support()
    points = np.linspace(low, high, 4001)
    below = law.cdf(points)
    assert (below[0], below[-1]) == (0, 1)
    assert (np.diff(below) > 0).all()
    assert law.cdf(2 * high) == 1
    # trapezium rule on the density: error about step^2 / 12 = 1e-7 times its curvature (up to 1e3 for gamma = 10)
    assert np.trapezoid(law.pdf(points), points) == pytest.approx(1, abs=1e-4)


def test_law_refuses_a_ratio_that_is_not_positive():
    assert np.isnan(bulk_modulus.cdf(1.0, -1.0, 1.0))


def test_product_of_one_is_the_quarter_circle():
    assert product_stable_rank(150, 1) == pytest.approx(150 / 8, rel=1e-12)  # T * 2 / 4^2


@pytest.mark.parametrize("factors", [1, 2, 5, 20])
def test_product_from_the_moments_of_the_law(factors):
    def log_moment(k):  # Fuss-Catalan: binom(nk + k, k) / (nk + 1)
        n = factors
        return special.gammaln(n * k + k + 1) - special.gammaln(k + 1) - special.gammaln(n * k + 1) - np.log(n * k + 1)

    far = 10_000
    edge = log_moment(far + 1) - log_moment(far)  # ln of the right end, less 3/(2k) = 1.5e-4
    expected = 100 * np.exp(log_moment(2) - 2 * edge)
    assert product_stable_rank(100, factors) == pytest.approx(expected, rel=4e-4)


def test_product_of_many_decays_like_one_over_their_number():
    assert product_stable_rank(1000, 400) == pytest.approx(1000 / np.e**2 / 400, rel=3 / 400)  # next order in 1/n


def test_as_plotted_scales_all_but_the_outlier():
    values = np.array([[0.1j, 1.0, -0.1j, 0.05]])
    before = values.copy()
    drawn = as_plotted(values, 1.0)
    np.testing.assert_allclose(drawn, [[1, 0.1j / 1.3108324944, -0.1j / 1.3108324944, 0.05 / 1.3108324944]], rtol=1e-9)
    np.testing.assert_array_equal(values, before)


def test_circular_distance_sees_shape_not_size():
    disc = np.sqrt((np.arange(1000) + 0.5) / 1000)  # exact quantiles of the circular law
    assert circular_distance(disc) < 1e-3  # half a step of 1/1000, and the second moment's 1e-7
    assert circular_distance(7 * disc) == pytest.approx(circular_distance(disc), abs=1e-12)
    ring = np.linspace(0.9, 1, 1000)
    # R = sqrt(2) rms = 1.344; below r = .9 the ring has nothing and the disc (.9 / 1.344)^2 = .449
    assert circular_distance(ring) == pytest.approx(0.449, abs=2e-3)


def test_first_layer_constant_by_hand():
    assert first_layer_constant(1, 1) == pytest.approx(3 * (np.e - 1) ** 2 + 1, rel=1e-12)
    assert first_layer_constant(0.5, 1e-4) == pytest.approx(3e-8, rel=1e-3)  # (2 + 2 gamma) s^4, next order in s^2


@pytest.mark.parametrize(("ratio", "variance"), [(1, 1.0), (0.5, 1.0), (1, 0.2)])
def test_first_layer_constant_is_that_of_large_matrices(ratio, variance):
    tokens, width, found = 200, round(200 / ratio), []
    for seed in range(6):
        q, k, w = np.random.default_rng(seed).standard_normal((3, tokens, width))
        logits = np.sqrt(variance / width) * q @ k.T
        attention = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        squares = np.linalg.svd(attention @ w, compute_uv=False) ** 2
        found.append(tokens * (squares[1:] ** 2).sum() / squares[0] ** 2)
    # one run spreads by 8 % (||v||^2 is a chi square of d degrees), six by 4 %; finite T costs 5 % at 200
    assert np.mean(found) == pytest.approx(first_layer_constant(ratio, variance), rel=0.15)


def test_mixing_ratio_by_hand():
    assert mixing_ratio(np.array([0.2, 1.0]), 150, skip=False).tolist() == pytest.approx([0.2, 1.0])
    assert mixing_ratio(np.array(0.0), 1, skip=True) == 0.5
    assert mixing_ratio(np.array(0.1), 150, skip=True) == pytest.approx(16 / 151)


def test_mixing_ratio_is_that_of_the_averaged_covariance():
    # eigenvalues of S -> S + g A S A^T as a matrix on vectorised S
    g = np.random.default_rng(0)
    markov = g.random((5, 5))
    markov /= markov.sum(1, keepdims=True)
    second = np.sort(np.abs(np.linalg.eigvals(markov)))[-2]
    moduli = np.sort(np.abs(np.linalg.eigvals(np.eye(25) + 3 * np.kron(markov, markov))))[::-1]
    assert moduli[1] / moduli[0] <= mixing_ratio(second, 3, skip=True) + 1e-12
    without = np.sort(np.abs(np.linalg.eigvals(3 * np.kron(markov, markov))))[::-1]
    assert without[1] / without[0] == pytest.approx(mixing_ratio(second, 3, skip=False), rel=1e-9)
