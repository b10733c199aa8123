# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # What the bounds on the residual say
#
# ## What is asked
#
# Dong et al. bound the residual of one layer of attention by the cube of the last, in the composite norm
# $\|M\|_{1,\infty} = \sqrt{\|M\|_1\|M\|_\infty}$. How much room do this and the bound in the Frobenius norm leave, from
# which layer on do they say that the residual shrinks, and is that before it has? With skips a bound from below is
# claimed, $\|R_l\| \ge (1-\gamma)^l\|R_0\|$: with which $\gamma$ is it true?
#
# ## How it is measured
#
# Over a fuzz of shapes, weight inits and inputs the residual is followed by scale-free propagation, so that a ratio of
# bound to residual is a number at any depth. As we read theorems 2.2 and 2.3, $\|R'\|_{1,\infty} \le
# 4\gamma_E H\beta\,\|R\|_{1,\infty}^3/\sqrt{d_k}$ with $\beta = \max_h\|W_{QK,h}\|_1\|W_{VO,h}\|_{1,\infty}$ and
# $\gamma_E$ from the logits (1 in the first version). *Derived*: the same from the covariance form of a step, with
# $2(1-1/n)\sqrt{\gamma_E}$ for $4\gamma_E$ and heads added in $\|\cdot\|_1$ and $\|\cdot\|_\infty$, since the composite
# norm breaks the triangle inequality. *Proved*: $\tfrac12\sum_h\|W_{QK,h}\|_2\|W_{VO,h}\|_2\|R\|_F^3/\sqrt{d_k}$;
# *leading order*: $1/n$ for $\tfrac12$, which is not a bound.
#
# The contraction of attention alone is $\max_h\|\Pi P_h\Pi\|_2$. That of the whole branch is the largest
# $\|\Pi\sum_h P_hRW_{VO,h}\|_F/\|R\|_F$ over $R$, approached from below by power steps from the measured $R$.

# %% tags=["parameters"]
figure = "dong_bounds"
results = "results"

# %%
import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, note

page = Page(figure, results)
data, step = page["residual_bounds"], page["attention_step"]
settings = data.provenance.settings
inits = settings["inits"]
BOUNDS = ["published", r"no $\gamma_E$", "derived", "proved", "leading order"]
NAMES = ["published", "published, no gamma", "derived", "Frobenius, proved", "Frobenius, leading order"]
NORM_OF = [0, 0, 0, 1, 1]
picture = new_figure(7.8)
panel = Panels(picture.subplots(3, 3))

# %% [markdown]
# **Slack.** No bound is violated by random weights, the leading order's included; all leave orders of magnitude.

# %%
slack = data["log_slack"] / np.log(10)  # [bound, shape, init, input, run, layer]
axes = panel("bound over residual, one layer", ylabel=r"$\log_{10}$ slack")
axes.boxplot([each.ravel() for each in slack], whis=(0, 100), widths=0.5, medianprops={"color": "C1"})
axes.set_xticks(range(1, len(BOUNDS) + 1), BOUNDS, rotation=30, ha="right")
axes.axhline(0, **THEORY)
axes.set_ylim(bottom=-0.6)
violations = (slack < -1e-9).reshape(len(BOUNDS), -1).sum(1)
note(axes, f"violated: {violations.sum()} of {slack.size}", "upper right")
for name, each, count in zip(NAMES, slack, violations, strict=True):
    page.record("log10 slack", each.ravel(), bound=name, sample=range(each.size))
    page.record("violations", count, bound=name)

axes = panel("slack by shape", xlabel="n, d, H", ylabel=r"median $\log_{10}$ slack")
shapes = [", ".join(map(str, shape)) for shape in settings["shapes"]]
for color, (name, each) in enumerate(zip(NAMES, slack, strict=True)):
    middle = np.median(each, (1, 2, 3, 4))
    axes.plot(middle, "o-", color=f"C{color}", label=name, linewidth=0.8)
    page.record("median log10 slack by shape", middle, bound=name, shape=shapes)
axes.set_xticks(range(len(shapes)), shapes, rotation=60, fontsize=5.5)
axes.set_ylim(top=14)
axes.legend(loc="upper left", fontsize=5)

# %% [markdown]
# **When they say anything.** From the input alone the bounds grow doubly exponentially where $C\|R_0\|^2 > 1$. Given a
# layer's residual they say something once they are below what any row-stochastic matrix allows with these values.

