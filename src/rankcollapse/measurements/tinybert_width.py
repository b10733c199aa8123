"""First-layer attention of a TinyBERT at random initialisation and the stable rank of its tokens by text length.

Nait Saada, Naderi & Tanner (2025), rebuttal figure III.
"""

from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from rankcollapse import encoders, spectrum
from rankcollapse.architectures import check_architecture
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.encoders import TinybertWidth
from rankcollapse.tokens import first_positions, longest_pattern, shortened, token_ids

FIRST_ID = 1  # above the padding token, whose embedding is zero
TOKEN_TYPES = ("shared", "none")  # the token-type row that every token of a text gets: as drawn, or zero


@torch.inference_mode()
def measure(settings: TinybertWidth, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Return eigenvalues of one head of layer 1 and the stable rank before and after that layer.

    Each run draws all weights anew; its sources, lengths and token types share them. A source says which tokens are
    equal, all that matters at random initialisation: as in our prose through WordPiece (``text``), as in the published
    text, whose pattern is known through byte-level BPE (``published``), or nowhere (``distinct``). Only as many
    embedding rows are drawn as there are tokens: rows are independent. Layer 1 sees nothing of the blocks above it.

    - ``stable_rank`` [source, token type, length, run, layer]: float64, of the hidden states 0 (embedding output) and
      1. Token types: ``shared`` as in the architecture, ``none`` with that row set to zero.
    - ``eigenvalues_re/<source>/<T>``, ``eigenvalues_im/<source>/<T>`` [run, T]: float64, with the shared row, by
      descending modulus, for T in ``settings.spectrum_lengths``.

    Raises:
        TextError: the text or the published pattern is too short.
        ConfigError: no such architecture, or one with too few positions or heads.
        FloatingPointError: a hidden state or an attention weight is not finite; names the source and run.
    """
    longest = max(settings.lengths + settings.spectrum_lengths)
    check_architecture(settings.models, settings.architecture, tokens=longest, heads=settings.head + 1)
    config = encoders.architecture(settings.models, settings.architecture, layers=1)
    config.vocab_size = FIRST_ID + longest
    texts = {source: _texts(settings, source, device) for source in settings.sources}
    grid = (len(settings.sources), len(TOKEN_TYPES), len(settings.lengths), settings.runs, 2)
    found = {"stable_rank": torch.empty(grid, dtype=torch.float64)}
    draws = list(product(range(settings.runs), enumerate(settings.sources)))
    for run, (place, source) in track(draws, "tinybert_width: runs and sources", len(draws)):
        encoder = encoders.random_encoder(config, generator(seed, "tinybert_width", run)).to(device)
        try:
            for key, values in _eigenvalues(encoder, texts[source], settings).items():
                empty = torch.empty(settings.runs, len(values), dtype=torch.float64)
                found.setdefault(f"{key[0]}/{source}/{key[1]}", empty)[run] = values.cpu()
            found["stable_rank"][place, 0, :, run] = _ranks(encoder, texts[source], settings).cpu()
            encoder.embeddings.token_type_embeddings.weight.zero_()
            found["stable_rank"][place, 1, :, run] = _ranks(encoder, texts[source], settings).cpu()
        except FloatingPointError as error:
            raise FloatingPointError(f"tinybert_width: {source}, run {run}: {error}") from None
    return found


def pattern(settings: TinybertWidth, source: str, length: int) -> list[int]:
    """Return, for each of ``length`` positions, the first position that holds the same token."""
    match source:
        case "text":
            return first_positions(token_ids(settings.text, length, "bert"))
        case "published":
            return shortened(longest_pattern(settings.repeats), length)
        case _:
            return list(range(length))


def _texts(settings: TinybertWidth, source: str, device: torch.device) -> dict[int, Int[Tensor, "1 token"]]:
    """Return the token ids of a source by length."""
    lengths = {*settings.lengths, *settings.spectrum_lengths}
    return {length: FIRST_ID + torch.tensor([pattern(settings, source, length)], device=device) for length in lengths}


def _eigenvalues(
    encoder: PreTrainedModel, texts: dict[int, Tensor], settings: TinybertWidth
) -> dict[tuple[str, int], Float[Tensor, " token"]]:
    """Return the eigenvalues of the chosen head of layer 1, real and imaginary parts apart, by part and length."""
    found: dict[tuple[str, int], Tensor] = {}
    for length in settings.spectrum_lengths:
        values = spectrum.eigenvalues(encoders.attention_weights(encoder, texts[length])[0][0, settings.head])
        found |= {("eigenvalues_re", length): values.real, ("eigenvalues_im", length): values.imag}
    return found


def _ranks(
    encoder: PreTrainedModel, texts: dict[int, Tensor], settings: TinybertWidth
) -> Float[Tensor, "length layer"]:
    """Return the stable ranks of hidden states 0 and 1 by length."""
    by_length = []
    for length in settings.lengths:
        states = encoders.hidden_states(encoder, texts[length])
        by_length.append(torch.stack([spectrum.stable_rank(state[0].double()) for state in states]))
    return torch.stack(by_length)
