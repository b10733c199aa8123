"""The functions that decide claims: one module a figure, one function a claim, both named after it.

Each takes the measured numbers by name, then the limits that ``config/claims.yaml`` states for its claim, and returns a
ruling: the verdict and, in one sentence with the numbers, why. The criterion in words stands beside the limits.
"""

from collections.abc import Callable
from importlib import import_module

from rankcollapse.verdicts import Ruling


def judge_of(figure: str, claim: str) -> Callable[..., Ruling]:
    """Return the function that decides a claim for a figure; ``AttributeError`` when none is written."""
    return getattr(import_module(f"rankcollapse.judges.{figure}"), claim.lower())
