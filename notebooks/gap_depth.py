# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Does the gap persist in depth, and do LayerNorm and skips help?
#
# ## What is asked
#
# The theory needs orthonormal tokens, which only the first layer has. Does the spectral gap of $A(X)$ persist in deeper
# layers, where tokens are correlated? Do LayerNorm and skip connections prevent the collapse in width? And where
# one of them keeps the stable rank up, does it do so by removing the gap?
#
# ## How it is measured
#
# $X_l = \mathrm{LN}([X_{l-1} +]\, A(X_{l-1})X_{l-1}W_V)$, $A$ the softmax of $XW_QW_K^\top X^\top/\sqrt d$ with fresh
# Gaussian weights, $d = T$, orthonormal tokens, as in figure VII but with attention that looks at the tokens. The scale
# of the weights decides, so there are three: *unit*, all $N(0,1)$, as in figures VIII and X; *xavier*, $W_Q$ and $W_K$
# divided by $\sqrt d$; *scaled*, all divided by it. $|\lambda_2|$ is that of the attention matrix, keys without weight
# taken out first. With a skip the block mixes tokens by more than $A$: averaged over $W_V$ it maps the covariance as $S
# \mapsto S + g\,ASA^\top$, $g = d\,\mathrm{Var}(W_V)$, so the share of its gap that is lost is the ratio
# $(\delta + g|\lambda_2|)/(\delta + g)$ with $\delta = 1$, and $|\lambda_2|$ without one.

# %% tags=["parameters"]
figure = "gap_depth"
results = "results"

# %%
import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import PlacedPanels, circle, new_figure
from rankcollapse.theory.mind_the_gap import mixing_ratio

page = Page(figure, results)
measured = page["keyquery_modules"]
settings = measured.provenance.settings
configs, weights, sizes = settings["configs"], settings["weights"], settings["tokens"]
layers, kept_layers = np.arange(1, settings["layers"] + 1), settings["spectrum_layers"]
chosen = settings["spectrum_tokens"]
at_chosen = sizes.index(chosen)
excess = np.median(measured["stable_rank_excess"], -1)  # [weights, config, T, layer]
median = {name: np.median(measured[name], -1) for name in ("second_modulus", "largest_entry", "cosine")}
MODULES = ("", " + LN", " + skip", " + skip + LN")
NAMES = ("attention alone", "LN", "skip", "skip + LN")
FLOOR = 1e-16  # below it sr - 1 is rounding here
GAIN = {"unit": chosen, "xavier": chosen, "scaled": 1}  # g = d Var(W_V)
picture = new_figure(9.2)
panel = PlacedPanels(picture)
rows = picture.add_gridspec(5, 1, height_ratios=[0.9, 1, 1, 1, 1])

# %% [markdown]
# **Spectra of attention alone.** All runs together; the unit circle is dashed.

# %%
places = rows[0].subgridspec(1, len(kept_layers))
for column, layer in enumerate(kept_layers):
    axes = panel(places[column], f"layer {layer}", box_aspect=1, xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
    circle(axes, 1)
    for row, scale in enumerate(weights):
        values = measured["eigenvalues_re"][row, column] + 1j * measured["eigenvalues_im"][row, column]
        axes.scatter(values.real, values.imag, s=4, color=f"C{row}", linewidths=0, label=scale, zorder=3 + row)
        page.record_spectrum("attention alone, eigenvalues of run 0", values[0], weights=scale, layer=layer, run=0)
    axes.set(xlabel=r"Re $\lambda$", ylabel=None if column else r"Im $\lambda$", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), title="weights", title_fontsize=6)

# %% [markdown]
# **By depth.** Stable rank less one, and the next modulus of the same attention. Dashed: with the gap removed.

# %%
KINDS = {"A": "-", "A_perp": (0, (2, 1))}
drawn = [
    (configs.index(kind + module), f"C{color}", line, label if kind == "A" else None)
    for kind, line in KINDS.items()
    for color, (module, label) in enumerate(zip(MODULES, NAMES, strict=True))
    if kind + module in configs
]
for place, label, values, scaling in (
    (
        rows[1],
        "stable rank − 1",
        np.maximum(excess[:, :, at_chosen], FLOOR),
        {"yscale": "log", "ylim": (FLOOR / 3, 1e3)},
    ),
    (rows[2], r"$|\lambda_2|$", median["second_modulus"], {"ylim": (-0.04, 1.08)}),
):
    for column, (scale, part) in enumerate(zip(weights, place.subgridspec(1, len(weights)), strict=True)):
        axes = panel(
            part, f"{scale} weights, T = {chosen}", xlabel="layer", ylabel=None if column else label, **scaling
        )
        for config, color, line, name in drawn:
            axes.plot(layers, values[column, config], color=color, linestyle=line, label=name)
    page.record(f"median {label}", values, weights=weights, config=configs, layer=layers, T=chosen)
