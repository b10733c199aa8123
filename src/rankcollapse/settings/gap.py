"""Settings of what Mind the Gap asks of attention alone: spectra, ranks, gradients."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from rankcollapse.settings.types import Positive, Positives, Size, Sizes, settings

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
