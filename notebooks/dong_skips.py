# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # What skips and MLPs keep, to a hundred layers
#
# ## What is asked
#
# With skips, it is said, the tokens keep their full rank at any depth, and with MLPs as well rank collapse is
# suppressed entirely, because a non-linear MLP moves tokens out of their convex hull. What is left of the residual
# after a hundred layers at initialisation, and is it the non-linearity that leaves the hull?
#
# ## How it is measured
#
# Attention with its skip, and whole blocks (attention and a gelu MLP, each inside its skip), with LayerNorm nowhere,
# before the branches or after the sums, follow the same tokens, which share a mean, through the same weights. The
# residual is carried as a direction and a logarithm, since some of these fall below machine precision. Were attention
# uniform, it would add nothing to the residual $r = \|R\|^2$ and $\sigma^2$ times the mean token's energy $m$ to that
# energy, $\sigma^2$ being the gain of the value-output map: $m' = (1+\sigma^2)m$, or with LayerNorm on the branch
# $m' = m + \sigma^2 nd\,m/(m+r)$. For the hull, a linear programme looks for a hyperplane that separates a token after
# the MLP from the tokens before it, for Gaussian tokens of many widths.

# %% tags=["parameters"]
figure = "dong_skips"
results = "results"

# %%
import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, ours
from rankcollapse.theory.skips import relative_residual

page = Page(figure, results)
skips = page["skips_depth"]
settings = skips.provenance.settings
inits, placements = settings["inits"], settings["placements"]
layer, runs = np.arange(settings["layers"] + 1), range(settings["runs"])
relative = 10 ** skips["log10_relative"]  # [network, init, placement, run, layer]
cosine, excess = skips["cosine"], skips["log10_stable_rank_excess"]
NETWORKS = ("attention + skip", "whole blocks")
LINES = dict(zip(("none", "pre", "post"), ("-", (0, (1, 1)), "--"), strict=True))
# Without LayerNorm and with it after the sum the curves nearly coincide: the first is drawn wide.
WIDE = {"none": 2.5, "pre": 1.2, "post": 0.8}

picture = new_figure(7.4)
panel = Panels(picture.subplots(3, 2))


def draw(axes, name, values, kept=placements):
    """Draw one quantity of one network for every init and the given places of LayerNorm, and record it."""
    for i, init in enumerate(inits):
        for p, placement in enumerate(placements):
            page.record(name, values[i, p], init=init, layer_norm=placement, run=runs, layer=layer)
            if placement in kept:
                style = {"color": f"C{i}", "linestyle": LINES[placement], "linewidth": WIDE[placement]}
                ours(axes, layer, values[i, p], label=f"{init}, {placement}", **style)


# %% [markdown]
# **The residual by depth.**

# %%
for network, name in enumerate(NETWORKS):
    axes = panel(name, xlabel="layer", ylabel=r"$\|R\|_F/\|X\|_F$", yscale="log")
    draw(axes, f"relative residual, {name}", relative[network])
    if network:
        axes.legend(loc="lower left", title="init, LayerNorm")
        continue
    for i, init in enumerate(inits):
        for p, placement in enumerate(placements):
            gain = skips["value_gain"][i].mean()
            theory = relative_residual(relative[0, i, p, :, 0].mean(), gain, settings["layers"], placement)
            axes.plot(layer, theory, **THEORY)
            page.record("relative residual, uniform attention", theory, init=init, layer_norm=placement, layer=layer)
            off = np.abs(np.log10(relative[0, i, p].mean(0) / theory)).max()
            page.record("largest distance from uniform attention, decades", off, init=init, layer_norm=placement)

axes = panel("pre-LN alone: algebraic", xlabel="layer", ylabel=r"$\|R\|_F/\|X\|_F$", xscale="log", yscale="log")
axes.yaxis.set_minor_formatter("{x:g}")
if "pre" in placements:
    where = placements.index("pre")
    for network, style in enumerate(("-", (0, (1, 1)))):
        for i, init in enumerate(inits):
            values = relative[network, i, where][:, 1:]
            ours(axes, layer[1:], values, color=f"C{i}", linestyle=style, label=f"{init}, {NETWORKS[network]}")
    axes.plot(layer[1:], relative[0, 0, where, :, -1].mean() * (layer[1:] / layer[-1]) ** -0.5, **THEORY)
    axes.legend(loc="lower left")

