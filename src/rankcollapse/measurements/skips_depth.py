"""What skips and MLPs keep at initialisation, to a hundred layers; and whether an MLP leaves the tokens' hull.

Dong, Cordonnier & Loukas (2021), section 2.3 and after. The residual is followed by scale-free propagation, since
with some weights it falls below machine precision even with skips.
"""

import math
from itertools import product

import torch
from torch import Tensor

from rankcollapse.finite import finite
from rankcollapse.geometry import hull_distances
from rankcollapse.inits import WEIGHT_INITS, gaussian, shared_mean
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import mean_cosine
from rankcollapse.scalefree import State, from_tokens
from rankcollapse.scalefree_attention import Attention
from rankcollapse.scalefree_blocks import block
from rankcollapse.scalefree_mlp import ACTIVATIONS, Mlp
from rankcollapse.scalefree_spectrum import log_singular_values, log_stable_rank_excess
from rankcollapse.settings.dong import SkipsDepth

NAME = "skips_depth"
NETWORKS = ("SAN + skip", "transformer")
LINEAR = "none"  # an MLP without activation


def measure(settings: SkipsDepth, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure residual, rank and likeness of tokens by depth, and the tokens outside their hull after an MLP.

    - Axes [network, init, placement, run, layer 0..L], networks attention with skip and the whole block, tokens with
      a shared mean: ``log10_relative`` log10 ‖R‖_F / ‖X‖_F; ``log10_stable_rank_excess`` log10(sr(X) - 1);
      ``cosine`` mean cosine of two different tokens. ``value_gain`` [init, run]: ‖W_V W_O‖_F² / d, mean over layers.
    - ``separation`` [init, width, activation, skip no/yes, run and row], the activations followed by none: by how much
      a hyperplane separates a token after the MLP from the hull of the tokens before it, in units of that hull's size
      (its largest coordinate about its middle); 0 or below when there is no such plane.

    Raises FloatingPointError, naming the grid point, when a value is not finite.
    """
    results = _depth(settings, device, seed, track) | _hull(settings, seed, track)
    return finite(NAME, results)


def _depth(settings: SkipsDepth, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    configurations = list(product(range(len(NETWORKS)), range(len(settings.placements))))
    shape = (len(NETWORKS), len(settings.inits), len(settings.placements), settings.runs, settings.layers + 1)
    names = ("log10_relative", "log10_stable_rank_excess", "cosine")
    table = {name: torch.full(shape, torch.nan, dtype=torch.float64) for name in names}
    value_gain = torch.zeros(len(settings.inits), settings.runs, dtype=torch.float64)
    points = list(product(enumerate(settings.inits), range(settings.runs)))
    for (i, init), run in track(points, f"{NAME}: depth", len(points)):
        tokens = shared_mean(settings.tokens, settings.width, generator(seed, NAME, "tokens", run)).to(device)
        states = dict.fromkeys(configurations, from_tokens(tokens))
        for depth in range(settings.layers + 1):
            for (network, placement), state in states.items():
                for name, value in _observe(state).items():
                    table[name][network, i, placement, run, depth] = value.cpu()
            if depth == settings.layers:
                break
            attention, mlp = _weights(settings, init, device, generator(seed, NAME, init, run, depth))
            value_gain[i, run] += ((attention.value @ attention.output).square().sum() / settings.width).cpu()
            states = {
                (network, placement): block(state, attention, mlp if network else None, settings.placements[placement])
                for (network, placement), state in states.items()
            }
    return table | {"value_gain": value_gain / settings.layers}


def _weights(settings: SkipsDepth, init: str, device: torch.device, rng: torch.Generator) -> tuple[Attention, Mlp]:
    draw, width, hidden = WEIGHT_INITS[init], settings.width, settings.mlp_ratio * settings.width
    query, key, value, output = (draw(width, width, rng).to(device) for _ in range(4))
    mlp = Mlp(draw(width, hidden, rng).to(device), draw(hidden, width, rng).to(device), settings.activation)
    return Attention(query, key, value, output, settings.heads), mlp


def _observe(state: State) -> dict[str, Tensor]:
    return {
        "log10_relative": state.log_relative / math.log(10),
        "log10_stable_rank_excess": log_stable_rank_excess(log_singular_values(state)) / math.log(10),
        "cosine": mean_cosine(state.tokens),
    }


def _hull(settings: SkipsDepth, seed: int, track: Track) -> dict[str, Tensor]:
    """Gaussian tokens of every width, so that the smaller ones fill a hull with an interior."""
    activations = (*settings.hull_activations, LINEAR)
    outer = (len(settings.inits), len(settings.hull_widths), len(activations), 2)
    found = torch.full((*outer, settings.hull_runs, settings.hull_rows), torch.nan, dtype=torch.float64)
    points = list(product(enumerate(settings.inits), enumerate(settings.hull_widths), range(settings.hull_runs)))
    for (i, init), (w, width), run in track(points, f"{NAME}: hull", len(points)):
        rng = generator(seed, NAME, "hull", init, width, run)
        tokens = gaussian(settings.tokens, width, rng)
        hidden = settings.mlp_ratio * width
        first, second = WEIGHT_INITS[init](width, hidden, rng), WEIGHT_INITS[init](hidden, width, rng)
        size = (tokens - tokens.mean(0)).abs().max().item()
        for (a, activation), skip in product(enumerate(activations), (False, True)):
            inner = tokens @ first if activation == LINEAR else ACTIVATIONS[activation].function(tokens @ first)
            moved = (inner @ second + (tokens if skip else 0))[: settings.hull_rows]
            separation = hull_distances(moved.numpy(), tokens.numpy())[1] / size
            found[i, w, a, int(skip), run] = torch.from_numpy(separation)
    return {"separation": found.flatten(-2)}
