# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Gradients of queries, keys and values, and of tokens nobody attends to
#
# ## What is asked
#
# Where all tokens are equal, no change of queries or keys changes the output, so their gradients vanish and those of
# the values do not (Noci et al. 2022). How does that show by layer, and does $a = 1/\sqrt L$ prevent it? And another
# statement, about the other collapse: when attention is one-hot, do the gradients of tokens that are not attended
# vanish?
#
# ## How it is measured
#
# Attention alone, one head, weights $N(0,1/d)$; loss $\langle G, X_L\rangle$ with $G\sim N(0,1/(nd))$, one backward
# pass in 64 bits. Each pass is made twice, the second time with tokens and channels in another order: exactly, nothing
# changes, so the difference of the two results is the round-off of the pass. A gradient below ten times that is not
# known; it is recorded as 0 and drawn as an open triangle at its round-off. Near rank one: one layer at
# $\mathbf 1x^\top+\varepsilon R$. To make attention one-hot, logits are multiplied by $\beta\sqrt{\ln n}$, in post-LN
# networks with a skip and without; the gradient of a token is its row of $\partial L/\partial X_0$, and a token is
# attended as much as the query of the first layer that attends to it most.

# %% tags=["parameters"]
figure = "noci_gradients"
results = "results"

# %%
from itertools import product

import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, ours
from rankcollapse.trends import slope

page = Page(figure, results)
noci = page["noci_gradients"]
settings = noci.provenance.settings
placements, layers, betas = settings["placements"], settings["layers"], settings["inverse_temperatures"]
WEIGHTS, NAMES = ("queries", "keys", "values"), {"post": "post-LN", "pre": "pre-LN", "none": "no LayerNorm"}
BRANCHES = {"a = 1": "-", "a = 1/sqrt(L)": (0, (1, 1))}
SURE = 10  # a gradient is known when it is this many times its round-off
layer = np.arange(1, layers + 1)
picture = new_figure(8.8)
panel = Panels(picture.subplots(4, 3))


def known(name):
    """A gradient's norms, 0 where they are not known, and their round-off."""
    norms, roundoff = noci[f"{name}gradient"], noci[f"{name}roundoff"]
    return np.where(norms > SURE * roundoff, norms, 0), roundoff


def draw(axes, x, norms, roundoff, **style):
    """Draw medians over runs, and triangles at the round-off where some run's gradient is not known."""
    seen = (norms > 0).all(0)
    axes.plot(x[seen], np.median(norms, 0)[seen], **style)
    floor = np.median(roundoff, 0)[~seen]
    axes.plot(x[~seen][floor > 0], floor[floor > 0], "v", mfc="none", ms=2.5, mew=0.6, color=style["color"])


# %% [markdown]
# **By layer.**

# %%
norms, roundoff = known("depth/")  # [placement, branch, weight, run, layer]
runs = range(settings["runs"])
for p, placement in enumerate(placements):
    axes = panel(NAMES[placement], xlabel="layer", ylabel=r"$\|\partial L/\partial W\|_F$", yscale="log")
    for (b, (branch, line)), (w, weight) in product(enumerate(BRANCHES.items()), enumerate(WEIGHTS)):
        style = {"color": f"C{w}", "linestyle": line, "linewidth": 2.2 if weight == "queries" else 1}
        values, level = norms[p, b, w], roundoff[p, b, w]
        draw(axes, layer, values, level, label=None if b else weight, **style)
        label = {"layer_norm": placement, "branch": branch, "weight": weight}
        page.record("gradient", values, **label, run=runs, layer=layer)
        page.record("round-off", level, **label, run=runs, layer=layer)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 1e-18), min(high, 1e9))
    if p == 0:
        axes.legend(loc="lower left")

