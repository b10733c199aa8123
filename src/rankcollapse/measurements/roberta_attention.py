"""Tokens and first-layer attention of a RoBERTa encoder at random initialisation.

Nait Saada, Naderi & Tanner (2025), rebuttal figures I (word embeddings as initialised) and II (N(0, 1)).
"""

from collections.abc import Sequence
from itertools import product

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from rankcollapse import encoders, spectrum
from rankcollapse.architectures import check_architecture
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.encoders import RobertaAttention
from rankcollapse.tokens import FRAMES, TextError, first_positions, repeat_patterns, token_ids


@torch.inference_mode()
def measure(settings: RobertaAttention, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Return Gram matrices X_0 X_0^T of the embedding output and the eigenvalues of one head of layer 1.

    Each run draws all weights anew; the sources and lengths of a run share them, and so do the standard deviations of
    the word embeddings, up to that factor. A source is ``text``, our prose through byte-level BPE, or ``published``,
    tokens drawn at random, equal exactly where those of the published figure are. The encoder is built with one block:
    layer 1 sees nothing of the blocks above it, and weights are drawn independently, so its law is that of the full
    encoder. Below, <std>, <source> and <T> run over the settings, <std> written as in 0.02 or 1.

    - ``<std>/gram/<source>/<T>`` [token, token]: float32, X_0 X_0^T of run 0.
    - ``<std>/eigenvalues_re/<source>/<T>``, ``<std>/eigenvalues_im/<source>/<T>`` [run, T]: float64, by descending
      modulus.
    - ``<std>/diagonal/<mean|min|max>``, ``<std>/off_diagonal/<mean|std|min|q01|median|q99|max>`` [source, length, run]:
      float64, the entries of X_0 X_0^T on and off its diagonal.
    - ``<std>/stable_rank`` [source, length, run]: float64, ||S||_F^2 / ||S||_2^2 of S = X_0 X_0^T.
    - ``<std>/top_eigenvalue``, ``<std>/bulk_radius`` [source, length, run]: float64, |lambda_1| and |lambda_2| of the
      attention.
    - ``token_repeats/<source>/<T>`` [token]: int64, first position that holds the same token.

    Raises:
        TextError: the text is too short, or the published table has no such length.
        ConfigError: no such architecture, or one with too few positions or heads.
        FloatingPointError: a hidden state or an attention weight is not finite; names std, source, length and run.
    """
    check_architecture(settings.models, settings.architecture, tokens=max(settings.lengths), heads=settings.head + 1)
    config = encoders.architecture(settings.models, settings.architecture, layers=1)
    config.intermediate_size = 1  # behind the attention: drawn after all that is looked at, and not worth its time
    inputs = token_inputs(settings, config.vocab_size, seed)
    found = {
        f"token_repeats/{source}/{length}": torch.tensor(first_positions(ids.tolist()))
        for (source, length), ids in inputs.items()
    }
    draws = list(product(settings.word_embedding_stds, range(settings.runs)))
    for std, run in track(draws, "roberta_attention: embeddings and runs", len(draws)):
        rng = generator(seed, "roberta_attention", "weights", run)
        encoder = encoders.random_encoder(config, rng, word_embedding_std=std).to(device)
        try:
            _observe(encoder, inputs, settings, run, found, f"{std:g}")
        except FloatingPointError as error:
            raise FloatingPointError(f"roberta_attention: word embeddings N(0, {std:g}^2), {error}") from None
    return found


def _observe(
    encoder: PreTrainedModel,
    inputs: dict[tuple[str, int], Int[Tensor, " token"]],
    settings: RobertaAttention,
    run: int,
    found: dict[str, Tensor],
    prefix: str,
) -> None:
    """File the numbers of one encoder under ``prefix``."""
    grid = (len(settings.sources), len(settings.lengths), settings.runs)
    for cell, ((source, length), ids) in enumerate(inputs.items()):
        text = ids[None].to(encoder.device)
        tokens = encoder.embeddings(text)[0].double()
        attention = encoders.attention_weights(encoder, text)[0][0, settings.head]
        if not (tokens.isfinite().all() and attention.isfinite().all()):
            raise FloatingPointError(f"{source}, T = {length}, run {run}: not finite")
        gram, eigenvalues = tokens @ tokens.mT, spectrum.eigenvalues(attention)
        if run == 0:
            found[f"{prefix}/gram/{source}/{length}"] = gram.float().cpu()
        for part, values in (("re", eigenvalues.real), ("im", eigenvalues.imag)):
            key = f"{prefix}/eigenvalues_{part}/{source}/{length}"
            found.setdefault(key, torch.empty(settings.runs, length, dtype=torch.float64))[run] = values.cpu()
        for key, value in statistics(gram, tokens, eigenvalues).items():
            table = found.setdefault(f"{prefix}/{key}", torch.empty(grid, dtype=torch.float64))
            table.flatten(0, 1)[cell, run] = value.item()


def token_inputs(
    settings: RobertaAttention, vocabulary: int, seed: int
) -> dict[tuple[str, int], Int[Tensor, " token"]]:
    """Return the token ids by source and length, in the order of the settings.

    Raises ``TextError`` when the text is too short or the published table lacks a length, naming those it has.
    """
    found: dict[tuple[str, int], Tensor] = {}
    for source, length in product(settings.sources, settings.lengths):
        if source == "text":
            found[source, length] = torch.tensor(token_ids(settings.text, length, "roberta"))
            continue
        published = repeat_patterns(settings.repeats)
        if length not in published:
            raise TextError(f"{settings.repeats}: no T = {length}; allowed: {', '.join(map(str, published))}")
        rng = generator(seed, "roberta_attention", "tokens", length)
        found[source, length] = tokens_with_pattern(published[length], vocabulary, rng)
    return found


def tokens_with_pattern(pattern: Sequence[int], vocabulary: int, rng: torch.Generator) -> Int[Tensor, " token"]:
    """Return token ids drawn without replacement, equal exactly where ``pattern`` has equal first positions.

    Embedding rows are independent and identically distributed, so which rows a text uses does not change the law of
    anything downstream, only which of its tokens are equal; special tokens are left out (the padding row is zero).
    """
    _, which = torch.tensor(pattern).unique(return_inverse=True)
    first = FRAMES["roberta"].shift
    return (first + torch.randperm(vocabulary - first, generator=rng))[which]


def statistics(
    gram: Float[Tensor, "token token"], tokens: Float[Tensor, "token width"], eigenvalues: Complex[Tensor, " token"]
) -> dict[str, Float[Tensor, ""]]:
    """Return the numbers that describe one draw, by the key they are filed under."""
    size = len(gram)
    diagonal = gram.diagonal()
    off = gram[~torch.eye(size, dtype=torch.bool, device=gram.device)]
    low, median, high = off.quantile(torch.tensor([0.01, 0.5, 0.99], dtype=off.dtype, device=off.device))
    return {
        "diagonal/mean": diagonal.mean(),
        "diagonal/min": diagonal.min(),
        "diagonal/max": diagonal.max(),
        "off_diagonal/mean": off.mean(),
        "off_diagonal/std": off.std(),
        "off_diagonal/min": off.min(),
        "off_diagonal/q01": low,
        "off_diagonal/median": median,
        "off_diagonal/q99": high,
        "off_diagonal/max": off.max(),
        "stable_rank": spectrum.stable_rank(tokens),
        "top_eigenvalue": spectrum.split(eigenvalues).outlier.abs(),
        "bulk_radius": spectrum.bulk_radius(eigenvalues),
    }
