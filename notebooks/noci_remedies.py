# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Remedies against collapse, to a hundred blocks
#
# ## What is asked
#
# Deep transformers are said to need three things: LayerNorm or RMSNorm before the branches, so that the variance does
# not grow exponentially with depth; QK-norm, so that logits do not grow and attention does not collapse onto one token;
# and branches scaled by $1/\sqrt{2L}$, which preserve the variance. What does each do at a hundred blocks, alone and
# together, and what does it do for the other collapse, that of the rank?
#
# ## How it is measured
#
# $L$ blocks of one-head attention and a ReLU MLP with He weights, all other weights of variance one over fan-in, in
# 64-bit floats. All networks of a run share tokens, which start uncorrelated with unit variance, and weights; the
# logits start with standard deviation $\sigma$. QK-norm divides queries and keys by their root mean square; the gain
# behind it, learned in practice, is a factor of the logits. DeepNorm (Wang et al. 2022) is post-LN with the skip times
# $\alpha = (2L)^{1/4}$ and the weights of values, output and MLP times $\beta = (8L)^{-1/4}$ at the start. Were
# attention uniform, the second moment $q$ and cosine $\rho$ of the tokens would follow a recursion in two numbers:
# attention gives every token the mean token's energy, the MLP gives $q$ and $q\,\kappa(\rho)$, $\kappa$ the arc-cosine
# kernel. The gradient is that of $\langle G, X_L\rangle$, $G$ Gaussian, by one backward pass.

# %% tags=["parameters"]
figure = "noci_remedies"
results = "results"

# %%
import matplotlib.pyplot as plt
import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, ours
from rankcollapse.remedy import remedy
from rankcollapse.theory.remedies import similarity

page = Page(figure, results)
depth = page["remedies_depth"]
settings = depth.provenance.settings
names, kinds, networks = settings["remedies"], settings["kinds"], settings["kind_networks"]
blocks, scales, swept = settings["blocks"], settings["scales"], settings["swept"]
layer, runs = np.arange(blocks + 1), range(settings["runs"])
SCALED = ("W_Q", "W_Q, QK-norm", "gain, QK-norm")  # what the sweep scales
FIRST = {"none": 7, "pre-LN": 0, "RMSNorm": 5, "post-LN": 1, "DeepNorm": 2, "QK-norm": 4, "1/sqrt(2L)": 3}
SECOND = {"": "-", "QK-norm": "--", "1/sqrt(2L)": ":", "attention alone": "-."}

picture = new_figure(8.9)
panel = Panels(picture.subplots(5, 3))


def style(name):
    """Return a remedy's colour, by its first part, and line, by what is added."""
    first, _, more = name.partition(" + ")
    return {"color": f"C{FIRST.get(first, 6)}", "linestyle": SECOND.get(more, "-"), "linewidth": 1.1}


def shown(section, quantity):
    """Return a quantity with holes where a network has overflowed or its tokens are annihilated."""
    values, moment = depth[f"{section}/{quantity}"], depth[f"{section}/log10_moment"]
    size = moment[..., -values.shape[-1] :]
    return np.where(np.isfinite(values) & np.isfinite(size) & (size > -20), values, np.nan)


def draw(axes, section, quantity, which, labels, styles, **names_of_axes):
    """Draw one quantity by layer for some networks of a section, and record it."""
    values = shown(section, quantity)
    at = layer[-values.shape[-1] :]
    for index, label, look in zip(which, labels, styles, strict=True):
        ours(axes, at, values[index], label=label, **look)
        page.record(quantity, values[index], network=label, **names_of_axes, run=runs, layer=at)


# %% [markdown]
# **All remedies.**

# %%
for quantity, title, look in (
    ("log10_moment", "second moment", {"ylabel": r"$\log_{10}\,\mathrm{E}\|x_i\|^2/d$"}),
    ("cosine", "cosine of two tokens", {"ylabel": "mean cosine", "ylim": (-0.02, 1.05)}),
    ("rank_excess", "stable rank", {"ylabel": r"$\mathrm{sr}(X)-1$", "yscale": "log", "ylim": (1e-20, 1e2)}),
    ("entropy", "attention entropy", {"ylabel": r"$H/\ln n$", "ylim": (0, 1.05)}),
):
    axes = panel(title, xlabel="layer", **look)
    draw(axes, "remedies", quantity, range(len(names)), names, map(style, names))
