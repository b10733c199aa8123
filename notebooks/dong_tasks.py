# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # What paths of different lengths learn to do
#
# ## What is asked
#
# Attention-only networks are trained to sort, to find the vertices of convex hulls and to learn random labels by heart.
# Do the short paths through them carry what they have learnt, and do long paths, which attention alone has collapsed,
# carry nothing? And does one block, applied to its own output again and again, collapse two points on a circle to one?
#
# ## How it is measured
#
# Post-LN blocks with a skip connection and no MLP, trained as released (Adam, dropout 0.1, batches in a fixed order),
# several runs and learning rates in one tensor program. A path of length $k$ takes a random head in $k$ of the $L$
# blocks and skips the others; along it there is no skip connection, LayerNorm has no affine part, and attention is
# computed from the path's own tokens. The tokens of 5 or 20 such paths are added, normalised and read by the trained
# head; five draws each. Held-out data, but for the texts, which are to be learnt by heart: independent words after
# Zipf's law, a fair coin as the label of every token. Where fewer sets or epochs are trained than were released, the
# share stands in the panel (`config/tasks-full.yaml` has all of them). The circle: a block is trained to move each of
# two points on half circles one step on, then applied 300 times to its own output. It has two skip connections, one
# around its attention and one across steps; what was released as "no skip" lacks only the second.

# %% tags=["parameters"]
figure = "dong_tasks"
results = "results"

# %%
import numpy as np

from rankcollapse.falling import compare_fall, compare_lead, compare_level
from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, PlacedPanels, circle, new_figure, note, ours

page = Page(figure, results)
TASKS = {"sorting": 0.6, "hull": 0.65, "memorization": 0.8}  # what length-1 paths are stated to exceed
tasks = {name: page[f"{name}_task"] for name in TASKS}
spins = page["circle_task"]
picture = new_figure(8.9)
panel = PlacedPanels(picture)
rows = picture.add_gridspec(5, 1, height_ratios=[1.25, 0.85, 0.85, 0.95, 0.95])
by_task = [row.subgridspec(1, 3) for row in (rows[0], rows[1], rows[2])]


def style(index, counts):
    """Dots for the fewest paths that are added, a line for the most."""
    return "-" if index == len(counts) - 1 else (0, (1, 1))


# %% [markdown]
# **Accuracy by path length.** Colour: learning rate. Lines: mean over draws, with the range over runs. Dash-dotted in
# the same colour: the whole network. Grey: always the most frequent label (dashed), and the best answer that needs no
# attention at all, from the position or from the word alone (dotted).

# %%
for column, (name, measured) in enumerate(tasks.items()):
    settings = measured.provenance.settings
    rates, counts, lengths = settings["learning_rates"], settings["path_counts"], np.arange(settings["layers"] + 1)
    by_run = measured["path_accuracy"].mean(-1)  # [rate, run, count, length]
    axes = panel(
        by_task[0][column], name, xlabel="path length", ylabel=None if column else "accuracy", ylim=(-0.02, 1.18)
    )
    for color, rate in enumerate(rates):
        for index in range(len(counts)):
            label = f"{rate:g}" if index == len(counts) - 1 else None
            ours(axes, lengths, by_run[color, :, index], color=f"C{color}", linestyle=style(index, counts), label=label)
        axes.axhline(measured["accuracy"][color].mean(), color=f"C{color}", linestyle="-.", linewidth=0.8)
    axes.axhline(measured["majority"].mean(), **THEORY)
    for key in ("by_position", "by_symbol"):
        if key in measured.tensors:
            axes.axhline(measured[key].mean(), color="0.35", linewidth=0.8, linestyle=":")
            page.record(key, measured[key], task=name, run=range(len(measured[key])))
    share = settings["sets"] * settings["epochs"] / (settings["released_sets"] * settings["released_epochs"])
    note(axes, f"{share:.0%} of the released steps", "upper right")
    corner = (0.66, 0.56) if name == "sorting" else "lower right"
    axes.legend(loc=corner, title="learning rate", title_fontsize=5.5, fontsize=5.5)
    runs = range(settings["runs"])
    page.record("path accuracy", by_run, task=name, learning_rate=rates, run=runs, paths=counts, length=lengths)
    page.record("accuracy of the network", measured["accuracy"], task=name, learning_rate=rates, run=runs)
    page.record("accuracy without skips", measured["accuracy_without_skips"], task=name, learning_rate=rates, run=runs)
    page.record("accuracy of the most frequent label", measured["majority"], task=name, run=runs)