# %% [markdown]
# **Cosine and stable rank of the whole blocks.**

# %%
axes = panel("cosine of two tokens, whole blocks", xlabel="layer", ylabel="mean cosine", ylim=(0, 1.05))
draw(axes, "cosine, whole blocks", cosine[1])
axes = panel("stable rank, whole blocks", xlabel="layer", ylabel=r"$\mathrm{sr}(X)-1$", yscale="log")
draw(axes, "stable rank less one, whole blocks", 10 ** excess[1])

# %% [markdown]
# **Outside the hull.** The share of tokens that a hyperplane separates from the hull.

# %%
claim = page.catalogue.claims["S14"].limits
outside = (skips["separation"] > claim["gap"]).mean(-1)  # [init, width, activation, skip]
widths, activations = np.array(settings["hull_widths"]), [*settings["hull_activations"], "none"]
axes = panel(
    "outside the hull after an MLP", xlabel="width", ylabel="share of tokens", xscale="log", ylim=(-0.05, 1.05)
)
axes.axvline(settings["tokens"], color="0.8", linewidth=3, zorder=0)
for i, init in enumerate(inits):
    for s, skip in enumerate(("MLP", "MLP + skip")):
        for a, activation in enumerate(activations):
            page.record(f"outside, {skip}", outside[i, :, a, s], init=init, activation=activation, width=widths)
        style = {"color": f"C{i + 2 * s}", "marker": "."}
        axes.plot(widths, outside[i, :, :-1, s].mean(1), label=f"{init}, {skip}", **style)
        axes.plot(widths, outside[i, :, -1, s], linestyle=":", **style)
axes.set_xlim(right=12 * widths[-1])  # room for the legend
axes.legend(loc="center right", title="dotted: no activation")

# %% [markdown]
# ## What follows
#
# A skip keeps the residual itself, but the mean token grows beside it, and rank is a matter of their ratio. Without
# LayerNorm, or with it after the sum, the relative residual falls like $(1+\sigma^2)^{-l/2}$: with Xavier weights it is
# at $10^{-15}$ after a hundred layers, MLPs or not; with the small weights of BERT it has halved. With LayerNorm on the
# branches the mean token grows only linearly, so the fall is algebraic, like $l^{-1/2}$: slow, and without end. Uniform
# attention predicts all of this with no fitted number. MLPs add to the residual as well and slow the fall, most of all
# in pre-LN; they do not stop it. So at initialisation no place of LayerNorm preserves full rank at arbitrary depth.
#
# An MLP leaves the hull of the tokens where almost any map does: with as many dimensions as tokens the hull is flat,
# and a linear map leaves it as well. Where the hull has an interior, small weights without a skip shrink the tokens
# into it, non-linearity or not.

# %%
WHERE = {"none": "no LayerNorm", "pre": "pre-LN", "post": "post-LN"}
names = [f"{init} ({WHERE[placement]})" for init in inits for placement in placements]
middle = settings["layers"] // 2
share = (relative[..., -1] / relative[..., 0]).mean(-1).reshape(2, -1)
late = (relative[..., -1] / relative[..., middle]).mean(-1).reshape(2, -1)
page.judge("S11", configurations=names, kept_share=share[0], late_share=late[0])
page.judge(
    "S13",
    configurations=names,
    kept_share=share[1],
    late_share=late[1],
    cosine=cosine[1, ..., -1].mean(-1).ravel(),
)
page.judge(
    "S14",
    widths=widths,
    tokens=settings["tokens"],
    outside=outside[:, :, :-1].min((0, 2, 3)),
    outside_linear=outside[:, :, -1].max((0, 2)),
)
page.save(picture)
