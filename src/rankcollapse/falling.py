"""Does a quantity fall along an axis, run after run: rank correlation with its interval over runs. No torch."""

import numpy as np
from jaxtyping import Float
from scipy import stats

from rankcollapse.agreement import Agreement


def correlations(x: Float[np.ndarray, "points"], runs: Float[np.ndarray, "runs points"]) -> Float[np.ndarray, "runs"]:
    """Spearman's rank correlation of each run with x, in [-1, 1]; 0 for a run that is constant.

    Raises:
        ValueError: fewer than three points, among which ranks say little.
    """
    if len(x) < 3:
        raise ValueError(f"correlations: {len(x)} points, at least 3 needed")
    return np.array([0.0 if (run == run[0]).all() else stats.spearmanr(x, run).statistic for run in runs])


def mean_interval(values: Float[np.ndarray, "runs"], level: float = 0.95) -> tuple[float, float]:
    """Student's interval for the mean of independent runs, mean -/+ t sd / sqrt(runs).

    Raises:
        ValueError: fewer than two runs.
    """
    if len(values) < 2:
        raise ValueError(f"mean_interval: {len(values)} run(s), at least 2 needed")
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def compare_fall(x: Float[np.ndarray, "points"], runs: Float[np.ndarray, "runs points"]) -> Agreement:
    """Compare with the statement that a quantity falls along x: the mean correlation's interval lies below 0."""
    values = correlations(x, runs)
    low, high = np.clip(mean_interval(values), -1, 1).tolist()
    text = f"Spearman {values.mean():.2f} [{low:.2f}, {high:.2f}]"
    return Agreement("Spearman with length, upper end of its 95 % interval", high, 0.0, high < 0, text)


def compare_level(stated: float, values: Float[np.ndarray, "runs"]) -> Agreement:
    """Compare with the statement that a quantity is above a level: the mean over runs is."""
    mean = float(values.mean())
    return Agreement("mean, stated to be above", mean, stated, mean > stated, f"{mean:.2f}, stated > {stated:g}")


def compare_lead(runs: Float[np.ndarray, "runs points"]) -> Agreement:
    """Compare with the statement that the first point leads: its value less the mean of the others is above 0.

    The interval is for the mean over runs. What is flat beyond the first point, and noise there, does not matter.
    """
    lead = runs[:, 0] - runs[:, 1:].mean(1)
    low, high = mean_interval(lead)
    text = f"lead {lead.mean():.2f} [{low:.2f}, {high:.2f}]"
    return Agreement("length 1 less the mean of longer, lower end of its 95 % interval", low, 0.0, low > 0, text)