# %%
layer = np.arange(settings["layers"] + 1)
at = (-1, 0, 0, 0)  # the last shape, first init, first input, run 0
residual = data["log_residual"] / np.log(10)
axes = panel("from the input alone", xlabel="layer", ylabel=r"$\log_{10}\,\|R_l\|/\|R_0\|$")
for row, (norm, style) in enumerate((("composite norm", "o-"), ("Frobenius norm", "s-"))):
    fall = residual[(row, *at)] - residual[(row, *at, 0)]
    axes.plot(layer, fall, style, color="0.3", markersize=3 - row, label=f"measured, {norm}")
    page.record("log10 residual over initial", fall, norm=norm, layer=layer)
for color, name in enumerate(NAMES):
    said = data["log_iterated"][(color, *at)] / np.log(10)
    axes.plot(layer, said - said[0], color=f"C{color}", label=name)
    page.record("log10 bound over initial residual", said - said[0], bound=name, layer=layer)
axes.set_yscale("symlog", linthresh=1)
axes.set_yticks([-1e2, -1, 0, 1, 1e2], ["$-10^2$", "-1", "0", "1", "$10^2$"])
axes.axhline(0, **THEORY)
note(axes, "grey: measured", "lower left")


def first(reached: np.ndarray) -> np.ndarray:
    """Return the first layer where it is so, one behind the last where it never is."""
    return np.where(reached.any(-1), reached.argmax(-1), never).ravel()


never = settings["layers"] + 1
collapsed = first(data["log_relative"][1] < np.log(0.01))
axes = panel("when a bound says more", xlabel=r"first layer with $\|R\|/\|X\| < 0.01$", ylabel="bound's first")
for shift, color in ((-0.12, 0), (0.12, 3)):
    factor = data["log_constant"][color] + 2 * data["log_residual"][NORM_OF[color]][..., :-1]
    informative = first(factor < data["log_trivial"][NORM_OF[color]])
    points, counts = np.unique(np.stack([collapsed, informative]), axis=1, return_counts=True)
    axes.scatter(points[0] + shift, points[1], s=3 * counts, color=f"C{color}", linewidths=0, label=NAMES[color])
    page.record("first layer with something to say", informative, bound=NAMES[color], cell=range(len(informative)))
    page.record("late: at the collapse or after it", (informative >= collapsed).mean(), bound=NAMES[color])
page.record("first layer with relative residual below 0.01", collapsed, cell=range(len(collapsed)))
axes.axline((0, 0), slope=1, **THEORY)
names = [*map(str, range(never)), "none"]
axes.set_xticks(range(never + 1), names)
axes.set_yticks(range(never + 1), names)
axes.set_ylim(-0.5, never + 2.2)
axes.legend(loc="upper left", markerscale=0.5)

# %% [markdown]
# **Counter-examples.** (e) For a fixed matrix $\lambda^l$ is the rate, not a bound: a positive matrix with $\lambda =
# 0$ and a residual after one step, and a lazy walk whose residual exceeds $\lambda^l$ by a factor that grows like $l$.
# (f) Two tokens far from the rest pass the leading order's $1/n$. (g) With $W_V = -2I$ one layer takes all of the
# residual, whatever the contraction of $P$.

# %%
walk, nilpotent = step["fixed/path_log_ratio"], step["fixed/nilpotent_norms"]
axes = panel("fixed matrices", xlabel="layer", ylabel="residual", ylim=(-1, 27))
axes.plot(range(len(walk)), np.exp(walk), "o-", label=r"lazy walk, over $\lambda^l\|R_0\|$", markersize=2)
axes.plot(range(len(nilpotent)), nilpotent, "s-", label=r"$\lambda = 0$, $\|R_l\|$", markersize=3)
axes.axhline(1, **THEORY)
axes.legend(loc="upper left")
page.record("lazy walk, residual over lambda^l", np.exp(walk), layer=range(len(walk)))
page.record("residual at lambda = 0", nilpotent, layer=range(len(nilpotent)))

logit, sizes = step["cubic/logit"], [shape[0] for shape in step.provenance.settings["shapes"]]
axes = panel(
    "cubic bounds", xscale="log", yscale="log", xlabel="logit u", ylabel="residual over bound", ylim=(0.01, 200)
)
over_leading = step["cubic/extremes"] * np.array(sizes)[:, None]
for row in np.unique(sizes, return_index=True)[1]:
    axes.plot(logit, over_leading[row], color=f"C{row}", label=f"1/n, n = {sizes[row]}")
    page.record("constructed residual over leading order", over_leading[row], n=sizes[row], logit=logit)
pair = 2 * step["cubic/pair"].max(0)
axes.plot(logit, pair, color="0.3", linestyle=":", label="proved")
page.record("constructed residual over proved bound", pair, logit=logit)
axes.axhline(1, **THEORY)
axes.legend(loc="upper left", ncols=2)

