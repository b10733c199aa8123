# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # One step of attention, exactly
#
# ## What is asked
#
# The argument for doubly exponential collapse has five steps: averages stay in the convex hull, a fixed transition
# matrix contracts at its second eigenvalue, row softmax ignores the mean token, small residuals make attention uniform,
# and one layer cubes the residual. Is each of them true as stated?
#
# ## How it is measured
#
# Every statement is tried on random inputs over sizes, logit scales and mean tokens, and, where random inputs cannot
# decide, on a constructed case whose value is known in closed form. Hull membership is decided by a linear programme.
# The fifth step has a proof for every input, derived here: row $i$ of $P - \mathbf 1 p^\top$ is an average of
# $E_i(\mathrm{diag}\,q - qq^\top)$, whose norm is at most $\tfrac12\|E_i\|$, so $\|R'\|_F \le \tfrac12\sum_h
# \|W_{QK,h}\|_2\|W_{VO,h}\|_2\,\|R\|_F^3/\sqrt{d_k}$.

# %% tags=["parameters"]
figure = "dong_step"
results = "results"

# %%
import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, note, ours

page = Page(figure, results)
step, san = page["attention_step"], page["san_depth"]
settings = step.provenance.settings
sizes = [f"{tokens}, {width}" for tokens, width in settings["shapes"]]
tokens = np.array(settings["shapes"])[:, 0]
picture = new_figure(7.6)
panel = Panels(picture.subplots(3, 3))

# %% [markdown]
# **Averages.** A row-stochastic matrix never widens the range of a coordinate or the diameter. The Frobenius norm of
# the residual is another matter: it counts how many tokens are far out, and an average can move more of them there.

# %%
SPREADS = ["diameter", "range", "frobenius"]
MAPS = ["P", "P and values"]
ratio = step["spread/ratio"].reshape(2, 3, -1)
axes = panel("spread after / before", yscale="log", ylabel="ratio", ylim=(1e-4, 50))
for color, name in enumerate(MAPS):
    for place, spread in enumerate(SPREADS):
        x = place + 0.3 * color - 0.15 + np.linspace(-0.1, 0.1, ratio.shape[-1])
        axes.plot(x, ratio[color, place], ".", color=f"C{color}", markersize=2, label=name if not place else None)
        page.record(
            "spread after over before", ratio[color, place], map=name, spread=spread, sample=range(ratio.shape[-1])
        )
axes.axhline(1, **THEORY)
axes.set_xticks(range(3), SPREADS)
axes.legend(loc="upper left")

growth, bound = step["growth/ratio"], step["growth/bound"]
axes = panel("residual grown by averaging", xscale="log", xlabel="tokens n", ylabel=r"$\|\Pi P R\|_F/\|R\|_F$")
axes.plot(tokens, growth, "o", label="constructed tokens")
axes.plot(tokens, bound, **THEORY, label=r"$\sqrt{2ab/n}$, the most possible")
axes.axhline(1, color="0.6", linewidth=0.6)
axes.legend(loc="upper left")
page.record("Frobenius growth of constructed tokens", growth, n=tokens)
page.record("most growth possible", bound, n=tokens)

# %% [markdown]
# **A fixed transition matrix.** The rate is $|\lambda_2|$, but the constant 1 in front of it needs a normal matrix.

# %%
KINDS = ["symmetric", "reversible", "softmax", "causal", "lazy path"]
worst = step["fixed/log_worst"][:, 0] / np.log(10)
axes = panel(
    "constant for a fixed matrix", xlabel="layer", ylabel=r"$\log_{10}\;\max_R \|R_l\|/(|\lambda_2|^l\|R_0\|)$"
)
for kind, by_run in zip(KINDS, worst, strict=True):
    ours(axes, np.arange(worst.shape[-1]), by_run, label=kind)
    page.record(
        "log10 worst ratio to lambda^l", by_run, kind=kind, run=range(len(by_run)), layer=range(worst.shape[-1])
    )
axes.axhline(0, **THEORY)
axes.legend(loc="upper left")

