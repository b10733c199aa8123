"""Growth with size: the slope of a quantity in log T and how sure it is, by bootstrap over runs. No torch."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from rankcollapse.agreement import Agreement

DRAWS = 4000  # bootstrap samples: the 2.5 % quantile then rests on 100 of them


def slope(sizes: Sequence[float], values: Float[np.ndarray, "*series sizes"]) -> Float[np.ndarray, "*series"]:
    """Least-squares slope of the values in the natural logarithm of the sizes.

    Raises:
        ValueError: fewer than two sizes.
    """
    if len(sizes) < 2:
        raise ValueError(f"slope: {len(sizes)} size(s), at least 2 needed")
    logs = np.log(np.asarray(sizes))
    x = logs - logs.mean()
    return values @ (x / (x @ x))


def bootstrap_slopes(
    sizes: Sequence[float], runs: Sequence[Float[np.ndarray, "*series runs"]], draws: int = DRAWS, seed: int = 0
) -> Float[np.ndarray, "draws *series"]:
    """Slopes of the means over runs, the runs of each size drawn again with replacement; ``runs`` has an item a size.

    All series of a size are drawn together, so for series that share their runs the difference of two slopes has the
    spread of paired runs.
    """
    random, means = np.random.default_rng(seed), []
    for values in runs:
        count = values.shape[-1]
        share = random.multinomial(count, np.full(count, 1 / count), size=draws) / count
        means.append(np.moveaxis(values @ share.T, -1, 0))
    return slope(sizes, np.stack(means, -1))


def interval(samples: Float[np.ndarray, "draws *series"], level: float = 0.95) -> Float[np.ndarray, "2 *series"]:
    """Percentile interval: its lower and upper end."""
    return np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)


def compare_slopes(published: float, ours: float, tolerance: float = 0.15) -> Agreement:
    """Compare two slopes in log T: the absolute difference, at most ``tolerance``."""
    value = abs(published - ours)
    return Agreement(
        "slope difference", value, tolerance, value <= tolerance, f"slope {ours:.2f}, published {published:.2f}"
    )
