# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # The spectral gap by activation
#
# ## What is asked
#
# Is the spectral gap of ReLU and sigmoid attention smaller than that of softmax, and can it be removed in the same
# way? And does differential attention, the difference of two softmaxes, lower the energy in the dominant direction?
#
# ## How it is measured
#
# One random head on orthonormal tokens: logits $z$ of variance $s^2$ ($s^2 = 1$ for $W_Q, W_K \sim N(0,1)$), either
# independent ($\gamma = T/d \to 0$) or with $d = T$ ($\gamma = 1$). The entries of $A$ are
#
# - softmax; ReLU $\max(z, 0)/T$ (Wortsman et al. 2023); linear $z/T$;
# - sigmoid with the bias $-\ln T$, $\sigma(z - \ln T)$ (Ramapuram et al. 2024), and with the scaling of ReLU,
#   $\sigma(z)/T$;
# - differential attention $\mathrm{softmax}(M_1) - \lambda\,\mathrm{softmax}(M_2)$ (Ye et al. 2024) with their initial
#   $\lambda = 0.8 - 0.6\,e^{-0.3(l-1)}$ in layer $l$.
#
# With $A_{ij} = f(z_{ij})/T$ the mean row sum $m = \mathbb E f$ makes the outlier and the spread the bulk, so the
# limits are (derived here) $|\lambda_1|/|\lambda_2| \to \sqrt T\,|m|/\mathrm{sd} f$ for every $\gamma \le 1$ and
# $s_1/s_2 \to \sqrt T\,|m|/b$ with an edge $b$ that is $2\,\mathrm{sd} f$ for independent logits. What has to be
# removed is therefore $m\,\mathbf 1\mathbf 1^\top/T$; $m = 1$ for softmax only.

# %% tags=["parameters"]
figure = "gap_activations"
results = "results"

# %%
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, ours
from rankcollapse.theory.random_attention import eigenvalue_gap, moments, singular_gap, top_share

page = Page(figure, results)
measured = page["gap_activations"]
settings = measured.provenance.settings
activations, ratios, sizes = settings["activations"], settings["ratios"], settings["tokens"]
variances, runs, largest = settings["logit_variances"], range(settings["runs"]), settings["tokens"][-1]
VARIANCE = page.catalogue.claims["M13"].limits["variance"]
unit = variances.index(VARIANCE)
REMOVED = ("nothing", "11ᵀ/T", "E f 11ᵀ/T")

# axes: activation, variance, gamma, tokens, run, removed
eigen, singular = (measured[name][..., 0] / measured[name][..., 1] for name in ("eigenvalue", "singular"))
difference = measured["eigenvalue"][..., 0] - measured["eigenvalue"][..., 1]
axes_of = {"activation": activations, "variance": variances, "gamma": ratios, "T": sizes, "run": runs}
for name, values in {"|λ₁|/|λ₂|": eigen, "s₁/s₂": singular, "|λ₁| − |λ₂|": difference}.items():
    page.record(name, values, **axes_of, removed=REMOVED)

# %% [markdown]
# (a-d) are before anything is removed, solid for independent logits; open circles are $\gamma = 1$ in (d). Linear
# attention has mean 0: no gap, nothing to remove.

# %%
picture = new_figure(7.3)
panel = Panels(picture.subplots(3, 3))
GAPS = (
    ("ratio of moduli", "$|λ_1|/|λ_2|$", eigen, lambda name, size: eigenvalue_gap(name, VARIANCE, size)),
    ("ratio of singular values", "$s_1/s_2$", singular, lambda name, size: singular_gap(name, VARIANCE, 0, size)),
    ("difference of moduli", "$|λ_1| - |λ_2|$", difference, None),
)
for text, label, values, law in GAPS:
    axes = panel(text, xlabel="tokens $T$", ylabel=label, xscale="log", yscale="log" if law else "linear")
    for k, name in enumerate(activations):
        ours(axes, sizes, values[k, unit, 0, :, :, 0].T, label=name, color=f"C{k}")
        if law:
            curve = [law(name, size) for size in sizes]
            axes.plot(sizes, curve, **THEORY | {"color": f"C{k}"})
            page.record(f"limit of {label}", curve, activation=name, variance=VARIANCE, gamma=0, T=sizes)
    axes.set_xticks(sizes, map(str, sizes))
    axes.xaxis.set_minor_locator(NullLocator())