panels = {
    "queries over values": {"ylabel": "ratio", "yscale": "log", "ylim": (1e-10, 3)},
    "cosine of two tokens": {"ylabel": "cosine"},
    "entropy of attention": {"ylabel": r"$H/\ln n$", "ylim": (-0.03, 1.05)},
}
ratio = norms[:, :, 0] / norms[:, :, 2]
for (title, style), values in zip(panels.items(), (ratio, noci["depth/cosine"], noci["depth/entropy"]), strict=True):
    axes = panel(title, xlabel="layer", **style)
    for (p, placement), (b, (branch, line)) in product(enumerate(placements), enumerate(BRANCHES.items())):
        seen = (values[p, b] > 0).all(0) if title == "queries over values" else np.full(layers, True)
        label = NAMES[placement] if not b else None
        ours(axes, layer[seen], values[p, b][:, seen], color=f"C{p + 3}", linestyle=line, label=label)
        page.record(title, values[p, b], layer_norm=placement, branch=branch, run=runs, layer=layer)
    if title == "queries over values":
        axes.legend(loc="lower left")

# %% [markdown]
# **Near rank one.** Slopes are fitted below $\varepsilon = 0.1$ where every run's gradient is known.

# %%
sizes = noci["collapse/residual_sizes"]
norms, roundoff = known("collapse/")  # [placement, weight, size, run]
axes = panel("one layer near rank one", xscale="log", yscale="log", xlabel=r"$\varepsilon$", ylim=(1e-17, 1e2))
axes.set_ylabel(r"$\|\partial L/\partial W\|_F$")
for (p, placement), (w, weight) in product(enumerate(placements), enumerate(WEIGHTS)):
    values, level = norms[p, w].T, roundoff[p, w].T
    fitted = (values > 0).all(0) & (sizes <= 0.1)
    order = slope(sizes[fitted], np.log(values[:, fitted].mean(0)))
    if p == 0:
        style = {"color": f"C{w}", "linewidth": 2.2 if weight == "queries" else 1}
        draw(axes, sizes, values, level, label=f"{weight}, slope {round(order, 2) + 0:.2f}", **style)
    label = {"layer_norm": placement, "weight": weight}
    page.record("gradient near rank one", values, **label, run=runs, eps=sizes)
    page.record("round-off near rank one", level, **label, run=runs, eps=sizes)
    page.record("slope in eps", order, **label)
    if weight == "values":
        change = np.abs(values[:, fitted] / values[:, fitted][:, -1:] - 1).max()
        page.record("largest relative change for eps up to 0.1", change, **label)
axes.plot(sizes[sizes >= 1e-6], 0.1 * sizes[sizes >= 1e-6] ** 2, **THEORY)
axes.legend(loc=(0.02, 0.5), fontsize=5.5)

# %% [markdown]
# **One-hot attention.** A gradient that is not known counts here as large as its round-off.

# %%
limits = page.catalogue.claims["S17"].limits
attended = noci["saturated/attended"]  # [skip, depth, beta, run, token]
norms = np.maximum(noci["saturated/token_gradient"], noci["saturated/token_roundoff"])
rows = np.maximum(noci["saturated/logit_gradient"], noci["saturated/logit_roundoff"])
lone, popular = attended <= limits["little"], attended > limits["most"]
networks = [(s, d) for s in (0, 1) for d in range(len(settings["depths"]))]
names = [f"{'skip' if s else 'no skip'}, $L$ = {settings['depths'][d]}" for s, d in networks]
many = {"beta": betas, "run": range(settings["saturated_runs"]), "token": range(settings["tokens"])}

axes = panel(rf"tokens, $\beta$ = {betas[-1]:g}, $L$ = {settings['depths'][0]}", xscale="log", yscale="log")
axes.set(
    xlabel="largest attention received", ylabel=r"$\|\partial L/\partial x_j\|$", xlim=(1e-30, 5), ylim=(1e-17, 1e7)
)
for s, name in enumerate(("no skip", "skip")):
    shown = attended[s, 0, -1].ravel().clip(1e-29), norms[s, 0, -1].ravel().clip(1e-16)
    axes.plot(*shown, ".", color=f"C{s * len(settings['depths'])}", markersize=2.5, label=name)
for limit in (limits["little"], limits["most"]):
    axes.axvline(limit, color="0.6", linewidth=0.8, zorder=0)
axes.legend(loc="upper left", ncols=2)


def root_mean_square(values):
    return np.sqrt(np.mean(values**2))