picture.axes[-2 * len(weights)].legend(loc="lower left", fontsize=5.5)

# %% [markdown]
# **By width.** The same with the gap left in; the style of the line is the scale of the weights.

# %%
LINES = dict(zip(weights, ("-", ":", (0, (5, 1.5))), strict=False))
with_gap = [entry for entry in drawn if configs[entry[0]].startswith("A") and not configs[entry[0]].startswith("A_")]
for column, (layer, part) in enumerate(zip(kept_layers, rows[3].subgridspec(1, len(kept_layers)), strict=True)):
    axes = panel(part, f"layer {layer}", xlabel="tokens T = d", xscale="log", yscale="log", ylim=(FLOOR / 3, 1e3))
    axes.set(ylabel=None if column else "stable rank − 1", xticks=sizes, xticklabels=map(str, sizes))
    axes.minorticks_off()
    values = np.maximum(excess[..., layer - 1], FLOOR)
    for row, scale in enumerate(weights):
        for config, color, _, _ in with_gap:
            axes.plot(sizes, values[row, config], color=color, linestyle=LINES[scale], linewidth=1)
        axes.plot([], [], color="0.3", linestyle=LINES[scale], linewidth=1, label=scale)
    page.record("median stable rank − 1", values, weights=weights, config=configs, T=sizes, layer=layer)
axes.legend(loc="center left", bbox_to_anchor=(0, 0.36), fontsize=5.5)

# %% [markdown]
# **Why.** How alike the tokens are that a layer of attention alone reads, how saturated its softmax is, and what
# share of its gap a block with skip has lost.

# %%
ratio = {
    module: np.array(
        [
            mixing_ratio(measured["second_modulus"][row, configs.index(module)], GAIN[scale], skip="skip" in module)
            for row, scale in enumerate(weights)
        ]
    )
    for module in ("A + LN", "A + skip", "A + skip + LN")
}  # [weights, layer, run]
places = rows[4].subgridspec(1, 3)
alone = configs.index("A")
reasons = {
    "mean cosine of tokens": median["cosine"][:, alone],
    "largest entry of a row": median["largest_entry"][:, alone],
    "gap lost with skip": np.median(ratio["A + skip"], -1),
}
for part, (name, values) in zip(places, reasons.items(), strict=True):
    axes = panel(part, name, xlabel="layer", ylim=(-0.04, 1.08))
    for scale, line in zip(weights, values, strict=True):
        axes.plot(layers, line, color="0.3", linestyle=LINES[scale], label=scale)
    page.record(f"median, {name}", values, weights=weights, layer=layers, T=chosen)
axes.legend(loc="upper right")

# %% [markdown]
# ## What follows
#
# With weights $N(0,1)$ the gap does not persist. From layer 3 on the softmax of attention alone is one-hot among the
# tokens that still differ (equal tokens share the weight, so the largest entry falls again): a map of the tokens into
# themselves, and a second cycle of that map, or one of two tokens, puts a second eigenvalue on the unit circle.
# $|\lambda_2| = 1$ in the median run until all tokens are equal; then $A$ is uniform and the gap complete. Collapse
# goes on without a gap. LayerNorm and skips hold it off for some layers more, and in layers 2 and 5 the stable rank
# with them does not fall with $T$; but that $|\lambda_2| = 1$ is not their doing, attention alone has it too.
#
# With small queries and keys (xavier) both statements are true: the gap is wide at every depth, and the stable rank
# goes to 1 in depth and in width whatever the modules. With small values too (scaled), a skip carries the tokens on
# unmixed: $sr - 1 = (T-1)/4^l$, which *grows* with $T$. In the first layers that prevents the collapse in width,
# although $A$ has kept its whole gap and the block half of it. So a skip can address collapse without removing the
# gap, and what decides is the size of the values beside the skip: the scale of the values, of which the stable rank is
# said to be independent, matters as soon as there is a skip. Removing the gap itself does more: with a skip and logits
# that stay small the tokens stay as they were at every depth (dashed, xavier and scaled).

# %%
modules = list(ratio)
chosen_rows = [configs.index(module) for module in modules]
judged_layers = sorted({1, *kept_layers})
at_layers = [layer - 1 for layer in judged_layers]
page.judge(
    "M12",
    weights=weights,
    modules=modules,
    alone=excess[:, alone, at_chosen],
    with_module=excess[:, chosen_rows, at_chosen],
    mixing_ratio=np.median(np.stack([ratio[module] for module in modules], 1), -1),
)
page.judge(
    "M20",
    weights=weights,
    layers=judged_layers,
    modules=modules,
    second_modulus=median["second_modulus"][:, alone][:, at_layers],
    spectrum_tokens=chosen,
    largest=sizes[-1],
    excess=excess[:, chosen_rows, -1][..., at_layers],
)
page.save(picture)
