# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # RoBERTa with the gap removed, by layer
#
# ## What is asked
#
# Removing the outlier of every attention matrix is said to slow rank collapse in depth *remarkably*, and small changes
# in width are said to change depth drastically. The published pair of curves differs in three things at once: the
# centring of $A$, the variance of $W_V$ (1 instead of $0.02^2$) and a factor $\sqrt T$. Which of them does it?
#
# ## How it is measured
#
# Stable rank of $XX^\top$ less one at the embeddings (layer 0) and after each layer, for one text length and tokens
# repeated as in the published text. All variants of a run share its weights, a unit-variance $W_V$ being the drawn one
# on another scale. Besides every combination of the three there are: no attention at all (the heads' output set to
# zero), two other removals of the outlier, and the published fix in layer 1 only.

# %% tags=["parameters"]
figure = "rebuttal_06"
results = "results"

# %%
import numpy as np
from matplotlib.ticker import NullLocator

from rankcollapse import published
from rankcollapse.agreement import compare_means, z_score
from rankcollapse.differences import mean_difference, mean_factor
from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, note, ours, published_curve

page = Page(figure, results)
roberta = page["roberta_rank"]
settings = roberta.provenance.settings
fixed, tokens, depth, controls = (settings[name] for name in ("fixed", "depth_length", "depth", "depth_controls"))
level = page.catalogue.claims["M06"].limits["level"]
small, drastic = (page.catalogue.claims["M18"].limits[name] for name in ("small", "drastic"))
above_one = {name: roberta[f"depth/{name}"] for name in (fixed, *controls)}  # run, layer
first_only = f"{fixed}, layer 1"
layer = np.arange(depth + 1)
comparable = (depth, tokens) == (12, 282)
for name, values in above_one.items():
    page.record("stable rank less one", values, variant=name, run=range(len(values)), layer=layer)

picture = new_figure(5.2)
panel = Panels(picture.subplots(2, 3))
AXES = {"yscale": "log", "xlabel": "layer", "ylabel": "stable rank − 1"}

# %% [markdown]
# **As plotted**, and **as stated**: centring alone.

# %%
axes = panel("as plotted", **AXES)
lines = []
for color, (name, curve) in {0: ("A", "original"), 2: (fixed, "fixed")}.items():
    ours(axes, layer, above_one[name], f"{curve}", color=f"C{color}")
    if not comparable:
        continue
    rows = published.curve("fig_VI", "layer", "stable_rank", {"curve": curve}).drop(columns="mean") - 1
    for run in rows:
        published_curve(axes, rows.index, rows[run], label=None, marker="", linewidth=0.3, alpha=0.5)
    published_curve(axes, rows.index, rows.mean(axis=1), label="published" if color else None)
    page.record(f"published {curve}, stable rank less one", rows.T, run=rows.columns, layer=rows.index)
    logs, mine = np.log(rows.to_numpy()).mean(1), np.log(above_one[name])
    agreement = page.agree(f"{curve}, log", compare_means(logs, mine, 5))
    page.record(f"z of published {curve}, log", z_score(logs, mine, 5), layer=layer)
    lines.append(f"{curve}: {agreement.text}")
if lines:
    note(axes, "\n".join(lines), "lower left")
    axes.set_ylim(axes.get_ylim()[0] / 6, None)
axes.legend(loc="upper left")

axes = panel("as stated", **AXES)
for color, (name, label) in enumerate({"A": "original", "A_perp": "A − 11ᵀ/T alone"}.items()):
    ours(axes, layer, above_one[name], label, color=f"C{color}")
axes.plot(layer, above_one["no attention"].mean(0), color="black", linestyle=(0, (2, 2)), label="no attention at all")
difference = mean_difference(above_one["A_perp"], above_one["A"], level)
for part, values in difference._asdict().items():
    page.record(f"A_perp less original, {part}", values, layer=layer)
likeness = np.abs(np.log(above_one["A_perp"] / above_one["no attention"])).max()
page.record("largest log ratio of A_perp to no attention", likeness)
note(axes, f"centred against no attention:\nat most {100 * np.expm1(likeness):.1f} % apart", "lower left")
low, high = axes.get_ylim()
axes.set_ylim(low / 2, high * 2)
axes.legend(loc="upper right")

# %% [markdown]
# **One thing at a time.** Left: the three changes in every combination. Middle: two removals that really take the
# outlier off. Right: the fix where it can act on width alone.

