"""How alike tokens become with depth in a residual stream: fixed and depth-scaled branches (Noci et al. 2022)."""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import scaled_logits, softmax
from rankcollapse.blocks import layer_norm
from rankcollapse.finite import finite
from rankcollapse.mixing import attention_entropy, overlaps
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import mean_cosine
from rankcollapse.settings.noci import NociSimilarity

NAME = "noci_similarity"
ATTENTIONS = ("uniform", "softmax")
# He's weights have twice the variance; here the activation has the factor, and the same weights serve both.
HIDDEN: dict[str, Callable[[Tensor], Tensor]] = {"linear": lambda h: h, "relu": lambda h: 2**0.5 * torch.relu(h)}


class Network(NamedTuple):
    """What one network is made of."""

    attention: str
    norm: str
    mlp: str


def measure(settings: NociSimilarity, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure X <- [LN](X + a P X W_V), then X <- [LN](X + a phi(X W_1) W_2), from X of N(0, 1) entries.

    One head; all weights N(0, 1/d), the same in every network; phi(h) = h or sqrt(2) max(h, 0). Axis scale: t / sqrt(L)
    for each of ``strengths``, then ``scales``. Axis attention: uniform (P = 11^T/n), softmax.

    Returns:
        cosine: ``[attention, norm, mlp, scale, run, layer]``, layers 0..L: mean cosine of two different tokens.
        entropy: ``[norm, mlp, scale, run, layer]``, layers 1..L of softmax attention: mean row entropy over ln n.
        overlaps: ``[norm, mlp, scale, run, layer, 2]``: mean_i sum_j P_ij^2 and mean_{i != i'} sum_j P_ij P_i'j of it.
        limit/cosine: ``[depth, strength, run]``: cosine after L = depth layers, a = t / sqrt(L), uniform attention, no
            MLP, no LayerNorm.

    Raises:
        FloatingPointError: a value is not finite; names tensor and index.
    """
    limit = [_end(settings, depth, device, seed) for depth in track(settings.depths, f"{NAME}: depths")]
    results = _by_depth(settings, device, seed, track) | {"limit/cosine": torch.stack(limit)}
    return finite(NAME, results)


def branch_scales(settings: NociSimilarity, layers: int) -> Float[Tensor, "scale"]:
    """Return a of every scale at a depth of ``layers``: t / sqrt(layers), then the fixed ones."""
    falling = [strength / layers**0.5 for strength in settings.strengths]
    return torch.tensor([*falling, *settings.scales], dtype=torch.float64)


def step(
    tokens: Float[Tensor, "runs scales tokens width"],
    scales: Float[Tensor, "scales"],
    weights: Float[Tensor, "5 runs width width"],
    network: Network,
) -> tuple[Float[Tensor, "runs scales tokens width"], Float[Tensor, "runs scales tokens tokens"] | None]:
    """Apply one block; return its tokens and, for softmax, its attention. ``weights``: W_Q, W_K, W_V, W_1, W_2."""
    queries, keys, values, first, second = weights
    a, attention = scales[:, None, None], None
    if network.attention == "uniform":
        mixed = _times(tokens.mean(-2, keepdim=True), values)
    else:
        attention = softmax(scaled_logits(_times(tokens, queries), _times(tokens, keys)))
        mixed = attention @ _times(tokens, values)
    tokens = _normed(tokens + a * mixed, network)
    if network.mlp != "none":
        tokens = _normed(tokens + a * _times(HIDDEN[network.mlp](_times(tokens, first)), second), network)
    return tokens, attention


def _by_depth(settings: NociSimilarity, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    scales = branch_scales(settings, settings.layers)
    networks = [Network(*kind) for kind in product(ATTENTIONS, settings.norms, settings.mlps)]
    streams = dict.fromkeys(networks, _start(settings, len(scales), device, seed))
    cosine = [torch.stack([mean_cosine(X) for X in streams.values()])]
    seen: list[Tensor] = []  # of each layer: entropy and the two overlaps
    for layer in track(range(settings.layers), f"{NAME}: layers"):
        weights = _weights(settings, device, seed, layer, matrices=5)
        maps = []
        for network, X in streams.items():
            streams[network], attention = step(X, scales.to(device), weights, network)
            if attention is not None:
                maps.append(torch.cat([attention_entropy(attention).unsqueeze(-1), overlaps(attention)], -1))
        cosine.append(torch.stack([mean_cosine(X) for X in streams.values()]))
        seen.append(torch.stack(maps))
    kinds = (len(settings.norms), len(settings.mlps))
    by_layer = torch.stack(seen, 3).transpose(1, 2).unflatten(0, kinds).cpu()  # [norm, mlp, scale, run, layer, 3]
    return {
        "cosine": torch.stack(cosine, -1).transpose(1, 2).unflatten(0, (len(ATTENTIONS), *kinds)).cpu(),
        "entropy": by_layer[..., 0].contiguous(),
        "overlaps": by_layer[..., 1:].contiguous(),
    }


def _end(settings: NociSimilarity, depth: int, device: torch.device, seed: int) -> Float[Tensor, "strength runs"]:
    scales = branch_scales(settings, depth)[: len(settings.strengths)].to(device)
    tokens = _start(settings, len(scales), device, seed)
    for layer in range(depth):
        values = _weights(settings, device, seed, f"{depth}/{layer}", matrices=1)
        tokens = step(tokens, scales, values.expand(5, -1, -1, -1), Network("uniform", "none", "none"))[0]
    return mean_cosine(tokens).mT.cpu()


def _start(settings: NociSimilarity, scales: int, device: torch.device, seed: int) -> Tensor:
    shape = (settings.runs, 1, settings.tokens, settings.width)
    drawn = torch.randn(shape, generator=generator(seed, NAME, "tokens"), dtype=torch.float64)
    return drawn.expand(-1, scales, -1, -1).to(device)


def _weights(
    settings: NociSimilarity, device: torch.device, seed: int, layer: object, matrices: int
) -> Float[Tensor, "matrices runs width width"]:
    shape = (matrices, settings.runs, settings.width, settings.width)
    drawn = torch.randn(shape, generator=generator(seed, NAME, "weights", layer), dtype=torch.float64)
    return drawn.mul_(settings.width**-0.5).to(device)


def _times(tokens: Float[Tensor, "runs scales tokens width"], weights: Float[Tensor, "runs width width"]) -> Tensor:
    return (tokens.flatten(1, 2) @ weights).view(tokens.shape)


def _normed(tokens: Tensor, network: Network) -> Tensor:
    return layer_norm(tokens) if network.norm == "post" else tokens
