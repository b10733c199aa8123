# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Over-smoothing on graphs: dense attention, graph networks and remedies
#
# ## What is asked
#
# A graph network averages over neighbours, a graph transformer over all nodes with weights that depend on the tokens.
# Does the dense one over-smooth faster, and do virtual nodes, structural encodings or scaled residuals prevent it?
#
# ## How it is measured
#
# On five graphs every layer is $X' = P(X)XW_V$, with the same features, which share a mean, and the same weights
# $N(0, 1/d)$ for every network: GCN with random-walk ($P = D^{-1}K$, $K = A + 1$) and with symmetric normalisation
# ($D^{-1/2}KD^{-1/2}$), GAT (softmax of key-query logits over the neighbours and the node itself) and dense
# attention (over all nodes). The first, third and fourth take $X$ to $\mathbf 1x^\top$, the second to
# $D^{1/2}\mathbf 1x^\top$, and each is measured by the distance to its own limit over $\|X\|_F$, carried as a
# direction and a logarithm, so that no curve ends in round-off. Remedies are added one at a time: eigenvectors of
# the Laplacian, mapped to the width, added to the features, or in every layer; a virtual node; logits (for GCN
# weights $K$) that lose 1 per edge of distance; a skip; a skip with branches divided by $\sqrt L$.

# %% tags=["parameters"]
figure = "graph_smoothing"
results = "results"

# %%
import re

import numpy as np

from rankcollapse.crossing import layers_to_fall
from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, PlacedPanels, new_figure, title

page = Page(figure, results)
measured = page["graph_smoothing"]
settings = measured.provenance.settings
graphs, runs, layer = settings["graphs"], range(settings["runs"]), np.arange(settings["layers"] + 1)
log10 = measured["log10_relative"]  # [network, remedy, graph, run, layer]
NETWORKS = ("GCN, random walk", "GCN, symmetric", "GAT", "dense attention")
REMEDIES = (
    "none",
    "Laplacian encoding",
    "encoding in every layer",
    "virtual node",
    "distance bias",
    "skip",
    "skip, scaled",
)
NONE, SKIP, SCALED = (REMEDIES.index(name) for name in ("none", "skip", "skip, scaled"))
DENSE = NETWORKS.index("dense attention")
LINES = ("-", (0, (1, 1)), (0, (4, 1.5)), "-")
LAYERS = (1, 2, 5, 10, 20, 50)
FLOOR = 1e-8  # what falls lower leaves the panel, not the precision
smoothed = page.catalogue.claims["S23"].limits["smoothed"]
picture = new_figure(8.8)
panel = PlacedPanels(picture)
rows = picture.add_gridspec(4, 1, height_ratios=[1, 1.55, 1.05, 1.15])


def relative(values):
    """Powers of ten that a float can hold."""
    return 10.0 ** np.maximum(values, -300)


def draw(axes, values, **style):
    """Draw runs given by their logarithms: the geometric mean as a line, all runs as a band."""
    (line,) = axes.plot(layer, relative(values.mean(0)), **style)
    axes.fill_between(
        layer, relative(values.min(0)), relative(values.max(0)), color=line.get_color(), alpha=0.2, linewidth=0
    )


def whole_ticks(axis, values):
    """Put the ticks of a logarithmic axis on given numbers."""
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


# %% [markdown]
# **Alone.** Dashed: $|\lambda_2|^l$ of the random walk, through the last point of the GCN.

# %%
for g, (graph, place) in enumerate(zip(graphs, rows[0].subgridspec(1, len(graphs)), strict=True)):
    axes = panel(place, graph, xlabel="layer", yscale="log", ylim=(FLOOR, 2))
    axes.set(ylabel=None if g else "relative residual")
    axes.tick_params(labelleft=not g)
    rate = measured["second_modulus"][0, NONE, g]
    axes.plot(layer, relative(log10[0, NONE, g, :, -1].mean()) * rate ** (layer - layer[-1]), **THEORY)
    for network, name in enumerate(NETWORKS):
        draw(axes, log10[network, NONE, g], label=name, linestyle=LINES[network])
alone_handles = axes.get_legend_handles_labels()
half = settings["layers"] // 2
late_slope = (log10[:DENSE, NONE, :, :, -1] - log10[:DENSE, NONE, :, :, half]) / (settings["layers"] - half)
page.record("decades a layer, second half", late_slope, network=NETWORKS[:DENSE], graph=graphs, run=runs)
page.record("log10 |lambda_2|", np.log10(measured["second_modulus"][0, NONE]), graph=graphs)

# %% [markdown]
# **Seen on the first graph.** Colour: cosine of a node's token to that of the ringed node.

