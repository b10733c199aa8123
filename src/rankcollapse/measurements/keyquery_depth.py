"""Stable rank of attention-only networks by width and depth, with the spectral gap and without (rebuttal X and XI)."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankcollapse.attention import centre, scaled_logits, softmax
from rankcollapse.blocks import attention_block
from rankcollapse.keyquery import Weights, centred_softmax, keyquery_logits, normal_weights
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import KeyqueryDepth
from rankcollapse.spectrum import stable_rank, stable_rank_excess

CURVES = {"original": softmax, "fixed": centred_softmax}


def measure(settings: KeyqueryDepth, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Propagate orthonormal tokens by X_l = A(X_{l-1}) X_{l-1} W_V, all weights N(0, 1) and fresh, width d = T.

    "original": A = softmax(X W_Q W_K^T X^T / sqrt(d)); "fixed": A - 11^T/T. Both share their weights. Gaussian weights
    have no preferred direction, so any orthonormal X_0 gives the same law; here X_0 = I. "released" is "fixed" as the
    released code computes it, in float32 and by plain subtraction, which loses a nearly uniform A.

    Returns:
        stable_rank_excess: ``[curve, T, layer, run]``, curves original and fixed, layers 1..settings.layers:
            sr(X X^T) - 1, below 1e-50 of rounding alone; -1 where X = 0.
        annihilated_layer: ``[T, run]``, int64: the first layer whose fixed X is 0, because the tokens before it
            coincide to working precision; settings.layers + 1 if there is none.
        released_annihilated_layer: the same for the released computation, where S = X X^T has ||S||_F^2 = 0.
        wide_excess: ``[wide T, run]``: sr - 1 of the original at layer 1, resolved to 1e-15.

    Raises:
        FloatingPointError: X has a NaN or an infinite entry; names the curve, T and layer.
    """
    excess = torch.empty(len(CURVES), len(settings.tokens), settings.layers, settings.runs, dtype=torch.float64)
    vanished = torch.empty(len(settings.tokens), settings.layers, settings.runs, dtype=torch.bool)
    for row, tokens in enumerate(track(settings.tokens, "keyquery_depth: T", len(settings.tokens))):
        for layer, streams in enumerate(layers(settings, tokens, device, seed)):
            vanished[row, layer] = _vanished(streams["released"])
            for column, curve in enumerate(CURVES):
                try:
                    excess[column, row, layer] = stable_rank_excess(streams[curve]).cpu()
                except FloatingPointError as error:
                    raise FloatingPointError(
                        f"keyquery_depth: {curve} at T = {tokens}, layer {layer + 1}: {error}"
                    ) from error
    wide = track(settings.wide_tokens, "keyquery_depth: T, layer 1 alone", len(settings.wide_tokens))
    return {
        "stable_rank_excess": excess,
        "annihilated_layer": _first_layer(excess[1] == -1),
        "released_annihilated_layer": _first_layer(vanished),
        "wide_excess": torch.stack([_wide(tokens, settings.wide_runs, device, seed) for tokens in wide]),
    }


def layers(
    settings: KeyqueryDepth, tokens: int, device: torch.device, seed: int
) -> Iterator[dict[str, Float[Tensor, "runs tokens tokens"]]]:
    """Yield the tokens after each layer: both curves, and the fixed one as released."""
    start = torch.eye(tokens, dtype=torch.float64).expand(settings.runs, -1, -1).to(device)
    streams = {"original": start, "fixed": start, "released": start.float()}
    for layer in range(1, settings.layers + 1):
        random = generator(seed, "keyquery_depth", tokens, layer)
        weights = normal_weights(settings.runs, tokens, random).to(device)
        streams = {curve: _layer(curve, stream, weights) for curve, stream in streams.items()}
        yield streams


def _layer(curve: str, tokens: Tensor, weights: Weights) -> Float[Tensor, "runs tokens width"]:
    weights = weights.to(tokens)
    if curve == "released":
        attention = centre(softmax(scaled_logits(tokens @ weights.queries, tokens @ weights.keys)))
    else:
        attention = CURVES[curve](keyquery_logits(tokens, weights))
    return attention_block(tokens, attention, weights.values, skip=False, norm=False)


def _vanished(tokens: Float[Tensor, "runs tokens width"]) -> Bool[Tensor, "runs"]:
    """Tell where ||X X^T||_F^2, the denominator of a stable rank, is 0 in the precision of X."""
    return (tokens @ tokens.mT).square().sum((-2, -1)).eq(0).cpu()


def _first_layer(happened: Bool[Tensor, "*batch layers runs"]) -> Int[Tensor, "*batch runs"]:
    """Return the first layer, from 1, at which it has happened; the number of layers + 1 if it has not."""
    return 1 + (~happened).long().cumprod(-2).sum(-2)


def _wide(tokens: int, runs: int, device: torch.device, seed: int) -> Float[Tensor, "runs"]:
    """Return sr - 1 at layer 1, one run at a time: a matrix of this size is large."""
    start, found = torch.eye(tokens, dtype=torch.float64).to(device), []
    for run in range(runs):
        weights = normal_weights(1, tokens, generator(seed, "keyquery_depth", "wide", tokens, run)).to(device)
        found.append(stable_rank(_layer("original", start, weights)).cpu() - 1)
    return torch.cat(found)