# %% [markdown]
# **Why.** How much the tokens at the end of a path still differ. Float32 resolves about $10^{-7}$.

# %%
for column, (name, measured) in enumerate(tasks.items()):
    settings = measured.provenance.settings
    rates, counts, lengths = settings["learning_rates"], settings["path_counts"], np.arange(settings["layers"] + 1)
    by_run = np.maximum(measured["path_residual"].mean(-1), 1e-8)
    axes = panel(by_task[1][column], f"{name}: residual", xlabel="path length", yscale="log", ylim=(3e-9, 3))
    axes.set_ylabel(None if column else r"$\|R\|_F/\|X\|_F$")
    for color in range(len(rates)):
        for index in range(len(counts)):
            ours(axes, lengths, by_run[color, :, index], color=f"C{color}", linestyle=style(index, counts))
    runs = range(settings["runs"])
    page.record("relative residual", by_run, task=name, learning_rate=rates, run=runs, paths=counts, length=lengths)

# %% [markdown]
# **Learning.** The whole network: while learning, with dropout (dotted), and tested after each epoch (line).

# %%
for column, (name, measured) in enumerate(tasks.items()):
    settings = measured.provenance.settings
    rates, epochs = settings["learning_rates"], np.arange(1, settings["epochs"] + 1)
    axes = panel(by_task[2][column], f"{name}: learning", xlabel="epoch", ylabel=None if column else "accuracy")
    axes.set_ylim(-0.02, 1.05)
    for color, rate in enumerate(rates):
        for key, line in (("train_accuracy", (0, (1, 1))), ("test_accuracy", "-")):
            ours(axes, epochs, measured[key][color], color=f"C{color}", linestyle=line)
            page.record(
                key, measured[key][color], task=name, learning_rate=rate, run=range(settings["runs"]), epoch=epochs
            )
    if "ceiling" in measured.tensors:
        axes.axhline(measured["ceiling"].mean(), **THEORY)
        note(axes, "dashed: the most possible", "lower right")
        page.record("most possible", measured["ceiling"], task=name, run=range(settings["runs"]))

# %% [markdown]
# **The circle.** Where the two points (colours) go, all runs, at the first learning rate; a dot where they end.

# %%
settings = spins.provenance.settings
rates, runs, steps = settings["learning_rates"], range(settings["runs"]), np.arange(settings["steps"] + 1)
NAMES = [
    "both skips" if own and across else "own skip only" if own else "skip across steps only" if across else "no skip"
    for own, across in spins["variants"]
]
path = spins["trajectory"]  # [variant, rate, run, step, token, coordinate]
place = rows[3].subgridspec(1, 4)
for variant, name in enumerate(NAMES):
    axes = panel(place[variant], name, xlim=(-0.58, 0.58), ylim=(-0.58, 0.58), box_aspect=1, xticks=[-0.3, 0.3])
    axes.set(yticks=[-0.3, 0.3], aspect="equal")
    circle(axes, 0.3)
    for token in (0, 1):
        for run in runs:
            x, y = path[variant, 0, run, :, token].T
            axes.plot(x, y, color=f"C{token}", linewidth=0.4, alpha=0.6)
            axes.plot(x[-1], y[-1], ".", color=f"C{token}", markersize=3, zorder=4)
for axis, coordinate in enumerate("xy"):
    page.record(
        f"trajectory, {coordinate}",
        path[:, 0, :, :, :, axis],
        learning_rate=rates[0],
        variant=NAMES,
        run=runs,
        step=steps,
        token=[1, 2],
    )

