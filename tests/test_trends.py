import numpy as np
import pytest

from rankcollapse import trends

SIZES = (20, 40, 80)


def test_slope_of_a_power_is_its_exponent():
    values = np.log(np.array([[s**2.5, 7 * s**-1.0] for s in SIZES])).T
    np.testing.assert_allclose(trends.slope(SIZES, values), [2.5, -1.0], rtol=1e-12)


def test_one_size_has_no_slope():
    with pytest.raises(ValueError, match=r"1 size\(s\), at least 2"):
        trends.slope((20,), np.zeros((3, 1)))


def test_bootstrap_has_the_error_of_least_squares():
    runs = [np.random.default_rng(k).normal(size=(1, 50)) for k in range(3)]
    x = np.log(SIZES) - np.log(SIZES).mean()
    weights = x / (x @ x)
    error = np.sqrt(sum(w**2 * r.var() / 50 for w, r in zip(weights, runs, strict=True)))
    samples = trends.bootstrap_slopes(SIZES, runs)
    # the spread of 4000 samples is known to 1/sqrt(8000) = 1.1 %, so 5 % is more than four sigma
    np.testing.assert_allclose(samples.std(), error, rtol=0.05)
    np.testing.assert_allclose(
        samples.mean(), trends.slope(SIZES, np.stack([r.mean(-1) for r in runs], -1))[0], atol=error / 10
    )


def test_series_that_share_their_runs_are_paired():
    shared = [np.random.default_rng(k).normal(size=10) for k in range(3)]
    runs = [np.stack([s, s + size]) for s, size in zip(shared, SIZES, strict=True)]
    samples = trends.bootstrap_slopes(SIZES, runs)
    difference = samples[:, 1] - samples[:, 0]
    np.testing.assert_allclose(difference, trends.slope(SIZES, np.array(SIZES, float)), rtol=1e-10)


def test_interval_and_seed():
    samples = np.arange(1001.0)
    np.testing.assert_allclose(trends.interval(samples), [25, 975])
    runs = [np.random.default_rng(k).normal(size=(2, 5)) for k in range(3)]
    np.testing.assert_array_equal(trends.bootstrap_slopes(SIZES, runs, 10), trends.bootstrap_slopes(SIZES, runs, 10))


def test_compare_slopes():
    assert trends.compare_slopes(1.8, 1.9).agrees
    far = trends.compare_slopes(1.8, 2.0)
    assert not far.agrees
    assert far.text == "slope 2.00, published 1.80"
