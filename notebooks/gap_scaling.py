# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # The scale of the values, and gradients after collapse
#
# ## What is asked
#
# *Mind the Gap* draws values from $N(0,1)$ instead of $N(0,1/d)$, so that tokens stay of order one once the spectral
# gap is removed; gradients that vanish in Noci et al. (2022) are then said to explode. And do gradients vanish after
# rank collapse under uniform attention?
#
# ## How it is measured
#
# Tokens: $X_l = A_l X_{l-1} W_V^l$ from orthonormal $X_0$, $T = d$, without skip or LayerNorm; attention from the
# tokens ($A(X)$, $W_Q, W_K \sim N(0,1)$) or random Markov matrices ($A$). Gradients by width: the exact $\|\partial
# X_2/ \partial W\|_F^2$ of two blocks under $A(X)$ by the first block's values, queries and keys. Gradients and
# collapse: the same at $X_0 = \mathbf 1x^\top + \varepsilon R$; and by depth, the derivative of a layer's output by
# its own weights, $N(0,1/d)$, at the tokens that four networks bring to it (each rescaled to entries of mean square
# one).

# %% tags=["parameters"]
figure = "gap_scaling"
results = "results"

# %%
import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import NullLocator

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, note
from rankcollapse.trends import bootstrap_slopes, interval, slope

page = Page(figure, results)
scaling = page["gap_scaling"]
settings = scaling.provenance.settings
SCALES, ATTENTIONS, GAPS = ("N(0,1)", "N(0,1/d)"), ("A(X)", "A"), ("with gap", "gap removed")
WEIGHTS = ("values", "queries", "keys")
STREAMS = ("uniform", "A(X)", "gap removed", "A(X) + skip")
RESOLVED = 1e-12  # relative residuals below this are the rounding of 64-bit tokens
sizes = [size for size, _ in settings["sizes"]]
layers = np.arange(1, settings["layers"] + 1)
picture = new_figure(8.6)
panel = Panels(picture.subplots(4, 3))


def whole_sizes(axes, values):
    """Ticks at the sizes themselves."""
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(values, map(str, values))


# %% [markdown]
# **Token norms.** Medians over runs by layer. Where $A - \mathbf 1\mathbf 1^\top/T$ is zero to the last digit the
# tokens are annihilated; such runs count in the median as zero, and a median of zero cannot be drawn.

# %%
# [scaling, attention, gap, layer, size], layers from 1 on
medians = np.stack([np.median(scaling[f"token_norm/{size}"], axis=-2) for size in sizes], -1)[..., 1:, :]
annihilated = np.stack([(scaling[f"token_norm/{size}"] == 0).mean(-2) for size in sizes], -1)[..., 1:, :]
shades = colormaps["viridis"](np.linspace(0, 0.85, len(layers)))
for s, scale in enumerate(SCALES):
    for a, attention in enumerate(ATTENTIONS):
        axes = panel(f"{attention}, values {scale}", xscale="log", yscale="log", xlabel="T = d")
        axes.set_ylabel("norm of a token")
        for layer, color in zip(layers, shades, strict=True):
            for gap, style in enumerate(("--", "-")):
                values = medians[s, a, gap, layer - 1]
                drawn = values > 0
                label = f"layer {layer}" if gap else None
                axes.plot(np.array(sizes)[drawn], values[drawn], linestyle=style, lw=1, color=color, label=label)
        axis = {"attention": attention, "scale": scale, "gap": GAPS, "layer": layers, "T": sizes}
        page.record("median norm of a token", medians[s, a], **axis)
        page.record("share of runs annihilated", annihilated[s, a], **axis)
        if annihilated[s, a].any():
            first = layers[annihilated[s, a].any((0, -1))][0]
            note(axes, f"runs annihilated from layer {first} on", "lower left")
        whole_sizes(axes, sizes)
picture.axes[0].legend(loc="upper left", fontsize=4.8, ncols=2)
note(picture.axes[1], "solid: gap removed\ndashed: with gap", "upper left")

# %%
exponents = {}
for s, scale in enumerate(SCALES):
    axes = panel(f"exponent, {scale}", xlabel="layer", ylabel="exponent in T")
    for a, attention in enumerate(ATTENTIONS):
        for gap, style in enumerate(("--", "-")):
            positive = (medians[s, a, gap] > 0).all(-1)
            exponents[s, a, gap] = slope(sizes, np.log(medians[s, a, gap][positive]))
            label = f"{attention}, {GAPS[gap]}"
            axes.plot(layers[positive], exponents[s, a, gap], "o", linestyle=style, color=f"C{a}", label=label)
            axis = {"attention": attention, "scale": scale, "gap": GAPS[gap], "layer": layers[positive]}
            page.record("exponent of the median norm in T", exponents[s, a, gap], **axis)
    axes.axhline(0, color="0.35", linewidth=0.6)
    axes.legend(loc="upper left" if s == 0 else "lower right", fontsize=5)

# %% [markdown]
# **Gradients by width.** Exact, two blocks under $A(X)$. With $N(0,1/d)$ values and the gap removed all three vanish
# with the width; with $N(0,1)$ all three explode.