# %%
middle = rows[1].subgridspec(1, 2, width_ratios=[2.1, 1])
shown = settings["shown_layers"]
pictures = middle[0].subgridspec(2, len(shown))
x, y = measured["positions"].T
ends = measured["positions"][measured["edges"]]
for row, network in enumerate((0, DENSE)):
    for column, depth in enumerate(shown):
        axes = picture.add_subplot(pictures[row, column])
        axes.plot(*ends.transpose(2, 1, 0), color="0.8", linewidth=0.4, zorder=1)
        similarity = measured["similarity"][network, column]
        drawn = axes.scatter(x, y, c=similarity, s=16, vmin=0, vmax=1, linewidths=0, zorder=2)
        axes.scatter(x[:1], y[:1], s=30, facecolors="none", edgecolors="black", linewidths=0.8, zorder=3)
        axes.set_axis_off()
        axes.text(0.5, -0.06, f"layer {depth}", transform=axes.transAxes, ha="center")
        if column == 0:
            title(axes, next(panel.letters), NETWORKS[network])
        page.record("cosine to node 0", similarity, network=NETWORKS[network], layer=depth, node=range(len(x)))
picture.colorbar(drawn, ax=picture.axes[-2 * len(shown) :], shrink=0.6, pad=0.01, label=f"cosine, {graphs[0]}")

# %% [markdown]
# **How fast.** Layers until the relative residual is 1 % of its start.

# %%
decades = -np.log10(smoothed)
alone = layers_to_fall(log10, decades)  # [network, remedy, graph, run]
by_gain = layers_to_fall(measured["log10_by_gain"], decades)  # [gain, GAT or dense, graph, run]
right = middle[1].subgridspec(2, 1)
never = settings["layers"] + 1
axes = panel(right[0], f"layers to {smoothed:.0%}", yscale="log")
for network, name in enumerate(NETWORKS):
    places = np.arange(len(graphs)) + 0.15 * (network - 1.5)
    axes.plot(
        np.repeat(places, len(runs)), alone[network, NONE].ravel(), ".", color=f"C{network}", markersize=2.5, label=name
    )
page.record("layers to fall, alone", alone[:, NONE], network=NETWORKS, graph=graphs, run=runs)
axes.axhline(never, color="0.7", linewidth=0.6, zorder=0)
whole_ticks(axes.yaxis, LAYERS)
axes.set_xticks(range(len(graphs)), [re.sub("[ -]", "\n", graph) for graph in graphs], fontsize=5)
axes = panel(right[1], "by factor of the logits", xlabel="factor", ylabel="layers", xscale="log", yscale="log")
for index, network in enumerate((2, DENSE)):
    axes.plot(settings["gains"], by_gain[:, index].mean(-1), color=f"C{network}", linestyle=LINES[network], marker=".")
page.record("layers to fall, by gain", by_gain, gain=settings["gains"], network=NETWORKS[2:], graph=graphs, run=runs)
axes.axhline(never, color="0.7", linewidth=0.6, zorder=0)
whole_ticks(axes.xaxis, settings["gains"])
whole_ticks(axes.yaxis, LAYERS)

# %% [markdown]
# **One remedy at a time**, on the graph with the largest diameter.

# %%
widest = int(measured["diameter"].argmax())
for network, place in enumerate(rows[2].subgridspec(1, len(NETWORKS))):
    axes = panel(place, NETWORKS[network], xlabel="layer", yscale="log", ylim=(FLOOR, 2))
    axes.set(ylabel=None if network else "relative residual")
    axes.tick_params(labelleft=not network)
    for remedy, name in enumerate(REMEDIES):
        style = {"color": "black" if remedy == NONE else f"C{remedy - 1}", "linewidth": 2 if remedy == NONE else 1}
        draw(axes, log10[network, remedy, widest], label=name, **style)
page.record("log10 relative residual", log10, network=NETWORKS, remedy=REMEDIES, graph=graphs, run=runs, layer=layer)
handles, names = axes.get_legend_handles_labels()

# %% [markdown]
# **What is left**, what becomes of it with depth, and Dirichlet energies.

# %%
places = rows[3].subgridspec(1, 3, width_ratios=[2, 1, 1])
kept = relative((log10[..., -1] - log10[..., 0]).mean(-1))  # [network, remedy, graph]
axes = panel(places[0], "share of the residual left", yscale="log", ylim=(FLOOR / 3, 3))
for network, name in enumerate(NETWORKS):
    at = np.repeat(np.arange(len(REMEDIES)) + 0.15 * (network - 1.5), len(graphs))
    axes.plot(at, np.maximum(kept[network], FLOOR).ravel(), ".", color=f"C{network}", label=name)
