"""The published numbers, read back from the figures of the papers: tidy tables, spectra and curves. No torch.

Files, columns, settings and errors are described in ``resources/published/README.md``.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Complex

ROOT = Path(__file__).parents[2] / "resources" / "published"

Where = Mapping[str, str | int | float]

# Largest error of a published value that comes from reading it off the figure, from the README's table of files.
RESOLUTION = {
    "fig_I_d_eigenvalues": 7e-7,
    "fig_II_d_eigenvalues": 3e-7,
    "fig_III_a_eigenvalues": 6e-7,
    "fig_III_b_stable_rank": 5e-8,
    "fig_IV_b_eigenvalues": 2e-6,
    "fig_V_layer1": 3e-7,
    "fig_V_layer5": 3e-7,
    "fig_V_layer12": 3e-7,
    "fig_VI": 2e-7,
    "fig_VII": 3e-6,
    "fig_VIII": 3e-6,
    "fig_IX_eigenvalues": 3e-6,
    "fig_X": 3e-7,
    "fig_XI": 6e-7,  # not among the files yet; its curves shared with fig_X were read twice and differ by this
    "dong_bert": 2e-7,
    "dong_albert": 2e-7,
    "dong_xlnet": 2e-7,
    "dong_path_length": 5e-8,
    "dong_chained_paths": 0.08,  # decades
}


class PublishedError(ValueError):
    """A file, column or value that the published numbers do not have; the message says which there are."""


def is_there(name: str, root: Path = ROOT) -> bool:
    """Tell whether there is a file ``<root>/<name>.csv``; some figures may be laid over one that nobody made yet."""
    return (root / f"{name}.csv").is_file()


def read(name: str, where: Where | None = None, root: Path = ROOT) -> pd.DataFrame:
    """Return the rows of ``<root>/<name>.csv`` whose columns have the given values, as a tidy table.

    ``where`` maps a column to the one value wanted, for example ``{"config": "A", "run": "mean"}``. Columns that hold
    text (``run`` holds 0-4 and ``mean``) are compared as text, so 0 and "0" are the same run.

    Raises:
        PublishedError: no such file, column or value.
    """
    path = root / f"{name}.csv"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in root.glob("*.csv"))) or "none"
        raise PublishedError(f"published {name}: no such file in {root}; there are: {known}")
    table = pd.read_csv(path)
    for column, value in (where or {}).items():
        if column not in table.columns:
            raise PublishedError(f"published {name}: no column {column!r}; there are: {', '.join(table.columns)}")
        text = not pd.api.types.is_numeric_dtype(table[column])
        rows = table[column] == (str(value) if text else value)
        if not rows.any():
            allowed = ", ".join(map(str, table[column].unique()[:20]))
            raise PublishedError(f"published {name}: no row with {column} = {value!r}; there are: {allowed}")
        table = table[rows]
    return table.reset_index(drop=True)


def eigenvalues(name: str, where: Where, root: Path = ROOT) -> Complex[np.ndarray, "tokens"]:
    """Return one published spectrum as complex numbers, by descending modulus (the outlier 1 first)."""
    table = read(name, where, root)
    values = table["re"].to_numpy() + 1j * table["im"].to_numpy()
    return values[np.argsort(-np.abs(values), kind="stable")]


def curve(name: str, x: str, y: str, where: Where, root: Path = ROOT) -> pd.DataFrame:
    """Return one published curve with its runs: a row for each x, columns 0-4 and ``mean``; NaN where not drawn.

    Raises:
        PublishedError: as ``read``, or if ``where`` leaves more than one value for a run and x.
    """
    table = read(name, where, root)
    for column in (x, y, "run"):
        if column not in table.columns:
            raise PublishedError(f"published {name}: no column {column!r}; there are: {', '.join(table.columns)}")
    if table.duplicated([x, "run"]).any():
        raise PublishedError(f"published {name}: {dict(where)} leaves more than one {y} for a {x} and run; say more")
    return table.pivot(index=x, columns="run", values=y)