handles, labels = axes.get_legend_handles_labels()
picture.legend(handles, labels, loc="outside upper center", ncols=5)
cosine, moment = depth["remedies/cosine"], depth["remedies/log10_moment"]
likeness = picture.axes[1]

axes = panel("a norm before the branches", xlabel="layer", ylabel=r"$1-\cos$", xscale="log", yscale="log")
for name in names:
    q, rho = similarity(remedy(name, blocks), 100 * blocks, settings["tokens"])
    page.record("1 - cosine, uniform attention", 1 - rho[: blocks + 1], network=name, layer=layer)
    page.record("log10_moment, uniform attention", np.log10(q[: blocks + 1]), network=name, layer=layer)
    likeness.plot(layer, rho[: blocks + 1], **THEORY | {"linewidth": 0.5})
    if name in ("pre-LN", "RMSNorm", "pre-LN + attention alone"):
        ours(axes, layer[1:], 1 - cosine[names.index(name)][:, 1:], **style(name))
        axes.plot(np.arange(1, len(rho)), 1 - rho[1:], **THEORY)
        power = np.log2((1 - rho[-1]) / (1 - rho[50 * blocks]))
        page.record("power of the depth, uniform attention far on", power, network=name)
        axes.text(len(rho), 2.2 * (1 - rho[-1]), f"$l^{{{power:.2f}}}$", ha="right", va="bottom", fontsize=5.8)

axes = panel("gradient, first over last", xlabel=r"$\log_{10}$ ratio of $\|\partial\ell/\partial W_V\|$")
gradients = depth["remedies/log10_gradients"]
ratio = gradients[..., 0] - gradients[..., 1]
page.record("log10 gradient of the first block over the last", ratio, network=names, run=runs)
for row, name in enumerate(names):
    axes.plot(ratio[row], np.full(len(runs), row), "o", color=style(name)["color"], markersize=2.5, alpha=0.7)
    far = [value for value in ratio[row] if not abs(value) <= 2]
    beyond = ", ".join(f"{value:.0f}" if np.isfinite(value) else "overflow" for value in far)
    axes.text(-8.6, row, f"{name}  (and {beyond})" if beyond else name, fontsize=4.8, va="center")
axes.axvline(0, color="0.6", linewidth=0.6)
axes.set(xlim=(-8.8, 2.2), ylim=(len(names) - 0.5, -0.5), xticks=range(-2, 3), yticks=[])

# %% [markdown]
# **Queries scaled up, with and without QK-norm.**

# %%
LINES = dict(zip(SCALED, ("-", "--", ":"), strict=True))
for network, quantity, title, look in (
    (swept[0], "log10_logit", "logits", {"ylabel": r"$\log_{10}$ rms logit"}),
    (swept[min(1, len(swept) - 1)], "entropy", "entropy", {"ylabel": r"$H/\ln n$", "ylim": (0, 1.05)}),
):
    axes = panel(f"{title}, {network if network != 'none' else 'no norm'}", xlabel="layer", **look)
    for (k, scale), (w, what) in ((k, w) for k in enumerate(scales) for w in enumerate(SCALED)):
        line = {"color": f"C{k}", "linestyle": LINES[what], "linewidth": 1.1}
        draw(axes, "swept", quantity, [(swept.index(network), w, k)], [network], [line], scaled=what, scale=scale)
keys = [plt.Line2D([], [], color="0.3", linestyle=LINES[what], label=what) for what in SCALED]
keys += [plt.Line2D([], [], color=f"C{k}", label=f"x{scale:g}") for k, scale in enumerate(scales)]
entropy = depth["swept/entropy"].mean((-2, -1))
axes = panel("mean entropy", xlabel="scale", ylabel=r"$H/\ln n$", xscale="log", ylim=(0, 1.05))
for s, network in enumerate(swept):
    for w, what in enumerate(SCALED):
        axes.plot(scales, entropy[s, w], marker=".", color=style(network)["color"], linestyle=LINES[what])
        page.record("entropy, mean over layers and runs", entropy[s, w], network=network, scaled=what, scale=scales)
