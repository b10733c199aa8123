"""What a user may set: one frozen dataclass per measurement, checked before any job starts.

No mathematics and no torch here: the workflow reads this module at every start, and a measurement's rule
depends on the values (its ``params``), not on this file.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Size = Annotated[int, Field(gt=0)]
Sizes = Annotated[tuple[Size, ...], Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Positives = Annotated[tuple[Positive, ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]
File = Annotated[str, Field(min_length=1), "a file that must be there before any job starts"]

settings = dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))


WeightInit = Literal["xavier", "bert", "normal1d", "linear"]
WeightInits = Annotated[tuple[WeightInit, ...], Field(min_length=1)]


@settings
class SanDepth:
    """Self-attention networks by depth, the residual followed below machine precision (Dong et al. 2021)."""

    tokens: Annotated[int, Field(ge=2)]  # n, tokens
    width: Size  # d, channels
    heads: Size  # H; must divide width
    layers: Annotated[int, Field(ge=2)]  # L of the depth curves and of the gain sweep
    runs: Size  # draws of weights and tokens for the depth curves
    side_runs: Size  # draws for everything else
    inits: WeightInits  # weight inits of the depth curves, the gain sweep and the one-layer ladder
    inputs: Annotated[tuple[Literal["mean", "iid"], ...], Field(min_length=1)]  # kinds of input tokens
    gains: Positives  # factors of W_QK
    ladder_top: int  # log10 of the largest residual norm of the one-layer ladder
    ladder_bottom: int  # log10 of the smallest; one rung a decade
    contrast_layers: Size  # depth of full, causal, ALiBi and frozen attention side by side
    alibi_slope: Positive  # logit lost per token of distance, every head
    frozen_logit_stds: Positives  # standard deviations of the logits of a frozen attention matrix
    mlp_layers: Annotated[int, Field(ge=2)]  # depth of attention + MLP
    mlp_ratio: Size  # hidden channels of the MLP, in widths
    activations: Annotated[tuple[Literal["relu", "tanh", "gelu"], ...], Field(min_length=1)]  # of the MLP
    skip_layers: Size  # depth of attention + skip
    skip_inits: WeightInits  # weight inits of attention + skip

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide width {self.width}")
        if not -100 <= self.ladder_bottom <= self.ladder_top <= 10:
            raise ValueError(f"ladder_bottom, ladder_top: {self.ladder_bottom}, {self.ladder_top}; within -100 and 10")
        if self.ladder_bottom >= self.ladder_top:
            raise ValueError(f"ladder_bottom: {self.ladder_bottom} is not below ladder_top {self.ladder_top}")
        return self


NotNegatives = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Field(min_length=1)]


@settings
class AttentionStep:
    """One attention step: hulls, spreads, fixed matrices, shifts, the zero-logit limit and the cubic bound."""

    shapes: Annotated[tuple[tuple[Size, Size], ...], Field(min_length=1)]  # (tokens n, width d) of each fuzzed input
    runs: Size  # independent draws of every random input
    heads: Size  # heads of the cubic step, each of width d / heads
    inits: WeightInits  # weight inits of the cubic step
    logit_gains: Positives  # standard deviations of the logits of Gaussian tokens
    mean_sizes: NotNegatives  # standard deviations of the mean token's coordinates; 0 = no mean token
    hull_rows: Size  # rows of P X tested against the hull, per draw
    markov_tokens: Annotated[int, Field(ge=3)]  # states of the fixed transition matrices
    markov_layers: Annotated[int, Field(ge=4)]  # layers a fixed transition matrix is applied
    logit_variance: Positive  # variance of the fixed matrices' Gaussian logits
    scale_decades: tuple[float, float]  # log10 of the smallest and largest factor on the logits
    scale_points: Annotated[int, Field(ge=2)]  # factors between them
    residual_decades: tuple[float, float]  # log10 of the smallest and largest residual norm (and constructed logit)
    residual_points: Annotated[int, Field(ge=2)]  # norms between them
    search_tokens: Sizes  # numbers of tokens in the ascent on the cubic ratio
    search_steps: Size  # steps of that ascent

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for tokens, width in self.shapes:
            if width % self.heads or tokens < 2:
                raise ValueError(
                    f"shapes: ({tokens}, {width}) needs at least 2 tokens and a width divisible by heads = {self.heads}"
                )
        if self.hull_rows > min(tokens for tokens, _ in self.shapes):
            raise ValueError(f"hull_rows: {self.hull_rows}; at most the fewest tokens of shapes")
        if min(self.search_tokens) < 2:
            raise ValueError(f"search_tokens: {min(self.search_tokens)}; at least 2")
        for name in ("scale_decades", "residual_decades"):
            low, high = getattr(self, name)
            if not -100 <= low < high <= 100:
                raise ValueError(f"{name}: ({low}, {high}) must rise and stay within (-100, 100)")
        return self


TokenRatio = Annotated[float, Field(ge=0, le=1)]  # gamma = T/d: above 1 tokens cannot be orthonormal; 0 = any width
TokenRatios = Annotated[tuple[TokenRatio, ...], Field(min_length=1)]
TokenCounts = Annotated[tuple[Annotated[int, Field(ge=4)], ...], Field(min_length=1)]  # T; at least 4 for a bulk
Activation = Literal["softmax", "relu", "sigmoid", "sigmoid/T", "linear"]


@settings
class GapActivations:
    """Spectral gap by activation, before and after the mean is removed, and the share of the top direction."""

    activations: Annotated[tuple[Activation, ...], Field(min_length=1)]  # in the order of the tensors' axis
    logit_variances: Positives  # s^2 of a logit
    ratios: TokenRatios  # gamma, of orthonormal tokens
    tokens: TokenCounts
    runs: Annotated[int, Field(ge=2)]  # independent draws of the weights; at least 2 for a spread
    differential_layers: Sizes  # layers whose initial lambda differential attention is given, counted from 1

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if "softmax" not in self.activations or len(set(self.activations)) < len(self.activations):
            raise ValueError(f"activations: {', '.join(self.activations)}; softmax and others, each at most once")
        if 1 not in self.logit_variances:
            raise ValueError("logit_variances: 1 must be among them, the variance that N(0, 1) weights give")
        return self


@settings
class GapFiniteSize:
    """Leading eigenvalues and singular values of softmax attention against their limits, by number of tokens."""

    tokens: TokenCounts
    runs: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1)]  # draws at each number of tokens
    logit_variance: Positive  # s^2 of a logit
    orthonormal_ratios: TokenRatios  # gamma of orthonormal tokens
    gaussian_ratios: Positives  # gamma of Gaussian tokens of unit length

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.runs) != len(self.tokens):
            raise ValueError(f"runs: {len(self.runs)} values for {len(self.tokens)} numbers of tokens; one each")
        if min(self.tokens) < max(self.gaussian_ratios):
            raise ValueError(f"gaussian_ratios: at most the fewest tokens, {min(self.tokens)}, or the width is below 1")
        return self


@settings
class GapQuantisation:
    """Largest singular value, entry range and int8 error of the tokens after attention layers, gap kept or removed."""

    tokens: TokenCounts  # T; the width d is the same, so that tokens start orthonormal
    runs: Annotated[int, Field(ge=2)]  # independent draws; at least 2 for a spread
    depth: Annotated[int, Field(ge=2)]  # layers
    logit_variance: Positive  # s^2 of the logits of attention that does not look at the tokens


ModuleConfig = Literal[
    "A",
    "A + LN",
    "A + skip",
    "A + skip + LN",
    "A_perp",
    "A_perp + LN",
    "A_perp + skip",
    "A_perp + skip + LN",
]
MarkovConfig = Literal[ModuleConfig, "Identity A"]


@settings
class MarkovDepth:
    """Stable rank by depth under attention drawn independently of the tokens."""

    configs: Annotated[tuple[MarkovConfig, ...], Field(min_length=1)]  # in the order of the tensors' axis
    tokens: Annotated[int, Field(ge=2)]  # T
    width: Size  # d, at least T: the tokens start orthonormal
    depth: Size  # layers
    runs: Annotated[int, Field(ge=2)]  # independent draws; at least 2 for a spread

    @model_validator(mode="after")
    def _orthonormal(self) -> Self:
        if self.tokens > self.width:
            raise ValueError(f"tokens: {self.tokens} cannot be orthonormal in width {self.width}; at most {self.width}")
        if len(set(self.configs)) < len(self.configs):
            raise ValueError(f"configs: {', '.join(self.configs)}; each at most once")
        return self


@settings
class KeyqueryDepth:
    """Stable rank of attention-only networks by width and depth, with the spectral gap and without (X, XI)."""

    tokens: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)]  # T, rising; the width is the same
    layers: Size  # L
    runs: Annotated[int, Field(ge=5)]  # independent draws; at least the 5 of a published mean
    wide_tokens: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)]  # T of the first layer alone
    wide_runs: Annotated[int, Field(ge=2)]  # independent draws of those; at least 2 for a spread

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for name in ("tokens", "wide_tokens"):
            if list(getattr(self, name)) != sorted(set(getattr(self, name))):
                raise ValueError(f"{name}: {getattr(self, name)} must rise")
        return self


@settings
class KeyqueryModules:
    """Gap and stable rank of key-query attention with LayerNorm, skip and both, with the gap and without."""

    configs: Annotated[tuple[ModuleConfig, ...], Field(min_length=1)]  # "A" among them
    weights: Annotated[tuple[Literal["unit", "xavier", "scaled"], ...], Field(min_length=1)]  # scales of the weights
    tokens: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)]  # T, rising; the width is the same
    spectrum_tokens: Size  # the T whose attention spectra are kept; one of tokens
    layers: Size  # L
    spectrum_layers: Sizes  # layers whose eigenvalues are kept whole, rising
    runs: Annotated[int, Field(ge=2)]  # independent draws; at least 2 for a spread

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("tokens", "spectrum_layers"):
            if list(getattr(self, name)) != sorted(set(getattr(self, name))):
                raise ValueError(f"{name}: {getattr(self, name)} must rise")
        for name in ("configs", "weights"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(f"{name}: {', '.join(getattr(self, name))}; each at most once")
        if "A" not in self.configs:
            raise ValueError("configs: 'A' is missing; attention alone is what the others are compared with")
        if self.spectrum_tokens not in self.tokens:
            raise ValueError(f"spectrum_tokens: {self.spectrum_tokens} is not one of tokens {self.tokens}")
        if self.spectrum_layers[-1] > self.layers:
            raise ValueError(f"spectrum_layers: {self.spectrum_layers[-1]} is beyond layers = {self.layers}")
        return self


@settings
class GaussianSpectrum:
    """Spectra of one random attention head on Gaussian tokens of unit length."""

    ratios: Positives  # gamma = T/d
    tokens: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=1)]  # T; at least 2 for a bulk
    runs: Annotated[int, Field(ge=2)]  # independent realisations in the pool; at least 2 for a spread

    def width(self, ratio: float, tokens: int) -> int:
        """Return the width d = T / gamma, rounded."""
        return round(tokens / ratio)

    @model_validator(mode="after")
    def _wide_enough(self) -> Self:
        for ratio in self.ratios:
            for tokens in self.tokens:
                if tokens / ratio < 1:
                    raise ValueError(f"ratios: gamma = {ratio:g} and T = {tokens}: width T/gamma < 1; at most {tokens}")
        return self


GradientConfig = Literal[
    "A(X)",
    "A(X) + LN",
    "A(X) + skip",
    "A(X) + skip + LN",
    "A(X)_perp",
    "A(X)_perp + LN",
    "A(X)_perp + skip",
    "A(X)_perp + skip + LN",
]
SizesWithRuns = Annotated[  # (tokens T = width d, independent draws); at least 2 of each, for a spread
    tuple[tuple[Annotated[int, Field(ge=2)], Annotated[int, Field(ge=2)]], ...], Field(min_length=2)
]


@settings
class GradientNorms:
    """Norm of the derivative of two attention blocks by the first one's values, by width (Mind the Gap, VIII)."""

    configs: Annotated[tuple[GradientConfig, ...], Field(min_length=1)]  # in the order of the tensors' axis
    sizes: SizesWithRuns  # T = d and runs

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        return _distinct(self)


