"""Stable rank by depth under random attention that does not depend on the tokens (rebuttal figure VII)."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import centre
from rankcollapse.blocks import attention_block
from rankcollapse.markov import random_markov
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import MarkovDepth
from rankcollapse.spectrum import stable_rank, stable_rank_excess

LOGIT_VARIANCE = math.log(2)  # with mean -ln2/2: e^logit has mean 1 and variance 1
LOG_FLOAT32_MAX = math.log(torch.finfo(torch.float32).max)

ATTENTION: dict[str, Callable[[Tensor], Tensor]] = {
    "A": lambda markov: markov,
    "A_perp": centre,
    "Identity A": lambda markov: torch.eye(markov.shape[-1]).to(markov).expand_as(markov),
}

Streams = dict[str, tuple[Tensor, Tensor]]  # by configuration: the tokens up to a factor, and its logarithm as released


def measure(settings: MarkovDepth, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Propagate orthonormal tokens by X_l = LN([X_{l-1} +] A_l X_{l-1} W_l), A_l and W_l fresh in every layer.

    Label "A": A_l = softmax of N(-ln2/2, ln2); "A_perp": A_l - 11^T/T; "Identity A": I. W_l has N(0, 1) entries. All
    configurations of a run share their tokens, A_l and W_l, so their differences are the configurations' own.

    Returns:
        stable_rank: ``[config, run, depth]``, configs in the order of ``settings.configs``, depth 0..settings.depth:
            sr(X X^T), in float64.
        stable_rank_excess: ``[config, run, depth]``: sr - 1, resolved down to 1e-60.
        last_float32_depth: ``[config, run]``, int64: the last depth at which that can still be computed in float32 as
            released, where a block with skip comes out doubled (no effect on a stable rank) and ||X X^T||_F^2
            overflows at the next depth; settings.depth if it does not overflow.

    Raises:
        FloatingPointError: X has a NaN or an infinite entry; names the configuration and depth.
    """
    start = orthonormal_tokens(settings, generator(seed, "markov_depth", "tokens")).to(device)
    streams: Streams = dict.fromkeys(settings.configs, (start, torch.zeros(settings.runs, dtype=torch.float64)))
    observed = [_observe(streams, 0)]
    for layer in track(range(1, settings.depth + 1), "markov_depth: layers", settings.depth):
        markov, values = (matrix.to(device) for matrix in _draw(settings, seed, layer))
        streams = {config: _layer(config, *stream, markov, values) for config, stream in streams.items()}
        observed.append(_observe(streams, layer))
    ranks, excess, squares = (torch.stack(by_depth, -1) for by_depth in zip(*observed, strict=True))
    representable = (squares <= LOG_FLOAT32_MAX).long().cumprod(-1)
    return {"stable_rank": ranks, "stable_rank_excess": excess, "last_float32_depth": representable.sum(-1) - 1}


def orthonormal_tokens(settings: MarkovDepth, random: torch.Generator) -> Float[Tensor, "runs tokens width"]:
    """Return X_0 with X_0 X_0^T = I, uniform among those: rows of a Haar orthogonal matrix (QR, R's signs removed)."""
    normal = torch.randn(settings.runs, settings.width, settings.tokens, generator=random, dtype=torch.float64)
    q, r = torch.linalg.qr(normal)
    return (q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]).mT.contiguous()


def _draw(settings: MarkovDepth, seed: int, layer: int) -> tuple[Tensor, Tensor]:
    """Return the layer's attention and value matrices, ``[run, T, T]`` and ``[run, d, d]``."""
    attention = generator(seed, "markov_depth", "attention", layer)
    values = generator(seed, "markov_depth", "values", layer)
    shape = (settings.runs, settings.width, settings.width)
    return (
        random_markov(settings.tokens, settings.runs, attention, -LOGIT_VARIANCE / 2, LOGIT_VARIANCE),
        torch.randn(shape, generator=values, dtype=torch.float64),
    )


def _layer(
    config: str, tokens: Tensor, log_scale: Tensor, markov: Tensor, values: Tensor
) -> tuple[Float[Tensor, "runs tokens width"], Float[Tensor, "runs"]]:
    """Apply one block and return the tokens up to a factor, and the logarithm of that factor as released.

    Without LN the block is linear, so the tokens are divided by their largest entry and never overflow.
    """
    kind, *modules = config.split(" + ")
    skip, norm = "skip" in modules, "LN" in modules
    doubling = math.log(2) if skip else 0.0
    out = attention_block(tokens, ATTENTION[kind](markov), values, skip=skip, norm=norm)
    if norm:
        return out, torch.full_like(log_scale, doubling)
    size = out.abs().amax((-2, -1), keepdim=True)
    return out / size, log_scale + size.squeeze((-2, -1)).log().cpu() + doubling


def _observe(streams: Streams, depth: int) -> list[Float[Tensor, "configs runs"]]:
    """Return sr(S), sr(S) - 1 and ln ||S||_F^2 as released, S = X X^T, of every configuration."""
    observed = []
    for config, (tokens, log_scale) in streams.items():
        try:
            ranks, excess = stable_rank(tokens).cpu(), stable_rank_excess(tokens).cpu()
        except FloatingPointError as error:
            raise FloatingPointError(f"markov_depth: {config} at depth {depth}: {error}") from error
        square = 2 * torch.linalg.matrix_norm(tokens @ tokens.mT).log().cpu() + 4 * log_scale
        observed.append((ranks, excess, square))
    return [torch.stack(by_config) for by_config in zip(*observed, strict=True)]
