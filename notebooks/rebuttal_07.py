# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Random Markov attention by depth
#
# ## What is asked
#
# When the attention matrix is a random Markov matrix that does not look at the tokens, which of its companions keep the
# tokens apart: LayerNorm, a skip connection, or the removal of the spectral gap?
#
# ## How it is measured
#
# $X_l = \mathrm{LN}([X_{l-1} +]\, A_l X_{l-1} W_l)$ from orthonormal tokens, $A_l$ the row softmax of $N(-\tfrac{\ln
# 2}{2}, \ln 2)$ entries and $W_l$ of $N(0,1)$ entries, both fresh in every layer. *Gap removed* means $A - \mathbf
# 1\mathbf 1^\top/T$. The stable rank $\|XX^\top\|_F^2/\|XX^\top\|_2^2$ has no scale, so the tokens are rescaled between
# layers and nothing overflows.

# %% tags=["parameters"]
figure = "rebuttal_07"
results = "results"

# %%
import numpy as np

from rankcollapse import published
from rankcollapse.agreement import compare_means
from rankcollapse.page import Page
from rankcollapse.plotting import LETTERS, THEORY, new_figure, note, ours, published_curve, title, whole_numbers
from rankcollapse.theory.mind_the_gap import product_stable_rank

page = Page(figure, results)
markov = page["markov_depth"]
settings = markov.provenance.settings
configs, tokens = settings["configs"], settings["tokens"]
above_one = markov["stable_rank_excess"]  # sr - 1, which float64 resolves far below 1e-16
depth = np.arange(above_one.shape[-1])
comparable = (settings["tokens"], settings["width"]) == (150, 150)  # the published size
RESOLUTION = published.RESOLUTION["fig_VII"]
theirs, predicted = [], []

# %% [markdown]
# Each panel is one configuration. The axis is the stable rank less one, so that a collapse can be followed down to
# where it stops being visible in the published figure (grey) and beyond.

# %%
PLACES = {
    **{f"A{rest}": (row, 0) for row, rest in enumerate(("", " + LN", " + skip", " + skip + LN"))},
    **{f"A_perp{rest}": (row, 1) for row, rest in enumerate(("", " + LN", " + skip", " + skip + LN"))},
    "Identity A": (0, 2),
}


def drawable(excess):
    """The part a logarithmic axis can show; 32-bit rounding puts collapsed values on either side of 1."""
    return excess.where(excess > 0)


last = markov["last_float32_depth"].min(1)  # over runs
picture = new_figure(8.2)
grid = picture.add_gridspec(4, 3)
together = picture.add_subplot(grid[1:3, 2])
for color, (name, letter) in enumerate(zip(configs, LETTERS, strict=False)):
    axes = picture.add_subplot(grid[PLACES[name]])
    collapsing = name.split(" + ")[0] == "A"
    label = name.replace("A_perp", "gap removed").replace("Identity A", "no attention")
    title(axes, letter, label)
    axes.set(yscale="log", xlabel="depth", ylabel="stable rank − 1", ylim=(1e-65, 1e5) if collapsing else (0.3, 300))
    ours(axes, depth, above_one[color], color=f"C{color}", label="ours")
    together.plot(depth, 1 + above_one[color].mean(0), color=f"C{color}", label=label)
    page.record("ours, stable rank less one", above_one[color], config=name, run=range(settings["runs"]), depth=depth)
    if collapsing:
        axes.axhspan(1e-65, RESOLUTION, color="0.93", zorder=0)
    if not comparable:
        continue
    curve = published.curve("fig_VII", "depth", "stable_rank", {"config": name})
    curve = curve.loc[: depth[-1]]
    mean, runs = curve["mean"].dropna(), curve.drop(columns="mean")
    for run in runs:
        published_curve(axes, runs.index, drawable(runs[run] - 1), label=None, marker="", linewidth=0.3, alpha=0.5)
    published_curve(axes, mean.index, drawable(mean - 1))
    page.record("published mean, stable rank less one", mean - 1, config=name, depth=mean.index)
    page.record("published runs, stable rank less one", runs.T - 1, config=name, run=runs.columns, depth=runs.index)
    theirs.append(mean.to_numpy())
    predicted.append(1 + above_one[color][:, mean.index])
    note(
        axes,
        compare_means(theirs[-1], predicted[-1], 5, RESOLUTION).text,
        "lower left" if collapsing else "upper right",
    )
    if last[color] < depth[-1]:
        axes.axvline(last[color], **THEORY)
picture.axes[min(5, len(configs))].legend(loc="lower left")

for name, factors in (("Identity A", 1), ("A_perp", 2)):
    law = [product_stable_rank(tokens, factors * layers) for layers in depth[1:]]
    together.plot(depth[1:], law, **THEORY)
    page.record("law of a product of Gaussian matrices", law, config=name, depth=depth[1:])
title(together, LETTERS[len(configs)], "all means")
together.set(yscale="log", xlabel="depth", ylabel="stable rank", ylim=(0.9, 300))
for axes in picture.axes:
    whole_numbers(axes)
key = picture.add_subplot(grid[3, 2])
key.axis("off")
key.legend(*together.get_legend_handles_labels(), loc="upper left")

# %% [markdown]
# ## What follows
#
# With its gap, random Markov attention collapses to rank one whatever LayerNorm and skips do, and goes on collapsing
# long after the published curves stop at the overflow of 32-bit floats. Without the gap nothing collapses that fast,
# but *no attention at all* decays too: a product of $L$ Gaussian value matrices has stable rank about $T/(e^2 L)$
# (dashed, derived here), and attention without the gap is one more random factor per layer, so it decays like
# $T/(2e^2L)$ and lies below no attention. Only the skip keeps the stable rank up over this depth.

# %%
if comparable:
    page.agree(
        "all configurations", compare_means(np.concatenate(theirs), np.concatenate(predicted, axis=1), 5, RESOLUTION)
    )
final = 1 + above_one[..., -1].mean(1)
by_run = above_one[..., -4] - above_one[..., -1]
fall, error = by_run.mean(1), by_run.std(1, ddof=1) / np.sqrt(by_run.shape[1])
page.record("stable rank at the last depth", final, config=configs)
page.record("fall over the last three layers", fall, config=configs)
page.judge("M07", configs=configs, last_stable_rank=final, recent_fall=fall, fall_error=error)
page.save(picture)