@settings
class LogitGradientNorms:
    """The same by the first block's queries and keys, which cost T times as much."""

    configs: Annotated[tuple[GradientConfig, ...], Field(min_length=1)]  # in the order of the tensors' axis
    sizes: SizesWithRuns  # T = d and runs

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        return _distinct(self)


def _distinct(settings: Any) -> Any:
    for name, values in (("configs", settings.configs), ("sizes", [tokens for tokens, _ in settings.sizes])):
        if len(set(values)) < len(values):
            raise ValueError(f"{name}: {', '.join(map(str, values))}; each at most once")
    return settings


@settings
class GapScaling:
    """Values N(0, 1) against N(0, 1/d): tokens and gradients by width; and gradients of tokens that have collapsed."""

    sizes: SizesWithRuns  # T = d and runs of the token norms
    layers: Size  # depth of the token norms
    gradient_sizes: SizesWithRuns  # T = d and runs of the gradients by width
    collapsed_tokens: Annotated[int, Field(ge=2)]  # T = d of the tokens on their way to rank one
    collapsed_runs: Annotated[int, Field(ge=2)]  # draws of those
    residual_decades: Annotated[int, Field(ge=2)]  # their residual falls from 1 to 10^-this, relative to the mean token
    residual_steps: Size  # sizes of the residual a decade
    collapsed_layers: Size  # depth of the gradients by depth


