"""Settings of what Noci et al. (2022) ask: how signals and gradients move through skips and branches."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rankcollapse.settings.dong import NormPlacement
from rankcollapse.settings.types import Depths, Positives, Size, Sizes, Width, settings

InverseTemperatures = Annotated[tuple[Annotated[float, Field(ge=1e-6, le=1e6)], ...], Field(min_length=2)]
MlpKind = Literal["none", "linear", "relu"]


@settings
class NociSimilarity:
    """Cosine of tokens by depth with skips, for branch scales fixed and falling with the depth."""

    tokens: Annotated[int, Field(ge=2)]  # n, tokens
    width: Width  # d, channels, also of the MLP's hidden layer
    layers: Annotated[int, Field(ge=2)]  # L of the curves by depth
    runs: Annotated[int, Field(ge=2)]  # draws of weights and tokens; at least 2 for a spread
    strengths: Positives  # t of branch scales a = t / sqrt(L)
    scales: Positives  # branch scales a that stay fixed, whatever the depth
    norms: Annotated[tuple[Literal["none", "post"], ...], Field(min_length=1)]  # where LayerNorm is
    mlps: Annotated[tuple[MlpKind, ...], Field(min_length=1)]  # the MLP after attention, inside its own skip
    depths: Depths  # numbers of layers L at which the scales t / sqrt(L) are compared, uniform attention alone

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if list(self.depths) != sorted(set(self.depths)):
            raise ValueError(f"depths: {self.depths} must rise")
        return self


@settings
class NociGradients:
    """Gradients of a random linear loss in attention with skips: by layer, at collapsed tokens, at saturation."""

    tokens: Annotated[int, Field(ge=4)]  # n, tokens
    width: Width  # d, channels
    layers: Annotated[int, Field(ge=2)]  # L of the gradients by layer, and of the scale 1 / sqrt(L)
    runs: Annotated[int, Field(ge=2)]  # draws of weights, tokens and loss; at least 2 for a spread
    placements: Annotated[tuple[NormPlacement, ...], Field(min_length=1)]  # where LayerNorm is
    residual_decades: Annotated[int, Field(gt=0, le=100)]  # the residual eps falls from 1 to 10^-this
    residual_steps: Size  # residuals in a decade
    inverse_temperatures: InverseTemperatures  # beta; logits have std beta sqrt(ln n)
    depths: Sizes  # numbers of layers of the networks whose attention is brought to saturation
    saturated_runs: Size  # draws of those

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for name in ("inverse_temperatures", "depths"):
            if list(getattr(self, name)) != sorted(set(getattr(self, name))):
                raise ValueError(f"{name}: {getattr(self, name)} must rise")
        return self
