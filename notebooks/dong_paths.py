# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Attention with skips as a sum over paths
#
# ## What is asked
#
# With skips every layer of attention is passed either by the skip or through one of its $H$ heads, so $L$ layers are a
# sum over paths. How many of each length are there, how much of the output does each length carry, and how fast does a
# path lose rank by its length?
#
# ## How it is measured
#
# The attention matrices $P$ are held fixed at what an ordinary forward pass has; the network is then linear, and the
# sum of all paths through $k$ heads obeys $X_{l+1,k} = X_{l,k} + \sum_h P_{l,h} X_{l,k-1} W_{VO,l,h}$. One pass gives
# every length exactly, in the time of about $(L+1)/2$ passes instead of $(H+1)^L$ paths. Each $X_{l,k}$ is carried as
# mean token and residual with a logarithm of its norm, which $P\mathbf 1 = \mathbf 1$ allows; taking the mean off at
# the end shows rounding once the residual is below $10^{-16}$ of it. Biases add the same row to every token, whatever
# $P$ is: they are paths of length 1 that start in their layer, and reach no residual. LayerNorm and MLP are not
# part of the sum; in the encoders they only shape the matrices. The part of length $k$ in the residual is
# $\langle R_k, R\rangle/\|R\|^2$, and these parts sum to 1. The trained network is MiniLM: 6 layers, $H = 12$,
# $d = 384$.

# %% tags=["parameters"]
figure = "dong_paths"
results = "results"

# %%
import numpy as np

from rankcollapse import published
from rankcollapse.agreement import Agreement, compare_z
from rankcollapse.page import Page
from rankcollapse.path_counts import path_counts, path_shares
from rankcollapse.plotting import PUBLISHED_CURVE, THEORY, Panels, new_figure, note, ours, published_curve

page = Page(figure, results)
data = page["path_lengths"]
settings = data.provenance.settings
NETWORKS = {f"san_{init}": f"attention + skip, {init}" for init in settings["inits"]}
NETWORKS |= {"random_encoder": "BERT at initialisation", "trained_encoder": "MiniLM, trained"}
shares = {name: data[f"{name}/share"] for name in NETWORKS}  # [run, length]
heads = dict.fromkeys(NETWORKS, 12) | dict.fromkeys([f"san_{init}" for init in settings["inits"]], settings["heads"])
at_published_size = (settings["architecture"], settings["layers"], settings["tokens"]) == ("bert-base-cased", 12, 128)
picture = new_figure(7.8)
panel = Panels(picture.subplots(3, 3))

# %% [markdown]
# **How many paths.** Exact integers against the published shares, nine architectures.

# %%
curves = published.read("dong_path_length")
axes = panel("share of paths by length", xlabel="path length k", yscale="log", ylim=(1e-10, 2), xlim=(0, 97))
worst = 0.0
for (layers, count), rows in curves.groupby(["L", "H"]):
    name = ", ".join(dict.fromkeys(rows["architecture"])).replace('"', "")
    exact = np.array(path_shares(layers, count))
    axes.plot(range(layers + 1), exact, linewidth=1, label=f"L = {layers}, H = {count}")
    theirs, length = rows["proportion"].to_numpy(), rows["path_length"].to_numpy()
    seen = theirs > 1e-10
    published_curve(axes, length[seen], theirs[seen], label=None, linestyle="none", markersize=2)
    page.record("exact share of paths", exact, architecture=name, length=range(layers + 1))
    page.record("published share of paths", theirs, architecture=name, length=length)
    worst = max(worst, np.abs(theirs - exact[length]).max())
axes.legend(loc=(0.37, 0.42), fontsize=5)
resolution = published.RESOLUTION["dong_path_length"]
text = f"largest difference {worst:.0e} ≤ {resolution:.0e}"
page.agree("path lengths", Agreement("largest difference", worst, resolution, bool(worst <= resolution), text))
note(axes, text, "lower right")

# %% [markdown]
# **What they carry.** Almost all paths are long; almost all of the residual comes by the short ones.

# %%
axes = panel("share of paths and of residual", xlabel="path length k", yscale="log", ylim=(1e-16, 20))
for color, (name, label) in enumerate(NETWORKS.items()):
    share, length = shares[name], np.arange(shares[name].shape[1])
    counted = np.array(path_shares(length[-1], heads[name]))
    ours(axes, length, np.abs(share), label=label, color=f"C{color}")
    if name in ("san_bert", "trained_encoder"):
        axes.plot(length, counted, color=f"C{color}", linestyle=":")
    page.record("part in the residual", share, network=label, run=range(len(share)), length=length)
    page.record("share of paths", counted, network=label, length=length)