# %%
apart = np.linalg.norm(path[..., 0, :] - path[..., 1, :], axis=-1) / 0.6  # [variant, rate, run, step]
collapsed = (apart[..., -1] < 0.01).sum(-1)  # [variant, rate]
place = rows[4].subgridspec(1, len(rates) + 1)
for index, rate in enumerate(rates):
    axes = panel(place[index], f"learning rate {rate:g}", xlabel="step", yscale="log", ylim=(3e-8, 5))
    axes.set_ylabel(None if index else "distance / first distance")
    for variant, name in enumerate(NAMES):
        for run in runs:
            label = name if not run else None
            axes.plot(
                steps, np.maximum(apart[variant, index, run], 1e-7), color=f"C{variant}", linewidth=0.5, label=label
            )
    page.record("distance", apart[:, index], learning_rate=rate, variant=NAMES, run=runs, step=steps)
picture.axes[-1].legend(loc="lower left", bbox_to_anchor=(0.09, 0.06), fontsize=5)
axes = panel(place[len(rates)], "runs that end in one point", ylabel="runs", ylim=(-0.4, len(runs) + 0.4))
for index, rate in enumerate(rates):
    axes.plot(
        range(4), collapsed[:, index], "os"[index % 2], color=f"C{index}", markersize=4 - index, label=f"{rate:g}"
    )
axes.set_xticks(range(4), ["both", "own", "across", "none"])
axes.yaxis.get_major_locator().set_params(integer=True)
axes.legend(loc="upper left", title="learning rate", title_fontsize=5.5, fontsize=5.5)
page.record("runs that end in one point", collapsed, variant=NAMES, learning_rate=rates)

# %% [markdown]
# ## What follows
#
# **Sorting** does nearly what was published. At the released learning rate the network has learnt only .56, at 1e-3
# .997. Paths of length 1 reach .46, short of the stated .6, and .63, above it, and from there accuracy falls to the
# level of a constant answer, where it stays: Spearman's correlation with length is -.96 and, with its flat tail, -.56.
# But paths of length 0 are not without information: they know the position, which alone is worth .35, and paths of
# length 2 do worse.
#
# **Memorization** does so too, on a quarter of the texts: the network learns all that can be learnt without positions
# (.86), paths of length 1 reach .796 (stated: above .8), which is more than a word alone allows (.71), and longer ones
# nothing. It is a cliff, not a slope: length 2 is at .43, *below* guessing, and the rest at .5, so the rank correlation
# is no different from 0 although length 1 leads by .31.
#
# **Hulls** do not. The network learns the task (.89 and .95), but no length of path beats the answer "on the hull" for
# every point, which is right for .595 of them (the released figure draws this line at .54 and the whole network's as a
# constant .9). Length 1 is the best at the released rate, with .59 (stated: above .65); at 1e-3, where learning is over
# after a few epochs, accuracy rises with length: collapsed tokens all get one answer, and that is the constant one.
#
# So long paths have collapsed and predict nothing in all three tasks, and length 1 leads wherever paths predict
# anything; but a network can do far more than its short paths can do alone, most of all for hulls.
#
# **The circle.** At the released learning rate Adam hardly moves the weights, and what is seen is attention as it was
# drawn: with both skips no run of 8 ends in one point; with only the block's own, which is what was released as "no
# skip", 3 do; with only the one across steps 4; and without any all 8. Trained with 1e-3, one run of 8 collapses
# without any skip, one with only its own, and none otherwise: a block can learn not to mix its tokens, skip or not.

# %%
for name, measured in tasks.items():
    settings = measured.provenance.settings
    if settings["layers"] != 6:
        continue  # not the released networks
    by_run = measured["path_accuracy"].mean(-1)[:, :, -1]  # the most paths added
    for rate, values in zip(settings["learning_rates"], by_run, strict=True):
        where = f"{name}, learning rate {rate:g}, {settings['path_counts'][-1]} paths"
        page.agree(where, compare_fall(np.arange(1, settings["layers"] + 1), values[:, 1:]))
        page.agree(where, compare_lead(values[:, 1:]))
        page.agree(f"{where}, length 1", compare_level(TASKS[name], values[:, 1]))
page.save(picture)
