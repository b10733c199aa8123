"""Settings of what Dong, Cordonnier & Loukas (2021) ask."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rankcollapse.settings.types import (
    Checkpoints,
    File,
    Names,
    NotNegatives,
    Positive,
    Positives,
    Prose,
    Size,
    Sizes,
    Width,
    settings,
)

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


@settings
class TrainingTask:
    """What the training tasks share (Dong et al. 2021, sec. 4.2 and 4.3)."""

    width: Size  # d, channels
    heads: Size  # H; must divide width
    sets: Size  # trained on: sequences, sets of points, texts; points that divide the circle
    released_sets: Size  # the same as released
    epochs: Size  # passes over the sets
    released_epochs: Size  # the same as released
    batch: Size  # sets in a step
    dropout: Annotated[float, Field(ge=0, lt=1)]  # probability, everywhere
    learning_rates: Positives  # Adam's; every run is trained with each
    runs: Size  # draws of data, initial weights and dropout

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide width {self.width}")
        return self


@settings
class PathTask(TrainingTask):
    """A task that labels tokens, and the evaluation of paths."""

    layers: Size  # L, blocks
    tokens: Size  # n, in a set
    test_sets: Size  # sets evaluated: held out, except in memorization
    path_counts: Sizes  # numbers of random paths that are added
    path_repeats: Size  # draws of each


@settings
class SortingTask(PathTask):
    """Sorting sequences of symbols."""

    symbols: Annotated[int, Field(ge=2)]  # different symbols, which are also the labels


@settings
class HullTask(PathTask):
    """Telling the vertices of a convex hull from the points inside."""

    tokens: Annotated[int, Field(ge=3)]  # n, points in a set
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # L2 penalty
    milestones: Sizes  # epochs from which on the learning rate is multiplied by decay once more
    decay: Positive  # that factor


@settings
class MemorizationTask(PathTask):
    """Learning random labels of the words of texts by heart."""

    symbols: Annotated[int, Field(ge=2, le=2**24)]  # different words, as many as torch can draw from
    exponent: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # a, word s has probability ~ s^-a

    @model_validator(mode="after")
    def _texts_fit(self) -> Self:
        if self.test_sets > self.sets:
            raise ValueError(f"test_sets: {self.test_sets}; at most sets = {self.sets}, nothing is held out")
        return self


@settings
class CircleTask(TrainingTask):
    """Moving two points along a circle."""

    sets: Annotated[int, Field(ge=6)]  # points that divide the circle
    steps: Size  # times the trained block is applied


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


NormPlacement = Literal["none", "pre", "post"]


@settings
class SkipsDepth:
    """Attention with skips, and whole transformer blocks, at initialisation to great depth; the hull after an MLP."""

    tokens: Annotated[int, Field(ge=2)]  # n, tokens
    width: Width  # d, channels
    heads: Size  # H; must divide width
    mlp_ratio: Size  # hidden channels of an MLP, in widths
    layers: Annotated[int, Field(ge=4)]  # L
    runs: Size  # draws of weights and tokens
    inits: WeightInits  # weight inits of attention and MLP
    placements: Annotated[tuple[NormPlacement, ...], Field(min_length=1)]  # where LayerNorm is
    activation: Literal["relu", "tanh", "gelu"]  # of the transformer blocks' MLP
    hull_widths: Sizes  # widths of the tokens whose hull is tested
    hull_activations: Annotated[tuple[Literal["relu", "tanh", "gelu"], ...], Field(min_length=1)]  # besides none
    hull_rows: Size  # tokens tested against the hull, per draw
    hull_runs: Size  # draws of weights and tokens

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide width {self.width}")
        if self.hull_rows > self.tokens:
            raise ValueError(f"hull_rows: {self.hull_rows}; at most tokens = {self.tokens}")
        return self


@settings
class PathLengths:
    """Paths through attention with skips by length, attention frozen or recomputed (Dong et al. 2021, section 3)."""

    tokens: Annotated[int, Field(ge=3)]  # n, of the random inputs and of a text, [CLS] and [SEP] included
    width: Width  # d, of attention + skip with drawn weights
    heads: Size  # H; must divide width
    layers: Annotated[int, Field(ge=3)]  # L, of attention + skip and of the random encoder
    inits: WeightInits  # weight inits of attention + skip
    runs: Size  # draws of weights and tokens of attention + skip
    models: File  # architectures by name
    architecture: str  # of the encoder at random initialisation
    encoder_inits: Annotated[int, Field(ge=2)]  # draws of its weights
    text: File  # passages between blank lines, each filling the tokens of a text
    texts: Size  # passages read, shared out evenly among the encoder's draws
    chains: Size  # paths through every layer, one random head each, followed with frozen and with recomputed attention
    paths: Size  # random paths of each length whose attention matrices are multiplied

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide width {self.width}")
        if self.texts % self.encoder_inits:
            raise ValueError(f"texts: {self.texts}; must be a multiple of encoder_inits = {self.encoder_inits}")
        return self


@settings
class ResidualBounds:
    """Bounds on the residual, from above without a skip and from below with one (Dong et al. 2021)."""

    shapes: Annotated[tuple[tuple[Size, Width, Size], ...], Field(min_length=1)]  # (tokens n, width d, heads H)
    inits: WeightInits  # weight inits
    inputs: Annotated[tuple[Literal["mean", "iid"], ...], Field(min_length=1)]  # kinds of input tokens
    runs: Size  # draws of weights and tokens
    layers: Annotated[int, Field(ge=2)]  # of attention without a skip
    skip_layers: Size  # of attention + skip
    power_steps: Size  # towards the contraction of the whole branch
    value_scales: Positives  # c of W_VO = -c I in the counter-example and in the fuzz around it

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for tokens, width, heads in self.shapes:
            if width % heads or tokens < 2:
                raise ValueError(
                    f"shapes: ({tokens}, {width}, {heads}) needs at least 2 tokens and heads that divide the width"
                )
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
class TrainedEncoders:
    """Trained encoders by depth, whole and with parts of every block cut out (Dong et al. 2021)."""

    models: Checkpoints = ()  # others than the embedded one: the key ``models`` of the whole configuration, handed on
    variants: Annotated[
        tuple[Literal["SAN", "SAN + MLP", "SAN + MLP, no MLP skip", "SAN + skip", "transformer"], ...],
        Field(min_length=1),
    ]  # what is left of a block
    layers: Annotated[int, Field(ge=2, le=6)]  # L, blocks of the embedded encoder, which has 6
    text: Prose  # pydoc, or a file of passages between blank lines
    texts: Annotated[int, Field(ge=2)]  # the first ones that fill the tokens of a text; at least 2 for a spread
    tokens: Annotated[int, Field(ge=3, le=512)]  # of a text, special tokens included
    inits: Size  # draws of the embedded encoder's architecture, each reading its share of the texts
    cycles: Annotated[int, Field(ge=1)]  # times that the stack of blocks is passed through below machine precision

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.texts % self.inits:
            raise ValueError(f"texts: {self.texts}; must be a multiple of inits = {self.inits}")
        if self.layers * self.cycles < 3:
            raise ValueError(f"layers, cycles: {self.layers}, {self.cycles}; at least 3 layers in all, for an order")
        return self
