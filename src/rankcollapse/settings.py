"""What a user may set: one frozen dataclass per measurement, checked before any job starts.

No mathematics and no torch here: the workflow reads this module at every start, and a measurement's rule
depends on the values (its ``params``), not on this file.
"""

from typing import Annotated, Literal, Self

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

    tokens: Size  # n, tokens
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
        for name in ("scale_decades", "residual_decades"):
            low, high = getattr(self, name)
            if not -100 <= low < high <= 100:
                raise ValueError(f"{name}: ({low}, {high}) must rise and stay within (-100, 100)")
        return self


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
    word_embedding_std: Positive  # standard deviation of the word embeddings; the configuration's own is 0.02
    sources: Annotated[tuple[Literal["text", "published"], ...], Field(min_length=1)]  # where repeated tokens come from
    text: File  # prose, cut to the lengths
    repeats: File  # table of the published pattern of repeated tokens
    lengths: Annotated[tuple[Annotated[int, Field(ge=3)], ...], Field(min_length=1)]  # T, tokens with <s> and </s>
    head: Annotated[int, Field(ge=0)]  # of the first layer, counted from 0
    runs: Size  # draws of the weights