# %%
gradient_sizes = [size for size, _ in settings["gradient_sizes"]]
runs = [scaling[f"gradients/{size}"] for size in gradient_sizes]  # [scaling, gap, weight, run] each
means = np.stack([values.mean(-1) for values in runs], -1)
slopes, ends = slope(gradient_sizes, means), interval(bootstrap_slopes(gradient_sizes, runs))
for s, scale in enumerate(SCALES):
    axes = panel(f"gradient, values {scale}", xscale="log", xlabel="T = d", ylabel="log squared gradient")
    for w, weight in enumerate(WEIGHTS):
        for gap, style in enumerate(("--", "-")):
            label = f"{weight}, {slopes[s, 1, w]:+.1f} ({slopes[s, 0, w]:+.1f})" if gap else None
            axes.plot(gradient_sizes, means[s, gap, w], linestyle=style, color=f"C{w}", label=label)
    if s == 1:
        axes.set_ylim(top=means[1].max() + 0.5 * np.ptp(means[1]))
    axes.legend(loc="upper left", fontsize=5, title="slope, removed (with gap)")
    axes.get_legend().get_title().set_fontsize(5)
    whole_sizes(axes, gradient_sizes)
    for size, values in zip(gradient_sizes, runs, strict=True):
        axis = {"gap": GAPS, "weight": WEIGHTS, "run": range(values.shape[-1])}
        page.record("log squared gradient", values[s], scale=scale, T=size, **axis)
    page.record("slope of the log squared gradient", slopes[s], scale=scale, gap=GAPS, weight=WEIGHTS)
    page.record("its 95 % interval", ends[:, s], scale=scale, end=["low", "high"], gap=GAPS, weight=WEIGHTS)

# %% [markdown]
# **Gradients and collapse.** As the tokens approach a common vector the derivatives by queries and keys fall with the
# square of the residual, down to the last digit; that by values does not fall at all.

# %%
residual_sizes = scaling["collapse/residual_sizes"]
gradients = scaling["collapse/gradients"]  # [weight, size, run], the last size 0
positive = residual_sizes > 0
axes = panel("gradients, two blocks", xscale="log", yscale="log", xlabel=r"residual $\varepsilon$ of $X_0$")
axes.set_ylabel(r"$\|\partial X_2/\partial W\|_F$")
for w, weight in enumerate(WEIGHTS):
    style = {"color": f"C{w}", "linestyle": "--" if weight == "keys" else "-"}
    axes.plot(residual_sizes[positive], gradients[w][positive].mean(-1), label=weight, **style)
    axis = {"weight": weight, "eps": residual_sizes, "run": range(gradients.shape[-1])}
    page.record("gradient of two blocks", gradients[w], **axis)
axes.legend(loc="lower right")

depth = np.arange(1, settings["collapsed_layers"] + 1)
residual, own = scaling["depth/relative_residual"], scaling["depth/gradients"]
ratio = own[:, 1] / own[:, 0]  # queries over values
axes = panel("residual of the tokens", yscale="log", xlabel="layer", ylabel=r"$\|R\|_F/\|X\|_F$")
for k, stream in enumerate(STREAMS):
    axes.plot(depth, residual[k].mean(0), color=f"C{k + 3}", label=stream)
    page.record("relative residual", residual[k], stream=stream, run=range(len(residual[k])), layer=depth)
axes.axhspan(axes.get_ylim()[0], RESOLVED, color="0.93", zorder=0)
axes.legend(loc=(0.17, 0.3), fontsize=5)

axes = panel("queries over values", yscale="log", xlabel="layer", ylabel="ratio")
for k, stream in enumerate(STREAMS):
    axes.plot(depth, ratio[k].mean(0), color=f"C{k + 3}")
    axis = {"stream": stream, "weight": WEIGHTS, "run": range(own.shape[2]), "layer": depth}
    page.record("gradient of a layer by its own weights", own[k], **axis)

axes = panel("ratio by residual", xscale="log", yscale="log", xlabel=r"$\|R\|_F/\|X\|_F$", ylabel="ratio")
for k in range(len(STREAMS)):
    seen = residual[k] > RESOLVED
    axes.plot(residual[k][seen], ratio[k][seen], ".", color=f"C{k + 3}", markersize=2.5)
line = np.array([residual[residual > RESOLVED].min(), 1])
axes.plot(line, line**2, **THEORY)
note(axes, "dashed: slope 2", "lower right")

# %% [markdown]
# ## What follows
#
# With $N(0,1)$ values and the gap removed, tokens keep their size in $T$ at every layer under random Markov
# attention, as the analysis has it. Under attention from the tokens they do so at the first layer only (with or
# without the gap): from the second on, longer tokens widen the logits, attention sharpens, and norms grow with $T$,
# faster at each layer. Without LayerNorm the scale is therefore no remedy in depth. The gradients do turn round with
# the scale of the values, from vanishing to exploding in $T$. Rank collapse makes the gradients by queries and keys
# vanish, in proportion to the square of the residual, and leaves those by values as they are: that is what Noci et
# al. prove, no more.

# %%
page.judge(
    "M15",
    attentions=ATTENTIONS,
    norm_slopes=[exponents[0, a, 1].tolist() for a in range(len(ATTENTIONS))],
    layers=len(layers),
    weights=WEIGHTS,
    wide_intervals=ends[:, 0, 1].T,
    narrow_intervals=ends[:, 1, 1].T,
)
small = positive & (residual_sizes <= page.catalogue.claims["M19"].limits["small"])
by_size = np.log(gradients[:, small].mean(-1))
page.judge(
    "M19",
    weights=WEIGHTS,
    slopes=slope(residual_sizes[small], by_size),
    at_zero=(gradients[:, ~positive] / gradients[:1, ~positive]).max((1, 2)),
    behind_uniform=(own[0, :, :, 1:] / own[0, :1, :, 1:]).max((1, 2)),
)
page.save(picture)
