"""Stable rank by text length and by layer in a RoBERTa at random initialisation whose attention is changed.

Nait Saada, Naderi & Tanner (2025), rebuttal figures V (by length) and VI (by layer).
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PretrainedConfig

from rankcollapse import encoders
from rankcollapse.architectures import check_architecture
from rankcollapse.changed_attention import Change, Matrix, make_changeable
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.encoders import RobertaRank
from rankcollapse.spectrum import stable_rank_excess
from rankcollapse.tokens import longest_pattern, shortened

FIRST_ID = 4  # above the special tokens: the padding row is zero


class Variant(NamedTuple):
    """One way to change every head: what is done to A, and the factor g in g B V."""

    matrix: Matrix = "as it is"
    unit_values: bool = False  # W_V of N(0, 1) entries, the drawn one divided by its standard deviation
    factor: Literal["1", "0", "sqrt T", "sqrt d"] = "1"
    first_layer_only: bool = False


VARIANTS = {
    "A": Variant(),
    "A_perp": Variant("centred"),
    "no attention": Variant(factor="0"),
    "A + values": Variant(unit_values=True),
    "A_perp + values": Variant("centred", unit_values=True),
    "A + sqrt T": Variant(factor="sqrt T"),
    "A_perp + sqrt T": Variant("centred", factor="sqrt T"),
    "A + values + sqrt T": Variant(unit_values=True, factor="sqrt T"),
    "A_perp + values + sqrt T": Variant("centred", unit_values=True, factor="sqrt T"),
    "A_perp + values + sqrt d": Variant("centred", unit_values=True, factor="sqrt d"),
    "mean removed + values + sqrt T": Variant("mean removed", unit_values=True, factor="sqrt T"),
    "deflated + values + sqrt T": Variant("deflated", unit_values=True, factor="sqrt T"),
    "A_perp + values + sqrt T, layer 1": Variant("centred", True, "sqrt T", first_layer_only=True),
}


@torch.inference_mode()
def measure(settings: RobertaRank, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Return how far the hidden states of a RoBERTa in evaluation mode, its attention changed, are from rank one.

    That is sr - 1, sr the stable rank of X X^T. The forward pass is float32, whose rounding lets a collapse be
    followed to about 1e-26.

    Every head of every layer computes g B V in place of A V. Label "A": B = A; "A_perp": B = A - 11^T/T, the stated
    removal of the gap; "mean removed": B = (I - 11^T/T) A; "deflated": B = A less its largest singular value; "no
    attention": g = 0. "values": W_V has N(0, 1) entries; "sqrt T", "sqrt d": g is that; "layer 1": only there.

    Run r of every variant, length and layer has the same weights, a unit W_V the same draws on another scale, so
    differences between variants are the variants' own. Tokens are equal exactly where those of the published text
    are, cut to T. Only as many embedding rows are drawn as there are tokens: rows are independent.

    - ``width/<variant>`` [run, length, layer]: float64, sr - 1, for ``settings.fixed`` and ``width_controls``; lengths
      and layers in the order of the settings.
    - ``depth/<variant>`` [run, layer]: float64, sr - 1, for ``settings.fixed`` and ``depth_controls`` at T =
      ``settings.depth_length``; layers 0 (embedding output) .. depth.

    ``settings.runs`` runs of ``fixed``, ``control_runs`` of the others.

    Raises:
        TextError: the published pattern is too short.
        ConfigError: no such architecture, or one with too few positions.
        FloatingPointError: a hidden state is not finite; names the variant, length and run.
    """
    longest = max(settings.depth_length, *settings.lengths)
    check_architecture(settings.models, settings.architecture, tokens=longest)
    config = encoders.architecture(settings.models, settings.architecture, settings.depth)
    config.vocab_size = FIRST_ID + longest
    published = longest_pattern(settings.repeats)
    found = _empty(settings)
    for run in track(range(settings.runs), "roberta_rank: runs", settings.runs):
        encoder = encoders.random_encoder(config, generator(seed, "roberta_rank", run)).to(device)
        make_changeable(encoder)
        for name, length in _cells(settings, run):
            ids = FIRST_ID + torch.tensor([shortened(published, length)], device=device)
            states = encoders.hidden_states(encoder, ids, change(VARIANTS[name], config, length))
            try:
                if length in settings.lengths and f"width/{name}" in found:
                    shown = [states[layer] for layer in settings.layers]
                    found[f"width/{name}"][run, settings.lengths.index(length)] = _ranks(shown)
                if length == settings.depth_length and f"depth/{name}" in found:
                    found[f"depth/{name}"][run] = _ranks(states)
            except FloatingPointError as error:
                raise FloatingPointError(f"roberta_rank: {name}, T = {length}, run {run}: {error}") from None
    return found


def change(variant: Variant, config: PretrainedConfig, length: int) -> Change:
    """Return the change of a variant for texts of ``length`` tokens."""
    factor = {"1": 1.0, "0": 0.0, "sqrt T": math.sqrt(length), "sqrt d": math.sqrt(config.hidden_size)}[variant.factor]
    scale = 1 / config.initializer_range if variant.unit_values else 1.0
    return Change(variant.matrix, factor * scale, (0,) if variant.first_layer_only else None)


def _empty(settings: RobertaRank) -> dict[str, Tensor]:
    """Return the tensors to fill, by key."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name in (settings.fixed, *settings.width_controls):
        shapes[f"width/{name}"] = (_runs(settings, name), len(settings.lengths), len(settings.layers))
    for name in (settings.fixed, *settings.depth_controls):
        shapes[f"depth/{name}"] = (_runs(settings, name), settings.depth + 1)
    return {key: torch.empty(shape, dtype=torch.float64) for key, shape in shapes.items()}


def _runs(settings: RobertaRank, name: str) -> int:
    return settings.runs if name == settings.fixed else settings.control_runs


def _cells(settings: RobertaRank, run: int) -> Iterator[tuple[str, int]]:
    """Yield the variants and lengths of a run, each once."""
    cells = [(name, length) for name in (settings.fixed, *settings.width_controls) for length in settings.lengths]
    cells += [(name, settings.depth_length) for name in (settings.fixed, *settings.depth_controls)]
    return ((name, length) for name, length in dict.fromkeys(cells) if run < _runs(settings, name))


def _ranks(states: list[Float[Tensor, "1 token width"]]) -> Float[Tensor, " layer"]:
    return torch.stack([stable_rank_excess(state[0].double()) for state in states]).cpu()
