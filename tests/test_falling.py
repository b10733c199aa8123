"""Rank correlations by hand, and their interval over runs."""

import numpy as np
import pytest
from scipy import stats

from rankcollapse.falling import compare_fall, compare_lead, compare_level, correlations, mean_interval

X = np.arange(4.0)


def test_correlations_by_hand():
    runs = np.array([[4, 3, 2, 1], [1, 10, 100, 1000], [4, 2, 3, 1], [5, 5, 5, 5]], dtype=float)
    # of the third: 1 - 6 (9 + 0 + 0 + 9 + ...) / (4 * 15) with rank differences 3, 0, 0, -3 about the reversed order
    assert correlations(X, runs).tolist() == pytest.approx([-1, 1, -0.8, 0])


def test_the_interval_is_students():
    values = np.array([-1.0, -0.8, -0.9])
    expected = stats.t.interval(0.95, 2, loc=values.mean(), scale=stats.sem(values))
    assert mean_interval(values) == pytest.approx(expected)


def test_a_fall_needs_its_whole_interval_below_zero():
    falling, mixed = np.array([[4, 3, 2, 1], [4, 2, 3, 1.0]]), np.array([[4, 3, 2, 1], [1, 2, 3, 4.0]])
    assert not compare_fall(X, falling).agrees  # two runs, -1 and -0.8: t = 12.7
    assert compare_fall(X, np.repeat(falling, 3, axis=0)).agrees
    assert not compare_fall(X, mixed).agrees
    assert compare_fall(X, mixed).text.startswith("Spearman 0.00 [")


def test_a_level_is_compared_with_the_mean():
    assert compare_level(0.6, np.array([0.5, 0.8])).agrees
    assert not compare_level(0.65, np.array([0.5, 0.8])).agrees


def test_a_lead_is_over_the_mean_of_the_rest_in_every_run():
    runs = np.array([[0.8, 0.4, 0.6], [0.9, 0.5, 0.5], [0.7, 0.4, 0.4]])
    lead = compare_lead(runs)
    assert lead.value == pytest.approx(mean_interval(np.array([0.3, 0.4, 0.3]))[0])
    assert lead.agrees
    assert not compare_lead(runs[:, ::-1]).agrees


def test_too_little_is_refused():
    with pytest.raises(ValueError, match="2 points, at least 3"):
        correlations(X[:2], np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"1 run\(s\), at least 2"):
        mean_interval(np.ones(1))