axes = panel(f"logit variance, T = {largest}", xlabel="$s^2$", ylabel="$|λ_1|/|λ_2|$", xscale="log", yscale="log")
spread = np.geomspace(min(variances) / 1.3, max(variances) * 1.3, 40)
for k, name in enumerate(activations):
    for column, ratio in enumerate(ratios):
        face = f"C{k}" if ratio == 0 else "none"
        size = 3 + 3 * (ratio != 0)
        axes.plot(
            variances,
            eigen[k, :, column, -1, :, 0].mean(-1),
            "o",
            color=f"C{k}",
            markerfacecolor=face,
            markersize=size,
        )
    curve = [eigenvalue_gap(name, variance, largest) for variance in spread]
    axes.plot(spread, curve, **THEORY | {"color": f"C{k}"})
    page.record("limit of |λ₁|/|λ₂| by variance", curve, activation=name, T=largest, variance=spread)
axes.set_xticks(variances, [f"{variance:g}" for variance in variances])
axes.xaxis.set_minor_locator(NullLocator())

for text, label, values in (
    ("after removal: moduli", "$|λ_1|/|λ_2|$", eigen),
    ("after removal: singular", "$s_1/s_2$", singular),
):
    axes = panel(text, ylabel=label, yscale="log")
    for k in range(len(activations)):
        shifted = np.arange(3) + 0.06 * (k - 2)  # side by side
        axes.plot(shifted, values[k, unit, 0, -1].mean(0), marker="o", color=f"C{k}", linewidth=0.6)
    axes.set_xticks(range(3), ["nothing", "$11^T/T$", "$E f\\;11^T/T$"])
    axes.set(xlim=(-0.35, 2.35), xlabel=f"removed from $A$, T = {largest}")

# %% [markdown]
# The share of the energy that lies along the top direction, in two ways: of the largest singular value, and of
# $\mathbf 1\mathbf 1^\top/T$, the direction that centring takes out.

# %%
top, along, weights = (measured[f"share/{name}"] for name in ("top", "uniform", "weight"))
kinds = ["softmax", *(f"differential, layer {layer}" for layer in settings["differential_layers"]), "centred"]
for name, values in {"share of s₁²": top, "share along 11ᵀ": along}.items():
    page.record(name, values, kind=kinds, variance=variances, gamma=ratios, T=sizes, run=runs)
spread = moments("softmax", VARIANCE, largest).variance
line = np.linspace(0, weights[-2], 60)
for text, values, law in (
    ("largest singular value", top, lambda weight, size: top_share(1 - weight, (1 + weight**2) * spread, size)),
    ("along 11ᵀ", along, lambda weight, size: (1 - weight) ** 2 / ((1 - weight) ** 2 + (1 + weight**2) * spread)),
):
    axes = panel(text, xlabel="$λ$ of differential attention", ylabel="share of $\\|A\\|_F^2$", ylim=(0, 0.56))
    for k, size in enumerate((sizes[0], largest)):
        ours(axes, weights[:-1], values[:-1, unit, 0, 0 if k == 0 else -1].T, color=f"C{k}", label=f"T = {size}")
        centred = values[-1, unit, 0, 0 if k == 0 else -1].mean()
        axes.plot(0.98, centred, "s", color=f"C{k}", markerfacecolor="none", clip_on=False)
        curve = [law(weight, size) for weight in line]
        axes.plot(line, curve, **THEORY | {"color": f"C{k}"})
        page.record(f"law of the share, {text}", curve, T=size, variance=VARIANCE, weight=line)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 0.98], ["0", "0.25", "0.5", "0.75", "centred"])
    axes.legend(loc="upper right")