axes.plot([], [], color="0.4", linestyle=":", label="share of paths")
picture.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=5)

for text, key in (("residual by length", "log_residual"), ("norm by length", "log_norm")):
    symbol = "R_k" if key == "log_residual" else "X_k"
    axes = panel(text, xlabel="path length k", ylabel=rf"$\log_{{10}}\,\|{symbol}\|_F$")
    for color, (name, label) in enumerate(NETWORKS.items()):
        values = data[f"{name}/{key}"] / np.log(10)
        length = np.arange(values.shape[1])
        ours(axes, length, values, color=f"C{color}")
        page.record(f"log10 {symbol}", values, network=label, run=range(len(values)), length=length)
        if key == "log_residual":
            plain = data[f"{name}/log_residual_uncentred"] / np.log(10)
            axes.plot(length, plain.mean(0), ":", color=f"C{color}")
            page.record("log10 R_k from plain numbers", plain, network=label, run=range(len(plain)), length=length)
    if key == "log_residual":
        note(axes, "dotted: from plain numbers", "lower left")

# %%
cosines = data["trained_encoder/cosines"].mean(0)
axes = panel("cosines, trained", xlabel="path length k", ylabel="path length k'")
axes.grid(visible=False)
image = axes.imshow(cosines, vmin=-1, vmax=1, cmap="RdBu_r", origin="lower")
picture.colorbar(image, ax=axes, shrink=0.8, ticks=(-1, 0, 1))
cancelled = {}
for name, label in NETWORKS.items():
    # norm of the sum over the root of the sum of squares: 1 when lengths are orthogonal, below when they cancel
    log_residual, cosine = data[f"{name}/log_residual"], data[f"{name}/cosines"]
    size = np.exp(log_residual - log_residual.max(1, keepdims=True))
    whole = np.sqrt(np.einsum("rk,rkj,rj->r", size, cosine, size))
    cancelled[name] = whole / np.sqrt((size**2).sum(1))
    page.record(
        "norm of the sum over the root of summed squares", cancelled[name], network=label, run=range(len(whole))
    )
off = cosines[~np.eye(len(cosines), dtype=bool)]
page.record("cosines between lengths, trained", cosines, length=range(len(cosines)), other=range(len(cosines)))
note(axes, f"largest off the diagonal {np.abs(off).max():.2f}", "lower right")

# %% [markdown]
# **Products of attention matrices.** The published box plot of chained paths multiplies the matrices recorded in an
# ordinary pass, so attention is frozen there too. Its weights at initialisation are drawn as ours are; its trained
# network is BERT, of which there are no weights here, so ours is another network on other texts.

# %%
products = {name: data[f"product/{name}"] / np.log(10) for name in ("random_encoder", "trained_encoder")}
single = np.log10(np.maximum(data["product/random_encoder_float32"], 1e-12))
for color, (name, weights, text) in enumerate(
    (("random_encoder", "init", "products at initialisation"), ("trained_encoder", "pretrained", "products, trained"))
):
    values = products[name]  # [draw, length, path]
    length = np.arange(1, values.shape[1] + 1)
    axes = panel(text, xlabel="path length k", ylabel=r"$\log_{10}$ distance from rank one")
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=(0, 2))
    axes.plot(length, middle, color=f"C{color + 2}", label=NETWORKS[name])
    axes.fill_between(length, low, high, color=f"C{color + 2}", alpha=0.25, linewidth=0)
    quartiles = np.stack([low, middle, high])
    page.record("log10 distance from rank one", quartiles, network=NETWORKS[name], quartile=(1, 2, 3), length=length)
    table = published.read("dong_chained_paths", {"weights": weights}).sort_values("path_length")
    box = np.log10(table[["q1", "median", "q3"]].to_numpy()).T
    error = np.abs(box[[0, 2]] - box[1])
    where = table["path_length"].to_numpy()
    axes.errorbar(
        where, box[1], error, **PUBLISHED_CURVE, elinewidth=0.6, capsize=1.5, label=f"published, BERT {weights}"
    )
    page.record("published log10 distance from rank one", box, weights=weights, quartile=(1, 2, 3), length=where)
    if name == "random_encoder":
        median = np.median(single, axis=1)
        axes.plot(length, median, ":", color="C2", label="the same in 32-bit floats")
        page.record("log10 distance from rank one, 32-bit, median", median, length=length)
        if at_published_size:
            by_draw = np.median(values, axis=2)[:, :3]  # lengths above the floor of 32-bit floats
            found = compare_z(box[1, :3], by_draw, 1, published.RESOLUTION["dong_chained_paths"])
            page.agree("medians at initialisation, lengths 1 to 3", found)
            note(axes, found.text, "lower left")
    axes.set_ylim(top=7 if name == "random_encoder" else None)  # room for the legend
    axes.legend(loc="upper right" if name == "random_encoder" else "lower left")

