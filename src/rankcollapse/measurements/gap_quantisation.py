"""Largest singular value, entry range and int8 error of the tokens by depth, with the spectral gap and without."""

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import centre, scaled_logits, softmax
from rankcollapse.blocks import attention_block, layer_norm
from rankcollapse.inits import orthogonal
from rankcollapse.markov import random_markov
from rankcollapse.progress import Track, silent
from rankcollapse.quantisation import SCALES, absmax_int8, entry_range, rounding_error
from rankcollapse.randomness import generator
from rankcollapse.residual import decompose
from rankcollapse.settings.gap import GapQuantisation

ATTENTIONS = ("A", "A + LN", "A(X)", "A(X) + LN")
GAPS = ("kept", "removed")
ROUNDING = 1e-13  # of T A_ij: a centred attention whose entries are all below this is nothing but rounding

Weights = tuple[Tensor, Tensor, Tensor, Tensor]  # of one layer: Markov matrix, values, queries, keys


def measure(settings: GapQuantisation, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Propagate orthonormal tokens (d = T) by X_l = [LN](A_l X_{l-1} W_V), A_l with its gap or A_l - 11^T/T.

    Attention "A" is a random Markov matrix that does not look at the tokens, "A(X)" the softmax of
    X W_Q W_K^T X^T / sqrt(d). W_V has N(0, 1) entries; W_Q and W_K too, and N(0, 1/d) with LN, so that the first logits
    have variance 1 either way; with LN the input is normalised as well. All eight configurations of a run share their
    draws. Axes:

        attention: A, A + LN, A(X), A(X) + LN; gap: kept, removed; tokens: ``settings.tokens``; run; depth 0..depth.

    Returns:
        All ``[attention, gap, tokens, run, depth]``, X the tokens at that depth and R = X - 1 x^T their differences:
        ``singular``: s_1(X).
        ``entry``: max |x_ij|.
        ``range``: max |x_ij| / rms.
        ``residual``: ||R||_F / ||X||_F; 0 for X = 0.
        ``error/tensor``, ``error/token``: ||X - int8(X)||_F / ||X||_F, one scale for the matrix or for each token.
        ``distinct/tensor``, ``distinct/token``: the same of R, ||R - R(int8(X))||_F / ||R||_F: 1 when rounding leaves
            nothing of the differences (also where there were none), more when it makes differences of its own.
        ``annihilated``: bool, X = 0: once all tokens coincide A = 11^T/T, and without its gap nothing is left. A
            centred attention below ROUNDING counts as 0.

    Raises:
        FloatingPointError: X has a NaN or an infinite entry; names the configuration, T and the depth.
    """
    observed: dict[int, list[Tensor]] = {tokens: [] for tokens in settings.tokens}
    steps = list(product(settings.tokens, range(settings.depth + 1)))
    streams: dict[tuple[str, str], Tensor] = {}
    for tokens, depth in track(steps, "gap_quantisation: T, depth", len(steps)):
        if depth == 0:
            streams = _start(settings, tokens, seed, device)
        else:
            weights = _draw(settings, tokens, depth, seed, device)
            streams = {name: _layer(*name, stream, weights) for name, stream in streams.items()}
        observed[tokens].append(_observe(streams, tokens, depth))
    # [quantity, attention and gap, run, depth] of every number of tokens
    values = torch.stack([torch.stack(by_depth, -1) for by_depth in observed.values()], 2)
    values = values.unflatten(1, (len(ATTENTIONS), len(GAPS)))
    measured = {name: value.contiguous() for name, value in zip(QUANTITIES, values, strict=True)}
    return measured | {"annihilated": measured["singular"] == 0}


def _start(settings: GapQuantisation, tokens: int, seed: int, device: torch.device) -> dict[tuple[str, str], Tensor]:
    randoms = [generator(seed, "gap_quantisation", "tokens", tokens, run) for run in range(settings.runs)]
    start = torch.stack([orthogonal(tokens, random) for random in randoms]).to(device)
    return {name: layer_norm(start) if "LN" in name[0] else start for name in product(ATTENTIONS, GAPS)}


def _draw(settings: GapQuantisation, tokens: int, depth: int, seed: int, device: torch.device) -> Weights:
    random = generator(seed, "gap_quantisation", "layer", tokens, depth)
    markov = random_markov(tokens, settings.runs, random, 0.0, settings.logit_variance)
    values, queries, keys = torch.randn(3, settings.runs, tokens, tokens, generator=random, dtype=torch.float64)
    return markov.to(device), values.to(device), queries.to(device), keys.to(device)


def _layer(attention: str, gap: str, tokens: Tensor, weights: Weights) -> Float[Tensor, "runs tokens width"]:
    markov, values, queries, keys = weights
    norm = attention.endswith("LN")
    if attention.startswith("A(X)"):
        scale = tokens.shape[-1] ** -0.5 if norm else 1.0
        markov = softmax(scaled_logits(scale * tokens @ queries, scale * tokens @ keys))
    if gap == "removed":
        markov = centre(markov)
        seen = markov.abs().amax((-2, -1), keepdim=True) * markov.shape[-1] > ROUNDING
        markov = markov.where(seen, torch.zeros_like(markov))
    return attention_block(tokens, markov, values, skip=False, norm=norm)


def _distinct_error(tokens: Tensor, per: str) -> Float[Tensor, "runs"]:
    """||R - R(int8(X))||_F / ||R||_F, and 1 for R = 0."""
    before, after = decompose(tokens)[1], decompose(absmax_int8(tokens, per))[1]
    size = torch.linalg.matrix_norm(before)
    lost = torch.linalg.matrix_norm(before - after) / size.where(size > 0, torch.ones_like(size))
    return lost.where(size > 0, torch.ones_like(lost))


def _relative_residual(tokens: Tensor) -> Float[Tensor, "runs"]:
    size = torch.linalg.matrix_norm(tokens)
    return torch.linalg.matrix_norm(decompose(tokens)[1]) / size.where(size > 0, torch.ones_like(size))


QUANTITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "singular": lambda tokens: torch.linalg.matrix_norm(tokens, 2),
    "entry": lambda tokens: tokens.abs().amax((-2, -1)),
    "range": entry_range,
    "residual": _relative_residual,
    **{f"error/{per}": partial(rounding_error, per=per) for per in SCALES},
    **{f"distinct/{per}": partial(_distinct_error, per=per) for per in SCALES},
}


def _observe(
    streams: dict[tuple[str, str], Tensor], tokens: int, depth: int
) -> Float[Tensor, "quantities configs runs"]:
    for (attention, gap), stream in streams.items():
        if not torch.isfinite(stream).all():
            raise FloatingPointError(
                f"gap_quantisation: {attention}, gap {gap}, T = {tokens}, depth {depth}: X has NaN or infinite entries"
            )
    return torch.stack(
        [torch.stack([quantity(stream) for stream in streams.values()]) for quantity in QUANTITIES.values()]
    ).cpu()
