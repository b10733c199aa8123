"""Values N(0, 1) against N(0, 1/d): tokens and gradients by width, and gradients once the tokens have collapsed."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import centre, softmax, token_logits
from rankcollapse.gradients import Block, Variant, Weights, entry, linearise, logit_gradients, value_gradient
from rankcollapse.markov import random_markov
from rankcollapse.measurements.gradient_norms import draw, one_run
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import relative_residual
from rankcollapse.settings.gap import GapScaling

SCALINGS: dict[str, Callable[[int], float]] = {"N(0,1)": lambda width: 1.0, "N(0,1/d)": lambda width: width**-0.5}
ATTENTIONS = ("A(X)", "A")
STREAMS = ("uniform", "A(X)", "A(X)_perp", "A(X) + skip")
WEIGHTS = ("values", "queries", "keys")
LOGIT_VARIANCE = math.log(2)  # of "A", with mean -ln2/2: e^logit has mean 1 and variance 1


def measure(settings: GapScaling, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Measure token norms, gradients of two blocks and gradients of collapsed tokens, all with T = d.

    Labels, in the order of the axes: scaling N(0,1), N(0,1/d) of the values; attention "A(X)" from orthonormal tokens
    with W_Q, W_K ~ N(0,1), "A" the row softmax of N(-ln2/2, ln2), fresh in every layer; gap 0 kept, 1 removed
    (A - 11^T/T); weight values, queries, keys of the first of two blocks.

    Returns:
        token_norm/<T>: ``[scaling, attention, gap, run, layer]``, layers 0..settings.layers: ||X_l||_F / sqrt(T), no
            skip, no LayerNorm; exactly 0 when A - 11^T/T is zero to the last digit of every entry: annihilated.
        gradients/<T>: ``[scaling, gap, weight, run]``: log ||dX_2/dW||_F^2 under A(X).
        collapse/residual_sizes: ``[size]``: eps = 1, ..., 10^-decades, then 0.
        collapse/gradients: ``[weight, size, run]``: ||dX_2/dW||_F at X_0 = 1 x^T + eps R, x and R of N(0,1) entries,
            W_Q, W_K, W_V ~ N(0,1/d).
        depth/relative_residual: ``[stream, run, layer]``, layers 1..settings.collapsed_layers: ||X - mean||_F / ||X||_F
            of the tokens that enter the layer; streams "uniform" (A = 11^T/T), "A(X)", "A(X)_perp", "A(X) + skip".
        depth/gradients: ``[stream, weight, run, layer]``: ||dX_l/dW||_F of a layer's output by its own weights
            N(0,1/d), softmax attention, at these tokens brought to entries of mean square 1.

    Raises:
        FloatingPointError: tokens or gradients are not finite; names T and layer.
    """
    tensors: dict[str, Tensor] = {}
    for tokens, runs in track(settings.sizes, "gap_scaling: token norms, T", len(settings.sizes)):
        tensors[f"token_norm/{tokens}"] = token_norms(settings, seed, tokens, runs, device).cpu()
    grid = [(tokens, run) for tokens, runs in settings.gradient_sizes for run in range(runs)]
    gradients: dict[str, list[Tensor]] = {}
    for tokens, run in track(grid, "gap_scaling: gradients, T, run", len(grid)):
        gradients.setdefault(f"gradients/{tokens}", []).append(scaled_gradients(seed, tokens, run, device).cpu())
    tensors |= {key: torch.stack(parts, -1) for key, parts in gradients.items()}
    sizes = residual_sizes(settings)
    residual, gradient = zip(
        *(by_depth(settings, seed, run, device) for run in range(settings.collapsed_runs)), strict=True
    )
    collapse = [collapsing(settings, seed, run, device, sizes) for run in range(settings.collapsed_runs)]
    return tensors | {
        "collapse/residual_sizes": sizes,
        "collapse/gradients": torch.stack(collapse, -1).cpu(),
        "depth/relative_residual": torch.stack(residual, 1).cpu(),
        "depth/gradients": torch.stack(gradient, 2).cpu(),
    }


def token_norms(
    settings: GapScaling, seed: int, tokens: int, runs: int, device: torch.device
) -> Float[Tensor, "scaling attention gap runs layers"]:
    """Propagate X_l = A_l X_{l-1} W_l and return ||X_l||_F / sqrt(T) for every scaling, attention and gap."""
    start = draw(seed, tokens, range(runs), device)[0]
    labels = [(scaling, attention, gap) for scaling in SCALINGS for attention in ATTENTIONS for gap in (False, True)]
    streams = dict.fromkeys(labels, start)
    norms = [torch.stack([_size(X) for X in streams.values()])]
    for layer in range(1, settings.layers + 1):
        random = generator(seed, "gap_scaling", "tokens", tokens, layer)
        weights = torch.randn(3, runs, tokens, tokens, generator=random, dtype=torch.float64).to(device)
        markov = random_markov(tokens, runs, random, -LOGIT_VARIANCE / 2, LOGIT_VARIANCE).to(device)
        for (scaling, attention, gap), X in streams.items():
            A = markov if attention == "A" else _attention(X, weights[0], weights[1])
            X = SCALINGS[scaling](tokens) * (centre(A) if gap else A) @ X @ weights[2]
            if not torch.isfinite(X).all():
                raise FloatingPointError(
                    f"gap_scaling: {attention}, {scaling}, T = {tokens}: not finite at layer {layer}"
                )
            streams[scaling, attention, gap] = X
        norms.append(torch.stack([_size(X) for X in streams.values()]))
    return torch.stack(norms, -1).unflatten(0, (len(SCALINGS), len(ATTENTIONS), 2))


