"""How well our numbers agree with the published ones: one statistic, its tolerance, and yes or no. No torch.

Published figures show m runs (5) or a single realisation, ours n runs; neither set is the truth, so both spreads count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

RESAMPLES = 4000  # of a bootstrap: a 2.5 % quantile of them is right to 0.25 %


@dataclass(frozen=True)
class Agreement:
    """One comparison with published numbers; ``text`` fits into a panel of a figure."""

    statistic: str
    value: float
    tolerance: float
    agrees: bool
    text: str


def ks_distance(sample: Float[np.ndarray, "..."], pool: Float[np.ndarray, "..."]) -> float:
    """Two-sample Kolmogorov-Smirnov distance sup_x |F_sample(x) - F_pool(x)|, over all entries of each array.

    Raises:
        ValueError: an empty array or a NaN.
    """
    for name, values in (("sample", sample), ("pool", pool)):
        if not values.size or np.isnan(values).any():
            raise ValueError(f"ks_distance: {name} {values.shape} is empty or has NaN entries")
    return float(stats.ks_2samp(sample.ravel(), pool.ravel(), method="asymp").statistic)


def leave_one_out(pool: Float[np.ndarray, "runs values"]) -> Float[np.ndarray, "runs"]:
    """KS distance of each run to all the other runs together: how far one realisation lies from its own law.

    Raises:
        ValueError: fewer than two runs.
    """
    if len(pool) < 2:
        raise ValueError(f"leave_one_out: {len(pool)} run(s), at least 2 needed")
    return np.array([ks_distance(run, np.delete(pool, k, axis=0)) for k, run in enumerate(pool)])


def leave_one_out_quantile(pool: Float[np.ndarray, "runs values"], q: float = 0.95) -> float:
    """Return the q-quantile of ``leave_one_out``: the tolerance for a single published realisation.

    The tables of the KS test hold for independent values. Eigenvalues repel each other and come in conjugate pairs of
    equal modulus, so they are not; distances between whole realisations carry their own dependence.
    """
    return float(np.quantile(leave_one_out(pool), q))


def prediction_interval(
    runs: Float[np.ndarray, "runs *cells"], published_runs: int, resolution: float = 0.0, level: float = 0.95
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Interval for a published mean of m runs, predicted from our n: mean -/+ (t sd sqrt(1/m + 1/n) + resolution).

    t is Student's quantile with n - 1 degrees of freedom and sd our spread between runs. ``resolution`` bounds the
    error of the published number itself (reading it off the figure, float32 printing). It is a bound, not a random
    error, so it is added, not summed in squares; it also keeps the interval meaningful where all runs have collapsed
    to the same number and sd is 0.

    Raises:
        ValueError: fewer than two runs.
    """
    if len(runs) < 2:
        raise ValueError(f"prediction_interval: {len(runs)} run(s), at least 2 needed")
    quantile = stats.t.ppf((1 + level) / 2, len(runs) - 1)
    half = quantile * _error_of_difference(runs, published_runs) + resolution
    return runs.mean(0) - half, runs.mean(0) + half


def z_score(
    published: Float[np.ndarray, "*cells"],
    runs: Float[np.ndarray, "runs *cells"],
    published_runs: int,
    resolution: float = 0.0,
) -> Float[np.ndarray, "*cells"]:
    """z = (published mean - our mean) / (sd sqrt(1/m + 1/n)), the difference shrunk towards 0 by ``resolution``.

    A difference within the resolution is no difference (z = 0), also where sd is 0; a larger one there is infinite.
    """
    difference = published - runs.mean(0)
    beyond = np.sign(difference) * np.maximum(np.abs(difference) - resolution, 0)
    error = _error_of_difference(runs, published_runs)
    unlike = np.where(beyond == 0, 0.0, np.copysign(np.inf, beyond))
    return np.divide(beyond, error, out=np.array(unlike, dtype=float), where=error > 0)


def inside(
    published: Float[np.ndarray, "*cells"],
    interval: tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]],
) -> Bool[np.ndarray, "*cells"]:
    """Tell which published values lie in their interval, ends included.

    Raises:
        ValueError: a published value is NaN; leave out cells that were never drawn, knowingly.
    """
    if np.isnan(published).any():
        raise ValueError(f"inside: {int(np.isnan(published).sum())} published values are NaN")
    return (interval[0] <= published) & (published <= interval[1])


def compare_realisation(sample: Float[np.ndarray, "values"], pool: Float[np.ndarray, "runs values"]) -> Agreement:
    """Compare one published realisation with our runs: KS distance, at most the leave-one-out 95 % quantile.

    One realisation of the very same law fails in about 1 case of 10 with 16 runs (the quantile lies between the two
    largest of 16 distances), so of many panels a few may; judge them by their number.
    """
    value, tolerance = ks_distance(sample, pool), leave_one_out_quantile(pool)
    agrees = value <= tolerance
    return Agreement("KS", value, tolerance, agrees, f"KS {value:.3f} {'≤' if agrees else '>'} {tolerance:.3f}")


