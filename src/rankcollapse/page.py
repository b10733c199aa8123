"""What a notebook works with: the tensors of its figure, and the one place where pictures, numbers and verdicts go."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from rankcollapse import store
from rankcollapse.agreement import Agreement
from rankcollapse.catalogue import Catalogue, load_catalogue
from rankcollapse.judges import judge_of
from rankcollapse.places import PICTURES, Places
from rankcollapse.verdicts import Ruling, Verdict

# Pictures carry no date, so that drawing again changes nothing that the numbers do not.
UNDATED = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


@dataclass
class Page:
    """One figure of the book while its notebook draws it."""

    figure: str
    results: str | Path = "results"
    root: Path = Path()
    measurements: dict[str, store.Measurement] = field(default_factory=dict, init=False)
    rows: list[pd.DataFrame] = field(default_factory=list, init=False)
    agreements: list[dict[str, Any]] = field(default_factory=list, init=False)
    verdicts: dict[str, Verdict] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.catalogue: Catalogue = load_catalogue(self.root)
        self.entry = self.catalogue.figures[self.figure]
        self.places = Places(Path(self.results))
        for name in self.entry.measurements:
            self.measurements[name] = store.read(self.places.tensors(name))

    def __getitem__(self, measurement: str) -> store.Measurement:
        """Return one of the measurements this figure reads."""
        return self.measurements[measurement]

    def record(self, series: str, value: ArrayLike, **axes: Any) -> None:
        """Add plotted numbers to the tidy table.

        ``axes`` names the axes of ``value`` in order, each with its labels; a name with a single label is no axis but
        the same for the whole series. Raises ``ValueError`` when labels and values do not fit.
        """
        value = np.asarray(value)
        labels = {name: label for name, label in axes.items() if np.ndim(label)}
        if value.shape != tuple(len(label) for label in labels.values()):
            raise ValueError(f"series {series!r}: shape {value.shape} does not fit the labels of {', '.join(labels)}")
        same = {name: label for name, label in axes.items() if not np.ndim(label)}
        grid = pd.MultiIndex.from_product(labels.values(), names=labels) if labels else pd.RangeIndex(1)
        table = grid.to_frame(index=False) if labels else pd.DataFrame(index=grid)
        self.rows.append(table.assign(**same)[list(axes)].assign(series=series, value=value.ravel()))

    def record_spectrum(self, series: str, eigenvalues: np.ndarray, **axes: Any) -> None:
        """Add one spectrum to the tidy table, its real and imaginary parts as two series."""
        for part, value in {"re": eigenvalues.real, "im": eigenvalues.imag}.items():
            self.record(f"{series}, {part}", value, **axes, index=range(len(value)))

    def agree(self, panel: str, agreement: Agreement) -> Agreement:
        """Note how well a panel agrees with the published numbers, for the tables and the book."""
        self.agreements.append(
            {
                "figure": self.figure,
                "panel": panel,
                "statistic": agreement.statistic,
                "value": agreement.value,
                "tolerance": agreement.tolerance,
                "agrees": agreement.agrees,
            }
        )
        return agreement

    def judge(self, claim: str, **measured: Any) -> Verdict:
        """Decide a claim from measured numbers with its judge and the limits in ``config/claims.yaml``."""
        if claim not in self.entry.claims:
            raise ValueError(f"{self.figure} does not judge {claim}; its catalogue entry lists {self.entry.claims}")
        measured = {name: _scalar(value) for name, value in measured.items()}
        for name, value in measured.items():
            if "NaN" in (text := json.dumps(value)) or "Infinity" in text:
                raise ValueError(f"{claim}: {name} = {text} is not finite; a verdict needs numbers")
        stated = self.catalogue.claims[claim]
        ruling: Ruling = judge_of(self.figure, claim)(**measured, **stated.limits)
        settings = {name: m.provenance.settings | {"seed": m.provenance.seed} for name, m in self.measurements.items()}
        self.verdicts[claim] = Verdict(
            claim, ruling.verdict, ruling.reason, stated.rule, measured, self.figure, settings
        )
        return self.verdicts[claim]

    def save(self, picture: Figure) -> None:
        """Write the pictures, the tables and the verdicts; raises ``ValueError`` when a claim was not judged."""
        missing = set(self.entry.claims) - set(self.verdicts)
        if missing:
            raise ValueError(f"{self.figure} must judge {sorted(missing)}")
        for axes in [*picture.axes]:  # places of a grid that a smaller choice of settings does not fill
            if not axes.has_data() and axes.axison and not (axes.get_title("left") or axes.texts):
                axes.remove()
        for suffix in PICTURES:
            path = self.places.picture(self.figure, suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.savefig(path, metadata=UNDATED[suffix])
        plt.close(picture)
        self._save_tables()
        for claim, verdict in self.verdicts.items():
            verdict.save(self.places.verdict(claim))

    def _save_tables(self) -> None:
        path = self.places.agreement(self.figure)
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = ["figure", "panel", "statistic", "value", "tolerance", "agrees"]
        agreement = pd.DataFrame(self.agreements, columns=columns)
        agreement.to_csv(path, index=False)
        series = "agreement: " + agreement["panel"] + ": " + agreement["statistic"]
        table = pd.concat([*self.rows, pd.DataFrame({"series": series, "value": agreement["value"]})])
        names = [name for name in table if name not in ("series", "run", "value")]
        table.reindex(columns=["series", "run", *names, "value"]).to_csv(self.places.table(self.figure), index=False)


def _scalar(value: Any) -> Any:
    """Return numpy numbers and arrays as plain Python, as JSON and a reader want them."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
