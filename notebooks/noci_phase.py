# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Between rank collapse and entropy collapse
#
# ## What is asked
#
# Queries and keys of large variance make attention one-hot (entropy collapse); of small variance, it is said, they make
# all tokens alike (rank collapse), and networks train in a window between. Is that how the two parameters of a
# network's initialisation act, the strength of its skips and the scale of its logits, and does the diagram at
# initialisation tell which networks train?
#
# ## How it is measured
#
# $X \leftarrow \mathrm{LN}(\alpha X + PXW_V)$, $P = \mathrm{softmax}(\sigma QK^\top/\sqrt d)$, weights of variance
# $1/d$, one head, no MLP. Logits then have standard deviation $\sigma = \beta\sqrt{\ln n}$: the scale on which $n$
# independent logits freeze at $\beta = \sqrt 2$, as in the random-energy model. Every cell $(\alpha,\beta)$ sees the
# same tokens and weights, in float64; the gradient is that of $\langle G, X_L\rangle$ with a random $G$, 1 for the
# identity. Theory (derived here): were $P$ uniform, tokens would reach a cosine $\rho$ in $L$ layers at $\alpha_c =
# [(1+n\rho/(1-\rho))^{1/L}-1]^{-1/2}$; for any $P$ the cosine follows from $Y_2$ and $O$, the mean inner product of a
# row of $P$ with itself and with another: $1-\rho' = (1-\rho)(Y_2-O+\alpha^2)/(\rho+(1-\rho)Y_2+\alpha^2)$.
#
# On the same axes, smaller networks learn to predict the previous token of a cyclic sequence (Adam, fresh data), all
# cells from the same weights, in float32. QK-norm divides every row of $Q$ and $K$ by its root mean square before
# $\sigma$ is applied. The diagram at initialisation is taken at these sizes too, from their weights and data, and
# foretells that the balanced cells train.

# %% tags=["parameters"]
figure = "noci_phase"
results = "results"

# %%
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.patheffects import withStroke

from rankcollapse.page import Page
from rankcollapse.phases import REGIONS, confusion, regions, window
from rankcollapse.plotting import THEORY, Panels, new_figure
from rankcollapse.theory import random_energy
from rankcollapse.theory.bag_of_tokens import plateau
from rankcollapse.theory.phase import cosine_by_layer, rank_boundary

page = Page(figure, results)
diagram, training = page["phase_diagram"], page["training_grid"]
large, small = diagram.provenance.settings, training.provenance.settings
limits = page.catalogue.claims["S18"].limits
picture = new_figure(8.9)
panel = Panels(picture.subplots(5, 3))
BOUNDARY = THEORY | {"color": "k", "zorder": 3, "path_effects": [withStroke(linewidth=1.8, foreground="w", alpha=0.7)]}
COLOURS = ListedColormap(["#9ecae1", "#fdae6b", "#d4b9da", "#c7e9c0"])


def over_runs(values):
    """Mean over the runs, the last axis; -1 where one of them has overflowed."""
    return np.where((values < 0).any(-1), -1.0, values.mean(-1))


def marked(values):
    """An overflow, -1, as infinity."""
    return np.where(values < 0, np.inf, values)


def heat(text, values, of, betas, label="", boundary=True, mark=None, **style):
    """One observable over a grid, with its theory lines; an overflow is infinity, empty in the table."""
    axes, skips = panel(text, xlabel=r"$\beta$", ylabel=r"skip $\alpha$"), of["skips"]
    mesh = axes.pcolormesh(np.log10(betas), range(len(skips)), values, **style)
    axes.set_yticks(range(len(skips)), [f"{skip:g}" for skip in skips], fontsize=5.5)
    decades = np.unique(np.round(of["beta_decades"] + [0]).astype(int))
    axes.set_xticks(decades, [f"{10.0**decade:g}" for decade in decades])
    axes.grid(False)
    for row, column in np.argwhere(~np.isfinite(values)):
        axes.text(np.log10(betas[column]), row, r"$\infty$", ha="center", va="center", fontsize=5)
    if boundary:
        critical = np.interp(rank_boundary(limits["cosine"], of["tokens"], of["layers"]), skips, range(len(skips)))
        axes.hlines(critical, np.log10(betas[0]), 0, **BOUNDARY)
        axes.axvline(np.log10(random_energy.CRITICAL), **BOUNDARY)
    if label:
        known = np.where(np.isfinite(values), values, np.nan)
        page.record(label, known, alpha=skips, beta=betas, n=of["tokens"], L=of["layers"])
        bar = picture.colorbar(mesh, ax=axes, pad=0.02).ax
        bar.tick_params(labelsize=5.5)
        if mark is not None:
            bar.axhline(mark, color="C1", linewidth=1)
    return axes


