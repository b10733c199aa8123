# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # How large is large enough
#
# ## What is asked
#
# The theory of *Mind the Gap* holds as $T, d \to \infty$. Are practical sizes, $10^2$ to $10^3$, at the limit already?
#
# ## How it is measured
#
# One random softmax head with logits of variance $s^2 = 1$. Three quantities make the gap, each with a limit that is
# not 0: $s_1 \to 1$; $\sqrt T|\lambda_2| \to \sqrt{e^{s^2}-1} = 1.311$ for orthonormal tokens of any $\gamma = T/d \le
# 1$; and $\sqrt T s_2 \to 2\sqrt{e^{s^2}-1} = 2.622$ for independent logits ($\gamma = 0$) and more for $\gamma > 0$,
# where the logits are a product of two Gaussian matrices (edge derived here). Gaussian tokens at $\gamma = 10$ show
# what happens far from orthonormal. The control has independent normal entries of the same mean and variance.

# %% tags=["parameters"]
figure = "gap_finite_size"
results = "results"

# %%
import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure
from rankcollapse.theory.mind_the_gap import bulk_radius
from rankcollapse.theory.random_attention import largest_entry, lone_entry_edge, moments, singular_edge

page = Page(figure, results)
measured = page["gap_finite_size"]
settings = measured.provenance.settings
sizes, variance = settings["tokens"], settings["logit_variance"]
orthonormal, gaussian = settings["orthonormal_ratios"], settings["gaussian_ratios"]
names = [*(f"orthonormal, γ = {r:g}" for r in orthonormal), *(f"Gaussian, γ = {r:g}" for r in gaussian), "control"]
judged = slice(0, len(orthonormal))

moment = moments("softmax", variance, max(sizes))
circle = bulk_radius(0, variance)
edges = [singular_edge(moment, ratio) for ratio in orthonormal]
LIMITS = {  # None: not known for Gaussian tokens
    "radius": [*[circle] * len(orthonormal), *(bulk_radius(ratio, variance) for ratio in gaussian), circle],
    "edge": [*edges, *[None] * len(gaussian), 2 * circle],
    "top": [1.0] * len(names),
}
LABELS = {
    "radius": r"$\sqrt{T}\,|λ_2|$",
    "edge": r"$\sqrt{T}\,s_2$",
    "top": "$s_1$",
    "entry": r"$\sqrt{T}\,\max A_{ij}$",
}


def values(quantity, row):
    """All runs of one input, a list by number of tokens."""
    return [measured[f"{quantity}/tokens_{size}"][row] for size in sizes]


errors = {}  # mean over runs of the relative error
for quantity, limits in LIMITS.items():
    for row, (name, limit) in enumerate(zip(names, limits, strict=True)):
        if limit is not None:
            errors[quantity, row] = np.array([np.abs(runs / limit - 1).mean() for runs in values(quantity, row)])
            page.record(f"relative error of {quantity}", errors[quantity, row], input=name, T=sizes)
            page.record(f"limit of {quantity}", limit, input=name)
for quantity in LABELS:
    for row, name in enumerate(names):
        for size, runs in zip(sizes, values(quantity, row), strict=True):
            page.record(quantity, runs, input=name, T=size, run=range(len(runs)))

# %%
picture = new_figure(4.9)
panel = Panels(picture.subplots(2, 3))
LIMIT = page.catalogue.claims["M14"].limits["error"]
guide = np.array([sizes[0], sizes[-1]])
for text, quantity in (("radius", "radius"), ("second singular value", "edge"), ("largest singular value", "top")):
    axes = panel(text, xlabel="tokens $T$", ylabel=f"relative error of {LABELS[quantity]}", xscale="log", yscale="log")
    for row, name in enumerate(names):
        if (quantity, row) in errors:
            axes.plot(sizes, errors[quantity, row], "-o", color=f"C{row}", label=name)
            slope = np.polyfit(np.log(sizes), np.log(errors[quantity, row]), 1)[0]
            page.record(f"slope of the error of {quantity}", slope, input=name)
    axes.axhline(LIMIT, **THEORY | {"linestyle": ":"})
    axes.plot(guide, 0.09 * (guide / sizes[0]) ** (-1.0 if quantity == "top" else -0.5), **THEORY)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda error, _: f"{100 * error:g} %")
    axes.yaxis.set_minor_locator(NullLocator())

for text, quantity in (("radius, all runs", "radius"), ("second, all runs", "edge")):
    axes = panel(text, xlabel="tokens $T$", ylabel=LABELS[quantity], xscale="log")
    for row in (*range(len(orthonormal)), len(names) - 1):
        shift = 1.05 ** (row - 2)  # side by side
        for size, runs in zip(sizes, values(quantity, row), strict=True):
            axes.plot(np.full(len(runs), size * shift), runs, ".", color=f"C{row}", markersize=2, alpha=0.7)
        axes.axhline(LIMITS[quantity][row], color=f"C{row}", linewidth=0.6)
far = np.geomspace(sizes[0], 1e6, 60)
lone, alone = ([law(variance, size) for size in far] for law in (lone_entry_edge, largest_entry))
seen = far <= 1.2 * sizes[-1]
axes.plot(far[seen], np.array(lone)[seen], **THEORY | {"color": "k"})
page.record("law of √T s₂ with one entry standing out", lone, T=far)

axes = panel("largest entry", xlabel="tokens $T$", ylabel=LABELS["entry"], xscale="log")
row = 0
for size, runs in zip(sizes, values("entry", row), strict=True):
    axes.plot(np.full(len(runs), size), runs, ".", color="C0", markersize=2, alpha=0.7)
axes.plot(far, alone, **THEORY | {"color": "k"})
axes.axhline(circle, color="C0", linewidth=0.6)
page.record("law of the largest entry", alone, T=far)
handles, labels = picture.axes[0].get_legend_handles_labels()
picture.legend(handles, labels, loc="outside upper center", ncols=3)

# %% [markdown]
# ## What follows
#
# The side of the gap that is an eigenvalue converges about like $T^{-1/2}$ and is within 5 % from $T = 300$ on; $s_1$
# converges like $1/T$. The second singular value does not get nearer: it is 8 to 40 % off between $T = 100$ and
# $1000$. The reason is the law of the entries. $e^z$ is log-normal; its largest of $T^2$ values sticks out of the bulk
# as a singular value of its own as long as $\sqrt T\max A_{ij} > \sqrt{e^{s^2}-1}$ (f), which ends only at $T \approx
# 10^5$ (black dashes in e: one such entry on top of the bulk of $\gamma = 0$). An entry off the diagonal has no
# eigenvalue by itself, so $|\lambda_2|$ does not see it; one on the diagonal has, the rare outliers in (d). The
# control, with normal entries, has neither, and its $s_2$ is within 5 % at every size. Far from orthonormal tokens
# ($\gamma = 10$) the radius too is 5 to 20 % off.

# %%
worst = {q: np.max([errors[q, row] for row in range(len(orthonormal))], axis=0) for q in LIMITS}
page.judge("M14", tokens=sizes, radius_error=worst["radius"], top_error=worst["top"], edge_error=worst["edge"])
page.save(picture)