@settings
class EncoderDepth:
    """Encoders at random initialisation by depth, whole and with parts of every block cut out (Dong et al. 2021)."""

    models: File  # architectures by name
    architectures: Names  # the ones measured
    variants: Annotated[
        tuple[Literal["SAN", "SAN + MLP", "SAN + skip", "transformer"], ...], Field(min_length=1)
    ]  # what is left of a block
    layers: Size  # L, blocks
    text: File  # passages between blank lines, each filling the tokens of a text
    texts: Size  # passages read, shared out evenly among the inits
    tokens: Annotated[int, Field(ge=3)]  # of a text, [CLS] and [SEP] included
    inits: Size  # draws of an architecture's weights

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.texts % self.inits:
            raise ValueError(f"texts: {self.texts}; must be a multiple of inits = {self.inits}")
        return self


@settings
class RobertaAttention:
    """First-layer attention of a RoBERTa at random initialisation: tokens, eigenvalues (Mind the Gap, I, II)."""

    models: File  # architectures by name
    architecture: Annotated[str, Field(min_length=1)]  # a RoBERTa architecture
    word_embedding_stds: Positives  # standard deviations of the word embeddings; the configuration's own is 0.02
    sources: Annotated[tuple[Literal["text", "published"], ...], Field(min_length=1)]  # where repeated tokens come from
    text: File  # prose, cut to the lengths
    repeats: File  # table of the published pattern of repeated tokens
    lengths: Annotated[tuple[Annotated[int, Field(ge=3)], ...], Field(min_length=1)]  # T, tokens with <s> and </s>
    head: Annotated[int, Field(ge=0)]  # of the first layer, counted from 0
    runs: Annotated[int, Field(ge=2)]  # draws of the weights; at least 2 for a spread