def region_map(text, found, of, betas):
    """The regions of every cell: colour by the first that applies, letters for all."""
    first = np.where(found.any(0), found.argmax(0), len(REGIONS))
    axes = heat(text, first, of, betas, cmap=COLOURS, vmin=-0.5, vmax=3.5)
    for (row, column), _ in np.ndenumerate(first):
        letters = "".join(code for code, applies in zip(REGIONS, found[:, row, column], strict=True) if applies)
        axes.text(np.log10(betas[column]), row, letters, ha="center", va="center", fontsize=4.5, zorder=4)
    for code, applies in zip(REGIONS, found, strict=True):
        page.record(REGIONS[code], applies.astype(int), alpha=of["skips"], beta=betas, n=of["tokens"], L=of["layers"])
    return axes


# %% [markdown]
# **The diagram at initialisation**, means over runs.

# %%
betas = diagram["beta"]
observed = {"stable_rank": diagram["stable_rank"].mean(2), "query_value_ratio": over_runs(diagram["query_value_ratio"])}
observed |= {name: diagram[name].mean((2, 3)) for name in ("entropy", "participation")}
observed |= {"cosine": diagram["cosine"][..., -1].mean(2), "gradient": over_runs(diagram["gradient"][..., 0])}
found = regions(observed["cosine"], observed["entropy"], observed["gradient"], limits)
region_map(f"regions, n = {large['tokens']}, L = {large['layers']}", found, large, betas)
heat("cosine of two tokens", observed["cosine"], large, betas, "cosine", vmin=0, vmax=1)
heat(r"entropy $H/\ln n$", observed["entropy"], large, betas, "entropy", vmin=0, vmax=1)
heat(r"participation $Y_2$", observed["participation"], large, betas, "participation", vmin=0, vmax=1)
heat("stable rank", observed["stable_rank"], large, betas, "stable rank", norm=LogNorm(1))
gradient = marked(observed["gradient"])
heat(r"$\log_{10}\,\|\partial L/\partial X_0\|$", np.log10(gradient), large, betas, "log10 gradient", vmin=0)
ratio = np.maximum(marked(observed["query_value_ratio"]), 1e-16)  # below it is rounding
heat(r"$\log_{10}$ Q/V gradient", np.log10(ratio), large, betas, "log10 Q/V gradient")

# %% [markdown]
# **Attention by $\beta$**, in the first layer against independent logits, and in the last.

# %%
axes = panel("first layer", xlabel=r"$\beta$", xscale="log", ylim=(-0.03, 1.03))
line, far = np.geomspace(betas[0], large["sharp_betas"][-1], 40), np.array(large["sharp_betas"])
exact = np.array([random_energy.finite(beta, large["tokens"]) for beta in line])
limit = np.array([random_energy.limit(beta) for beta in line])
first_entropy = np.concatenate([diagram["entropy"][0, ..., 0].mean(1), diagram["far/entropy"][0, ..., 0].mean(1)])
first_participation = diagram["participation"][0, ..., 0].mean(1)
for k, (x, values, label) in enumerate(
    [([*betas, *far], first_entropy, r"$H/\ln n$"), (betas, first_participation, r"$Y_2$")]
):
    axes.plot(x, values, "o", color=f"C{k}", label=label)
    axes.plot(line, exact[:, k], color=f"C{k}", linewidth=0.8)
    axes.plot(line, limit[:, k], label=r"$n\to\infty$" if k else None, **THEORY)
    page.record(f"first layer, {label}", values, beta=x)
    page.record(f"independent logits, {label}", exact[:, k], beta=line, n=large["tokens"])
axes.legend(loc="center right")
expected = np.array([random_energy.finite(beta, large["tokens"]) for beta in betas])
off = np.abs(np.stack([first_entropy[: len(betas)], first_participation], -1) - expected).max()
page.record("first layer, largest distance from independent logits", off)

