"""Query, key and value gradients with skips: by layer, at collapsed tokens, at saturated attention (Noci et al. 2022).

Every pass is made twice, with tokens and channels in another order. In exact arithmetic nothing changes; the difference
of the two results is what rounding does to a gradient, and a gradient not well above it is not known.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import matrix_norm, vector_norm

from rankcollapse.attention import softmax
from rankcollapse.backward import Design, Problem, token_gradients, unpermuted, weight_gradients
from rankcollapse.finite import finite
from rankcollapse.mixing import attention_entropy
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import mean_cosine
from rankcollapse.settings.noci import NociGradients

NAME = "noci_gradients"
SKIPS = (False, True)


def measure(settings: NociGradients, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure gradients of <G, X_L>, G of N(0, 1/(n d)) entries, in attention alone; one head, weights N(0, 1/d).

    Axis branch: a = 1, a = 1/sqrt(L). Axis weight: queries, keys, values. ``roundoff`` beside a gradient: norm of the
    difference to the same pass with tokens and channels in another order.

    Returns:
        depth/gradient, depth/roundoff: ``[placement, branch, weight, run, layer]``: Frobenius norms, X_0 of N(0, 1).
        depth/cosine, depth/entropy: ``[placement, branch, run, layer]``: mean cosine of the tokens that enter a layer,
            mean row entropy of its attention over ln n.
        collapse/residual_sizes: ``[size]``: eps = 1, ..., 10^-decades.
        collapse/gradient, collapse/roundoff: ``[placement, weight, size, run]``: one layer with skip, a = 1, at
            X_0 = 1 x^T + eps R, x and R of N(0, 1) entries, the columns of R summing to 0.
        saturated/token_gradient, saturated/token_roundoff: ``[skip no/yes, depth, beta, run, token]``: norm of a row of
            dL/dX_0, post-LN, a = 1, logits times beta sqrt(ln n).
        saturated/logit_gradient, saturated/logit_roundoff: the same axes: norm of a row of dL/dZ, the first layer's
            logits (beta sqrt(ln n) included).
        saturated/attended: the same axes: largest share of its attention that a query of the first layer gives a token.

    Raises:
        FloatingPointError: tokens or a gradient are not finite; names the layer, or tensor and index.
    """
    results = _by_depth(settings, device, seed, track) | _collapse(settings, device, seed, track)
    results |= _saturated(settings, device, seed, track)
    return finite(NAME, results)


def weight_norms(
    problem: Problem, design: Design, orders: tuple[Tensor, Tensor]
) -> tuple[Float[Tensor, "layers 3 *batch"], Float[Tensor, "layers 3 *batch"], Tensor, Tensor]:
    """Return norms and round-off of all weight gradients, and cosine and entropy ``[layers, *batch]`` of each layer."""
    found, trace = weight_gradients(problem, design)
    again = weight_gradients(problem.permuted(*orders), design)[0]
    roundoff = matrix_norm(found - unpermuted(again, orders[1], orders[1]))
    with torch.no_grad():
        cosine = torch.stack([mean_cosine(tokens) for tokens in trace.tokens[:-1]])
        entropy = torch.stack([attention_entropy(softmax(logits)) for logits in trace.logits])
    return matrix_norm(found), roundoff, cosine, entropy


def row_norms(problem: Problem, design: Design, orders: tuple[Tensor, Tensor]) -> Float[Tensor, "5 *batch tokens"]:
    """Return, by token: norm and round-off of dL/dX_0, those of dL/dZ_1, largest attention received in layer 1."""
    by_token, by_logit, trace = token_gradients(problem, design)
    token_again, logit_again, _ = token_gradients(problem.permuted(*orders), design)
    token_off = by_token - unpermuted(token_again, *orders)
    logit_off = by_logit - unpermuted(logit_again, orders[0], orders[0])
    norms = [vector_norm(rows, dim=-1) for rows in (by_token, token_off, by_logit, logit_off)]
    return torch.stack([*norms, softmax(trace.logits[0].detach()).amax(-2)])


