# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Attention alone with its gap removed
#
# ## What is asked
#
# Does an attention-only network keep its tokens apart when every $A(X)$ is replaced by $A - \mathbf 1\mathbf
# 1^\top/T$, and for how many layers?
#
# ## How it is measured
#
# The same weights as for the original network, which is drawn beside it. The removal has a way to fail of its own: once the
# tokens coincide to working precision, $A$ *is* $\mathbf 1\mathbf 1^\top/T$, nothing is left of it, and the next
# layer returns $X = 0$, whose stable rank would be $0/0$. Such runs are annihilated: they are counted, by the first
# layer at which it happens, and the medians are over the runs that are left.

# %% tags=["parameters"]
figure = "rebuttal_11"
results = "results"

# %%
import matplotlib as mpl
import numpy as np

from rankcollapse import published
from rankcollapse.agreement import compare_heavy_tails
from rankcollapse.page import Page
from rankcollapse.plotting import Panels, new_figure, published_curve

page = Page(figure, results)
keyquery = page["keyquery_depth"]
settings = keyquery.provenance.settings
sizes = np.array(settings["tokens"])
layers = np.arange(1, settings["layers"] + 1)
ranks = dict(zip(("original", "fixed"), 1 + keyquery["stable_rank_excess"], strict=True))  # [T, layer, run]; 0: X = 0
STYLES = {"original": "C7", "fixed": "C0"}
COLLAPSED = 1e-3  # sr - 1 of a run counted as collapsed
source = "fig_XI" if published.is_there("fig_XI") else "fig_X"
table = published.read(source)
table["mean"] = table["stable_rank"].fillna((table["band_lo"] + table["band_hi"]) / 2)  # where only a band was drawn
table = table[table["T"].isin(sizes) & table["layer"].isin(layers)]

# %% [markdown]
# Medians and middle 50 %, on a logarithmic axis. Published numbers exist for the original network's means; those of the
# other are drawn here too as soon as their file is there.

# %%
picture = new_figure(8.6)
rows = -(-(len(layers) + 2) // 3)
panels = Panels(picture.subplots(rows, 3))
theirs = {curve: [] for curve in ranks}
mine = {curve: [] for curve in ranks}
for layer in layers:
    axes = panels(f"layer {layer}", xlabel="tokens T = d", ylabel="stable rank", xscale="log", yscale="log")
    for curve, color in STYLES.items():
        left = [runs[runs > 0] for runs in ranks[curve][:, layer - 1]]
        drawn = np.array([len(runs) > 0 for runs in left])
        quantiles = np.array([np.quantile(runs, [0.25, 0.5, 0.75]) for runs in left if len(runs)]).reshape(-1, 3)
        axes.fill_between(sizes[drawn], quantiles[:, 0], quantiles[:, 2], color=color, alpha=0.25, linewidth=0)
        axes.plot(sizes[drawn], quantiles[:, 1], color=color, label=f"ours, {curve}")
        page.record(
            f"ours, {curve}, of runs not annihilated",
            quantiles,
            layer=layer,
            T=sizes[drawn],
            quantile=[0.25, 0.5, 0.75],
        )
        page.record(f"ours, {curve}, runs not annihilated", [len(runs) for runs in left], layer=layer, T=sizes)
        known = table[(table["curve"] == curve) & (table["layer"] == layer)]
        known = known[[len(left[np.flatnonzero(sizes == size)[0]]) > 0 for size in known["T"]]]
        if len(known):
            published_curve(axes, known["T"], known["mean"])
            page.record(f"published mean of five, {curve}", known["mean"], layer=layer, T=known["T"])
            theirs[curve] += list(known["mean"])
            mine[curve] += [left[np.flatnonzero(sizes == size)[0]] for size in known["T"]]
    axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.set_ylim(0.93, 30)
picture.axes[0].legend(loc="upper left")

# %%
shown = list(dict.fromkeys(size for size in (sizes[0], 20, 50, 100, 150, 200, sizes[-1]) if size in sizes))
colors = mpl.colormaps["viridis_r"](np.linspace(0.1, 1, 7))
counted = {
    "annihilated": lambda rank: rank == 0,
    f"annihilated, or sr < 1 + {COLLAPSED:g}": lambda rank: rank < 1 + COLLAPSED,
}
for name, count in counted.items():
    axes = panels("annihilated runs" if name == "annihilated" else "runs at rank 1 or 0", xlabel="layer")
    axes.set(ylabel="share of fixed runs", ylim=(-0.03, 1.03))
    for size, color in zip(shown, colors, strict=False):
        share = count(ranks["fixed"][sizes == size][0]).mean(-1)
        axes.plot(layers, share, color=color, marker=".", label=f"T = {size}")
        page.record(f"share of fixed runs, {name}", share, T=size, layer=layers)
axes.legend(loc="upper left", fontsize=5.5)
for axes in picture.axes[len(layers) + 2 :]:
    axes.axis("off")

# %% [markdown]
# ## What follows

# %%
for curve in ranks:
    if theirs[curve]:
        resolution = published.RESOLUTION[source]
        agreement = compare_heavy_tails(np.array(theirs[curve]), mine[curve], 5, resolution)
        page.agree(f"all layers, {curve}", agreement)
page.save(picture)
