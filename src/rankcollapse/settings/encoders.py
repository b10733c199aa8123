"""Settings of what Mind the Gap asks of encoders: rebuttal figures I to VI."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rankcollapse.settings.types import File, Positives, Size, Sizes, settings


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
