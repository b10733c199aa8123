# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Pure self-attention by depth, far below machine precision
#
# ## What is asked
#
# Dong et al. show that attention without skips and MLPs loses rank doubly exponentially: the residual $R = X - \mathbf
# 1 x^\top$ of one layer is bounded by the cube of the last. Is the order really 3, with which weights, down to where,
# and what do masks, frozen attention, MLPs and skips change?
#
# ## How it is measured
#
# A plain pass shows only rounding once $\|R\|$ falls below $10^{-16}\|X\|$, which takes two to four layers. So the
# residual is carried as a direction $S$ with $\|S\|_F = 1$ and a logarithm $\rho = \ln\|R\|_F$, and each layer acts on
# these two exactly. The order of convergence at layer $l$ is $q_l = (\rho_{l+1}-\rho_l)/(\rho_l-\rho_{l-1})$. The
# encoders above the published curves are BERT, ALBERT and XLNet at random initialisation, on 32 texts of 128 tokens, in
# 32-bit floats as in the paper; each of ours pools several initialisations where a published curve is one.

# %% tags=["parameters"]
figure = "dong_depth"
results = "results"

# %%
import numpy as np

from rankcollapse import published
from rankcollapse.agreement import compare_means
from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, note, ours, published_curve

page = Page(figure, results)
san, encoders = page["san_depth"], page["encoder_depth"]
settings, encoder_settings = san.provenance.settings, encoders.provenance.settings
inits, runs = settings["inits"], range(settings["runs"])
layer = np.arange(settings["layers"] + 1)
mean = settings["inputs"].index("mean")
FLOAT32, FLOAT64 = 2.0**-24, 2.0**-53

# The residual of xavier and normal1d, and of bert and linear, nearly coincide: the first of each is drawn wide.
INIT_STYLE = {
    "xavier": {"color": "C0", "linewidth": 3},
    "bert": {"color": "C1", "linewidth": 3},
    "normal1d": {"color": "C5", "linewidth": 1},
    "linear": {"color": "C4", "linewidth": 1},
}

picture = new_figure(8.9)
panel = Panels(picture.subplots(4, 3))

# %% [markdown]
# **The encoders over the published curves.** Both drop to the rounding of 32-bit floats by layer 2 without the
# attention skip; what is drawn there is rounding, so points below $10^{-6}$ are not compared.

# %%
FILES = {"bert-base-cased": "dong_bert", "albert-base-v2": "dong_albert", "xlnet-base-cased": "dong_xlnet"}
RESOLVED = 1e-6  # ten roundings of 32-bit floats
published_size = (encoder_settings["layers"], encoder_settings["tokens"]) == (12, 128)
depth = np.arange(encoder_settings["layers"] + 1)
for row, name in enumerate(encoder_settings["architectures"]):
    axes = panel(name, xlabel="layer", ylabel=r"$\|R\|_{1,\infty}/\|X\|_{1,\infty}$", yscale="log", ylim=(3e-8, 4))
    inset = axes.inset_axes((0.45, 0.3, 0.52, 0.45))
    inset.tick_params(labelsize=5.5)
    theirs, predicted = [], []
    for column, variant in enumerate(encoder_settings["variants"]):
        by_init = encoders["relative_residual"][row, column].mean(1)  # over texts
        page.record(f"ours, {variant}", by_init, model=name, run=range(len(by_init)), layer=depth)
        shown = (axes, inset) if column > 1 else (axes,)
        for place in shown:
            ours(place, depth, by_init, label=variant, color=f"C{column}")
        if not published_size:
            continue
        where = {"weights": "initialization", "variant": variant}
        curve = published.read(FILES[name], where).sort_values("layer")["relative_residual"].to_numpy()
        for place in shown:
            published_curve(place, depth, curve, label="published" if column == 3 else None, markersize=2.2)
        page.record(f"published, {variant}", curve, model=name, layer=depth)
        kept = (curve > RESOLVED) & (by_init.mean(0) > RESOLVED)
        page.agree(f"{name}, {variant}", compare_means(curve[kept], by_init[:, kept], 1, resolution=2e-7))
        theirs.append(curve[kept])
        predicted.append(by_init[:, kept])
    if theirs:
        note(axes, compare_means(np.concatenate(theirs), np.hstack(predicted), 1, resolution=2e-7).text, "lower right")
picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)

# %% [markdown]
# **Pure attention.** Four weight inits at the size of BERT, tokens that share a mean token.