scales, contraction = np.array(settings["value_scales"]), data["pair/contraction"]
axes = panel("two tokens, skip, $W_V = -cI$", xlabel="c", ylabel=r"$\|R_1\|/\|R_0\|$", xlim=(0, 4.2), ylim=(-0.1, 1.5))
axes.plot(scales, data["pair/step"], "o", color="C0", label="measured", zorder=3)
for row, (name, style) in enumerate((("attention alone", "C1"), ("whole branch", "C2"))):
    axes.plot(scales, 1 - contraction[row], color=style, label=rf"$1-\gamma$, {name}")
    page.record("1 - gamma of two tokens", 1 - contraction[row], gamma=name, scale=scales)
axes.legend(loc="upper center")
page.record("residual of two tokens", data["pair/step"], scale=scales)

# %% [markdown]
# **The condition.** The same over the fuzz: random layers, and one head with $W_{VO} = -cI$.

# %%
axes = panel(
    "layers with skip", xlabel=r"$\gamma$", ylabel=r"$\|R'\|/\|R\| - (1-\gamma)$", xscale="log", xlim=(1e-3, 20)
)
moves = np.concatenate([data["skip/step"].ravel(), data["value/step"].ravel()])
kinds = np.concatenate([data["skip/contraction"].reshape(3, -1), data["value/contraction"].reshape(3, -1)], axis=1)
margins = {}
for color, (name, row) in enumerate((("attention alone", 0), ("whole branch", 2)), start=1):
    margins[name] = moves - (1 - kinds[row])
    axes.plot(kinds[row], margins[name], ".", color=f"C{color}", markersize=3, label=name, alpha=0.7)
    page.record("measured ratio less its bound", margins[name], gamma=name, sample=range(len(moves)))
axes.set_yscale("symlog", linthresh=0.1)
axes.set_ylim(-0.4, 300)
axes.axhline(0, **THEORY)
axes.axvspan(1, 20, color="0.93", zorder=0)
broken = int((margins["attention alone"] < -1e-9).sum())
axes.legend(loc="upper left")
note(axes, f"below 0: violated, {broken} of {len(moves)}\ngrey: says nothing", "lower right")

gammas = data["skip/contraction"]  # [kind, shape, init, input, run, layer]
axes = panel("contraction by init", yscale="log", ylabel=r"$\gamma$", ylim=(1e-5, 1e4))
vacuous = (gammas[2] >= 1).mean((0, 2, 3, 4))
for place, init in enumerate(inits):
    for color, (name, row) in enumerate((("attention alone", 0), ("whole branch", 2)), start=1):
        values = np.maximum(gammas[row, :, place].ravel(), 1e-5)
        x = place + 0.3 * (color - 1.5) + np.linspace(-0.12, 0.12, len(values))
        axes.plot(x, values, ".", color=f"C{color}", markersize=2, label=None if place else name)
        page.record("contraction", gammas[row, :, place].ravel(), init=init, gamma=name, sample=range(len(values)))
axes.axhline(1, **THEORY)
axes.set_xticks(range(len(inits)), inits)
axes.legend(loc="upper left")

# %% [markdown]
# ## What follows
#
# No bound was violated in the fuzz. They are far from tight: the published one by five decades in the median and nine
# at the size of BERT, the Frobenius one by three and six. Iterated from the input they stay below the initial residual
# in some networks with BERT's init and hardly ever else. Given a layer's residual, the published bound first says more
# than that rows of $P$ sum to 1 at the layer of collapse or after it in three of eight networks; the Frobenius bound
# is that late in one of eleven. The factor $\gamma_E$ lies between 1 and 3.3, so leaving it out cost nothing here. The
# composite "norm" is sub-multiplicative but no norm; adding heads in $\|\cdot\|_1$ and $\|\cdot\|_\infty$ needs no
# triangle inequality of it and gives a smaller constant. The leading order's $1/n$ holds for random weights and is
# broken by constructed tokens, the more the larger $n$.
#
# The lower bound with skips is the triangle inequality, so it is true with the contraction of the whole branch, values
# and output map included, and says something only where that is below 1: in every layer with BERT's and the linear
# init, in about two of three with the two larger ones. With the contraction of the attention matrices alone it is
# false: two tokens lose all of their residual in one layer, and a few layers of the fuzz fall below it too.

# %%
doubled = data["pair/step"].argmin()
page.judge(
    "S10",
    margin_attention=min(margins["attention alone"].min(), (data["pair/step"] - 1 + contraction[0]).min()),
    margin_branch=min(margins["whole branch"].min(), (data["pair/step"] - 1 + contraction[1]).min()),
    violations=broken,
    layers=len(moves),
    pair_step=data["pair/step"][doubled],
    pair_bound=1 - contraction[0][doubled],
    inits=inits,
    largest_gamma=gammas[2].max((0, 2, 3, 4)),
    vacuous=vacuous,
)
page.save(picture)
