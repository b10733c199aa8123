"""How a long measurement says where it is."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Track(Protocol):
    """Wraps an iterable and reports its progress, as tqdm does."""

    def __call__(self, items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]: ...


def silent(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
    """Report nothing: the default of a measurement called from Python."""
    return items