# %%
relative = san["depth/log10_relative"][:, mean]
axes = panel(
    "where plain passes stop", xlabel="layer", ylabel=r"$\log_{10}\,\|R\|_F/\|X\|_F$", xlim=(-0.1, 5), ylim=(-42, 9)
)
for color, init in enumerate(inits):
    ours(axes, layer, relative[color], label=init, **INIT_STYLE[init])
    page.record("log10 relative residual, scale-free", relative[color], init=init, run=runs, layer=layer)
    for name, marker in (("float32", "s"), ("float64", "^")):
        plain = san[f"depth/relative_{name}"][color, mean]
        with np.errstate(divide="ignore"):
            axes.plot(layer, np.log10(plain[0]), marker, color=INIT_STYLE[init]["color"], markersize=2.5)
        page.record(f"relative residual, {name}", plain, init=init, run=runs, layer=layer)
axes.legend(loc="lower left")
note(axes, "squares: 32-bit, triangles: 64-bit pass\nlines: scale-free")

axes = panel("doubly exponential", xlabel="layer", ylabel=r"$\log_{10}(-\log_{10}\,\|R\|_F/\|X\|_F)$")
for color, init in enumerate(inits):
    ours(axes, layer, np.log10(-relative[color]), label=init, **INIT_STYLE[init])
line = np.log10(-relative[..., -1].mean()) + (layer - layer[-1]) * np.log10(3)
axes.plot(layer, line, **THEORY, label=r"slope $\log_{10} 3$")
axes.legend(loc="lower right")
note(axes, f"layer {layer[-1]}: $10^{{{relative[..., -1].max():.0f}}}$ and below", "upper left")

order = san["depth/order"][:, mean]
axes = panel("local order of convergence", xlabel="layer", ylabel="$q_l$", ylim=(2.9, 3.1))
for color, init in enumerate(inits):
    ours(axes, layer[1:-1], order[color], label=init, **INIT_STYLE[init])
    page.record("local order", order[color], init=init, run=runs, layer=layer[1:-1])
axes.axhline(3, **THEORY)

# %% [markdown]
# **One layer, and the scale of the logits.** The slope of one layer is the order of convergence without any depth. A
# gain multiplies $W_Q W_K^\top$.

# %%
norm, slope = san["ladder/norm"], san["ladder/slope"]
KINDS = ["full", "full, zero mean token", "causal", "ALiBi"]
axes = panel(
    "one layer", xlabel=r"$\|R\|_F$", ylabel=r"$\mathrm{d}\ln\|R'\|/\mathrm{d}\ln\|R\|$", xscale="log", ylim=(0.5, 3.5)
)
middle = np.sqrt(norm[1:] * norm[:-1])
for color, kind in enumerate(KINDS):
    by_run = slope[color].reshape(-1, slope.shape[-1])  # inits and runs
    ours(axes, middle, by_run, color=f"C{color}", label=kind)
    page.record("slope of one layer", by_run, kind=kind, run=range(len(by_run)), norm=middle)
axes.legend(loc="center right")

gains, first = np.array(settings["gains"]), san["gain/first_below"]
axes = panel("first layer below $10^{-16}$", xlabel="gain of $W_QW_K^\\top$", ylabel="layer", xscale="log")
never = settings["layers"] + 1
for color, init in enumerate(inits):
    for row, (kind, style) in enumerate(zip(settings["inputs"], ("-", (0, (1, 1))), strict=False)):
        reached = np.where(first[color, row] < 0, never, first[color, row]).mean(-1)
        axes.plot(gains, reached, linestyle=style, marker=".", label=f"{init}, {kind}", **INIT_STYLE[init])
        page.record(
            "first layer below double precision, none as -1",
            first[color, row],
            init=init,
            input=kind,
            gain=gains,
            run=range(first.shape[-1]),
        )
limits = page.catalogue.claims["S07"].limits
axes.axhspan(limits["first"], limits["last"], color="0.9", zorder=0)
axes.set_yticks([*range(2, never, 2), never], [*map(str, range(2, never, 2)), "never"])
axes.set_ylim(1.5, never + 0.5)
axes.legend(loc="upper left", fontsize=5)
note(axes, "grey: as claimed", "lower right")

# %% [markdown]
# **Masks, frozen attention, MLPs, skips.**

# %%
contrast, lambda2 = san["contrast/log_norm"] / np.log(10), san["contrast/lambda2"]
names = ["full", "causal", "ALiBi", *(f"frozen, logit sd {std:g}" for std in settings["frozen_logit_stds"])]
depth = np.arange(contrast.shape[-1])
axes = panel(
    "masks and frozen attention",
    xlabel="layer",
    ylabel=r"$\log_{10}\,\|R_l\|/\|R_0\|$",
    ylim=(-22, 16),
    yticks=(-20, -10, 0),
)
for color, name in enumerate(names):
    fall = contrast[color] - contrast[color][:, :1]
    ours(axes, depth, fall, color=f"C{color}", label=name)
    page.record("log10 residual over initial", fall, kind=name, run=range(len(fall)), layer=depth)
    if name != "full":
        axes.plot(depth, fall[0, -1] + (depth - depth[-1]) * np.log10(lambda2[color, 0]), **THEORY)
