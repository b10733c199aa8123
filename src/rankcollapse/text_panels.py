"""What rebuttal figures I to III share: spectra, moduli of the bulk, and how far the covariance is from diagonal."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Complex, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.typing import LineStyleType

from rankcollapse.agreement import compare_realisation
from rankcollapse.page import Page
from rankcollapse.plotting import PUBLISHED_CURVE, broken_plane, published_points

NAMES = {"text": "our text", "published": "published repeats", "distinct": "all distinct"}
STATISTICS = ("mean", "std", "min", "q01", "median", "q99", "max")


def spectrum(
    picture: Figure,
    place: SubplotSpec,
    page: Page,
    drawn: Complex[np.ndarray, " tokens"],
    theirs: Complex[np.ndarray, " tokens"] | None,
    *,
    source: str,
    reach: float,
) -> Axes:
    """Draw and record one run of ours and, where there is one, the published realisation; the outlier comes first.

    The bulk's panel, which is returned, is ``reach`` times as wide as ours.
    """
    label, length = f"ours, {NAMES[source]}", len(drawn)
    bulk, outlier = broken_plane(picture, place, reach * np.abs(drawn[1:]).max())
    for axes in (bulk, outlier):
        axes.scatter(drawn.real, drawn.imag, s=3, color="C0", linewidths=0, label=label)
        if theirs is not None:
            published_points(axes, theirs, "published")
    page.record_spectrum(label, drawn, run=0, T=length)
    if theirs is not None:
        page.record_spectrum("published", theirs, run=0, T=length)
    return bulk


def agreements(
    page: Page, theirs: Complex[np.ndarray, " tokens"], pools: Mapping[str, Complex[np.ndarray, "runs tokens"]]
) -> dict[str, str]:
    """Compare the published moduli with the pool of every source; return what a panel says of each."""
    return {
        source: page.agree(
            f"T = {len(theirs)}, {NAMES[source]}", compare_realisation(np.abs(theirs), np.abs(pool))
        ).text
        for source, pool in pools.items()
    }


def bulk_moduli(
    axes: Axes,
    page: Page,
    spectra: Callable[[str, int], Complex[np.ndarray, "runs tokens"]],
    theirs: Mapping[int, Complex[np.ndarray, " tokens"]],
    lengths: list[int],
    lines: Mapping[str, LineStyleType],
) -> None:
    """Draw the share of the bulk's sqrt(T) |lambda| below r: all runs of every source pooled, and the published ones.

    ``spectra`` and ``theirs`` have the outlier first; ``lines`` has a line style for every source.
    """
    for color, length in enumerate(lengths):
        for source, style in lines.items():
            moduli = np.sort(np.abs(spectra(source, length)[:, 1:]).ravel()) * np.sqrt(length)
            share = np.arange(1, len(moduli) + 1) / len(moduli)
            axes.plot(moduli, share, color=f"C{color}", linestyle=style, label=f"T = {length}, {NAMES[source]}")
            page.record("ours, share of the bulk within r", share[::50], source=source, T=length, r=moduli[::50])
        if length in theirs:
            moduli = np.sort(np.abs(theirs[length][1:])) * np.sqrt(length)
            axes.plot(moduli, np.arange(1, len(moduli) + 1) / len(moduli), color="black", linewidth=0.6)
    axes.set(xlabel="$r$", ylabel=r"share with $\sqrt{T}\,|\lambda| \leq r$")
    axes.legend(loc="lower right", fontsize=5)


def off_diagonal(
    axes: Axes,
    page: Page,
    measured: Mapping[str, Float[np.ndarray, "sources lengths runs"]],
    heatmaps: pd.DataFrame,
    sources: list[str],
    lengths: list[int],
) -> None:
    """Draw statistics of the covariance's entries off the diagonal, mean and range over runs, and the published ones.

    ``measured`` has an array for each of ``STATISTICS``; ``heatmaps`` the published heat maps' by number of tokens.
    """
    for color, source in enumerate(sources):
        for column, length in enumerate(lengths):
            values = np.array([measured[name][color, column] for name in STATISTICS])
            x = np.arange(len(STATISTICS)) + 0.22 * (column - 1) + 0.06 * color
            spread = [values.mean(1) - values.min(1), values.max(1) - values.mean(1)]
            label = None if column else NAMES[source]
            axes.errorbar(
                x, values.mean(1), spread, fmt=".", color=f"C{color}", markersize=2.5, linewidth=0.7, label=label
            )
            axis = {"statistic": STATISTICS, "run": range(values.shape[1])}
            page.record("off-diagonal of the covariance", values, source=source, T=length, **axis)
    for column, length in enumerate(lengths):
        if length in heatmaps.index:
            read = [heatmaps.loc[length, f"offdiag_{name}"] for name in STATISTICS]
            x = np.arange(len(STATISTICS)) + 0.22 * (column - 1)
            label = None if column else "published"
            axes.plot(x, read, label=label, **PUBLISHED_CURVE | {"linestyle": "none", "markersize": 3})
            page.record("off-diagonal of the published heat map", read, T=length, statistic=STATISTICS)
    axes.set_xticks(range(len(STATISTICS)), STATISTICS, rotation=35)
    axes.set_ylabel(r"entries of $X_0X_0^\top$ off the diagonal")
    axes.legend(loc="upper left")
