"""How much a change of the model changes a mean, and how sure that is: bootstrap over runs. No torch."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

RESAMPLES = 4000  # a 2.5 % quantile then rests on 100 of them


class Difference(NamedTuple):
    """Mean of the treated runs less that of the control runs, and its bootstrap interval, cell by cell."""

    value: Float[np.ndarray, "*cells"]
    low: Float[np.ndarray, "*cells"]
    high: Float[np.ndarray, "*cells"]


def mean_difference(
    treated: Float[np.ndarray, "runs *cells"], control: Float[np.ndarray, "others *cells"], level: float = 0.95
) -> Difference:
    """Compare means over runs. As many runs on both sides are taken as pairs that share their weights.

    Pairs are drawn together, so what a pair shares cancels; unequal numbers of runs are drawn apart. The interval is
    the percentile one, from a generator of its own with a fixed seed. With n runs it cannot reach beyond the runs, so
    for few of them it says little more than whether they agree on the sign.

    Raises:
        ValueError: fewer than two runs on a side.
    """
    if min(len(treated), len(control)) < 2:
        raise ValueError(f"mean_difference: {len(treated)} and {len(control)} runs; at least 2 needed on each side")
    found = stats.bootstrap(
        (treated, control),
        lambda ours, theirs, axis: ours.mean(axis) - theirs.mean(axis),
        paired=len(treated) == len(control),
        n_resamples=RESAMPLES,
        confidence_level=level,
        method="percentile",
        rng=0,
        batch=500,
    ).confidence_interval
    return Difference(treated.mean(0) - control.mean(0), found.low, found.high)


def mean_factor(
    treated: Float[np.ndarray, "runs *cells"], control: Float[np.ndarray, "others *cells"], level: float = 0.95
) -> Difference:
    """Return the ratio of geometric means over runs and its interval; as ``mean_difference`` of the logarithms.

    Raises:
        ValueError: a value that is not positive, or fewer than two runs on a side.
    """
    if (treated <= 0).any() or (control <= 0).any():
        raise ValueError("mean_factor: a value is not positive")
    return Difference(*map(np.exp, mean_difference(np.log(treated), np.log(control), level)))


def exponent(sizes: Float[np.ndarray, "sizes"], runs: Float[np.ndarray, "runs sizes"]) -> float:
    """Fit the geometric mean over runs by size^-a, least squares in the logarithms; return a."""
    return -float(np.polyfit(np.log(sizes), np.log(runs).mean(0), 1)[0])