axes.legend(loc="upper right")

tail = san["mlp/order"]  # [activation, LayerNorm, MLP skip, run, layer]
depth = np.arange(1, tail.shape[-1] + 1)
axes = panel("with an MLP, no attention skip", xlabel="layer", ylabel="$q_l$", ylim=(0, 4))
for color, activation in enumerate(settings["activations"]):
    for norm_on, style in enumerate(("-", (0, (1, 1)))):
        by_run = tail[color, norm_on].reshape(-1, tail.shape[-1])  # with and without the MLP's own skip, all runs
        ours(axes, depth, by_run, color=f"C{color}", linestyle=style, label=activation + ", LN" * norm_on)
        page.record(
            "local order with MLP", by_run, kind=activation + ", LN" * norm_on, run=range(len(by_run)), layer=depth
        )
axes.axhline(3, **THEORY)
axes.axhline(1, **THEORY | {"linestyle": ":"})
axes.legend(loc="lower right", ncols=2)
note(axes, "3: doubly, 1: singly exponential", "upper right")

skip, gain = san["skip/log10_relative"], san["skip/value_gain"]
depth = np.arange(skip.shape[-1])
axes = panel("with skip, no LayerNorm", xlabel="layer", ylabel=r"$\|R\|_F/\|X\|_F$", yscale="log")
for color, init in enumerate(settings["skip_inits"]):
    ours(axes, depth, 10 ** skip[color], label=init, **INIT_STYLE[init])
    page.record("relative residual with skip", 10 ** skip[color], init=init, run=range(skip.shape[1]), layer=depth)
    start = 10 ** skip[color, 0, 0]
    axes.plot(depth, start * (1 + gain[color].mean()) ** (-depth / 2), **THEORY)
axes.legend(loc="lower left")

axes = panel("rank is never exactly 1", xlabel="layer", ylabel=r"$\log_{10}(-\log_{10}(\mathrm{rank} - 1))$")
for color, init in enumerate(inits):
    for name, style in (("stable", "-"), ("effective", (0, (1, 1)))):
        excess = san[f"depth/log10_{name}_rank_excess"][color, mean]
        below = np.where(excess < 0, -excess, np.nan)
        axes.plot(
            layer,
            np.log10(below).mean(0),
            color=INIT_STYLE[init]["color"],
            linestyle=style,
            label=f"{name} rank" if not color else None,
        )
        page.record(f"log10 of {name} rank less one", excess, init=init, run=runs, layer=layer)
axes.legend(loc="upper left")

# %% [markdown]
# ## What follows
#
# The order is 3 once the residual is small, for every standard init, down to $10^{-200000}$ and below; a causal mask or
# a position bias lowers it to 1, because attention at zero logits is then no longer uniform. Standard inits reach
# double precision in three or four layers, not five to seven. Where they do is set by the scale of the logits: later
# for larger gains, and, for tokens without a shared mean, never within twelve layers at gains of 30 and more with the
# two larger inits. An MLP after attention moves the onset, not the order: the tail is still cubic, and curves that
# suggest otherwise show rounding. With a skip the absolute residual survives but the relative one decays like
# $(1+\sigma^2)^{-l/2}$, $\sigma^2$ the gain of the value-output map.
#
# Of the published curves, BERT and ALBERT agree. XLNet without the attention skip, and with the skip alone, lie outside
# our intervals by up to 30 %. A likely reason, not settled here because the original texts are not at hand: XLNet's own
# tokeniser turns their spaced punctuation into bare space pieces, one very frequent token that our WordPiece tokens
# lack, and the more often a token repeats, the smaller the residual from the start.

# %%
small = 10 ** relative[..., 1:-1] < page.catalogue.claims["S06"].limits["small"]
unit = np.log10(page.catalogue.claims["S07"].limits["epsilon"])
standard = [
    int(np.argmax(relative[i].mean(0) < unit)) if (relative[i].mean(0) < unit).any() else -1 for i in range(len(inits))
]
page.judge(
    "S06",
    order_low=order[small].min(),
    order_high=order[small].max(),
    gains_without_collapse=[gain for gain, row in zip(gains, (first < 0).any((0, 1, 3)), strict=True) if row],
    masked_slope=slope[2:].mean(),
)
page.judge("S07", inits=inits, first_layers=standard, first_layers_by_gain=first.mean((0, 1, 3)))
page.judge(
    "S08",
    log10_residual_last=relative[..., -1].max(),
    log10_effective_rank_excess_last=san["depth/log10_effective_rank_excess"][:, mean, :, -1].max(),
)
page.judge(
    "S12", activations=settings["activations"], tail_order_low=tail[..., -1].min(), tail_order_high=tail[..., -1].max()
)
page.save(picture)