# %% [markdown]
# **Shifts of the logits.** Row softmax ignores what is constant along a row, $c\mathbf 1^\top$; adding $\mathbf 1
# c^\top$, one number per column, changes it.

# %%
shift, formula = step["shift/difference"], step["shift/formula"]
cases = {
    r"$c\,\mathbf{1}^\top$": shift[0],
    r"$\mathbf{1}c^\top$": shift[1],
    r"with $\mathbf{1}r^\top$": formula[0],
    r"without, $x=0$": formula[1][:, :, [settings["mean_sizes"].index(0)]],
    r"without, $x\neq0$": formula[1][:, :, np.array(settings["mean_sizes"]) > 0],
}
axes = panel("largest entry difference", yscale="log", ylim=(1e-18, 10), ylabel="max |difference|")
for color, (name, difference) in enumerate(cases.items()):
    values = np.maximum(difference.ravel(), 1e-18)  # exact zeros at the axis
    axes.plot(color + np.linspace(-0.25, 0.25, values.size), values, ".", markersize=2, color=f"C{color}")
    page.record("largest entry difference", difference.ravel(), case=name, sample=range(difference.size))
axes.set_xticks(range(len(cases)), cases, rotation=35)

# %% [markdown]
# **The zero-logit limit.** Left: attention approaches uniform linearly in the logit scale. Right: along the layers of a
# pure self-attention network the part $E$ of the logits that differs between rows falls like $\|R\|^2$; the part
# $\mathbf 1 r^\top$, present when there is a mean token, falls like $\|R\|$ only.

# %%
scale, deviation = step["uniform/scale"], step["uniform/deviation"].mean(-1)
axes = panel(
    "towards uniform attention",
    xscale="log",
    yscale="log",
    xlabel="scale of the logits",
    ylabel=r"$\|P-\mathbf{1}\mathbf{1}^\top/n\|_F$",
)
for size, values in zip(sizes, deviation, strict=True):
    axes.plot(scale, values, label=f"n, d = {size}")
    page.record("distance from uniform attention", values, size=size, scale=scale)
axes.legend(loc="lower right")

residual = san["depth/log_norm"][..., :-1] / np.log(10)
mean = san.provenance.settings["inputs"].index("mean")
axes = panel(
    "logits by residual", xlabel=r"$\log_{10}\|R\|_F$, thousands", ylabel=r"$\log_{10}$ largest logit, thousands"
)
for name, key in ((r"all, with $\mathbf{1}r^\top$", "spread"), (r"$E$ alone", "quadratic")):
    logits = san[f"depth/log10_logit_{key}"]
    axes.plot(
        residual[0, mean].T / 1e3,
        logits[0, mean].T / 1e3,
        "o-",
        color=f"C{int(key == 'quadratic')}",
        markersize=2,
        linewidth=0.6,
    )
    axes.plot([], [], "o-", color=f"C{int(key == 'quadratic')}", label=name)
    page.record(f"log10 logit, {key}", logits[0, mean], run=range(logits.shape[2]), layer=range(logits.shape[-1]))
page.record("log10 residual", residual[0, mean], run=range(residual.shape[2]), layer=range(residual.shape[-1]))
axes.legend(loc="upper left")

# %% [markdown]
# **The cubic step.** The ratio stays below $\tfrac12$ for every input. At small residuals without a mean token it comes
# down to the leading order's $1/n$; with large residuals, or a large mean token, it is far from it, and pairs of tokens
# come as close to $\tfrac12$ as one likes.

# %%
norm, cubic = step["cubic/norm"], step["cubic/ratio"][0]  # full attention: [mean, shape, init, norm, run]
axes = panel(
    "the cubic bound", xscale="log", yscale="log", xlabel=r"$\|R\|_F$", ylabel="ratio to the bound's right side"
)
for color, size in enumerate(settings["mean_sizes"]):
    highest = cubic[color].max((1, 3))  # over inits and runs
    for values in highest:
        axes.plot(norm, values, color=f"C{color}", linewidth=0.8)
    axes.plot([], [], color=f"C{color}", label=f"mean token of size {size:g}")
    page.record("largest cubic ratio", highest, mean=size, size=sizes, norm=norm)