axes = panel("one-hot rows, last layer", xlabel=r"$\beta$", ylabel="share", xscale="log", ylim=(-0.03, 1.03))
sharp = np.concatenate([diagram["sharp"], diagram["far/sharp"]], 1).mean(2)  # [alpha, beta, layer]
shades = colormaps["viridis"](np.linspace(0, 0.9, len(sharp)))
for values, skip, color in zip(sharp[..., -1], large["skips"], shades, strict=True):
    axes.plot([*betas, *far], values, color=color, linewidth=0.9, label=f"{skip:g}")
page.record("one-hot rows", sharp[..., [0, -1]], alpha=large["skips"], beta=[*betas, *far], layer=[1, large["layers"]])
axes.legend(loc="upper left", title=r"$\alpha$", fontsize=4.8, ncols=2, title_fontsize=5.5)

# %% [markdown]
# **The recursion**, with the measured $Y_2$ and $O$ of every layer, and with those of the random-energy model.

# %%
axes = panel("cosine, recursion", xlabel="simulated", ylabel="from the recursion", ylim=(-0.03, 1.25))
simulated, skips = diagram["cosine"], np.array(large["skips"])[:, None, None]
frozen = np.array([random_energy.limit(beta).participation for beta in betas])[None, :, None, None]
apart = np.full_like(diagram["overlap"], 1 / large["tokens"])
for name, together, overlap, style in (
    ("measured", diagram["participation"], diagram["overlap"], {"color": "C0", "marker": "."}),
    ("random energy", np.maximum(apart, frozen), apart, {"color": "C1", "marker": "x", "markersize": 2.5}),
):
    predicted = cosine_by_layer(simulated[..., 0], skips, together, overlap)
    off = np.abs(predicted - simulated).max(-1)  # over layers
    label = rf"{name} $Y_2$, $O$: off by ≤ {off.max():.2f}"
    axes.plot(simulated[..., -1].mean(-1).ravel(), predicted[..., -1].mean(-1).ravel(), label=label, lw=0, **style)
    page.record(f"recursion, {name}: largest distance over layers", off.max(-1), alpha=large["skips"], beta=betas)
    page.record(f"recursion, {name}: cosine at the end", predicted[..., -1].mean(-1), alpha=large["skips"], beta=betas)
axes.plot([0, 1], [0, 1], **THEORY)
axes.legend(loc="upper left", fontsize=4.8)

# %% [markdown]
# **Training.** Framed cells are trainable; a cross marks those that the diagram at these sizes foretold wrongly, the
# line on the scale the accuracy of the best answer that knows the bag of tokens but no position.

# %%
betas_small, rows = training["beta"], small["skips"]
init = {
    "cosine": training["init/cosine"][..., -1].mean(-1),
    "entropy": training["init/entropy"].mean((-2, -1)),
    "gradient": over_runs(training["init/gradient"][..., 0]),
}  # [QK-norm, alpha, beta]
at_init = regions(**init, limits=limits)
balanced = ~at_init.any(0)
trained = (training["accuracy"] > limits["trained"]).all(3)  # [QK-norm, alpha, beta, checkpoint]
region_map(f"regions, n = {small['tokens']}, L = {small['layers']}", at_init[:, 0], small, betas_small)
first, last = small["checkpoints"][0], small["checkpoints"][-1]
bag = plateau(small["tokens"], small["vocabulary"])
agreement = {}
for qk, checkpoint, name in ((0, 0, f"step {first}"), (1, 0, f"step {first}, QK-norm"), (0, -1, f"step {last}")):
    accuracy = marked(over_runs(training["accuracy"][qk, ..., checkpoint]))
    style = {"vmin": 0, "vmax": 1, "cmap": "Greys", "mark": bag.accuracy}
    axes = heat(f"accuracy, {name}", accuracy, small, betas_small, f"accuracy, {name}", boundary=False, **style)
    good, foretold = trained[qk, ..., checkpoint], balanced[qk]
    for which, marker, color in ((good, "s", "C2"), (good != foretold, "x", "C1")):
        row, column = which.nonzero()
        axes.plot(np.log10(betas_small[column]), row, marker, color=color, fillstyle="none", markersize=5.5, mew=0.9)
    agreement[name] = confusion(foretold, good)
    axes.set_xlabel(rf"$\beta$ (foretold rightly: {agreement[name].agreement:.0%})")
    for count, cells in agreement[name]._asdict().items():
        page.record(f"cells {count.replace('_', ' ')}", cells, checkpoint=name)
