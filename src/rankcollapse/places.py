"""Where the outputs of a run lie: fixed places below one results folder."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from rankcollapse.validation import ConfigError

PICTURES = ("pdf", "svg", "png")


@dataclass(frozen=True)
class Places:
    """The files of a run; every method returns one path."""

    results: Path

    def tensors(self, measurement: str) -> Path:
        """The tensors of a measurement, with their provenance."""
        return self.results / "tensors" / f"{measurement}.safetensors"

    def checkpoint(self, measurement: str) -> Path:
        """Where a measurement that trains keeps what it needs to go on after an interruption."""
        return self.results / "checkpoints" / f"{measurement}.safetensors"

    def picture(self, figure: str, suffix: str) -> Path:
        """A figure in one of the formats ``PICTURES``."""
        return self.results / "figures" / f"{figure}.{suffix}"

    def table(self, figure: str) -> Path:
        """The tidy table of a figure: every plotted number."""
        return self.results / "tables" / f"{figure}.csv"

    def agreement(self, figure: str) -> Path:
        """A figure's agreement with the published numbers, one row a comparison."""
        return self.results / "tables" / "agreement" / f"{figure}.csv"

    def verdict(self, claim: str) -> Path:
        """The verdict on a claim."""
        return self.results / "verdicts" / f"{claim}.json"

    def notebook(self, figure: str) -> Path:
        """The executed notebook of a figure."""
        return self.results / "notebooks" / f"{figure}.ipynb"

    def log(self, step: str, name: str) -> Path:
        """The log of one job."""
        return self.results / "logs" / step / f"{name}.log"

    def failures(self) -> Path:
        """The folder for what failed in this run, one line a file."""
        return self.results / "logs" / "failures"

    def benchmark(self, step: str, name: str) -> Path:
        """Time and memory of one job, as snakemake measures them."""
        return self.results / "benchmarks" / step / f"{name}.tsv"

    def agreements(self) -> Path:
        """All figures' agreement with the published numbers."""
        return self.results / "tables" / "agreement.csv"

    def book(self, name: str) -> Path:
        """A file of the book."""
        return self.results / "book" / name

    def of_figure(self, figure: str, claims: tuple[str, ...]) -> list[Path]:
        """Everything that drawing one figure leaves behind."""
        return [
            *(self.picture(figure, suffix) for suffix in PICTURES),
            self.table(figure),
            self.agreement(figure),
            self.notebook(figure),
            *(self.verdict(claim) for claim in claims),
        ]


def check_writable(folder: Path) -> None:
    """Refuse a results folder that cannot be written; ``ConfigError`` names it and what stands in the way."""
    existing = next(place for place in (folder.resolve(), *folder.resolve().parents) if place.exists())
    if not existing.is_dir():
        raise ConfigError(f"config: results = {str(folder)!r}: {existing} is not a folder; allowed: a writable folder")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError:
        reason = f"results = {str(folder)!r}: no permission to write"
        raise ConfigError(f"config: {reason}; allowed: a writable folder") from None
