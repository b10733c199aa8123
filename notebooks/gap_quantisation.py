# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Singular values, entries and eight-bit integers
#
# ## What is asked
#
# Removing the spectral gap is said to bound the largest singular value of the tokens, and with it their entries, and
# so to help quantisation. Does it, layer by layer?
#
# ## How it is measured
#
# $X_l = [\mathrm{LN}](A_l X_{l-1} W_V)$ from orthonormal tokens with $d = T$ and $W_V \sim N(0,1)$, the scaling of
# *Mind the Gap*. $A$ is a random Markov matrix, or the softmax $A(X)$ of the tokens' own logits; the gap is kept, or
# removed as $A - \mathbf 1\mathbf 1^\top/T$. Rounding to int8 is symmetric, with the largest entry at 127: one scale
# for the whole matrix or one for each token. The error is measured against the tokens, $\|X - \hat X\|_F/\|X\|_F$, and
# against what tells them apart: the same for $R = X - \mathbf 1\bar x^\top$.

# %% tags=["parameters"]
figure = "gap_quantisation"
results = "results"

# %%
import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure

page = Page(figure, results)
measured = page["gap_quantisation"]
settings = measured.provenance.settings
sizes, runs = settings["tokens"], range(settings["runs"])
depth = np.arange(settings["depth"] + 1)
ATTENTIONS, GAPS = ("A", "A + LN", "A(X)", "A(X) + LN"), ("kept", "removed")
SCALES = {"tensor": "-", "token": (0, (3, 1.5))}
for quantity in (
    "singular",
    "entry",
    "range",
    "residual",
    *(f"{e}/{s}" for e in ("error", "distinct") for s in SCALES),
):
    page.record(quantity, measured[quantity], attention=ATTENTIONS, gap=GAPS, T=sizes, run=runs, depth=depth)

# %%
picture = new_figure(8.2)
grid = picture.subplots(4, 4, sharex=True, sharey="row")
panel = Panels(grid)
ROWS = (
    ("largest singular value", {"singular": "-"}),
    ("largest entry $|x_{ij}|$", {"entry": "-"}),
    ("int8 error / tokens", {f"error/{scale}": style for scale, style in SCALES.items()}),
    ("int8 error / differences", {f"distinct/{scale}": style for scale, style in SCALES.items()}),
)
for row, (label, quantities) in enumerate(ROWS):
    for column, attention in enumerate(ATTENTIONS):
        axes = panel(attention, yscale="log")
        for k, gap in enumerate(GAPS):
            for quantity, style in quantities.items():
                values = measured[quantity][column, k]  # tokens, run, depth
                middle, look = np.median(values, axis=1), {"color": f"C{1 - k}", "linestyle": style}
                low, high = values[-1].min(0), values[-1].max(0)
                axes.plot(depth, middle[-1], **look, label=f"gap {gap}")
                axes.fill_between(depth, low, high, color=f"C{1 - k}", alpha=0.2, linewidth=0)
                if style == "-":
                    axes.plot(depth, middle[:-1].T, **look | {"linewidth": 0.5, "alpha": 0.6})
        if row == 3:
            axes.axhline(1, **THEORY | {"linestyle": ":"})
            axes.set_xlabel("depth")
    grid[row, 0].set_ylabel(label)
grid[0, 0].set_xticks(depth)
handles, labels = grid[0, 0].get_legend_handles_labels()
picture.legend(handles, labels, loc="outside upper center", ncols=2)

# %% [markdown]
# ## What follows
#
# With random Markov attention the claim's first half holds: with the gap the largest singular value grows by a factor
# near $\sqrt d$ a layer, without it it hardly grows at all. LayerNorm bounds it too, gap or no gap, and then removing
# the gap only lowers it. Where attention looks at its tokens, $A(X)$ without LayerNorm, nothing is bounded: the
# tokens' norm feeds the logits, attention saturates, and the tokens grow with or without the gap.
#
# The second half does not follow from the first. An absmax scale moves with the entries, so the error of the tokens
# does not know how large they are, only how far the largest lies above the rest: and that is a little less among the
# $d$ numbers of a collapsed matrix than among the $Td$ of one that has not collapsed. Relative to the tokens the int8
# error is no smaller without the gap: larger with one scale for the matrix, the same with one a token. What int8 does
# keep is the tokens' differences. With the gap they shrink below the rounding step after three to five layers, and
# then rounding leaves nothing of them (error 1, dotted) or invents its own (above 1); without the gap their error
# stays at 1 %.


# %%
def over_tokens(values):
    """The median over runs by number of tokens, of each attention with its gap and without."""
    return np.median(values, axis=3)


growth = {q: over_tokens(measured[q][..., -1] / measured[q][..., 1])[:, 1].max(-1) for q in ("singular", "entry")}
ratio = {}
for error in ("error", "distinct"):
    last = [over_tokens(measured[f"{error}/{scale}"][..., -1]) for scale in SCALES]  # attention, gap, tokens
    ratio[error] = np.max([(values[:, 1] / values[:, 0]).max(-1) for values in last], axis=0)
page.judge(
    "M17",
    attentions=ATTENTIONS,
    growth_singular=growth["singular"],
    growth_entry=growth["entry"],
    error_ratio=ratio["error"],
    distinct_ratio=ratio["distinct"],
    annihilated=int(measured["annihilated"][..., -1].sum()),
)
page.save(picture)