# %%
SCALES = {"": "as it is", " + sqrt T": "√T", " + values": "W_V N(0,1)", " + values + sqrt T": "both"}
axes = panel("value scaling × centring", **AXES | {"ylim": (1e-14, 1e4)})
for color, (scale, label) in enumerate(SCALES.items()):
    for matrix, style in (("A_perp", "-"), ("A", (0, (3, 1.5)))):
        mean = above_one[f"{matrix}{scale}"].mean(0)
        axes.plot(layer, mean, color=f"C{color}", linestyle=style, label=label if matrix == "A_perp" else None)
axes.legend(loc="upper right", title="values (solid: centred, dashed: not)", title_fontsize=6, ncols=2)

axes = panel("other removals, values scaled", **AXES)
REMOVALS = {
    fixed: "A − 11ᵀ/T",
    fixed.replace("sqrt T", "sqrt d"): "A − 11ᵀ/T, √d for √T",
    "mean removed + values + sqrt T": "(I − 11ᵀ/T) A",
    "deflated + values + sqrt T": "A − s₁u₁v₁ᵀ",
}
for color, (name, label) in enumerate(REMOVALS.items(), start=2):
    ours(axes, layer, above_one[name], label, color=f"C{color}")
low, high = axes.get_ylim()
axes.set_ylim(low, high * 30)
axes.legend(loc="upper right")

axes = panel("the fix in layer 1 only", **AXES)
for color, (name, label) in enumerate({"A": "original", first_only: "layer 1 only", fixed: "every layer"}.items()):
    ours(axes, layer, above_one[name], label, color=f"C{color if color != 1 else 4}")
axes.legend(loc="lower left")

axes = panel("width against depth", xscale="log", yscale="log", xlabel="factor at layer 1")
axes.set_ylabel(f"factor at layer {depth}")
CHANGES = {"A_perp": "as stated", first_only: "as plotted, layer 1 only", fixed: "as plotted"}
factors = {}
for color, (name, label) in zip(("C1", "C4", "C2"), CHANGES.items(), strict=True):
    pairs = above_one[name][: len(above_one["A"])]
    axes.plot(*(pairs / above_one["A"])[:, [1, -1]].T, "o", color=color, label=label)
    factors[name] = mean_factor(pairs, above_one["A"], level)
    for part, values in factors[name]._asdict().items():
        page.record(f"{name} over original, {part}", values, layer=layer)
axes.axvline(small, **THEORY)
axes.axhline(drastic, **THEORY)
axes.set(xlim=(0.9, max(4, axes.get_xlim()[1])), ylim=(0.02, 2e4))
axes.set_xticks([1, 2, 3, 4], ["1", "2", "3", "4"])
axes.xaxis.set_minor_locator(NullLocator())
axes.legend(loc="upper left")
note(axes, "dashed: limits of small in width\nand drastic in depth", "lower right")

# %% [markdown]
# ## What follows
#
# The published curves come back with the published recipe, but not because the outlier is gone. Centring alone leaves
# just what *no attention at all* leaves: what survives of $A$ is too weak to matter beside the skip connection, so the
# stable rank stays near that of the embeddings, which is already collapsed. Scaling the values without centring does
# the opposite and makes all tokens equal within a few layers, as it scales the outlier. Only both together raise the
# stable rank with depth. $\mathbf 1\mathbf 1^\top/T$ is not the outlier itself either: the column means of $A$ differ
# from $1/T$, so a common vector is put back; removing the mean token or the largest singular value gives a stable rank
# of about 8 after one layer, which then falls.
#
# The fix changes layer 1 by a factor of two and layer 12 by a factor of a hundred, but the second is no consequence of
# the first: the same change made in layer 1 only is forgotten down the layers.

# %%
last = {name: float(above_one[name][:, -1].mean()) for name in ("A", "A_perp", "no attention", fixed)}
page.judge(
    "M06",
    layer=depth,
    original=last["A"],
    centred=last["A_perp"],
    no_attention=last["no attention"],
    fixed=last[fixed],
    centred_low=difference.low[-1],
)
page.judge(
    "M18",
    layer=depth,
    width=factors[fixed].value[1],
    depth=factors[fixed].value[-1],
    depth_of_first_layer=factors[first_only].value[-1],
    centred_width=factors["A_perp"].value[1],
    centred_depth=factors["A_perp"].value[-1],
    scaled_depth=above_one["A + values + sqrt T"][:, -1].mean() / last["A"],
)
page.save(picture)
