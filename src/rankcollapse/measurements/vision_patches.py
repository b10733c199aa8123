"""Over-smoothing in vision transformers: how alike the patches of real pictures become with depth.

After Gong et al. (2021), at random initialisation, and with a trained checkpoint where the user names one. In float32,
as these networks are run: cosines to six digits are asked for, and nothing here is followed to round-off.
"""

import math
from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from rankcollapse.pictures import PICTURES, crop, normalised, patches
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import mean_cosine, relative_residual
from rankcollapse.settings.smoothing import VisionBlock, VisionPatches
from rankcollapse.trained_vision import hidden_patches, load_vision
from rankcollapse.vision import apply_block, draw_weights, embed

NAME = "vision_patches"


def measure(settings: VisionPatches, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure the likeness of patches by layer; the class token is not among them.

    Run r has its own weights and its own crop of each picture. Pictures are those of ``pictures.PICTURES``.

    - ``cosine``, ``relative`` [size, init, block, run, picture, layer 0..L]: mean cosine of two patches, and
      ||R||_F / ||X||_F, of the residual stream as a block leaves it; ``scaled`` is for depth L.
    - ``scaled_cosine`` [depth, size, init, run, picture]: after the last layer of scaled networks of each depth.
    - ``similarity`` [init, block, picture, shown layer, patch]: cosine to the marked patch, last size, run 0.
    - ``pixels`` [run, picture, row, column, colour]: the crops, uint8.
    - with a checkpoint, ``trained_cosine``, ``trained_relative`` [run, picture, layer] and ``trained_similarity``
      [picture, shown, patch] at its layers nearest to the shown shares of the depth.

    Raises FloatingPointError naming the grid point when a value is not finite; ConfigError for a checkpoint that
    cannot be used.
    """
    model = load_vision(settings.checkpoint) if settings.checkpoint else None  # first: a wrong name costs no time
    crops = {
        (run, name): crop(name, settings.picture_size, generator(seed, NAME, "crop", name, run))
        for run, name in product(range(settings.runs), PICTURES)
    }
    pixels = torch.stack(list(crops.values())).unflatten(0, (settings.runs, len(PICTURES)))
    results = _random(settings, pixels, device, seed, track) | {"pixels": pixels}
    if model is not None:
        layers = hidden_patches(model, pixels.flatten(0, 1), device)
        for name, observe in (("trained_cosine", mean_cosine), ("trained_relative", relative_residual)):
            results[name] = torch.stack([observe(layer.double()) for layer in layers], -1).unflatten(0, pixels.shape[:2])
        shown = [round(layer / settings.layers * (len(layers) - 1)) for layer in settings.shown_layers]
        marked = [_to_marked(layers[layer][: len(PICTURES)], settings) for layer in shown]
        results["trained_similarity"] = torch.stack(marked, 1)
    return {name: _finite(name, tensor.cpu()) for name, tensor in results.items()}


def _random(
    settings: VisionPatches, pixels: Tensor, device: torch.device, seed: int, track: Track
) -> dict[str, Tensor]:
    grid = (len(settings.widths), len(settings.inits))
    last = (settings.runs, len(PICTURES))
    layers, shown, count = settings.layers + 1, len(settings.shown_layers), (settings.picture_size // settings.patch) ** 2
    results = {
        name: torch.zeros(*grid, len(settings.blocks), *last, layers, dtype=torch.float64)
        for name in ("cosine", "relative")
    }
    results["scaled_cosine"] = torch.zeros(len(settings.scaled_depths), *grid, *last, dtype=torch.float64)
    results["similarity"] = torch.zeros(grid[1], len(settings.blocks), last[1], shown, count, dtype=torch.float64)
    points = list(product(enumerate(settings.widths), enumerate(settings.inits), range(settings.runs)))
    for (w, width), (i, init), run in track(points, NAME, len(points)):
        for block, depth, layer, stream in _streams(settings, pixels[run], width, init, (seed, run), device):
            found = stream[:, 1:].double()
            if layer == depth and block == "scaled":
                results["scaled_cosine"][settings.scaled_depths.index(depth), w, i, run] = mean_cosine(found)
            if depth < settings.layers or block not in settings.blocks:
                continue
            b = settings.blocks.index(block)
            results["cosine"][w, i, b, run, :, layer] = mean_cosine(found)
            results["relative"][w, i, b, run, :, layer] = relative_residual(found)
            if run == 0 and w == len(settings.widths) - 1 and layer in settings.shown_layers:
                results["similarity"][i, b, :, settings.shown_layers.index(layer)] = _to_marked(found, settings)
    return results


def _streams(
    settings: VisionPatches, pixels: Tensor, width: int, init: str, draw: tuple[int, int], device: torch.device
) -> Iterator[tuple[VisionBlock, int, int, Tensor]]:
    """Yield block, depth of its network, layer and tokens, for all networks through the same weights."""
    seed, run = draw
    heads = width // settings.head_width
    cut = patches(normalised(pixels), settings.patch)
    start = embed(cut, width, init, settings.position_std, generator(seed, NAME, "embedding", width, init, run))
    networks: list[tuple[VisionBlock, int]] = [(kind, settings.layers) for kind in settings.blocks if kind != "scaled"]
    networks += [("scaled", depth) for depth in settings.scaled_depths]
    streams = dict.fromkeys(networks, start.to(device))
    for layer in range(settings.layers + 1):
        if layer:
            rng = generator(seed, NAME, "weights", width, init, run, layer)
            weights = draw_weights(width, heads, settings.mlp_ratio, init, rng, device)
            for (kind, depth), tokens in streams.items():
                scale = (2 * depth) ** -0.5 if kind == "scaled" else 1.0
                streams[kind, depth] = apply_block(tokens, weights, kind, scale)
        for (kind, depth), tokens in streams.items():
            yield kind, depth, layer, tokens
        streams = {network: tokens for network, tokens in streams.items() if network[1] > layer}


def _to_marked(tokens: Tensor, settings: VisionPatches) -> Tensor:
    """Return the cosine of every patch to the marked one; of a checkpoint's, to the one at the same share of places."""
    unit = torch.nn.functional.normalize(tokens.double(), dim=-1)
    side, own = settings.picture_size // settings.patch, math.isqrt(tokens.shape[-2])
    row, column = (place * own // side for place in divmod(settings.marked_patch, side))
    return torch.einsum("ptd,pd->pt", unit, unit[:, row * own + column])


def _finite(name: str, tensor: Tensor) -> Tensor:
    if not bool(tensor.isfinite().all()):
        raise FloatingPointError(f"{NAME}: {name} is not finite at {(~tensor.isfinite()).nonzero()[0].tolist()}")
    return tensor
