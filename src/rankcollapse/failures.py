"""How a job fails: the traceback into its log, one line to the terminal, and the same line again at the very end."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankcollapse.places import Places


@contextmanager
def noted(job: str, results: Path, log: Path) -> Iterator[None]:
    """Run a job's body; when it fails, keep the traceback in ``log`` and leave with one line naming job and log."""
    try:
        yield
    except Exception as error:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            traceback.print_exc(file=file)
        line = f"{job} failed: {type(error).__name__}: {error} (log: {log})"
        note = Places(results).failures() / f"{job}.txt"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(line + "\n", encoding="utf-8")
        sys.exit(line)