def _by_depth(settings: NociGradients, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    n, d, L = settings.tokens, settings.width, settings.layers
    branch = torch.tensor([1.0, L**-0.5], dtype=torch.float64, device=device)[:, None, None]
    orders, runs = _orders(settings, seed, device), []
    for run in track(range(settings.runs), f"{NAME}: depth"):
        start = _draw(seed, f"tokens/{run}", (1, n, d)).expand(2, -1, -1)
        loss = _draw(seed, f"loss/{run}", (1, n, d)).expand(2, -1, -1) / (n * d) ** 0.5
        drawn = (_draw(seed, f"weights/{run}/{layer}", (3, 1, d, d)) / d**0.5 for layer in range(L))
        weights = tuple(matrix.expand(-1, 2, -1, -1).to(device) for matrix in drawn)
        problem = Problem(start.to(device), weights, loss.to(device))
        runs.append([weight_norms(problem, Design(kind, branch=branch), orders) for kind in settings.placements])
    gradient, roundoff, cosine, entropy = (
        torch.stack([torch.stack(by_placement) for by_placement in by_run])
        for by_run in zip(*(zip(*run, strict=True) for run in runs), strict=True)
    )  # [run, placement, layer, (weight,) branch]
    by_weight = {"depth/gradient": gradient, "depth/roundoff": roundoff}
    by_layer = {"depth/cosine": cosine, "depth/entropy": entropy}
    return {name: value.permute(1, 4, 3, 0, 2).contiguous() for name, value in by_weight.items()} | {
        name: value.permute(1, 3, 0, 2).contiguous() for name, value in by_layer.items()
    }


def residual_sizes(settings: NociGradients) -> Float[Tensor, "sizes"]:
    """Return eps from 1 down to 10^-decades, equally spaced in its logarithm."""
    points = settings.residual_decades * settings.residual_steps + 1
    return torch.logspace(0, -settings.residual_decades, points, dtype=torch.float64)


def _collapse(settings: NociGradients, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    n, d, runs = settings.tokens, settings.width, settings.runs
    sizes = residual_sizes(settings)
    mean, residual = _draw(seed, "collapse/mean", (runs, 1, d)), _draw(seed, "collapse/residual", (runs, n, d))
    tokens = mean + sizes[:, None, None, None] * (residual - residual.mean(-2, keepdim=True))
    weights = (_draw(seed, "collapse/weights", (3, 1, runs, d, d)) / d**0.5).expand(-1, len(sizes), -1, -1, -1)
    loss = (_draw(seed, "collapse/loss", (1, runs, n, d)) / (n * d) ** 0.5).expand(len(sizes), -1, -1, -1)
    problem = Problem(tokens.to(device), (weights.to(device),), loss.to(device))
    parts = [
        weight_norms(problem, Design(placement), _orders(settings, seed, device))[:2]
        for placement in track(settings.placements, f"{NAME}: collapsed tokens")
    ]
    gradient, roundoff = (torch.cat(part) for part in zip(*parts, strict=True))  # one layer each
    return {"collapse/residual_sizes": sizes, "collapse/gradient": gradient, "collapse/roundoff": roundoff}


def _saturated(settings: NociGradients, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    n, d = settings.tokens, settings.width
    betas = torch.tensor(settings.inverse_temperatures, dtype=torch.float64, device=device)
    gain, orders, runs = betas[:, None, None] * math.log(n) ** 0.5, _orders(settings, seed, device), []
    for run in track(range(settings.saturated_runs), f"{NAME}: saturation"):
        start = _draw(seed, f"saturated/tokens/{run}", (n, d)).expand(len(betas), -1, -1).to(device)
        loss = (_draw(seed, f"saturated/loss/{run}", (n, d)) / (n * d) ** 0.5).expand(len(betas), -1, -1).to(device)
        drawn = (_draw(seed, f"saturated/weights/{run}/{layer}", (3, d, d)) for layer in range(max(settings.depths)))
        weights = tuple((matrix / d**0.5).to(device) for matrix in drawn)
        rows = [
            row_norms(Problem(start, weights[:depth], loss), Design("post", skip, gain=gain), orders)
            for skip in SKIPS
            for depth in settings.depths
        ]
        runs.append(torch.stack(rows, 1).unflatten(1, (len(SKIPS), len(settings.depths))))
    names = ("token_gradient", "token_roundoff", "logit_gradient", "logit_roundoff", "attended")
    found = torch.stack(runs, -2)  # [name, skip, depth, beta, run, token]
    return {f"saturated/{name}": value.contiguous() for name, value in zip(names, found, strict=True)}


def _draw(seed: int, name: str, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=generator(seed, NAME, name), dtype=torch.float64)


def _orders(settings: NociGradients, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    random = generator(seed, NAME, "orders")
    tokens, channels = (torch.randperm(size, generator=random) for size in (settings.tokens, settings.width))
    return tokens.to(device), channels.to(device)
