"""What depth does to the residual of self-attention networks at initialisation, far below machine precision.

Dong, Cordonnier & Loukas (2021). Every residual is carried as a direction and a logarithm (``scalefree``); plain
float32 and float64 passes over the same weights show where round-off takes over.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from rankcollapse.finite import finite
from rankcollapse.inits import INPUTS, WEIGHT_INITS, gaussian, orthogonal
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import local_order, relative_residual
from rankcollapse.scalefree import State, add, from_tokens, layer_norm
from rankcollapse.scalefree_attention import Attention, attend, leading_residual, logit_parts, plain_attention
from rankcollapse.scalefree_mlp import Mlp, transform
from rankcollapse.scalefree_spectrum import (
    log_effective_rank_excess,
    log_singular_values,
    log_stable_rank_excess,
)
from rankcollapse.settings.dong import SanDepth

NAME = "san_depth"
LN10 = math.log(10)
UNIT_ROUNDOFF = 2.0**-53
REFERENCE_INIT = "xavier"
LADDER_KINDS = ("full", "full, zero mean", "causal", "alibi")


def measure(settings: SanDepth, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure how the residual of self-attention falls with depth, and what changes that.

    A layer axis of length L + 1 starts at the input (layer 0). Everything is float64 and finite unless said.

    - Axes [init, input, run, layer 0..L], a pure self-attention network: ``depth/log_norm`` ln ‖R_l‖_F;
      ``depth/log10_relative`` log10 ‖R‖_F / ‖X‖_F; ``depth/log10_relative_composite`` the same ratio in ‖·‖_{1,inf};
      ``depth/log10_stable_rank_excess`` log10(sr(X) - 1); ``depth/log10_effective_rank_excess`` log10(e^H - 1);
      ``depth/relative_float32``, ``depth/relative_float64`` relF (not its logarithm) of a plain pass, may be 0.
    - ``depth/order`` [init, input, run, layer 1..L-1]: local order of convergence of ‖R_l‖_F.
    - Axes [init, input, run, layer 0..L-1], log10 of the largest logit, centred along its row, over heads and tokens:
      ``depth/log10_logit_quadratic`` of R W_QK Rᵀ / sqrt(dk) alone, ``depth/log10_logit_spread`` with 1 rᵀ.
    - W_QK multiplied by a gain: ``gain/log10_relative`` [init, input, gain, run, layer 0..L] and ``gain/first_below``
      [init, input, gain, run], int64, the first layer with relF < 2^-53; -1 when there is none. Run r has the tokens
      and the weights of run r of the depth curves.
    - One layer at ‖R‖ = ``ladder/norm`` [rung]: ``ladder/log_norm_out`` [kind, init, run, rung] ln ‖R'‖ and
      ``ladder/slope`` [kind, init, run, rung step] d ln ‖R'‖ / d ln ‖R‖ between neighbours. Kinds: full attention; full
      attention with mean token 0, hence r = 0; causal mask; ALiBi bias.
      ``ladder/deviation`` [kind, init, run, rung], the first two kinds: ‖R' - leading‖ / ‖leading‖ for the leading
      order with p = 1/n; ``ladder/deviation_softmax`` for the one with p = softmax(r).
    - Orthogonal W_V, W_O = I, ``xavier`` queries and keys: ``contrast/log_norm`` [kind, run, layer 0..contrast_layers]
      and ``contrast/lambda2`` [kind, run], the second largest |eigenvalue| of the attention at zero logits. Kinds:
      full, causal, alibi, then one frozen softmax of N(0, s²) logits for each s in ``frozen_logit_stds``.
      ``contrast/predicted_lambda2`` [s]: sqrt((e^{s²} - 1) / n).
    - Attention without skip, then an MLP, ``xavier``; axes [activation, LayerNorm no/yes, MLP skip no/yes, run, layer
      0..mlp_layers]: ``mlp/log_norm``, ``mlp/log10_relative``; ``mlp/order`` has layers 1..mlp_layers-1.
    - Attention with skip, no LayerNorm; axes [init, run, layer 0..skip_layers]: ``skip/log_norm``,
      ``skip/log10_relative``. ``skip/value_gain`` [init, run]: σ² = ‖W_V W_O‖_F² / d, averaged over layers.

    Raises FloatingPointError, naming the grid point, when a residual is zero or not finite.
    """
    results: dict[str, Tensor] = {}
    for part in (_depth, _gain, _ladder, _contrast, _mlp, _skip):
        results |= part(settings, device, seed, track)
    return finite(NAME, results)