def compare_means(
    published: Float[np.ndarray, "cells"],
    runs: Float[np.ndarray, "runs cells"],
    published_runs: int,
    resolution: float = 0.0,
    share: float = 0.9,
) -> Agreement:
    """Compare published means with our runs: share of cells inside the 95 % prediction interval, at least ``share``.

    Only cells whose interval is wider than the resolution count: the others agree trivially and would pad the share.
    Those must all lie within the interval, the resolution being a bound. 90 % is asked of 95 % intervals because
    cells along one curve are correlated. ``agrees`` is false if no cell is resolved.
    """
    interval = prediction_interval(runs, published_runs, resolution)
    within = inside(published, interval)
    resolved = interval[1] - interval[0] > 4 * resolution  # the spread's half-width exceeds the resolution
    value = float(within[resolved].mean()) if resolved.any() else 0.0
    agrees = bool(value >= share and within[~resolved].all())
    text = f"{within[resolved].sum()}/{resolved.sum()} cells in the 95 % interval"
    if not resolved.all():
        text += f"\n{within[~resolved].sum()}/{(~resolved).sum()} to ±{resolution:.0e}"
    return Agreement("coverage", value, share, agrees, text)


def compare_z(
    published: Float[np.ndarray, "cells"],
    runs: Float[np.ndarray, "runs cells"],
    published_runs: int,
    resolution: float = 0.0,
    limit: float = 2.0,
) -> Agreement:
    """Compare published means with our runs: the largest |z|, at most ``limit``. For a handful of cells."""
    value = float(np.abs(z_score(published, runs, published_runs, resolution)).max())
    agrees = value <= limit
    return Agreement("max |z|", value, limit, agrees, f"max |z| {value:.1f} {'≤' if agrees else '>'} {limit:g}")


def bootstrap_interval(
    runs: Float[np.ndarray, "runs"], published_runs: int, resolution: float = 0.0, level: float = 0.95
) -> tuple[float, float]:
    """Interval for a published mean of m runs, predicted from our n by resampling m of them with replacement.

    For heavy tails and values with a bound, where a mean -/+ a multiple of the standard deviation reaches what cannot
    be: the interval stays between the smallest and the largest run. ``resolution`` widens it on both sides.
    """
    random = np.random.default_rng(0)  # the same resamples for every cell and call
    means = random.choice(runs, (RESAMPLES, published_runs)).mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low) - resolution, float(high) + resolution


def compare_heavy_tails(
    published: Float[np.ndarray, "cells"],
    runs: Sequence[Float[np.ndarray, "runs"]],
    published_runs: int,
    resolution: float = 0.0,
    share: float = 0.85,
) -> Agreement:
    """Compare published means with our runs: share of cells inside the 95 % bootstrap interval, at least ``share``.

    Cells may have different numbers of runs. Those whose interval is no wider than the resolution agree trivially and
    do not count unless they disagree. 85 % is asked because n runs know the tail only up to its n-th part, which makes
    the interval too narrow. ``agrees`` is false if no cell counts.
    """
    intervals = np.array([bootstrap_interval(cell, published_runs, resolution) for cell in runs]).T
    within = inside(published, (intervals[0], intervals[1]))
    counts = (intervals[1] - intervals[0] > 4 * resolution) | ~within
    value = float(within[counts].mean()) if counts.any() else 0.0
    text = f"{within[counts].sum()}/{counts.sum()} in the bootstrap interval"
    if not counts.all():
        text += f"\n{(~counts).sum()} more to ±{resolution:.0e}"
    return Agreement("bootstrap coverage", value, share, value >= share, text)


def exponent(
    sizes: Float[np.ndarray, "sizes"], runs: Sequence[Float[np.ndarray, "runs"]], level: float = 0.95
) -> tuple[float, float, float]:
    """Fit median ~ size^-a by least squares in the logarithms: a, and its bootstrap interval over the runs.

    Raises:
        ValueError: a median that is not positive.
    """
    if min(np.median(cell) for cell in runs) <= 0:
        raise ValueError("exponent: a median is not positive, so it has no logarithm")
    random = np.random.default_rng(0)
    resampled = [np.median(random.choice(cell, (RESAMPLES, len(cell))), 1) for cell in runs]
    medians = [[np.median(cell), *resample] for cell, resample in zip(runs, resampled, strict=True)]
    slopes = -np.polyfit(np.log(sizes), np.log(medians), 1)[0]
    low, high = np.quantile(slopes[1:], [(1 - level) / 2, (1 + level) / 2])
    return float(slopes[0]), float(low), float(high)


def rank_correlation(sizes: Float[np.ndarray, "sizes"], runs: Float[np.ndarray, "sizes runs"]) -> float:
    """Spearman's correlation of the runs' values with the size, in its standard errors 1/sqrt(n - 1) of no relation.

    Invariant under any rising map of the values, so heavy tails do not matter. 0 when all values are equal.
    """
    x, y = np.repeat(sizes, runs.shape[1]), runs.ravel()
    if (y == y[0]).all():
        return 0.0
    return float(stats.spearmanr(x, y).statistic * np.sqrt(len(y) - 1))


def _error_of_difference(runs: Float[np.ndarray, "runs *cells"], published_runs: int) -> Float[np.ndarray, "*cells"]:
    return runs.std(0, ddof=1) * np.sqrt(1 / published_runs + 1 / len(runs))