axes.axhline(0.5, **THEORY)
axes.set_ylim(1e-7, 2)
axes.legend(loc="lower left")
note(axes, "dashed: ½, proved")

error = step["cubic/leading_error"].max((2, 3, 5))  # [expansion, mean, norm]
axes = panel(
    "error of the leading order",
    xscale="log",
    yscale="log",
    xlabel=r"$\|R\|_F$",
    ylabel="relative error",
    ylim=(1e-17, 1e4),
)
for row, (expansion, style) in enumerate((("p = softmax(r)", "-"), ("p = 1/n", (0, (1, 1))))):
    for color, size in enumerate(settings["mean_sizes"]):
        values = np.maximum(error[row, color], 1e-17)
        axes.plot(norm, values, color=f"C{color}", linestyle=style, label=f"{expansion}, mean {size:g}")
        page.record("largest error of the leading order", error[row, color], expansion=expansion, mean=size, norm=norm)
axes.legend(loc="lower right", fontsize=5)

logit = step["cubic/logit"]
axes = panel("the ratio at its worst", xscale="log", xlabel="logit u", ylabel="ratio", ylim=(0, 0.55), xlim=(1e-5, 1e6))
for name in ("pair", "extremes"):
    for row, (size, values) in enumerate(zip(sizes, step[f"cubic/{name}"], strict=True)):
        style = "-" if name == "pair" else (0, (1, 1))
        axes.plot(
            logit, values, color=f"C{row}", linestyle=style, label=f"n = {tokens[row]}" if name == "pair" else None
        )
        page.record(f"ratio of constructed tokens, {name}", values, size=size, logit=logit)
axes.axhline(0.5, **THEORY)
axes.legend(loc="center right")
note(axes, "lines: pairs\ndots: extremes", "lower right")

# %% [markdown]
# ## What follows
#
# The hull statement is true; that attention never increases the spread is true of ranges and diameters, not of the
# Frobenius residual the argument goes on with, and values rescale all of them. The constant 1 of the fixed-matrix bound
# fails for matrices that are not normal. Row softmax is *not* invariant to $\mathbf 1c^\top$, so the formula without
# $\mathbf 1r^\top$ is wrong whenever there is a mean token; the order of convergence survives, since $\mathbf 1 p^\top
# R$ has no residual. The cubic inequality holds for every input, with a constant from weight norms alone; the factor
# $1/n$ belongs to the leading order at zero mean and is not a bound.

# %%
fits = {key: np.diff(san[f"depth/log10_logit_{key}"]) / np.diff(residual) for key in ("spread", "quadratic")}
small = (san["depth/log10_relative"] < -2)[..., :-2]  # both ends of the step are small
near = scale < 0.01
mapped = step["spread/ratio"]
page.judge(
    "S01",
    hull_distance=step["hull/distance"][0].max(),
    range_ratio=mapped[0, :2].max(),
    frobenius_ratio=max(mapped[0, 2].max(), growth.max()),
    value_ratio=mapped[1].max(),
)
rate = step["fixed/rate"][:, 0] / step["fixed/subdominant"]
page.judge("S02", kinds=KINDS, worst_ratio=np.exp(step["fixed/log_worst"][:, 0].max((1, 2))), rate=rate.mean(1))
page.judge("S03", per_row=shift[0].max(), per_column=shift[1].max(), without_r=cases[r"without, $x\neq0$"].max())
page.judge(
    "S04",
    uniform_slope=np.diff(np.log(deviation[:, near])).mean() / np.diff(np.log(scale[near])).mean(),
    all_slope=np.median(fits["spread"][:, mean][small[:, mean]]),
    row_slope=np.median(fits["quadratic"][:, mean][small[:, mean]]),
)
page.judge(
    "S05",
    largest_ratio=max(cubic.max(), step["cubic/pair"].max(), step["cubic/extremes"].max(), step["cubic/search"].max()),
)
page.save(picture)
