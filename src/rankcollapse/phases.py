"""The regions of the phase diagram, and how well they foretell which cells train. No torch."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

REGIONS = {"R": "rank-collapsed", "E": "entropy-collapsed", "X": "exploding"}  # a cell in none of them is balanced


def regions(
    cosine: Float[np.ndarray, "*cells"],
    entropy: Float[np.ndarray, "*cells"],
    gradient: Float[np.ndarray, "*cells"],
    limits: dict[str, float],
) -> Bool[np.ndarray, "region *cells"]:
    """Which cells lie in each of ``REGIONS``; a cell may lie in several.

    Args:
        cosine: mean cosine of two tokens after the last layer; above ``limits["cosine"]`` is R.
        entropy: H / ln n, mean over layers; below ``limits["entropy"]`` is E.
        gradient: ||dL/dX_0||_F, negative where it has overflowed; that, or above ``limits["gradient"]``, is X.
    """
    exploding = (gradient > limits["gradient"]) | (gradient < 0)
    return np.stack([cosine > limits["cosine"], entropy < limits["entropy"], exploding])


class Confusion(NamedTuple):
    """How many cells were foretold to train, and did."""

    trained_as_foretold: int
    failed_against: int  # foretold to train
    trained_against: int  # foretold to fail
    failed_as_foretold: int

    @property
    def agreement(self) -> float:
        """Share of the cells foretold rightly."""
        return (self.trained_as_foretold + self.failed_as_foretold) / sum(self)


def confusion(foretold: Bool[np.ndarray, "*cells"], trained: Bool[np.ndarray, "*cells"]) -> Confusion:
    """Count the cells by what was foretold and what came."""
    counts = (foretold & trained, foretold & ~trained, ~foretold & trained, ~foretold & ~trained)
    return Confusion(*(int(cells.sum()) for cells in counts))


def window(trained: Bool[np.ndarray, "rows betas"]) -> Bool[np.ndarray, "rows"]:
    """Which rows have a cell that trained strictly between two that did not."""
    below = np.logical_or.accumulate(~trained, axis=1)
    above = np.logical_or.accumulate(~trained[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((trained & below & above).any(1))