@contextmanager
def _at(**point: object) -> Iterator[None]:
    """Name the grid point in a FloatingPointError."""
    try:
        yield
    except FloatingPointError as error:
        place = ", ".join(f"{key} {value}" for key, value in point.items())
        raise FloatingPointError(f"{NAME}, {place}: {error}") from error


def _attention(settings: SanDepth, device: torch.device, init: str, seed: int, *key: object) -> Attention:
    g = generator(seed, NAME, "attention", init, *key)
    width = settings.width
    query, key_, value, output = (WEIGHT_INITS[init](width, width, g).to(device) for _ in range(4))
    return Attention(query, key_, value, output, settings.heads)


def _single(layer: Attention) -> Attention:
    return replace(layer, **{name: getattr(layer, name).float() for name in ("query", "key", "value", "output")})


def _tokens(settings: SanDepth, device: torch.device, names: Iterable[str], seed: int, run: int) -> Tensor:
    draws = [INPUTS[name](settings.tokens, settings.width, generator(seed, NAME, "input", name, run)) for name in names]
    return torch.stack(draws).to(device)


def _grid(track: Track, part: str, *axes: Iterable[object]) -> Iterable[tuple]:
    points = list(product(*(list(enumerate(axis)) for axis in axes)))
    return track(points, f"{NAME}: {part}", len(points))


def _follow(table: dict[str, Tensor], place: tuple, state: State) -> None:
    """Write ln ‖R‖ and log10 relF of a state into the two tables that every part keeps."""
    table["log_norm"][place] = state.log_norm.cpu()
    table["log10_relative"][place] = state.log_relative.cpu() / LN10


def _tables(names: Iterable[str], *shape: int) -> dict[str, Tensor]:
    return {name: torch.full(shape, torch.nan, dtype=torch.float64) for name in names}


def _named(part: str, table: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}/{name}": tensor for name, tensor in table.items()}


# ---------------------------------------------------------------- a pure self-attention network

LAYER_TABLES = (
    "log_norm",
    "log10_relative",
    "log10_relative_composite",
    "log10_stable_rank_excess",
    "log10_effective_rank_excess",
    "relative_float32",
    "relative_float64",
)


