import subprocess
import sys

import numpy as np
import pytest

from rankcollapse.agreement import (
    bootstrap_interval,
    compare_heavy_tails,
    compare_means,
    compare_realisation,
    compare_z,
    exponent,
    inside,
    ks_distance,
    leave_one_out,
    leave_one_out_quantile,
    prediction_interval,
    rank_correlation,
    z_score,
)

EXACT = 1e-12  # a handful of float64 operations
RUNS = np.array([[1.0], [2.0], [3.0], [4.0]])  # mean 2.5, sd sqrt(5/3)
ERROR = np.sqrt(5 / 3) * np.sqrt(1 / 5 + 1 / 4)


def test_ks_by_hand():
    assert ks_distance(np.array([1.0, 2.0]), np.array([[1.5, 2.5], [3.5, 4.5]])) == 0.75  # at 2: 1 against 1/4
    assert ks_distance(np.array([1.0, 2.0]), np.array([2.0, 1.0])) == 0


@pytest.mark.parametrize("bad", [np.array([]), np.array([1.0, np.nan])])
def test_ks_refuses_nothing_and_nan(bad):
    with pytest.raises(ValueError, match=r"pool .* is empty or has NaN"):
        ks_distance(np.array([1.0]), bad)


def test_leave_one_out_by_hand():
    # {0}, {0}, {1}: the third is wholly apart from the others; the first from half of its two
    assert leave_one_out(np.array([[0.0], [0.0], [1.0]])).tolist() == [0.5, 0.5, 1.0]
    assert leave_one_out_quantile(np.array([[0.0], [0.0], [1.0]]), 0.5) == 0.5
    with pytest.raises(ValueError, match="1 run"):
        leave_one_out(np.zeros((1, 3)))


def test_realisation_of_the_same_law_agrees_and_another_does_not():
    g = np.random.default_rng(1)
    pool = g.standard_normal((16, 200))
    same, other = (
        compare_realisation(g.standard_normal(200), pool),
        compare_realisation(1.5 * g.standard_normal(200), pool),
    )
    assert (same.agrees, other.agrees) == (True, False)
    assert same.tolerance == other.tolerance == leave_one_out_quantile(pool)
    assert same.text == f"KS {same.value:.3f} ≤ {same.tolerance:.3f}"


def test_false_alarms_of_a_realisation_are_as_rare_as_stated():
    g = np.random.default_rng(2)
    alarms = np.mean(
        [not compare_realisation(g.standard_normal(30), g.standard_normal((16, 30))).agrees for _ in range(200)]
    )
    assert 0.03 < alarms < 0.17  # "about 1 in 10": 10 % -/+ three errors of 200 cases


def test_interval_by_hand():
    low, high = prediction_interval(RUNS, 5, resolution=0.1)
    half = 3.182446305284263 * ERROR + 0.1  # Student's t, 3 degrees of freedom, 97.5 %
    np.testing.assert_allclose(
        [low, high], [[2.5 - half], [2.5 + half]], rtol=1e-11
    )  # scipy's quantile is good to 1e-13
    with pytest.raises(ValueError, match="1 run"):
        prediction_interval(RUNS[:1], 5)


def test_interval_holds_what_it_promises():
    g = np.random.default_rng(3)
    theirs, ours = g.standard_normal((5, 20_000)).mean(0), g.standard_normal((12, 20_000))
    # 95 % of 20 000 independent cells: error .0015
    assert inside(theirs, prediction_interval(ours, 5)).mean() == pytest.approx(0.95, abs=0.005)


def test_z_by_hand():
    np.testing.assert_allclose(z_score(np.array([4.0]), RUNS, 5), [1.5 / ERROR], rtol=EXACT)
    np.testing.assert_allclose(z_score(np.array([1.0]), RUNS, 5, resolution=0.5), [-1.0 / ERROR], rtol=EXACT)


def test_collapsed_runs_need_the_resolution():
    collapsed, published = np.ones((8, 3)), np.array([0.999997997, 1.00001, 0.9])
    assert z_score(published, collapsed, 5, resolution=3e-6).tolist() == [0, np.inf, -np.inf]
    assert inside(published, prediction_interval(collapsed, 5, 3e-6)).tolist() == [True, False, False]


def test_a_published_hole_is_not_skipped():
    with pytest.raises(ValueError, match="1 published values are NaN"):
        inside(np.array([np.nan, 1.0]), (np.zeros(2), np.ones(2)))


