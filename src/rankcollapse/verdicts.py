"""Verdicts on claims: a function decides from measured numbers, by a criterion written down before the run.

The criterion's words and limits are in ``config/claims.yaml``; the deciding functions are in ``judges``.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HOLDS = "holds"
CONDITION = "holds with a condition"
FALSE = "false as written"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Ruling:
    """What a judge says: one of the verdicts, and in one sentence the condition, the counter-evidence or the reason."""

    verdict: str
    reason: str

    def __post_init__(self) -> None:
        if self.verdict not in (HOLDS, CONDITION, FALSE, NOT_RUN):
            raise ValueError(f"verdict {self.verdict!r}; allowed: {HOLDS}, {CONDITION}, {FALSE}, {NOT_RUN}")


@dataclass(frozen=True)
class Verdict:
    """A ruling on one claim with everything needed to check it."""

    id: str
    verdict: str
    reason: str
    criterion: str
    measured: dict[str, Any]
    figure: str | None
    settings: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write the verdict as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Verdict":
        """Read a verdict written by ``save``; ``ValueError`` names a file that is no such thing."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: not a verdict ({error}); remove it and run snakemake again") from None


def summary(verdicts: Sequence[Verdict], width: int = 120) -> str:
    """Return the table of verdicts for a terminal: id, verdict, reason, cut to the width."""
    rows = [(verdict.id, verdict.verdict, verdict.reason) for verdict in verdicts]
    wide = max(len(verdict) for _, verdict, _ in rows)
    lines = (f"{name:4} {verdict:{wide}}  {reason}" for name, verdict, reason in rows)
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines)
