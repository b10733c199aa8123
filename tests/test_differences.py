import numpy as np
import pytest
from scipy import stats

from rankcollapse.differences import exponent, mean_difference, mean_factor


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_what_pairs_share_cancels():
    common = 100 * normal(6, 1)
    found = mean_difference(common + 2 + 1e-3 * normal(6, 3, seed=1), common + 0 * normal(6, 3))
    # six normals of std 1e-3: their mean is off by less than 5 * 1e-3 / sqrt 6
    np.testing.assert_allclose(found.value, 2, atol=2.1e-3)
    assert (found.high - found.low < 4e-3).all()
    apart = mean_difference(common[:5] + 2, common)  # unequal numbers: no pairs
    assert (apart.high - apart.low > 10).all()


def test_interval_is_near_students_for_many_normal_runs():
    treated, control = normal(60, seed=2), normal(40, seed=3)
    found = mean_difference(treated, control)
    student = stats.ttest_ind(treated, control, equal_var=False).confidence_interval()
    # 4000 resamples place a 2.5 % quantile to about 0.05 standard errors of 0.2; n against n - 1 is another 2 %
    np.testing.assert_allclose([found.low, found.high], [student.low, student.high], atol=0.03)


def test_the_same_every_time_and_wider_at_a_higher_level():
    treated, control = normal(8, 2), normal(8, 2, seed=1)
    first, again, wide = (mean_difference(treated, control, level) for level in (0.9, 0.9, 0.99))
    np.testing.assert_array_equal(first, again)
    assert (wide.low < first.low).all()
    assert (wide.high > first.high).all()


def test_factor_by_hand():
    found = mean_factor(np.array([[2.0], [8.0]]), np.array([[1.0], [1.0]]))
    np.testing.assert_allclose([part.item() for part in found], [4, 2, 8], rtol=1e-12)
    with pytest.raises(ValueError, match="a value is not positive"):
        mean_factor(np.zeros((2, 1)), np.ones((2, 1)))


def test_exponent_of_a_power_law():
    sizes = np.array([8.0, 20, 100])
    runs = np.array([[2.0], [0.5]]) * sizes**-0.7
    assert exponent(sizes, runs) == pytest.approx(0.7, rel=1e-12)


def test_too_few_runs_are_refused():
    with pytest.raises(ValueError, match="3 and 1 runs"):
        mean_difference(normal(3), normal(1))
