"""Over-smoothing in vision transformers: how alike the patches of real pictures become with depth.

After Gong et al. (2021), at random initialisation, and with a trained checkpoint where the user names one. In float32,
as these networks are run: cosines to six digits are asked for, and nothing here is followed to round-off.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from rankcollapse.finite import finite
from rankcollapse.pictures import PICTURES, crop, normalised, patches
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import mean_cosine, relative_residual
from rankcollapse.settings.smoothing import VisionBlock, VisionPatches
from rankcollapse.trained_vision import hidden_patches, load_vision
from rankcollapse.vision import apply_block, draw_weights, embed

NAME = "vision_patches"
SWEPT: VisionBlock = "pre-LN"  # the block whose inputs are scaled


class Network(NamedTuple):
    """Blocks of one kind, of a depth, on pictures multiplied by a number."""

    kind: VisionBlock
    depth: int
    input_scale: float = 1.0


def measure(settings: VisionPatches, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure the likeness of patches by layer; the class token is not among them.

    Run r has its own weights and its own crop of each picture. Pictures are those of ``pictures.PICTURES``.

    - ``cosine``, ``relative`` [size, init, block, run, picture, layer 0..L]: mean cosine of two patches, and
      ||R||_F / ||X||_F, of the residual stream as a block leaves it; ``scaled`` is for depth L.
    - ``scaled_cosine`` [depth, size, init, run, picture]: after the last layer of scaled networks of each depth.
    - ``input_cosine`` [scale, init, run, picture]: after the last pre-LN block, first size, pictures times the scale.
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
            results[name] = torch.stack([observe(layer.double()) for layer in layers], -1).unflatten(
                0, pixels.shape[:2]
            )
        shown = [round(layer / settings.layers * (len(layers) - 1)) for layer in settings.shown_layers]
        marked = [_to_marked(layers[layer][: len(PICTURES)], settings) for layer in shown]
        results["trained_similarity"] = torch.stack(marked, 1)
    return finite(NAME, results)


def _random(
    settings: VisionPatches, pixels: Tensor, device: torch.device, seed: int, track: Track
) -> dict[str, Tensor]:
    grid = (len(settings.widths), len(settings.inits))
    last = (settings.runs, len(PICTURES))
    layers, shown, count = (
        settings.layers + 1,
        len(settings.shown_layers),
        (settings.picture_size // settings.patch) ** 2,
    )
    results = {
        name: torch.zeros(*grid, len(settings.blocks), *last, layers, dtype=torch.float64)
        for name in ("cosine", "relative")
    }
    results["scaled_cosine"] = torch.zeros(len(settings.scaled_depths), *grid, *last, dtype=torch.float64)
    results["input_cosine"] = torch.zeros(len(settings.input_scales), grid[1], *last, dtype=torch.float64)
    results["similarity"] = torch.zeros(grid[1], len(settings.blocks), last[1], shown, count, dtype=torch.float64)
    points = list(product(enumerate(settings.widths), enumerate(settings.inits), range(settings.runs)))
    for (w, width), (i, init), run in track(points, NAME, len(points)):
        for network, layer, stream in _streams(settings, pixels[run], width, init, (seed, run), device):
            found = stream[:, 1:].double()
            if layer == network.depth and network.kind == "scaled":
                place = settings.scaled_depths.index(network.depth)
                results["scaled_cosine"][place, w, i, run] = mean_cosine(found)
            if layer == settings.layers and w == 0 and network.kind == SWEPT:
                place = settings.input_scales.index(network.input_scale)
                results["input_cosine"][place, i, run] = mean_cosine(found)
            if network[1:] != (settings.layers, 1.0) or network.kind not in settings.blocks:
                continue
            b = settings.blocks.index(network.kind)
            results["cosine"][w, i, b, run, :, layer] = mean_cosine(found)
            results["relative"][w, i, b, run, :, layer] = relative_residual(found)
            if run == 0 and w == len(settings.widths) - 1 and layer in settings.shown_layers:
                results["similarity"][i, b, :, settings.shown_layers.index(layer)] = _to_marked(found, settings)
    return results


def _networks(settings: VisionPatches, width: int) -> Iterator[Network]:
    yield from (Network(kind, settings.layers) for kind in settings.blocks if kind != "scaled")
    yield from (Network("scaled", depth) for depth in settings.scaled_depths)
    if width == settings.widths[0]:
        yield from (Network(SWEPT, settings.layers, scale) for scale in settings.input_scales)


def _streams(
    settings: VisionPatches, pixels: Tensor, width: int, init: str, draw: tuple[int, int], device: torch.device
) -> Iterator[tuple[Network, int, Tensor]]:
    """Yield network, layer and tokens, all networks side by side through the same weights."""
    seed, run = draw
    cut, streams = patches(normalised(pixels), settings.patch), {}
    for network in _networks(settings, width):
        rng = generator(seed, NAME, "embedding", width, init, run)
        streams[network] = embed(network.input_scale * cut, width, init, settings.position_std, rng).to(device)
    for layer in range(settings.layers + 1):
        if layer:
            rng = generator(seed, NAME, "weights", width, init, run, layer)
            weights = draw_weights(width, width // settings.head_width, settings.mlp_ratio, init, rng, device)
            for network, tokens in streams.items():
                scale = (2 * network.depth) ** -0.5 if network.kind == "scaled" else 1.0
                streams[network] = apply_block(tokens, weights, network.kind, scale)
        for network, tokens in streams.items():
            yield network, layer, tokens
        streams = {network: tokens for network, tokens in streams.items() if network.depth > layer}


def _to_marked(tokens: Tensor, settings: VisionPatches) -> Tensor:
    """Return the cosine of every patch to the marked one; of a checkpoint's, to the one at the same share of places."""
    unit = torch.nn.functional.normalize(tokens.double(), dim=-1)
    side, own = settings.picture_size // settings.patch, math.isqrt(tokens.shape[-2])
    row, column = (place * own // side for place in divmod(settings.marked_patch, side))
    return torch.einsum("ptd,pd->pt", unit, unit[:, row * own + column])