typical, whole = np.full((2, len(networks), len(betas)), np.nan)
for i, (s, d) in enumerate(networks):
    for b in range(len(betas)):
        few, all_eyes = norms[s, d, b][lone[s, d, b]], norms[s, d, b][popular[s, d, b]]
        if few.size and all_eyes.size:
            typical[i, b] = np.median(few) / np.median(all_eyes)
            whole[i, b] = root_mean_square(few) / root_mean_square(all_eyes)

curves = {
    "unattended / attended": ("ratio", typical, (1e-20, 1e2)),
    "gradient by all tokens": (
        r"$\|\partial L/\partial X_0\|_F$",
        np.median(np.sqrt((norms**2).sum(-1)), -1),
        (0.1, None),
    ),
    "typical row by the logits": (r"median $\|\partial L/\partial Z_i\|$", np.median(rows, (-2, -1)), (1e-20, 1e6)),
}
for title, (label, values, (low, high)) in curves.items():
    axes = panel(title, xlabel=r"$\beta$", ylabel=label, xscale="log", yscale="log")
    for i, value in enumerate(values.reshape(len(networks), -1)):
        axes.plot(betas, value, ".-", markersize=2, color=f"C{i}", label=names[i])
        page.record(title, value, network=names[i], beta=betas)
        if values is typical:
            axes.plot(betas, whole[i], color=f"C{i}", linestyle=(0, (1, 1)))
            page.record(f"{title}, root mean square", whole[i], network=names[i], beta=betas)
    axes.set_ylim(low, high)
    if values is typical:
        axes.legend(loc="lower left", fontsize=5)
for i, (s, d) in enumerate(networks):
    page.record("gradient of a token", norms[s, d], network=names[i], **many)
    page.record("round-off of it", noci["saturated/token_roundoff"][s, d], network=names[i], **many)
page.record("largest attention received", attended[0, 0], **many)

axes = panel("attention received", xlabel=r"$\beta$", ylabel="share of tokens", xscale="log", ylim=(-0.03, 1.05))
for name, which in ((f"at most {limits['little']:g}", lone), (f"above {limits['most']:g}", popular)):
    axes.plot(betas, which[0, 0].mean((-2, -1)), label=name)
    page.record(f"share of tokens with attention {name}", which[0, 0].mean((-2, -1)), beta=betas)
axes.legend(loc="upper left")

# %% [markdown]
# ## What follows
#
# With $a = 1$ and LayerNorm after the sum the tokens become equal, and the gradients of queries and keys fall with
# them, at the last of 32 layers to a few $10^{-9}$ of that of the values, far above round-off. Pre-LN slows this to
# about $10^{-2}$; $a = 1/\sqrt L$ keeps the ratio above 1/2, wherever LayerNorm is. Near rank one they fall as
# $\varepsilon^2$, to three digits of the exponent, until round-off takes over at $\varepsilon$ below $10^{-7}$; the
# values' gradient changes by half a percent. Without LayerNorm and with $a = 1$ the late queries' gradients vanish for
# another reason: attention there is one-hot to the last digit, and the derivative of the softmax underflows.
#
# One-hot attention does something else to the gradients of tokens. Without a skip, a token that nobody attends to acts
# only as a query, through its own row of $\partial L/\partial Z$, and the typical row vanishes exponentially in
# $\beta$. Not every row: where two keys nearly tie, the softmax is steep in proportion to $\beta$, and ties become
# rarer only as $1/\beta$. So for one layer the root mean square is that of attended tokens at every $\beta$. With a
# skip the gradient of a token that is not attended does not vanish, since the skip carries it past. The typical row by
# the logits vanishes there too.
#
# In total, gradients explode with depth once $\beta$ is above 1 or so: with skip, at 32 layers, by $10^7$ and more.
# Without a skip they grow a few hundredfold, around $\beta = 10$; when attention is one-hot throughout, tokens merge,
# and the total is near order one again. What vanishes under entropy collapse is the gradient by most rows of the
# logits, not that of tokens.

# %%
page.judge(
    "S17",
    networks=[name.replace("$", "") for name in names],
    unattended=lone[0, 0, -1].sum(),
    attended_share=popular[0, 0, -1].mean(),
    typical=np.nan_to_num(typical[:, -1]),
    whole=np.nan_to_num(whole[:, -1]),
)
page.save(picture)
