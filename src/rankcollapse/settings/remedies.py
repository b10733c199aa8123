"""Settings of what is done against collapse at depth."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rankcollapse.remedy import parts
from rankcollapse.settings.types import Names, Positive, Positives, Size, Width, settings

Kinds = Annotated[
    tuple[Literal["softmax", "centred", "differential", "relu", "sigmoid", "causal", "window"], ...],
    Field(min_length=1),
]


@settings
class RemediesDepth:
    """Blocks of attention and MLP under remedies against collapse, to great depth at initialisation."""

    tokens: Annotated[int, Field(ge=3)]  # n, tokens
    width: Width  # d, channels
    mlp_ratio: Size  # hidden channels of the MLP, in widths
    blocks: Annotated[int, Field(ge=4, le=200)]  # L, blocks of two branches; logits without a norm grow like 4^L
    runs: Size  # draws of weights and tokens
    logit_std: Positive  # sigma, the standard deviation of the logits of uncorrelated tokens
    remedies: Names  # sums of the parts that ``remedy.parts`` names
    swept: Names  # remedies whose logits are scaled up
    scales: Positives  # factors of W_Q, and of the gain of the queries' norm
    kinds: Kinds  # kinds of attention
    kind_networks: Names  # remedies in which they are compared
    window: Size  # neighbours seen on each side by windowed attention

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        known = parts(self.blocks)
        for field in ("remedies", "swept", "kind_networks"):
            for name in getattr(self, field):
                if unknown := [part for part in name.split(" + ") if part not in known]:
                    raise ValueError(f"{field}: {name!r} has {unknown[0]!r}; allowed: sums of {', '.join(known)}")
            summed = [tuple(sorted(name.split(" + "))) for name in getattr(self, field)]
            for name, own in zip(getattr(self, field), summed, strict=True):
                twice = summed.count(own) > 1 or len(set(own)) < len(own)
                if twice or sum("placement" in known[part] for part in own) > 1 or ("none" in own and len(own) > 1):
                    raise ValueError(f"{field}: {name!r}; allowed: each sum once, with one place of a norm at most")
        if any("QK-norm" in name for name in self.swept):
            raise ValueError("swept: allowed: remedies without QK-norm, which the sweep puts in itself")
        if self.scales[0] != 1:
            raise ValueError(f"scales: start at {self.scales[0]:g}; allowed: from 1 on")
        if self.window >= self.tokens:
            raise ValueError(f"window: {self.window}; allowed: less than tokens = {self.tokens}")
        return self
