"""How much the bounds on the residual leave, over a fuzz of shapes, inits and inputs; the mathematics: ``bounds``."""

import math
from itertools import product

import torch
from torch import Tensor

from rankcollapse.bounds import (
    COMPOSITE_BOUNDS,
    attention_contractions,
    branch,
    branch_contraction,
    iterated,
    log_composite_constants,
    log_frobenius_constants,
    log_trivial_factors,
)
from rankcollapse.finite import finite
from rankcollapse.inits import INPUTS, WEIGHT_INITS
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import composite_norm, decompose
from rankcollapse.scalefree import add, from_tokens
from rankcollapse.scalefree_attention import Attention, attend, attention_matrix
from rankcollapse.settings.dong import ResidualBounds

NAME = "residual_bounds"
PAIR = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)  # two tokens, one channel
PAIR_LOGIT = math.log(3) / 2  # softmax of (u, -u) is (3/4, 1/4) for u = ln 3 / 2


def measure(settings: ResidualBounds, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure bounds and residuals. Float64. Cell = (shape, init, input), then run; layer l = 0 is the input.

    Attention without a skip, residuals followed by scale-free propagation:

    - ``log_residual`` [norm, shape, init, input, run, layer 0..L]: ln ||R_l||; norm = composite (1,inf), Frobenius
    - ``log_relative`` [norm, shape, init, input, run, layer 0..L]: ln ||R_l|| / ||X_l||
    - ``log_constant`` [bound, shape, init, input, run, layer 0..L-1]: ln C of ||R_{l+1}|| <= C ||R_l||^3; bound =
      published (4 gamma H beta / sqrt(d_k)), the same without gamma, derived; in Frobenius norm proved, leading order
    - ``log_slack`` (same axes): ln of C ||R_l||^3 / ||R_{l+1}||; negative where a bound is violated
    - ``log_iterated`` [bound, shape, init, input, run, layer 0..L]: ln of the bound from ||R_0|| alone
    - ``log_trivial`` [norm, shape, init, input, run, layer 0..L-1]: ln of the largest ||R_{l+1}|| / ||R_l|| that these
      values allow any row-stochastic matrices
    - ``gamma`` [shape, init, input, run, layer 0..L-1]: the largest over heads

    Attention with skip, same weights and tokens:

    - ``skip/step`` [shape, init, input, run, layer 0..L'-1]: ||R_{l+1}||_F / ||R_l||_F
    - ``skip/contraction`` [kind, shape, init, input, run, layer 0..L'-1]: kind = attention (max_h ||Pi P_h Pi||_2),
      here (||B(R_l)|| / ||R_l|| at this residual), branch (its largest over all R, approached from below)

    One head with W_VO = -c I on fuzzed tokens, and the pair of tokens +1, -1 with P = [[3, 1], [1, 3]] / 4:

    - ``value/step`` [shape, run, scale]: ||R_1|| / ||R_0||; ``value/contraction`` [kind, shape, run, scale]
    - ``pair/step`` [scale]; ``pair/contraction`` [kind attention, branch; scale]; ``pair/attention`` [2, 2]

    Raises FloatingPointError naming tensor and index when a number is not finite.
    """
    cells = list(product(settings.shapes, settings.inits, settings.inputs, range(settings.runs)))
    columns: dict[str, list[Tensor]] = {}
    for shape, init, kind, run in track(cells, NAME, len(cells)):
        tokens = INPUTS[kind](*shape[:2], generator(seed, NAME, kind, *shape, run)).to(device)
        depth = max(settings.layers, settings.skip_layers)
        layers = [_layer(shape, init, seed, device, run, place) for place in range(depth)]
        found = _without_skip(tokens, layers[: settings.layers])
        found |= _with_skip(tokens, layers[: settings.skip_layers], settings.power_steps)
        for name, tensor in found.items():
            columns.setdefault(name, []).append(tensor)
    grid = (len(settings.shapes), len(settings.inits), len(settings.inputs), settings.runs)
    results = {}
    for name, tensors in columns.items():
        whole = torch.stack(tensors, -2)  # [kind of bound or norm,] cell, layer
        results[name] = whole.unflatten(-2, grid)
    results |= _values(settings, seed, device) | _pair(settings)
    return finite(NAME, results)


def _layer(shape: tuple[int, int, int], init: str, seed: int, device: torch.device, *key: object) -> Attention:
    _, width, heads = shape
    g = generator(seed, NAME, "weights", init, *shape, *key)
    query, key_, value, output = (WEIGHT_INITS[init](width, width, g).to(device) for _ in range(4))
    return Attention(query, key_, value, output, heads)


def _without_skip(tokens: Tensor, layers: list[Attention]) -> dict[str, Tensor]:
    state = from_tokens(tokens)
    residual, relative, constants, trivial, gammas = [], [], [], [], []
    for layer in [*layers, None]:
        composite = state.log_norm + composite_norm(state.direction).log()
        residual.append(torch.stack([composite, state.log_norm]))
        relative.append(torch.stack([composite - composite_norm(state.tokens).log(), state.log_relative]))
        if layer is not None:
            log_composite, gamma = log_composite_constants(state, layer)
            constants.append(torch.cat([log_composite, log_frobenius_constants(layer, len(tokens))]))
            trivial.append(log_trivial_factors(layer, len(tokens)))
            gammas.append(gamma.max())
            state = attend(state, layer)
    log_residual, log_constant = torch.stack(residual, -1), torch.stack(constants, -1)
    norm = [0] * len(COMPOSITE_BOUNDS) + [1] * (len(log_constant) - len(COMPOSITE_BOUNDS))  # of each bound
    own = log_residual[norm]
    return {
        "log_residual": log_residual,
        "log_relative": torch.stack(relative, -1),
        "log_constant": log_constant,
        "log_slack": log_constant + 3 * own[:, :-1] - own[:, 1:],
        "log_iterated": iterated(log_constant, own[:, 0]),
        "log_trivial": torch.stack(trivial, -1),
        "gamma": torch.stack(gammas),
    }


def _with_skip(tokens: Tensor, layers: list[Attention], steps: int) -> dict[str, Tensor]:
    state = from_tokens(tokens)
    ratios, contractions = [], []
    for layer in layers:
        attention = attention_matrix(state.tokens, layer)
        contractions.append(_contractions(state.direction, attention, layer, steps))
        after = add(state, attend(state, layer))
        ratios.append((after.log_norm - state.log_norm).exp())
        state = after
    return {"skip/step": torch.stack(ratios), "skip/contraction": torch.stack(contractions, -1)}


def _contractions(residual: Tensor, attention: Tensor, layer: Attention, steps: int) -> Tensor:
    here, largest = branch_contraction(residual, attention, layer, steps)
    return torch.stack([attention_contractions(attention).max(), here, largest])


def _values(settings: ResidualBounds, seed: int, device: torch.device) -> dict[str, Tensor]:
    """One head, queries and keys N(0, 1/d), W_VO = -c I; runs of Gaussian tokens in every shape."""
    step, contraction = [], []
    for shape, run in product(settings.shapes, range(settings.runs)):
        tokens, width, _ = shape
        g = generator(seed, NAME, "values", *shape, run)
        residual = decompose(torch.randn(tokens, width, generator=g, dtype=torch.float64).to(device))[1]
        query, key = (WEIGHT_INITS["normal1d"](width, width, g).to(device) for _ in range(2))
        identity = torch.eye(width, dtype=torch.float64, device=device)
        layer = Attention(query, key, identity, identity, 1)
        attention = attention_matrix(residual, layer)
        mixed = branch(residual, attention, layer)
        kinds = _contractions(residual, attention, layer, settings.power_steps)
        step.append(
            [torch.linalg.norm(residual - c * mixed) / torch.linalg.norm(residual) for c in settings.value_scales]
        )
        contraction.append(torch.stack([_scaled(kinds, c) for c in settings.value_scales], -1))
    grid = (len(settings.shapes), settings.runs)
    return {
        "value/step": torch.tensor(step, dtype=torch.float64).unflatten(0, grid),
        "value/contraction": torch.stack(contraction, 1).unflatten(1, grid),
    }


def _scaled(kinds: Tensor, scale: float) -> Tensor:
    """The contraction of P stays what it is; those of the branch grow with the values."""
    return kinds * kinds.new_tensor([1.0, scale, scale])


def _pair(settings: ResidualBounds) -> dict[str, Tensor]:
    step, contraction = [], []
    one = torch.ones(1, 1, dtype=torch.float64)
    attention = attention_matrix(PAIR, Attention(PAIR_LOGIT * one, one, one, one, 1))
    for scale in settings.value_scales:
        layer = Attention(PAIR_LOGIT * one, one, -scale * one, one, 1)
        after = PAIR + branch(PAIR, attention, layer)
        step.append(torch.linalg.norm(after) / torch.linalg.norm(PAIR))
        kinds = _contractions(PAIR, attention, layer, 1)
        contraction.append(kinds[[0, 2]])
    return {
        "pair/step": torch.stack(step),
        "pair/contraction": torch.stack(contraction, -1),
        "pair/attention": attention[0],
    }
