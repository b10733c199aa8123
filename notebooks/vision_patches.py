# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Do the patches of a vision transformer become alike?
#
# ## What is asked
#
# In deep vision transformers, it is said, the patches of a picture become alike: background and detail merge into one
# vector. Do they, how deep does a network have to be, and for which weights and which place of LayerNorm?
#
# ## How it is measured
#
# Vision transformers with the widths of ViT-Ti and ViT-S, patches of 16 pixels, a class token and random position
# embeddings look at random crops of two photographs, scaled to $[-1, 1]$. Weights are drawn as timm does, $N(0,
# 0.02^2)$, or Xavier. Blocks of attention and a gelu MLP $f$ are pre-LN, $X + f(\mathrm{LN}X)$; post-LN,
# $\mathrm{LN}(X + f(X))$; without LayerNorm; without skip, $f(\mathrm{LN}X)$; and scaled, pre-LN with branches
# times $1/\sqrt{2L}$. How alike patches are is the mean cosine of two of them, the class token left aside, in the
# residual stream as a block leaves it; in float32. A trained checkpoint is measured in the same way where the
# setting `checkpoint` names one.

# %% tags=["parameters"]
figure = "vision_patches"
results = "results"

# %%
import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import LETTERS, new_figure, ours, title, whole_numbers

page = Page(figure, results)
measured = page["vision_patches"]
settings = measured.provenance.settings
widths, inits, blocks, depths = (settings[name] for name in ("widths", "inits", "blocks", "scaled_depths"))
layer, shown, runs = np.arange(settings["layers"] + 1), settings["shown_layers"], range(settings["runs"])
PICTURES = ("temple", "flower")
SIZES = {192: "ViT-Ti", 384: "ViT-S"}
sizes = [SIZES.get(width, f"width {width}") for width in widths]
cosine = measured["cosine"]  # [size, init, block, run, picture, layer]
picture = new_figure(8.9)
top, bottom = picture.subfigures(2, 1, height_ratios=[1.05, 1])
letters = iter(LETTERS)

# %% [markdown]
# **Seen on the pictures.** Cosine of every patch to the ringed one, laid over the crop.

# %%
MAPS = (("timm", "pre-LN", 0), ("xavier", "pre-LN", 0), ("xavier", "pre-LN", 1), ("xavier", "post-LN", 1))
maps = [
    (f"{init}, {block}", place, measured["similarity"][inits.index(init), blocks.index(block), place])
    for init, block, place in MAPS
    if init in inits and block in blocks
]
if settings["checkpoint"]:
    maps[-1] = ("trained, at the same shares of its depth", 0, measured["trained_similarity"][0])
side = settings["picture_size"] // settings["patch"]
row, column = divmod(settings["marked_patch"], side)
axes = top.subplots(len(maps), len(shown) + 1, squeeze=False)
for panel, depth in zip(axes[0, 1:], shown, strict=True):
    panel.set_title(f"layer {depth}", loc="center", fontweight="normal")
for line, (name, place, similarity) in zip(axes, maps, strict=True):
    for panel in line:
        panel.imshow(measured["pixels"][0, place], extent=(0, side, side, 0))
        panel.plot(column + 0.5, row + 0.5, "o", markersize=5, markerfacecolor="none", markeredgecolor="red")
        panel.set_axis_off()
    title(line[0], next(letters), name)
    for panel, values in zip(line[1:], similarity, strict=True):
        own = int(len(values) ** 0.5)
        drawn = panel.imshow(values.reshape(own, own), vmin=0, vmax=1, alpha=0.75, extent=(0, side, side, 0))
    page.record(
        "cosine to the marked patch",
        similarity,
        network=name,
        picture=PICTURES[place],
        layer=shown,
        patch=range(len(values)),
    )
top.colorbar(drawn, ax=axes, shrink=0.5, pad=0.01, label="cosine to the ringed patch")

# %% [markdown]
# **By depth.** Mean over pictures, one curve a kind of block, range over runs.

# %%
rows = bottom.add_gridspec(2, 12)
for index, (size, init) in enumerate((s, i) for s in range(len(widths)) for i in range(len(inits))):
    axes = bottom.add_subplot(rows[0, 3 * index : 3 * index + 3])
    title(axes, next(letters), f"{sizes[size]}, {inits[init]}")
    whole_numbers(axes)
    axes.set(xlabel="layer", ylim=(0, 1.03), ylabel=None if index else "mean cosine of two patches")
    axes.tick_params(labelleft=not index)
    for block, name in enumerate(blocks):
        ours(axes, layer, cosine[size, init, block].mean(1), label=name)
