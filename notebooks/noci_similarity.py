# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # How alike tokens become with skips
#
# ## What is asked
#
# A skip carries every token past the attention branch, whose scale is $a$. Noci et al. (2022) follow the inner
# products of tokens and propose $a \sim 1/\sqrt L$ for $L$ layers. Does the cosine of two tokens go to 1 when the skip
# is too weak for the depth; where does $1/\sqrt L$ leave it; and what does attention itself do meanwhile?
#
# ## How it is measured
#
# $X \leftarrow X + aPXW_V$, then an MLP inside its own skip of the same scale, without LayerNorm or with it after each
# sum, from $X$ of $N(0,1)$ entries; all weights $N(0,1/d)$, the same in every network. Uniform attention adds the mean
# token's second moment $m$ to $q = \mathbb E\|x_i\|^2/d$ and to $p = \mathbb E\langle x_i,x_j\rangle/d$, so that
# $r = m/(q-p)$ grows by exactly $1+a^2$ a layer and $\rho = p/q = (r-1/n)/(r+1-1/n)$; a linear MLP or LayerNorm after
# the sum change nothing in it. For $a = t/\sqrt L$ it tends to $(e^{t^2}-1)/(e^{t^2}-1+n)$. This ratio is the one that
# the figure on skips follows as a relative residual. For softmax the same recursion takes how much rows of the
# measured attention overlap, with themselves and with each other.

# %% tags=["parameters"]
figure = "noci_similarity"
results = "results"

# %%
from itertools import product

import numpy as np

from rankcollapse.page import Page
from rankcollapse.plotting import THEORY, Panels, new_figure, ours
from rankcollapse.theory.noci import closed_form, deep_limit, half_depth, similarity, uniform_overlaps

page = Page(figure, results)
noci = page["noci_similarity"]
settings = noci.provenance.settings
tokens, layers, norms, mlps = (settings[name] for name in ("tokens", "layers", "norms", "mlps"))
strengths, depths = settings["strengths"], settings["depths"]
cosine, entropy, overlaps = noci["cosine"], noci["entropy"], noci["overlaps"]
ATTENTIONS = ("uniform", "softmax")
scales = np.array([*(t / layers**0.5 for t in strengths), *settings["scales"]])
names = [rf"${t:g}/\sqrt{{{layers}}}$" for t in strengths] + [f"{a:g}" for a in settings["scales"]]
plain_names = [f"{t:g}/sqrt({layers})" for t in strengths] + [f"{a:g}" for a in settings["scales"]]
depth, runs = np.arange(layers + 1), range(settings["runs"])
LINES = {"none": "-", "post": (0, (1, 1))}
TITLES = {"none": "no MLP", "linear": "linear MLP", "relu": "ReLU MLP"}

picture = new_figure(7.6)
panel = Panels(picture.subplots(3, 3))

# %% [markdown]
# **Cosine by depth**, against the recursion: with the overlaps $1/n$ of uniform attention, and with those measured.

# %%
for (k, attention), (m, mlp) in product(enumerate(ATTENTIONS), enumerate(mlps)):
    axes = panel(f"{attention}, {TITLES[mlp]}", xlabel="layer", ylabel="cosine", ylim=(-0.03, 1.05))
    for (s, name), (o, norm) in product(enumerate(plain_names), enumerate(norms)):
        values = cosine[k, o, m, s]
        label = {"attention": attention, "mlp": mlp, "layer_norm": norm, "scale": name}
        seen = uniform_overlaps(tokens, layers) if attention == "uniform" else overlaps[o, m, s].mean(0).T
        theory = similarity(scales[s], seen, mlp)
        ours(axes, depth, values, color=f"C{s}", linestyle=LINES[norm])
        if not o:
            axes.plot(depth, theory, **THEORY | {"zorder": 4})
        page.record("cosine", values, **label, run=runs, layer=depth)
        page.record("recursion", theory, **label, layer=depth)
        off = values.mean(0) - theory
        page.record("largest distance of the mean from the recursion", np.abs(off).max(), **label)
        page.record("distance at the end", off[-1], **label)
        page.record("standard error of the mean at the end", values[:, -1].std(ddof=1) / len(runs) ** 0.5, **label)