axes.axhline(page.catalogue.claims["S20"].limits["collapsed"], color="0.6", linewidth=0.6)
picture.axes[6].legend(handles=keys, loc="upper left", fontsize=5)

# %% [markdown]
# **Kinds of attention.**

# %%
LOOKS = [{"color": f"C{k}", "linewidth": 1.1} for k in range(len(kinds))]
NO_SKIP = "pre-LN + no skip"
for network, quantity, title in (
    ("pre-LN", "cosine", "kinds, pre-LN"),
    ("pre-LN", "rank_excess", "kinds, pre-LN"),
    ("none", "log10_moment", "kinds, no norm"),
    (f"{NO_SKIP} + attention alone", "cosine", "no skip, attention alone"),
    (f"{NO_SKIP} + attention alone", "rank_excess", "no skip, attention alone"),
    (NO_SKIP, "rank_excess", "no skip, whole blocks"),
):
    look = {
        "cosine": {"ylabel": "mean cosine", "ylim": (-0.2, 1.05)},
        "rank_excess": {"ylabel": r"$\mathrm{sr}(X)-1$", "yscale": "log"},
        "log10_moment": {"ylabel": r"$\log_{10}\,\mathrm{E}\|x_i\|^2/d$"},
    }[quantity]
    axes = panel(title, xlabel="layer", **look)
    if network not in networks:
        continue
    which = [(k, networks.index(network)) for k in range(len(kinds))]
    draw(axes, "kinds", quantity, which, kinds, LOOKS, remedy=network)
    if quantity == "rank_excess" and network != "pre-LN":
        axes.set_ylim(1e-20, 1e2)
    for line in axes.get_lines()[: len(kinds)]:
        there = np.isfinite(line.get_ydata())
        if not there.all():
            last = there.nonzero()[0][-1]
            axes.plot(layer[last], line.get_ydata()[last], "x", color=line.get_color(), markersize=5)
picture.axes[9].legend(loc="lower right", ncols=2, fontsize=5)
overflow = depth["kinds/overflow"]
page.record("first layer that overflows, 0 for none", overflow, kind=kinds, remedy=networks, run=runs)