def scaled_gradients(seed: int, tokens: int, run: int, device: torch.device) -> Float[Tensor, "scaling gap weight"]:
    """log ||dX_2/dW||_F^2 for one run's tokens and weights, values scaled either way, the gap kept or removed."""
    start, drawn = one_run(seed, tokens, run, device)
    by_label = []
    for scale in SCALINGS.values():
        weights = [head._replace(values=scale(tokens) * head.values) for head in drawn]
        by_label.append(torch.stack([_gradients(start, weights, Variant(centred=gap)) for gap in (False, True)]))
    values = torch.stack(by_label).log()
    if not torch.isfinite(values).all():
        raise FloatingPointError(f"gap_scaling: a gradient at T = {tokens}, run {run} is not finite")
    return values


def residual_sizes(settings: GapScaling) -> Float[Tensor, "sizes"]:
    """Return eps from 1 down to 10^-decades, equally spaced in its logarithm, and 0 at the end."""
    points = settings.residual_decades * settings.residual_steps + 1
    sizes = torch.logspace(0, -settings.residual_decades, points, dtype=torch.float64)
    return torch.cat([sizes, torch.zeros(1, dtype=torch.float64)])


def collapsing(
    settings: GapScaling, seed: int, run: int, device: torch.device, sizes: Float[Tensor, "sizes"]
) -> Float[Tensor, "weight sizes"]:
    """||dX_2/dW||_F at tokens X_0 = 1 x^T + eps R for every eps, with the same x, R and weights."""
    T = settings.collapsed_tokens
    random = generator(seed, "gap_scaling", "collapse", run)
    normal = torch.randn(8, T, T, generator=random, dtype=torch.float64).to(device)
    mean, residual = normal[0, :1], normal[1] - normal[1].mean(0)
    weights = [Weights(*(normal[k : k + 3] / T**0.5)) for k in (2, 5)]
    return torch.stack([_gradients(mean + eps * residual, weights, Variant()).sqrt() for eps in sizes.tolist()], -1)


def by_depth(
    settings: GapScaling, seed: int, run: int, device: torch.device
) -> tuple[Float[Tensor, "stream layers"], Float[Tensor, "stream weight layers"]]:
    """Return the relative residual of the tokens that enter each layer and the layer's gradients by its own weights."""
    T = settings.collapsed_tokens
    random = generator(seed, "gap_scaling", "depth", run)
    start = torch.randn(T, T, generator=random, dtype=torch.float64).to(device)
    streams, observed = dict.fromkeys(STREAMS, start), []
    for _ in range(settings.collapsed_layers):
        weights = Weights(*(torch.randn(3, T, T, generator=random, dtype=torch.float64).to(device) / T**0.5))
        at_layer = []
        for stream, X in streams.items():
            X = X / X.square().mean().sqrt()
            block = linearise(X, weights)
            at_layer.append(torch.stack([relative_residual(X), *(_own_gradient(block, name) for name in WEIGHTS)]))
            streams[stream] = _next_tokens(stream, block)
        observed.append(torch.stack(at_layer))
    residual, *gradients = torch.stack(observed, -1).unbind(1)
    return residual, torch.stack(gradients, 1)


def _next_tokens(stream: str, block: Block) -> Tensor:
    if stream == "uniform":
        return (block.tokens.mean(-2, keepdim=True) @ block.weights.values).expand_as(block.tokens)
    mixed = (centre(block.softmax) if stream == "A(X)_perp" else block.softmax) @ block.tokens @ block.weights.values
    return block.tokens + mixed if stream == "A(X) + skip" else mixed


def _own_gradient(block: Block, name: str) -> Float[Tensor, ""]:
    maps, inputs = entry(block, name)
    return (maps.square().sum((-2, -1)) @ inputs.square().sum(-1)).sqrt()


def _gradients(tokens: Tensor, weights: list[Weights], variant: Variant) -> Float[Tensor, "weight"]:
    """||dX_2/dW||_F^2 by the first block's values, queries and keys."""
    first = linearise(tokens, weights[0], variant)
    second = linearise(first.output, weights[1], variant)
    return torch.stack([value_gradient(first, second), *logit_gradients(first, second)])


def _attention(tokens: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    return softmax(token_logits(tokens, queries.unsqueeze(-3), keys.unsqueeze(-3)).squeeze(-3))


def _size(tokens: Tensor) -> Float[Tensor, "runs"]:
    return torch.linalg.matrix_norm(tokens) / tokens.shape[-2] ** 0.5