handles = axes.get_legend_handles_labels()
page.record("cosine", cosine, size=sizes, init=inits, block=blocks, run=runs, picture=PICTURES, layer=layer)
page.record(
    "relative residual",
    measured["relative"],
    size=sizes,
    init=inits,
    block=blocks,
    run=runs,
    picture=PICTURES,
    layer=layer,
)

# %% [markdown]
# **What it depends on.** Depth of scaled networks, scale of the pictures, and training.

# %%
STYLES = ("-", "--")
axes = bottom.add_subplot(rows[1, :4])
title(axes, next(letters), "scaled, at the end")
axes.set(xlabel="depth L", ylabel="mean cosine", ylim=(0, 1.03), xscale="log")
for size, name in enumerate(sizes):
    for init, draw in enumerate(inits):
        values = measured["scaled_cosine"][:, size, init].mean(-1).T  # [run, depth]
        ours(axes, depths, values, color=f"C{5 + init}", linestyle=STYLES[size % 2], label=f"{name}, {draw}")
axes.legend(loc="upper left")
page.record(
    "cosine, scaled", measured["scaled_cosine"], depth=depths, size=sizes, init=inits, run=runs, picture=PICTURES
)

scales = settings["input_scales"]
swept = bottom.add_subplot(rows[1, 4:8])
title(swept, next(letters), f"pre-LN, {sizes[0]}, layer {settings['layers']}")
swept.set(xlabel="factor on the pictures", ylim=(0, 1.03), xscale="log")
for init, draw in enumerate(inits):
    ours(swept, scales, measured["input_cosine"][:, init].mean(-1).T, color=f"C{5 + init}", label=draw)
swept.legend(loc="lower left")
page.record("cosine by input scale", measured["input_cosine"], scale=scales, init=inits, run=runs, picture=PICTURES)
for panel, values in ((axes, depths), (swept, scales)):
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.minorticks_off()

axes = bottom.add_subplot(rows[1, 8:])
axes.set(xlabel="layer", ylim=(0, 1.03))
whole_numbers(axes)
trained_curve = np.array([])
if settings["checkpoint"]:
    title(axes, next(letters), "trained")
    values = measured["trained_cosine"]  # [run, picture, layer]
    ours(axes, np.arange(values.shape[-1]), values.mean(1), color="black", label=settings["checkpoint"].split("/")[-1])
    axes.legend(loc="lower right")
    trained_curve = values.mean((0, 1))
    page.record("cosine, trained", values, run=runs, picture=PICTURES, layer=range(values.shape[-1]))
else:  # no trained weights are embedded; what stands here is the other measure of likeness
    title(axes, next(letters), f"$\\|R\\|/\\|X\\|$, {sizes[-1]}, {inits[-1]}")
    for block in range(len(blocks)):
        ours(axes, layer, measured["relative"][-1, -1, block].mean(1))
bottom.legend(*handles, loc="outside lower center", ncols=len(blocks))

# %% [markdown]
# ## What follows
#
# At random initialisation it depends on the weights more than on the depth. With $N(0, 0.02^2)$, as vision
# transformers are initialised, branches are small beside what they are added to, and patches keep apart through 48
# layers, most of all in the narrow network, where these weights are smallest for the width. With Xavier weights
# post-LN blocks and blocks without LayerNorm make all patches nearly one within a dozen layers; pre-LN blocks do so
# slowly, as their mean token grows only linearly. Without skip all patches are one after two to four layers
# whatever the weights. Branches divided by $\sqrt{2L}$ keep patches apart at every depth.
#
# What is small is relative to the pictures: scaled up by two, about what ImageNet's own normalisation does, pre-LN
# patches end less alike, scaled down more so. A number for "deep vision transformers" therefore means little
# without init and normalisation. The claim is about trained networks besides. None is embedded here, so that part is
# not run: name one under `checkpoint`, and it is measured and judged with the rest.

# %%
names = [f"{size} {init} {block}" for size in sizes for init in inits for block in blocks]
means = cosine.mean((3, 4)).reshape(len(names), -1)
page.judge(
    "S22", configurations=names, start=means[:, 0], end=means[:, -1], layers=settings["layers"], trained=trained_curve
)
page.save(picture)
