"""Settings of what Noci et al. (2022) ask: how signals and gradients move through skips and branches."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rankcollapse.settings.types import Positives, Size, Sizes, settings

MlpKind = Literal["none", "linear", "relu"]


@settings
class NociSimilarity:
    """Cosine of tokens by depth with skips, for branch scales fixed and falling with the depth."""

    tokens: Annotated[int, Field(ge=2)]  # n, tokens
    width: Size  # d, channels, also of the MLP's hidden layer
    layers: Annotated[int, Field(ge=2)]  # L of the curves by depth
    runs: Annotated[int, Field(ge=2)]  # draws of weights and tokens; at least 2 for a spread
    strengths: Positives  # t of branch scales a = t / sqrt(L)
    scales: Positives  # branch scales a that stay fixed, whatever the depth
    norms: Annotated[tuple[Literal["none", "post"], ...], Field(min_length=1)]  # where LayerNorm is
    mlps: Annotated[tuple[MlpKind, ...], Field(min_length=1)]  # the MLP after attention, inside its own skip
    depths: Sizes  # numbers of layers L at which the scales t / sqrt(L) are compared, uniform attention alone

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if list(self.depths) != sorted(set(self.depths)):
            raise ValueError(f"depths: {self.depths} must rise")
        return self