def _depth(settings: SanDepth, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    outer = (len(settings.inits), len(settings.inputs), settings.runs)
    table = _tables(LAYER_TABLES, *outer, settings.layers + 1)
    logits = _tables(("log10_logit_quadratic", "log10_logit_spread"), *outer, settings.layers)
    for (i, init), (r, _) in _grid(track, "depth", settings.inits, range(settings.runs)):
        double = _tokens(settings, device, settings.inputs, seed, r)
        single, state = double.float(), from_tokens(double)
        for depth in range(settings.layers + 1):
            place = (i, slice(None), r, depth)
            _follow(table, place, state)
            _ranks(table, place, state)
            table["relative_float32"][place] = relative_residual(single.double()).cpu()
            table["relative_float64"][place] = relative_residual(double).cpu()
            if depth < settings.layers:
                layer = _attention(settings, device, init, seed, r, depth)
                logits["log10_logit_quadratic"][place], logits["log10_logit_spread"][place] = _logits(state, layer)
                single, double = plain_attention(single, _single(layer)), plain_attention(double, layer)
                with _at(part="depth", init=init, run=r, layer=depth + 1):
                    state = attend(state, layer)
    table["order"] = local_order(table["log_norm"])
    return _named("depth", table | logits)


def _ranks(table: dict[str, Tensor], place: tuple, state: State) -> None:
    log_sigma = log_singular_values(state)
    table["log10_relative_composite"][place] = state.log_relative_composite.cpu() / LN10
    table["log10_stable_rank_excess"][place] = log_stable_rank_excess(log_sigma).cpu() / LN10
    table["log10_effective_rank_excess"][place] = log_effective_rank_excess(log_sigma).cpu() / LN10


def _logits(state: State, layer: Attention) -> tuple[Tensor, Tensor]:
    """Return log10 of the largest row-centred logit: of the quadratic part e^{2ρ} B, and of e^{2ρ} B + e^ρ r₁."""
    quadratic, linear = logit_parts(state, layer)
    quadratic = quadratic - quadratic.mean(-1, keepdim=True)
    linear = linear - linear.mean(-1, keepdim=True)
    both = linear + state.scale[..., None] * quadratic
    largest = [part.abs().amax((-3, -2, -1)).log() for part in (quadratic, both)]
    return ((largest[0] + 2 * state.log_norm).cpu() / LN10, (largest[1] + state.log_norm).cpu() / LN10)


def _gain(settings: SanDepth, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    """All gains at once: the same tokens and weights, W_QK multiplied by each gain."""
    gains = torch.tensor(settings.gains, dtype=torch.float64, device=device)[:, None, None, None]
    outer = (len(settings.inits), len(settings.inputs), len(settings.gains), settings.side_runs)
    table = _tables(("log_norm", "log10_relative"), *outer, settings.layers + 1)
    for (i, init), (r, _) in _grid(track, "gain", settings.inits, range(settings.side_runs)):
        tokens = _tokens(settings, device, settings.inputs, seed, r)
        state = from_tokens(tokens[:, None].expand(-1, len(settings.gains), -1, -1))
        for depth in range(settings.layers + 1):
            _follow(table, (i, slice(None), slice(None), r, depth), state)
            if depth < settings.layers:
                layer = replace(_attention(settings, device, init, seed, r, depth), gain=gains)
                with _at(part="gain", init=init, run=r, layer=depth + 1):
                    state = attend(state, layer)
    below = table["log10_relative"] < math.log10(UNIT_ROUNDOFF)
    first = torch.where(below.any(-1), below.int().argmax(-1), -1)
    return _named("gain", {"log10_relative": table["log10_relative"], "first_below": first})


# ---------------------------------------------------------------- one layer, and what changes its order


def positions(settings: SanDepth, device: torch.device) -> dict[str, Tensor]:
    """Return what is added to the logits: -inf above the diagonal (causal), -slope |i - j| (ALiBi, both directions)."""
    place = torch.arange(settings.tokens, dtype=torch.float64, device=device)
    future = place > place[:, None]
    return {
        "causal": torch.zeros_like(future, dtype=torch.float64).masked_fill(future, -torch.inf),
        "alibi": -settings.alibi_slope * (place - place[:, None]).abs(),
    }


def _ladder(settings: SanDepth, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    """One layer on the same direction S and mean token x, at norms of the residual that are decades apart."""
    rungs = torch.arange(settings.ladder_top, settings.ladder_bottom - 1, -1, dtype=torch.float64, device=device)
    outer = (len(settings.inits), settings.side_runs, len(rungs))
    table = _tables(["log_norm_out"], len(LADDER_KINDS), *outer)
    deviation = _tables(["deviation", "deviation_softmax"], 2, *outer)
    for (i, init), (r, _) in _grid(track, "ladder", settings.inits, range(settings.side_runs)):
        one = from_tokens(_tokens(settings, device, ["mean"], seed, r)[0])
        layer = _attention(settings, device, init, seed, r, 0)
        for k, kind in enumerate(LADDER_KINDS):
            mean = torch.zeros_like(one.mean) if k == 1 else one.mean
            state = State(mean, one.direction, rungs * LN10)
            with _at(part="ladder", init=init, run=r, kind=kind):
                after = attend(state, replace(layer, position=positions(settings, device).get(kind)))
            table["log_norm_out"][k, i, r] = after.log_norm.cpu()
            if k < 2:
                for name, softmax_weights in (("deviation", False), ("deviation_softmax", True)):
                    deviation[name][k, i, r] = _deviation(state, after, layer, softmax_weights).cpu()
    slope = table["log_norm_out"].diff(dim=-1) / (rungs.cpu() * LN10).diff()
    return _named("ladder", {"norm": (rungs * LN10).exp(), **table, "slope": slope, **deviation})


def _deviation(before: State, after: State, layer: Attention, softmax_weights: bool) -> Tensor:
    leading = leading_residual(before, layer, softmax_weights)
    actual = (after.log_norm - 3 * before.log_norm).exp()[..., None, None] * after.direction
    return torch.linalg.norm(actual - leading, dim=(-2, -1)) / torch.linalg.norm(leading, dim=(-2, -1))


def second_eigenvalue(attention: Tensor) -> Tensor:
    """Return |λ_2|, the second largest modulus among the eigenvalues of a row-stochastic matrix (the largest is 1)."""
    return torch.linalg.eigvals(attention).abs().sort(descending=True).values[..., 1]


def _contrast(settings: SanDepth, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    """Orthogonal values, so that nothing but the attention changes the norm of the residual."""
    identity = torch.eye(settings.width, dtype=torch.float64, device=device)
    zero = torch.zeros(settings.tokens, settings.tokens, dtype=torch.float64, device=device)
    stds = settings.frozen_logit_stds
    kinds = ["full", "causal", "alibi", *(f"frozen {std}" for std in stds)]
    log_norm = _tables(["log_norm"], len(kinds), settings.side_runs, settings.contrast_layers + 1)["log_norm"]
    lambda2 = torch.empty(len(kinds), settings.side_runs, dtype=torch.float64)
    for ((r, _),) in _grid(track, "contrast", range(settings.side_runs)):
        logits = gaussian(settings.tokens, settings.tokens, generator(seed, NAME, "frozen", r)).to(device)
        changes: list[dict[str, Any]] = [{}]
        changes += [{"position": position} for position in positions(settings, device).values()]
        changes += [{"frozen": torch.softmax(std * logits, -1)} for std in stds]
        limits = [change.get("frozen", torch.softmax(change.get("position", zero), -1)) for change in changes]
        lambda2[:, r] = torch.stack([second_eigenvalue(limit) for limit in limits]).cpu()
        states = [from_tokens(_tokens(settings, device, ["mean"], seed, r)[0])] * len(kinds)
        for depth in range(settings.contrast_layers + 1):
            log_norm[:, r, depth] = torch.stack([state.log_norm for state in states]).cpu()
            if depth < settings.contrast_layers:
                value = orthogonal(settings.width, generator(seed, NAME, "value", r, depth)).to(device)
                layer = _attention(settings, device, REFERENCE_INIT, seed, r, depth)
                layer = replace(layer, value=value, output=identity)
                with _at(part="contrast", run=r, layer=depth + 1):
                    states = [attend(s, replace(layer, **change)) for s, change in zip(states, changes, strict=True)]
    predicted = torch.tensor([math.sqrt(math.expm1(std**2) / settings.tokens) for std in stds], dtype=torch.float64)
    return _named("contrast", {"log_norm": log_norm, "lambda2": lambda2, "predicted_lambda2": predicted})


# ---------------------------------------------------------------- with an MLP, with a skip


def _mlp(settings: SanDepth, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    """Every activation, LayerNorm and MLP skip over the same weights; no skip around the attention."""
    shape = (len(settings.activations), 2, 2, settings.side_runs, settings.mlp_layers + 1)
    table = _tables(("log_norm", "log10_relative"), *shape)
    hidden = settings.mlp_ratio * settings.width
    for (r, _), (a, activation) in _grid(track, "mlp", range(settings.side_runs), settings.activations):
        start = from_tokens(_tokens(settings, device, ["mean"], seed, r)[0])
        states = dict.fromkeys(product((False, True), repeat=2), start)
        for depth in range(settings.mlp_layers + 1):
            for (norm, skip), state in states.items():
                _follow(table, (a, int(norm), int(skip), r, depth), state)
            if depth < settings.mlp_layers:
                attention = _attention(settings, device, REFERENCE_INIT, seed, r, depth)
                g = generator(seed, NAME, "mlp", r, depth)
                draw = WEIGHT_INITS[REFERENCE_INIT]
                first, second = draw(settings.width, hidden, g).to(device), draw(hidden, settings.width, g).to(device)
                mlp = Mlp(first, second, activation)
                with _at(part="mlp", activation=activation, run=r, layer=depth + 1):
                    states = {key: _block(state, attention, mlp, *key) for key, state in states.items()}
    table["order"] = local_order(table["log_norm"])
    return _named("mlp", table)


def _block(before: State, attention: Attention, mlp: Mlp, norm: bool, skip: bool) -> State:
    """Attention without skip, LayerNorm, MLP with or without its skip, LayerNorm."""
    after = attend(before, attention)
    after = layer_norm(after) if norm else after
    moved = transform(after, mlp)
    after = add(after, moved) if skip else moved
    return layer_norm(after) if norm else after


def _skip(settings: SanDepth, device: torch.device, seed: int, track: Track) -> dict[str, Tensor]:
    shape = (len(settings.skip_inits), settings.side_runs, settings.skip_layers + 1)
    table = _tables(("log_norm", "log10_relative"), *shape)
    value_gain = torch.zeros(shape[:2], dtype=torch.float64)
    for (i, init), (r, _) in _grid(track, "skip", settings.skip_inits, range(settings.side_runs)):
        state = from_tokens(_tokens(settings, device, ["mean"], seed, r)[0])
        for depth in range(settings.skip_layers + 1):
            _follow(table, (i, r, depth), state)
            if depth < settings.skip_layers:
                layer = _attention(settings, device, init, seed, r, depth)
                value_gain[i, r] += ((layer.value @ layer.output).square().sum() / settings.width).cpu()
                with _at(part="skip", init=init, run=r, layer=depth + 1):
                    state = add(state, attend(state, layer))
    return _named("skip", table | {"value_gain": value_gain / settings.skip_layers})
