# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # The attention spectrum of a random RoBERTa on text
#
# ## What is asked
#
# The theory of *Mind the Gap* assumes orthonormal tokens. Embedded text is not orthonormal: does the spectral gap of
# attention survive it?
#
# ## How it is measured
#
# An English text through byte-level BPE, cut to $T = 75, 282, 446$ tokens, enters a RoBERTa with the public
# configuration and fresh random weights. $X_0$ is what the embedding layer puts out, $A$ the attention of head 1 in
# layer 1, its eigenvalues in float64 for a pool of independent initialisations. At random initialisation only *which
# tokens are equal* matters, so everything is done twice: on our text, and on tokens repeated exactly as in the
# published figure.

# %% tags=["parameters"]
figure = "rebuttal_01"
results = "results"

# %%
import numpy as np
from matplotlib.ticker import NullLocator, ScalarFormatter

from rankcollapse import published
from rankcollapse.page import Page
from rankcollapse.plotting import LETTERS, THEORY, new_figure, note, title
from rankcollapse.text_panels import NAMES, STATISTICS, agreements, bulk_moduli, off_diagonal, spectrum

page = Page(figure, results)
roberta = page["roberta_attention"]
settings = roberta.provenance.settings
sources, lengths = settings["sources"], settings["lengths"]
EMBEDDINGS = "0.02"  # standard deviation of the word embeddings: as the architecture initialises them
PUBLISHED_LENGTHS = set(published.read("fig_I_d_eigenvalues")["T"])
letters = iter(LETTERS)


def measured(name):
    """A tensor of the encoders with these word embeddings."""
    return roberta[f"{EMBEDDINGS}/{name}"]


def eigenvalues(source, length):
    """All runs' eigenvalues, the outlier first."""
    return measured(f"eigenvalues_re/{source}/{length}") + 1j * measured(f"eigenvalues_im/{source}/{length}")


picture = new_figure(6.9)
rows = picture.add_gridspec(3, 1, height_ratios=[1, 0.82, 0.95])
heat, spectra, below = (rows[row].subgridspec(1, 3) for row in range(3))

# %% [markdown]
# **The inputs.** The shared token-type embedding gives any two tokens a cosine of about one third; equal tokens stand
# out.

# %%
for column, length in enumerate(lengths):
    gram = measured(f"gram/text/{length}")
    axes = picture.add_subplot(heat[column])
    image = axes.imshow(gram, vmin=0, vmax=gram.max(), rasterized=True)
    axes.grid(False)
    axes.set(xlabel="token", ylabel="token" if column == 0 else None)
    title(axes, next(letters), f"$X_0X_0^\\top$, T = {length}")
picture.colorbar(image, ax=picture.axes, shrink=0.9, pad=0.01)

# %% [markdown]
# **The spectra.** One run of ours over the published realisation; the Kolmogorov-Smirnov distance compares the
# published moduli with the whole pool, first on our text, then on the published repeats.

# %%
theirs = {T: published.eigenvalues("fig_I_d_eigenvalues", {"T": T}) for T in lengths if T in PUBLISHED_LENGTHS}
spectrum_panels = []
for column, length in enumerate(lengths):
    drawn, known = eigenvalues("text", length)[0], theirs.get(length)
    bulk = spectrum(picture, spectra[column], page, drawn, known, source="text", reach=1.8)
    spectrum_panels.append(bulk)
    title(bulk, next(letters), f"eigenvalues, T = {length}")
    if known is not None:
        pools = {source: eigenvalues(source, length) for source in sources}
        note(bulk, "\n".join(agreements(page, known, pools).values()))
picture.legend(*spectrum_panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)

# %%
axes = picture.add_subplot(below[0])
bulk_moduli(axes, page, eigenvalues, theirs, lengths, dict(zip(sources, ("-", (0, (1, 1))), strict=False)))
title(axes, next(letters), "bulk moduli; black: published")

axes = picture.add_subplot(below[1])
statistics = {name: measured(f"off_diagonal/{name}") for name in STATISTICS}
off_diagonal(axes, page, statistics, published.read("heatmaps", {"figure": "I"}).set_index("T"), sources, lengths)
title(axes, next(letters), "how far from orthogonal")

axes = picture.add_subplot(below[2])
radius = measured("bulk_radius")
for color, source in enumerate(sources):
    axes.plot(lengths, radius[color], "o", color=f"C{color}", alpha=0.4)
    axes.plot([], [], "o", color=f"C{color}", label=NAMES[source])
    page.record("next modulus", radius[color], source=source, T=lengths, run=range(radius.shape[-1]))
exponent = np.polyfit(np.log(lengths), np.log(radius.mean(-1)).T, 1)[0]
line = radius[0, 0].mean() * np.sqrt(lengths[0] / np.array(lengths))
axes.plot(lengths, line, **THEORY, label=r"$\propto T^{-1/2}$")
axes.set(xscale="log", yscale="log", xlabel="tokens T", ylabel=r"$|\lambda_2|$")
axes.xaxis.set_minor_locator(NullLocator())
axes.yaxis.set_minor_formatter(ScalarFormatter())
axes.yaxis.set_major_formatter(ScalarFormatter())
axes.set_xticks(lengths, map(str, lengths))
axes.legend(loc="lower left")
note(axes, "fitted exponents " + ", ".join(f"{value:.2f}" for value in exponent))
page.record("exponent of the next modulus in T", exponent, source=sources)
title(axes, next(letters), "the gap widens with T")

# %% [markdown]
# ## What follows
#
# The inputs are far from orthogonal and the gap is there all the same: one eigenvalue 1 and a bulk a few hundredths of
# it, which shrinks with $T$, though more slowly than the $T^{-1/2}$ of orthonormal tokens. On tokens repeated as in the
# published figure the spectra agree with the published ones; our own text repeats its words more often, which widens
# the bulk, and the distance says so. What was plotted here is also what the caption defines.

# %%
diagonal, off = measured("diagonal/mean"), measured("off_diagonal/mean")
page.judge(
    "M01",
    lengths=lengths,
    leading_error=np.abs(measured("top_eigenvalue") - 1).max(),
    bulk_radius=radius.max((0, 2)),
    off_diagonal_share=(off / diagonal).min(),
)
page.save(picture)