# %% [markdown]
# **Frozen and recomputed.** The same heads, once with the matrices of the forward pass, once with attention computed
# from the path's own tokens, as in the released training tasks (there with a LayerNorm after each step).

# %%
KINDS = ["frozen", "recomputed", "recomputed, LayerNorm"]
shown = {name: NETWORKS[name] for name in ("random_encoder", "trained_encoder")}
axes = panel("residual along one path", xlabel="path length k", ylabel=r"$-\log_{10}\,\|R_k\|/\|R_0\|$")
axes.set_yscale("log")
orders = panel("local order along one path", xlabel="path length k", ylabel="$q_k$", ylim=(0, 5))
tails = {}
for name, label in shown.items():
    chain = data[f"{name}/chain"] / np.log(10)  # [kind, run, chain, step]
    fall = chain[..., :1] - chain
    order = data[f"{name}/chain_order"]
    style = "-" if name == "random_encoder" else "--"
    for color, kind in enumerate(KINDS):
        step, typical = np.arange(1, fall.shape[-1]), np.median(fall[color], (0, 1))[1:]
        axes.plot(step, np.where(typical > 0, typical, np.nan), style, color=f"C{color}", marker=".", markersize=3)
        middle = np.median(order[color], (0, 1))
        orders.plot(step[:-1], middle, style, color=f"C{color}", label=kind if style == "-" else None)
        page.record("log10 residual lost along a path, median", typical, network=label, kind=kind, length=step)
        page.record("local order along a path, median", middle, network=label, kind=kind, length=step[:-1])
        tails[name, kind] = middle[-1]
for level in (1, 3):
    orders.axhline(level, **THEORY)
orders.legend(loc="upper right")
note(axes, "solid: BERT at initialisation\ndashed: MiniLM, trained", "upper left")

# %% [markdown]
# ## What follows
#
# The number of paths is $(H+1)^L$; $2^L$ is right only when a layer's heads count as one branch. The published
# shares are the exact ones. Nearly all paths are long, and at initialisation nearly nothing of the residual comes by
# them: with weights as small as BERT's every further head costs two decades, and the skip alone carries 0.999. With
# Glorot weights the *norm* peaks at length 6, because the mean token grows along the paths, while the residual falls
# from length 0 on. Lengths hardly cancel: their residuals are nearly orthogonal. In the trained network the heads keep
# much more: lengths 0, 1 and 2 share the residual.
#
# Products of frozen matrices lose rank singly exponentially, by 1.7 decades a matrix at initialisation. The published
# medians fall as ours do, up to 0.13 decades below them, more than their reading error of 0.08 and our spread between
# draws; their texts, which are not at hand, are the likely reason. What they show from length 4 on is the rounding of
# 32-bit floats, where the exact distance goes on to $10^{-19}$. Only attention that is recomputed from the path's own
# tokens decays doubly exponentially, with order 3, at initialisation and trained; along a frozen path the order is 1 at
# initialisation and scatters about it in the six trained layers, which differ. The published box plot is of the first
# kind, the released training tasks are of the second.

# %%
short = {name: share[:, : -(-(share.shape[1] - 1) // 2)].sum(1).min() for name, share in shares.items()}
layers, count = settings["layers"], settings["heads"]
counts = path_counts(layers, count)
page.judge(
    "S09",
    layers=layers,
    heads=count,
    paths=sum(counts),
    random_shares={NETWORKS[name]: float(value) for name, value in short.items() if name != "trained_encoder"},
    trained_shares={NETWORKS["trained_encoder"]: float(short["trained_encoder"])},
    short_paths=sum(counts[: -(-layers // 2)]) / sum(counts),
)
page.save(picture)
