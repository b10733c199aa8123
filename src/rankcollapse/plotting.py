"""The house style: one look for every figure, and the published numbers always drawn the same way. No torch."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Complex, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import MaxNLocator

STYLE = Path(__file__).with_name("house.mplstyle")
WIDTH = 6.85  # inches, the text width of the book: what is 7 points here is 7 points on its page

# Published curves and spectra: black, thin, open markers; never anything else, and nothing of ours looks like it.
PUBLISHED_CURVE: dict[str, Any] = {
    "color": "black",
    "linewidth": 0.6,
    "marker": "o",
    "markersize": 3.2,
    "markerfacecolor": "white",
}
PUBLISHED_CURVE |= {"markeredgewidth": 0.6, "zorder": 5}
PUBLISHED_POINTS: dict[str, Any] = {
    "facecolors": "none",
    "edgecolors": "black",
    "linewidths": 0.3,
    "zorder": 5,
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
THEORY: dict[str, Any] = {"color": "0.35", "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 1}


def new_figure(height: float) -> Figure:
    """Return an empty figure of the book's text width in the house style; ``height`` in inches."""
    plt.rcdefaults()  # a matplotlibrc of the user's would change the picture
    plt.style.use(STYLE)
    return plt.figure(figsize=(WIDTH, height))


class Panels:
    """Hands out the panels of a figure in reading order, each with its letter, heading and axis labels."""

    def __init__(self, axes: np.ndarray) -> None:
        self.left = iter(zip(axes.ravel(), LETTERS, strict=False))

    def __call__(self, text: str, **labels: Any) -> Axes:
        """Return the next panel; ``labels`` as for ``Axes.set``. Layers, depths and lengths get whole ticks."""
        axes, letter = next(self.left)
        _label(axes, letter, text, labels)
        return axes


class PlacedPanels:
    """Hands out the panels of a figure whose places are named one by one, otherwise as ``Panels``."""

    def __init__(self, picture: Figure) -> None:
        self.picture = picture
        self.letters = iter(LETTERS)

    def __call__(self, place: SubplotSpec, text: str, **labels: Any) -> Axes:
        """Return the panel at a place of a grid of the figure, with its letter, heading and axis labels."""
        axes = self.picture.add_subplot(place)
        _label(axes, next(self.letters), text, labels)
        return axes


def _label(axes: Axes, letter: str, text: str, labels: dict[str, Any]) -> None:
    """Head a panel and set its axes; layers, depths and lengths get whole ticks."""
    title(axes, letter, text)
    axes.set(**labels)
    if labels.get("xlabel") in ("layer", "depth", "path length", "path length k") and labels.get("xscale") != "log":
        whole_numbers(axes)


def whole_numbers(axes: Axes) -> None:
    """Put the ticks of the horizontal axis on whole numbers."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def title(axes: Axes, letter: str, text: str) -> None:
    """Head a panel with its letter and what it shows."""
    axes.set_title(f"{letter}  {text}")


def ours(axes: Axes, x: np.ndarray, runs: Float[np.ndarray, "runs x"], label: str | None = None, **style: Any) -> None:
    """Draw our runs: the mean as a line, all runs as a band from the smallest to the largest."""
    (line,) = axes.plot(x, runs.mean(0), label=label, **style)
    axes.fill_between(x, runs.min(0), runs.max(0), color=line.get_color(), alpha=0.2, linewidth=0)


def published_curve(axes: Axes, x: np.ndarray, y: np.ndarray, label: str | None = "published", **style: Any) -> None:
    """Draw a published curve."""
    axes.plot(x, y, label=label, **PUBLISHED_CURVE | style)


def published_points(axes: Axes, values: Complex[np.ndarray, "points"], label: str | None = None) -> None:
    """Draw a published spectrum in the complex plane; the more points, the smaller."""
    axes.scatter(values.real, values.imag, s=min(8, 1200 / len(values)), label=label, **PUBLISHED_POINTS)


def note(axes: Axes, text: str, where: str = "upper right", **style: Any) -> None:
    """Write a short text, such as an agreement statistic, into a corner of a panel on a white ground."""
    vertical, horizontal = where.split()
    x, y = {"left": 0.03, "right": 0.97}[horizontal], {"lower": 0.04, "upper": 0.96}[vertical]
    alignment = {"ha": horizontal, "va": {"lower": "bottom", "upper": "top"}[vertical]}
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axes.text(x, y, text, transform=axes.transAxes, fontsize=5.8, bbox=box, zorder=9, **alignment | style)


def broken_plane(picture: Figure, place: SubplotSpec, radius: float) -> tuple[Axes, Axes]:
    """Return two panels of the complex plane sharing one broken real axis: the bulk within ``radius``, and around 1.

    Both have the same scale, so a circle is a circle.
    """
    grid = place.subgridspec(1, 2, width_ratios=[5, 1], wspace=0.04)
    bulk = picture.add_subplot(grid[0])
    outlier = picture.add_subplot(grid[1], sharey=bulk)
    bulk.set(xlim=(-radius, radius), ylim=(-radius, radius), box_aspect=1)
    bulk.xaxis.set_major_locator(MaxNLocator(nbins=3, symmetric=True))
    bulk.yaxis.set_major_locator(MaxNLocator(nbins=4, symmetric=True))
    outlier.set(xlim=(1 - radius / 5, 1 + radius / 5), xticks=[1], box_aspect=5)
    outlier.tick_params(left=False, labelleft=False)
    outlier.spines["left"].set_visible(False)
    slash: dict[str, Any] = {
        "marker": [(-1, -1.6), (1, 1.6)],
        "markersize": 5,
        "linestyle": "none",
        "color": "k",
        "clip_on": False,
    }
    bulk.plot([1], [0], transform=bulk.transAxes, **slash)
    outlier.plot([0], [0], transform=outlier.transAxes, **slash)
    return bulk, outlier


def circle(axes: Axes, radius: float, **style: Any) -> None:
    """Draw a circle about 0, by default as theory."""
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(radius * np.cos(angle), radius * np.sin(angle), **THEORY | style)