# %% [markdown]
# ## What follows
#
# Without a norm the second moment grows like $4^l$ and both collapses come together: logits grow as fast, attention is
# one-hot after five blocks, and the tokens are one vector all the same. Three runs show a gradient of the first block
# $10^{42}$ times that of the last or more, and it is none: near block 90 tokens are equal to rounding, two logits of
# $10^{57}$ tie exactly, and the softmax between them is steep. In the others first and last are within a factor 25.
#
# **A norm before the branches** makes every branch add the same variance whatever came before, so the second moment
# grows linearly, to nearly $2L$: with LayerNorm and RMSNorm alike, with every kind of attention, however large $W_Q$
# is. Single runs scatter about that, most with sigmoid attention, whose rows weigh some blocks much more than others:
# one of them grew like $l^{1.9}$, beyond the limit set beforehand, and is the condition of S19; none grows
# exponentially. A norm does not keep the rank. Uniform attention predicts how slowly that goes: like $l^{-1}$ for
# attention alone and, since the MLP keeps all of a small difference but a part of the order of its root, like
# $l^{-1/2}$ with MLPs; at a hundred blocks the cosine is .89. LayerNorm after the sum holds the variance at one and
# lets the cosine go to 1 exponentially.
#
# **QK-norm** cancels any factor of $W_Q$ exactly and bounds the logits by $\sigma\sqrt d$ times its gain, so that they
# do not grow even where the tokens grow like $4^l$. In pre-LN they did not grow before: there it guards against large
# weights, not against depth. It bounds entropy only as far as its own gain does: at ten times the gain attention in
# pre-LN is as collapsed as with $W_Q$ ten times as large. For the rank it does nothing: at the scale of the start the
# cosine at the end is what it was, and where large queries had kept tokens apart (.53 at a hundred times $W_Q$) it
# brings the likeness back (.89). Where attention is uniform because all tokens are equal, high entropy is no health.
#
# **Branches times $1/\sqrt{2L}$** hold the second moment below $e$ (1.8 is reached) and the cosine at .16. That is not
# DeepNorm. DeepNorm enlarges the skip, $\alpha = 3.76$ at a hundred blocks, has LayerNorm after the sum, and starts
# with branches at $\beta^2 = .035$: its branch is .0094 of its skip where the other's is .071, and the cosine stays at
# .003. Take the init away and keep $\alpha$, and it is .996: the init does it, not the enlarged skip. The gradients of
# first and last block are within 10 % of each other in DeepNorm, within a factor of about 2 with scaled branches, and
# differ by up to two decades in post-LN.
#
# **Other attention.** Centred, differential, ReLU and windowed attention make tokens less alike in pre-LN (cosine .6
# to .7), sigmoid and causal attention hardly. Without a norm ReLU attention, whose rows grow with the tokens,
# overflows after 9 to 17 blocks. Without skips the cosine misleads: centred attention alone shows a median of .03, but
# its tokens are $\pm u$, and the stable rank is 1 to $10^{-60}$; with MLPs it annihilates them altogether, by block 14
# at the latest. Only the window still has some rank without skips at a hundred blocks, because neighbours mix slowly.

# %%
half, quarter = blocks // 2, max(1, blocks // 4)


def power(section):
    """Return the power of the depth, over its second half, of a section's second moments in every run."""
    values = depth[f"{section}/log10_moment"]
    return (values[..., -1] - values[..., half]) / np.log10(blocks / half)


before = [i for i, name in enumerate(names) if name.split(" + ")[0] in ("pre-LN", "RMSNorm")]
grown = {names[i]: power("remedies")[i] for i in before}
if "pre-LN" in swept:
    most = power("swept")[swept.index("pre-LN")].max(-1).argmax()
    grown["pre-LN with queries scaled"] = power("swept")[swept.index("pre-LN")].reshape(-1, len(runs))[most]
if "pre-LN" in networks:
    grown |= dict(zip([f"pre-LN, {k}" for k in kinds], power("kinds")[:, networks.index("pre-LN")], strict=True))
page.judge(
    "S19",
    networks=list(grown),
    power=np.max(list(grown.values()), -1),
    median=np.median(list(grown.values()), -1),
    without=np.median(power("remedies")[names.index("none")]),
)

square = 10 ** (2 * depth["swept/log10_logit"])
growth = np.sqrt(square[..., -quarter:].mean((-2, -1)) / square[..., :quarter].mean((-2, -1)))
end = depth["swept/cosine"][..., -1].mean(-1)
page.judge(
    "S20",
    networks=["no norm" if name == "none" else name for name in swept],
    scales=scales,
    growth=growth[:, 1],
    entropy=entropy[:, 1],
    growth_with_gain=growth[:, 2],
    entropy_with_gain=entropy[:, 2],
    growth_without=growth[:, 0],
    entropy_without=entropy[:, 0],
    cosine_change=np.abs(end[:, 1, 0] - end[:, 0, 0]).max(),
)

scaled, deep = (remedy(name, blocks) for name in ("1/sqrt(2L)", "DeepNorm"))
ends = dict(zip(names, cosine[..., -1].mean(-1), strict=True))
variance = 10 ** (moment[names.index("1/sqrt(2L)")] - moment[names.index("1/sqrt(2L)")][:, :1])
page.judge(
    "S21",
    smallest=variance.min(),
    largest=variance.max(),
    scales=[scaled.skip, scaled.branch],
    deepnorm_scales=[deep.skip, deep.branch],
    cosine=ends["1/sqrt(2L)"],
    deepnorm_cosine=ends["DeepNorm"],
)
page.save(picture)