@settings
class TinybertWidth:
    """First-layer attention and stable rank by text length in a random TinyBERT (Mind the Gap, III)."""

    models: File  # architectures by name
    architecture: Annotated[str, Field(min_length=1)]  # a BERT architecture
    sources: Annotated[
        tuple[Literal["text", "published", "distinct"], ...], Field(min_length=1)
    ]  # where repeated tokens come from
    text: File  # prose, cut to the lengths
    repeats: File  # table of the published pattern of repeated tokens
    lengths: Annotated[tuple[Annotated[int, Field(ge=3)], ...], Field(min_length=2)]  # T, with [CLS] and [SEP]
    spectrum_lengths: Annotated[tuple[Annotated[int, Field(ge=3)], ...], Field(min_length=1)]  # T of the spectra
    head: Annotated[int, Field(ge=0)]  # of the first layer, counted from 0
    runs: Annotated[int, Field(ge=2)]  # draws of the weights; at least 2 for a spread


@settings
class Gpt2Attention:
    """First-layer causal attention of a GPT-2 at random initialisation (Mind the Gap, IV)."""

    models: File  # architectures by name
    architecture: Annotated[str, Field(min_length=1)]  # a GPT-2 architecture
    sources: Annotated[tuple[Literal["text", "published"], ...], Field(min_length=1)]  # where repeated tokens come from
    text: File  # prose, cut to the lengths
    repeats: File  # table of the published pattern of repeated tokens
    length: Annotated[int, Field(ge=2)]  # T of the spectrum
    lengths: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Field(min_length=2)]  # T of the gap by length, on text
    head: Annotated[int, Field(ge=0)]  # of the first layer, counted from 0
    runs: Annotated[int, Field(ge=2)]  # draws of the weights; at least 2 for a spread