axes = panel(
    "share of $s_1^2$ by size", xlabel="tokens $T$", ylabel="share of $\\|A\\|_F^2$", xscale="log", yscale="log"
)
for k, name in enumerate(kinds):
    ours(axes, sizes, top[k, unit, 0].T, color=f"C{k}", label=name)
    weight = weights[k]
    curve = [top_share(1 - weight, (1 + weight**2) * spread if weight < 1 else spread, size) for size in sizes]
    axes.plot(sizes, curve, **THEORY | {"color": f"C{k}"})
    page.record("law of the share of s₁²", curve, kind=name, variance=VARIANCE, T=sizes)
axes.set_xticks(sizes, map(str, sizes))
axes.xaxis.set_minor_locator(NullLocator())
axes.set_ylim(1e-3, 0.7)
axes.legend(loc="lower left")
handles = [Line2D([], [], color=f"C{k}", label=name) for k, name in enumerate(activations)]
picture.legend(handles=handles, loc="outside upper center", ncols=len(activations), title="activation, panels a to f")

# %% [markdown]
# ## What follows
#
# *Gap* has two meanings. As the difference $|\lambda_1| - |\lambda_2|$ it is smaller for $\max(z,0)/T$ and
# $\sigma(z)/T$, but only because these rows do not sum to 1: divide softmax by two and its gap halves too. What
# decides about collapse has no scale. In ratio of eigenvalues ReLU is just below softmax at $s^2 = 1$, with limits
# $\sqrt{T/(\pi-1)} = 0.68\sqrt T$ and $\sqrt{T/(e^{s^2}-1)} = 0.76\sqrt T$, and above it from $s^2 = \ln\pi = 1.14$
# on: ReLU's ratio does not depend on $s$. In ratio of singular values it is no smaller at these sizes, because the few
# largest entries of softmax hold its $s_2$ above the limit until $T$ of some thousands. Sigmoid with its bias is
# softmax without the row normalisation and has its gap, or a larger one; without the bias the gap is three times as
# large.
#
# Removing the gap works for all, but with the constant $\mathbb E f$ in place of 1. Subtracting $\mathbf 1\mathbf
# 1^\top/T$ itself from ReLU or sigmoid attention leaves an outlier $m - 1$, as large as before or larger, and gives
# linear attention one that it did not have.
#
# Differential attention keeps $(1-\lambda)^2$ of the energy along $\mathbf 1\mathbf 1^\top$ and adds $\lambda^2$ of
# independent noise to the bulk; centring takes all of it. At the first layer's $\lambda = 0.2$ little happens; at
# $0.78$ the outlier barely leaves the bulk, and at the smallest $T$ it does not.

# %%
paired = [(values - values[activations.index("softmax")])[:, unit, :, -1, :, 0] for *_, values, _ in GAPS]
errors = [gap.std(-1, ddof=1) / np.sqrt(gap.shape[-1]) for gap in paired]
z = [(gap.mean(-1) / np.where(error > 0, error, np.inf)).max(-1) for gap, error in zip(paired, errors, strict=True)]
gaps = [values[:, unit, :, -1, :, 0].mean((-2, -1)) for *_, values, _ in GAPS]
after = max(values[:, unit, :, -1, :, 2].max() for values in (eigen, singular))
page.judge("M13", activations=activations, gaps=np.transpose(gaps), z_scores=np.transpose(z), largest_after=after)
falls = (np.diff(along[:, unit], axis=0) < 0).all(0)
page.judge("M16", tokens=sizes, weights=weights, along_violations=int((~falls).sum()), top_share=top[:, unit].mean(-1))
page.save(picture)
