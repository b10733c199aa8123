"""Settings of the phase diagram of skip strength against logit scale, at initialisation and trained."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from rankcollapse.settings.types import NotNegatives, Positive, Size, Sizes, Width, settings

Decades = tuple[float, float]
SharpBetas = Annotated[tuple[Annotated[float, Field(gt=0, le=1e4)], ...], Field(min_length=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


def check_grid(skips: tuple[float, ...], decades: Decades) -> None:
    """Refuse rows that do not rise, and a range of powers of ten that does not rise or leaves (-4, 4)."""
    if len(skips) < 2 or list(skips) != sorted(set(skips)):
        raise ValueError(f"skips: {list(skips)}; two or more, rising")
    low, high = decades
    if not -4 <= low < high <= 4:
        raise ValueError(f"beta_decades: ({low:g}, {high:g}) must rise and stay within (-4, 4)")


@settings
class PhaseDiagram:
    """Attention with skip and post-LayerNorm at initialisation over skip strengths and inverse temperatures."""

    tokens: Annotated[int, Field(ge=2)]  # n, tokens
    width: Width  # d, channels
    layers: Size  # L
    runs: Annotated[int, Field(ge=2)]  # draws of tokens and weights
    skips: NotNegatives  # alpha, rows of the diagram
    beta_decades: Decades  # log10 of the smallest and largest beta, columns of the diagram
    beta_points: Annotated[int, Field(ge=2)]  # betas between them, equally spaced in the logarithm
    sharp_betas: SharpBetas  # betas beyond, where attention alone is followed, forwards only
    ratio_layers: Size  # last layers whose query and value gradients are compared

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_grid(self.skips, self.beta_decades)
        if self.ratio_layers > self.layers:
            raise ValueError(f"ratio_layers: {self.ratio_layers}; at most layers = {self.layers}")
        beyond = [10 ** self.beta_decades[1], *self.sharp_betas]
        if beyond != sorted(set(beyond)):
            raise ValueError(f"sharp_betas: {list(self.sharp_betas)}; rising, and above 10^{self.beta_decades[1]:g}")
        return self


@settings
class TrainingGrid:
    """The same network trained to predict the previous token, over the same kind of grid, with and without QK-norm."""

    tokens: Annotated[int, Field(ge=2)]  # n, tokens of a sequence
    vocabulary: Annotated[int, Field(ge=2)]  # V, different tokens
    width: Width  # d, channels
    layers: Size  # L
    skips: NotNegatives  # alpha, rows of the grid
    beta_decades: Decades  # log10 of the smallest and largest beta, columns of the grid
    beta_points: Annotated[int, Field(ge=2)]  # betas between them, equally spaced in the logarithm
    runs: Size  # initialisations, each with data of its own; all cells of a run share both
    batch: Size  # fresh sequences of a step
    rate: Positive  # Adam's learning rate after warm-up
    momenta: tuple[Fraction, Fraction]  # Adam's betas
    warmup: Size  # steps over which the rate rises linearly
    checkpoints: Sizes  # steps after which the accuracy is taken, rising; the last one ends the training
    test_sequences: Size  # fresh sequences of an accuracy
    ratio_layers: Size  # last layers whose query and value gradients are compared at initialisation

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_grid(self.skips, self.beta_decades)
        if self.ratio_layers > self.layers:
            raise ValueError(f"ratio_layers: {self.ratio_layers}; at most layers = {self.layers}")
        if list(self.checkpoints) != sorted(set(self.checkpoints)):
            raise ValueError(f"checkpoints: {list(self.checkpoints)}; must rise")
        return self