# %% [markdown]
# **Depths.** Does $t/\sqrt L$ have a limit?

# %%
axes = panel(r"$a = t/\sqrt{L}$, by depth", xlabel="$L$", ylabel="cosine at the end", xscale="log", ylim=(0, 1))
for s, t in enumerate(strengths):
    end = noci["limit/cosine"][:, s].T
    ours(axes, depths, end, color=f"C{s}", label=f"$t$ = {t:g}", marker=".")
    exact = [closed_form(t / length**0.5, length, tokens)[-1] for length in depths]
    axes.plot(depths, exact, **THEORY)
    axes.axhline(deep_limit(t, tokens), **THEORY | {"linestyle": ":"})
    page.record("cosine at the end", end, strength=t, run=runs, L=depths)
    page.record("closed form at the end", exact, strength=t, L=depths)
    page.record("limit of deep networks", deep_limit(t, tokens), strength=t)
axes.minorticks_off()
axes.set_xticks(depths, map(str, depths))
axes.legend(loc="upper left")

axes = panel("entropy of softmax, no MLP", xlabel="layer", ylabel=r"$H/\ln n$", ylim=(-0.03, 1.05))
for (s, name), (o, norm) in product(enumerate(plain_names), enumerate(norms)):
    ours(axes, depth[1:], entropy[o, 0, s], color=f"C{s}", linestyle=LINES[norm])
    for m, mlp in enumerate(mlps):
        label = {"mlp": mlp, "layer_norm": norm, "scale": name}
        page.record("entropy over ln n", entropy[o, m, s], **label, run=runs, layer=depth[1:])

axes = panel("distance from 1, no MLP", xlabel="layer", ylabel="1 - cosine", yscale="log", ylim=(1e-8, 2))
for s, a in enumerate(scales):
    for k, style in enumerate(("-", (0, (1, 1)))):
        far = 1 - cosine[k, 0, 0, s].mean(0)
        label = f"$a$ = {names[s]}" if not k else None
        axes.plot(depth[far > 0], far[far > 0], color=f"C{s}", linestyle=style, label=label)
    axes.plot(depth, 1 - closed_form(a, layers, tokens), **THEORY | {"zorder": 4})
axes.legend(loc="lower right")

# %% [markdown]
# ## What follows
#
# With a fixed branch scale the cosine goes to 1, half of it within $\ln(n+1)/\ln(1+a^2)$ layers; with $a = t/\sqrt L$
# it has a limit below 1 as the depth grows, .051 at $t = 1$ and .63 at $t = 2$ without a ReLU. A ReLU MLP alone pulls
# tokens together faster than uniform attention does, so $1/\sqrt L$ leaves more likeness there, but still a limit.
# LayerNorm after the sum changes nothing in this. The law is one of large width: at $d = 256$ runs spread by up to .1
# in mid-curve, more with a linear MLP, whose mean of five is off by up to .09; without MLP it is off by .04 at most.
#
# Softmax attention without LayerNorm adds a second collapse. Logits grow with the tokens, and at $a = 1$ attention is
# one-hot within twenty layers while the cosine goes to 1: both collapses at once, not a choice between them. Saturated
# attention mixes less, and the same recursion with its overlaps says by how much: with a linear MLP, which makes the
# tokens grow fastest, attention has saturated before they are alike, and at $a = .3$ a hundred layers leave the cosine
# near 1/2 where uniform attention is at .99. It still rises; it is later, not prevented. The other networks that fall
# short of .99 there do so by less than .002. With $a = 1/\sqrt L$ the entropy hardly moves.

# %%
PLACES = {"none": "no LayerNorm", "post": "post-LN"}
networks = [
    ", ".join((attention, TITLES[mlp], PLACES[norm])) for attention, norm, mlp in product(ATTENTIONS, norms, mlps)
]
page.judge(
    "S15",
    networks=networks,
    scales=plain_names,
    half_depths=[half_depth(a, tokens) for a in scales],
    layers=layers,
    cosine=cosine[..., -1].mean(-1).reshape(len(networks), -1),
)
page.save(picture)