def test_means_are_judged_by_resolved_cells():
    resolved = np.array([[0.0, 1.0, 2.0]]).T + np.zeros((3, 9))
    runs = np.concatenate([resolved, np.ones((3, 5))], axis=1)
    near, far = np.full(9, 1.0), np.array([9.0] + 8 * [1.0])
    on = np.full(5, 1 + 1e-6)
    perfect = compare_means(np.concatenate([near, on]), runs, 5, 3e-6)
    assert (perfect.agrees, perfect.value) == (True, 1.0)
    assert perfect.text == "9/9 cells in the 95 % interval\n5/5 to ±3e-06"
    # 8/9 < 90 % although 13 of 14 cells agree: the five collapsed ones do not pad the share
    assert not compare_means(np.concatenate([far, on]), runs, 5, 3e-6).agrees
    # and a collapsed cell off by more than the resolution is never excused
    off = np.full(5, 1 + 1e-5)
    assert not compare_means(np.concatenate([near, off]), runs, 5, 3e-6).agrees
    assert not compare_means(on, runs[:, 9:], 5, 3e-6).agrees  # nothing resolved


def test_largest_z_decides():
    answer = compare_z(np.array([4.0]), RUNS, 5, limit=2.0)
    assert (answer.agrees, answer.value) == (True, pytest.approx(1.5 / ERROR, rel=EXACT))
    assert answer.text == "max |z| 1.7 ≤ 2"
    assert not compare_z(np.array([9.0]), RUNS, 5).agrees


def test_ks_is_the_largest_gap_between_the_distribution_functions():
    g = np.random.default_rng(4)
    a, b = g.standard_normal(50), g.standard_normal(80)
    gaps = [abs((a <= x).mean() - (b <= x).mean()) for x in np.concatenate([a, b])]
    assert ks_distance(a, b) == pytest.approx(max(gaps), abs=EXACT)


def test_notebook_modules_do_not_import_torch():
    modules = "rankcollapse.agreement, rankcollapse.published, rankcollapse.theory.mind_the_gap"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_bootstrap_interval_stays_between_the_runs():
    runs = np.array([1.0] * 9 + [2.0])  # the mean of 5 is 1 + k/5, k binomial(5, 1/10): P(k >= 3) is 0.9 %, P(2) 7 %
    low, high = bootstrap_interval(runs, 5, resolution=0.01)
    assert (low, high) == pytest.approx((0.99, 1.41), abs=EXACT)
    assert bootstrap_interval(np.array([3.0, 3.0]), 5) == (3.0, 3.0)


def test_bootstrap_covers_means_of_a_heavy_tail():
    g = np.random.default_rng(3)
    law = g.pareto(2.5, (150, 40))  # infinite third moment
    means = g.pareto(2.5, (150, 5)).mean(1)
    low, high = np.array([bootstrap_interval(runs, 5) for runs in law]).T
    covered = inside(means, (low, high))
    assert 0.85 <= np.mean(covered) <= 0.99  # 95 % nominal, a little less from 40 runs; 2 % error of 150 cases


def test_heavy_tails_count_cells_that_can_disagree():
    runs = [np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0])]
    found = compare_heavy_tails(np.array([1.0, 2.0, 5.0]), runs, 5, resolution=1e-6)
    assert (found.value, found.agrees) == (0.5, False)  # the first agrees trivially, the third does not
    assert found.text == "1/2 in the bootstrap interval\n1 more to ±1e-06"
    off = compare_heavy_tails(np.array([1.1, 2.0]), runs[:2], 5, resolution=1e-6)
    assert (off.value, off.text) == (0.5, "1/2 in the bootstrap interval")  # it counts once it disagrees


def test_exponent_of_an_exact_power():
    sizes = np.array([10.0, 20.0, 40.0])
    assert exponent(sizes, [np.full(4, 3 * size**-1.5) for size in sizes]) == pytest.approx((1.5, 1.5, 1.5), abs=1e-9)
    noisy = [size**-1.0 * np.array([0.8, 0.9, 1.0, 1.1, 1.25]) for size in sizes]
    fit, low, high = exponent(sizes, noisy)
    assert low < fit < high
    assert fit == pytest.approx(1, abs=1e-9)
    with pytest.raises(ValueError, match="not positive"):
        exponent(sizes, [np.zeros(3)] * 3)


def test_rank_correlation_by_hand():
    sizes = np.array([1.0, 2.0])
    # ranks 1.5 1.5 3.5 3.5 against 4 3 2 1: covariance -1, variances 1 and 5/4
    found = rank_correlation(sizes, np.array([[9.0, 8.0], [1.0, 0.5]]))
    assert found == pytest.approx(-1 / np.sqrt(1.25) * np.sqrt(3), abs=EXACT)
    assert rank_correlation(sizes, np.exp(np.array([[9.0, 8.0], [1.0, 0.5]]))) == pytest.approx(found, abs=EXACT)
    assert rank_correlation(sizes, np.ones((2, 3))) == 0