AttentionVariant = Literal[
    "A",
    "A_perp",
    "no attention",
    "A + values",
    "A_perp + values",
    "A + sqrt T",
    "A_perp + sqrt T",
    "A + values + sqrt T",
    "A_perp + values + sqrt T",
    "A_perp + values + sqrt d",
    "mean removed + values + sqrt T",
    "deflated + values + sqrt T",
    "A_perp + values + sqrt T, layer 1",
]
AttentionVariants = Annotated[tuple[AttentionVariant, ...], Field(min_length=1)]


@settings
class RobertaRank:
    """Stable rank by text length and layer in a random RoBERTa whose attention is changed (Mind the Gap, V, VI)."""

    models: File  # architectures by name
    architecture: Annotated[str, Field(min_length=1)]  # a RoBERTa architecture
    repeats: File  # table of the published pattern of repeated tokens
    depth: Size  # blocks
    fixed: AttentionVariant  # what the published figures call fixed, drawn ``runs`` times
    width_controls: AttentionVariants  # other variants, by text length
    depth_controls: AttentionVariants  # other variants, by layer
    lengths: Annotated[tuple[Annotated[int, Field(ge=3)], ...], Field(min_length=2)]  # T, tokens with <s> and </s>
    layers: Sizes  # shown by text length, counted from 1
    depth_length: Annotated[int, Field(ge=3)]  # T of the curves by layer
    runs: Annotated[int, Field(ge=2)]  # draws of the weights for ``fixed``
    control_runs: Annotated[int, Field(ge=2)]  # draws for the others: the first of the same weights

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if max(self.layers) > self.depth:
            raise ValueError(f"layers: {max(self.layers)} is beyond depth {self.depth}")
        if self.control_runs > self.runs:
            raise ValueError(f"control_runs: {self.control_runs} are more than runs = {self.runs}")
        for name in ("width_controls", "depth_controls"):
            variants = getattr(self, name)
            if self.fixed in variants or len(set(variants)) < len(variants):
                raise ValueError(f"{name}: {', '.join(variants)}; each at most once, without {self.fixed}")
        return self
