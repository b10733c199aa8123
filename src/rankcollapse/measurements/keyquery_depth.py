"""Stable rank of attention-only networks by width and depth, with the spectral gap and without (rebuttal X and XI)."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.blocks import attention_block
from rankcollapse.keyquery import ATTENTION, normal_weights
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings import KeyqueryDepth
from rankcollapse.spectrum import stable_rank, stable_rank_excess

CURVES = {"original": "A", "fixed": "A_perp"}


def measure(settings: KeyqueryDepth, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Propagate orthonormal tokens by X_l = A(X_{l-1}) X_{l-1} W_V, all weights N(0, 1) and fresh, width d = T.

    "original": A = softmax(X W_Q W_K^T X^T / sqrt(d)); "fixed": A - 11^T/T. Both share their weights. Gaussian weights
    have no preferred direction, so any orthonormal X_0 gives the same law; here X_0 = I.

    Returns:
        stable_rank_excess: ``[curve, T, layer, run]``, curves original and fixed, layers 1..settings.layers:
            sr(X X^T) - 1, resolved down to 1e-60; -1 where X = 0.
        annihilated_layer: ``[T, run]``, int64: the first layer whose fixed X is 0, because the tokens before it
            coincide to working precision; settings.layers + 1 if there is none.
        wide_excess: ``[wide T, run]``: sr - 1 of the original at layer 1, resolved to 1e-15.

    Raises:
        FloatingPointError: X has a NaN or an infinite entry; names the curve, T and layer.
    """
    excess = torch.empty(len(CURVES), len(settings.tokens), settings.layers, settings.runs, dtype=torch.float64)
    for row, tokens in enumerate(track(settings.tokens, "keyquery_depth: T", len(settings.tokens))):
        for layer, streams in enumerate(layers(settings, tokens, device, seed)):
            for column, (curve, stream) in enumerate(streams.items()):
                try:
                    excess[column, row, layer] = stable_rank_excess(stream).cpu()
                except FloatingPointError as error:
                    raise FloatingPointError(
                        f"keyquery_depth: {curve} at T = {tokens}, layer {layer + 1}: {error}"
                    ) from error
    wide = track(settings.wide_tokens, "keyquery_depth: T, layer 1 alone", len(settings.wide_tokens))
    return {
        "stable_rank_excess": excess,
        "annihilated_layer": 1 + (excess[1] > -1).long().cumprod(-2).sum(-2),
        "wide_excess": torch.stack([_wide(tokens, settings.wide_runs, device, seed) for tokens in wide]),
    }


def layers(
    settings: KeyqueryDepth, tokens: int, device: torch.device, seed: int
) -> Iterator[dict[str, Float[Tensor, "runs tokens tokens"]]]:
    """Yield the tokens of both curves after each layer."""
    start = torch.eye(tokens, dtype=torch.float64).expand(settings.runs, -1, -1).to(device)
    streams = dict.fromkeys(CURVES, start)
    for layer in range(1, settings.layers + 1):
        random = generator(seed, "keyquery_depth", tokens, layer)
        weights = normal_weights(settings.runs, tokens, random).to(device)
        streams = {
            curve: attention_block(
                stream, ATTENTION[CURVES[curve]](stream, weights), weights.values, skip=False, norm=False
            )
            for curve, stream in streams.items()
        }
        yield streams


def _wide(tokens: int, runs: int, device: torch.device, seed: int) -> Float[Tensor, "runs"]:
    """Return sr - 1 at layer 1, one run at a time: a matrix of this size is large."""
    start, found = torch.eye(tokens, dtype=torch.float64).to(device), []
    for run in range(runs):
        weights = normal_weights(1, tokens, generator(seed, "keyquery_depth", "wide", tokens, run)).to(device)
        first = attention_block(start, ATTENTION["A"](start, weights), weights.values, skip=False, norm=False)
        found.append(stable_rank(first).cpu() - 1)
    return torch.cat(found)
