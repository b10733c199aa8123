"""How a long measurement says where it is: on the terminal and in its log at once."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TextIO, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

PATIENCE = 1  # seconds before a bar is drawn at all: what is over by then needs none


class Track(Protocol):
    """Wraps an iterable and reports its progress, as tqdm does."""

    def __call__(self, items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
        """Yield the items."""
        ...


def silent(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
    """Report nothing: the default of a measurement called from Python."""
    return items


def on_terminal_and_in(log: Path) -> Track:
    """Return a tracker that draws a bar on stderr and appends the same state to a log, one line an update."""

    def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
        # A terminal gets a moving bar; a pipe gets a line every few seconds instead of thousands.
        interval = 0.5 if sys.stderr.isatty() else 10
        with log.open("a", encoding="utf-8") as file:
            yield from tqdm(
                items,
                description,
                total,
                file=_Both(sys.stderr, file),
                mininterval=interval,
                ncols=100,
                ascii=" =",
                delay=PATIENCE,
            )

    return track


class _Both:
    """Writes to a terminal and to a log, where a carriage return starts a new line."""

    def __init__(self, terminal: TextIO, log: TextIO) -> None:
        self.terminal, self.log = terminal, log

    def write(self, text: str) -> int:
        self.log.write(text.replace("\r", "\n"))
        return self.terminal.write(text)

    def flush(self) -> None:
        self.log.flush()
        self.terminal.flush()