axes.set_xticks(range(len(REMEDIES)), [name.replace(" ", "\n") for name in REMEDIES], fontsize=5)
page.record("share of the relative residual left", kept, network=NETWORKS, remedy=REMEDIES, graph=graphs)

depths = settings["scaled_depths"]
scaled = relative(measured["log10_scaled"]).mean(-1)  # [depth, network, graph]
axes = panel(
    places[1], "scaled skip, at the end", xlabel="depth L", ylabel="relative residual", xscale="log", ylim=(0, 1)
)
for network in range(len(NETWORKS)):
    axes.plot(depths, scaled[:, network], color=f"C{network}", linestyle=LINES[network], linewidth=0.8)
whole_ticks(axes.xaxis, depths)
page.record("relative residual, scaled skip", scaled, depth=depths, network=NETWORKS, graph=graphs)

energy = measured["log10_dirichlet"][:, NONE, widest]
axes = panel(places[2], f"Dirichlet energy, {graphs[widest]}", xlabel="layer", yscale="log", ylim=(FLOOR**2, 30))
for network, name in enumerate(NETWORKS):
    draw(axes, energy[network], label=name, linestyle=LINES[network])
page.record("log10 Dirichlet energy, alone", energy, network=NETWORKS, graph=graphs[widest], run=runs, layer=layer)
picture.legend(*alone_handles, loc="outside upper center", ncols=len(NETWORKS))
picture.legend(handles, names, loc="outside lower center", ncols=len(REMEDIES), columnspacing=1, fontsize=5.8)

# %% [markdown]
# ## What follows
#
# Dense attention is faster on every graph and in every run: one to two layers to a hundredth of the initial
# residual, where GCN and GAT take eight to more than 64. Logits up to 16 times as large, nearly one-hot attention,
# cost it three layers more. What the graph networks do is known in advance: all three fall like $|\lambda_2|^l$,
# since a softmax over neighbours becomes uniform as well once tokens are alike. Dense attention becomes uniform
# over all nodes, whose $\lambda_2$ is zero, so its residual is cubed in every layer. With a plain skip it falls
# singly exponentially like the others, by $\sqrt 2$ a layer, and still first.
#
# Of the remedies, one prevents. A virtual node joins all nodes in two steps and so *widens* the gap: graph networks
# smooth in fewer layers with it, and dense attention, which sees every node already, does not notice. Laplacian
# encodings of the features delay dense attention by about a layer and slow the graph networks by the share of slow
# modes they add; nothing keeps them there. Put back in every layer they do hold up both GCNs, while in GAT and dense
# attention the mean token goes on growing beside them. A distance bias makes attention a fixed walk on the graph as
# tokens become alike, so its fall is singly exponential again, slow where the diameter is large. Only branches
# divided by $\sqrt L$ leave the residual where it was, on every graph, at every depth from 16 to 128.

# %%
gains = settings["gains"]
standard = gains.index(1)
others = [gain for gain in range(len(gains)) if gain != standard]


def against(dense, *networks):
    """Smallest share over graphs of runs in which dense attention takes fewer layers; least and most of both."""
    means = np.stack(networks).mean(-1)
    share = [float((dense < other).mean(-1).min()) for other in networks]
    return share, [dense.mean(-1).min(), dense.mean(-1).max()], [means.min(), means.max()]


plain = [alone[network, NONE] for network in (0, 1)]
cases = {"alone": against(alone[DENSE, NONE], *plain, alone[2, NONE])}
cases |= {f"alone, logits x {gains[gain]:g}": against(by_gain[gain, 1], *plain, by_gain[gain, 0]) for gain in others}
cases |= {"with a skip": against(alone[DENSE, SKIP], *(alone[network, SKIP] for network in range(DENSE)))}
share, dense_layers, network_layers = zip(*cases.values(), strict=True)
page.judge(
    "S23",
    cases=list(cases),
    networks=NETWORKS[:DENSE],
    faster_share=share,
    dense_layers=dense_layers,
    network_layers=network_layers,
    layers=settings["layers"],
)
at_half = log10[..., half].copy()
at_half[:, SCALED] = measured["log10_scaled"][depths.index(half)]
late = relative((log10[..., -1] - at_half).mean(-1))
remedies = {name: REMEDIES.index(name) for name in REMEDIES if name not in ("none", "skip")}
page.judge(
    "S24",
    kinds={
        "virtual nodes": ["virtual node"],
        "structural encodings": ["Laplacian encoding", "encoding in every layer", "distance bias"],
        "residual scaling": ["skip, scaled"],
    },
    kept_share={name: kept[:, index].min() for name, index in remedies.items()},
    late_share={name: late[:, index].min() for name, index in remedies.items()},
    layers_ratio={name: np.median(alone[:, index] / alone[:, NONE]) for name, index in remedies.items()},
)
page.save(picture)