for qk, name in enumerate(("", ", QK-norm")):
    for observable, values in init.items():
        page.record(f"trained sizes{name}: {observable}", values[qk], alpha=rows, beta=betas_small)
    page.record(f"step of an overflow{name}", training["overflow_step"][qk].max(-1), alpha=rows, beta=betas_small)

# %%
axes = panel("loss", xlabel="step", ylabel="cross-entropy, nats", yscale="log")
steps = np.arange(last)
for k, (skip, beta) in enumerate(((1, 0.1), (3, 0.56), (3, 10), (8, 10))):
    row, column = np.abs(np.array(rows) - skip).argmin(), np.abs(np.log(betas_small / beta)).argmin()
    curve = training["training_loss"][0, row, column].mean(0)
    label = rf"$\alpha$ {rows[row]:g}, $\beta$ {betas_small[column]:.2g}"
    axes.plot(steps, curve, color=f"C{k}", linewidth=0.8, label=label)
    page.record("loss", curve, alpha=rows[row], beta=betas_small[column], step=steps)
axes.axhline(bag.loss, **THEORY)
page.record("bag of tokens, loss", bag.loss)
page.record("bag of tokens, accuracy", bag.accuracy)
axes.legend(loc="lower left", fontsize=5)

# %% [markdown]
# ## What follows
#
# The skip sets the rank. Below $\alpha_c$ tokens become alike, above they do not, and $\beta$ up to 1 moves the
# cosine by less than a tenth. A large $\beta$ lifts collapsed rows just below $\alpha_c$ out of the collapse; without
# a skip it cures nothing: tokens merge all the same, and attention between equal tokens is uniform again, however
# large $\beta$. Attention in the first layer is the random-energy model at this $n$, which is far from its limit: no
# freezing at $\sqrt 2$, but a slow crossover, and one-hot rows throughout only at $\beta$ of a hundred and more. From
# about $\sqrt 2$ on the gradient at the input explodes, to $10^{17}$ where attention is sharpest and the skip
# moderate: entropy collapse does not make the gradient vanish, it is rank collapse that takes it from queries and
# keys. The recursion gives the end of nearly all cells from the measured $Y_2$ and $O$; on the way it is off by up to
# a half where $\beta$ is large and the skip weak, where tokens fall into groups of like ones while the recursion has
# one cosine for all pairs. Elsewhere the rest is the scatter of single networks, about $(2/\alpha)\sqrt{l/d}$ in the
# logarithm of $\rho/(1-\rho)$.
#
# Most cells train as the diagram foretells. Rank-collapsed ones stay on the plateau of the bag of tokens: they know
# which tokens there are, not where. Entropy-collapsed ones with a weak skip are worse than that. Where it fails, it
# is a matter of time: by the last checkpoint every balanced cell has trained, and so have some just inside the rank
# boundary and, with a strong skip, entropy-collapsed ones, at once at $\alpha = 8$. QK-norm with the factor after it
# rescues nothing, since the logits start as they were; it slows the small $\beta$. With the factor in $W_Q$ it would
# cancel it, and every column would be that of $\sigma = 1$: it then removes the right side of the diagram, and not
# its bottom.
#
# So small variance of queries and keys is not what collapses the rank. Where it hurts above $\alpha_c$ it does so by
# slow learning, the gradient of queries and keys being in proportion to it.

# %%
page.judge("S16", skips=large["skips"], beta=far[-1], first=sharp[:, -1, 0], last=sharp[:, -1, -1])
page.judge(
    "S18",
    skips=large["skips"],
    low=found[0, :, 0],
    high=found[1, :, -1],
    trained_skips=rows,
    trained_low=at_init[0, 0, :, 0],
    trained_high=at_init[1, 0, :, -1],
    window=window(trained[0, ..., 0]),
    later_window=window(trained[0, ..., -1]),
    agreement=agreement[f"step {first}"].agreement,
    overflowed=int((training["overflow_step"][0] >= 0).any(-1).sum()),
)
page.save(picture)
