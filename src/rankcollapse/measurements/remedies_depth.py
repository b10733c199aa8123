"""Blocks of attention and ReLU MLP under remedies against collapse, at initialisation, to great depth.

Noci et al. (2022) and after. All networks of a run share its tokens and weights, so they differ in the remedy alone.
"""

from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rankcollapse.attention import softmax
from rankcollapse.attention_kinds import attention_kinds
from rankcollapse.inits import iid, normal1d
from rankcollapse.mixing import attention_entropy
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.remedied_blocks import Networks, Weights, block, branch_input, logits
from rankcollapse.remedy import Remedy, remedy
from rankcollapse.residual import mean_cosine
from rankcollapse.settings.remedies import RemediesDepth
from rankcollapse.spectrum import stable_rank_excess

NAME = "remedies_depth"
SWEPT = ("W_Q", "W_Q, QK-norm", "gain, QK-norm")  # what the sweep's scale multiplies, and whether QK-norm is there
LARGE = 60  # log10 of a second moment after which one that is not finite has overflowed, and is no mistake
Table = dict[str, list[Tensor]]


def measure(settings: RemediesDepth, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure likeness, rank, size, attention and gradients by depth; all sections share tokens and weights by run.

    Three sections, their first axes in front of [run]: ``remedies`` [remedy], ``swept`` [remedy, what is scaled of
    ``SWEPT``, scale], ``kinds`` [kind, network]. Keys are section/name:

    - [.., run, layer 0..L]: ``cosine`` mean cosine of two different tokens; ``rank_excess`` stable rank less one;
      ``log10_moment`` log10 of the second moment E‖x_i‖²/d of the tokens between blocks. Attention without skip can
      annihilate the tokens; they then have -inf, cosine 0 and excess -1.
    - [.., run, layer 1..L], softmax only: ``log10_logit`` log10 of the root mean square of the logits,
      ``log10_spread`` of their standard deviation along a row, ``entropy`` H / ln n, mean over rows.
    - [.., run]: ``overflow`` first layer whose second moment is not finite, 0 when there is none. From it on everything
      of that network is +inf.
    - ``remedies/log10_gradients`` [remedy, run, first/last block]: log10 of ‖dl/dW_V‖_F of the first and the last
      block, l = <G, X_L>, G with entries N(0, 1 / (n d)), by one backward pass; +inf where it overflows,
      -inf where it is 0.

    Raises FloatingPointError, naming the grid point, when a value is not finite and nothing has overflowed.
    """
    remedies = [remedy(name, settings.blocks) for name in settings.remedies]
    swept = [
        remedy(name, settings.blocks, query_norm=what != SWEPT[0], **{_factor(what): scale})
        for name, what, scale in product(settings.swept, SWEPT, settings.scales)
    ]
    compared = [remedy(name, settings.blocks) for name in settings.kind_networks]
    sections: dict[str, Table] = {"remedies": {}, "swept": {}, "kinds": {}}
    for run in track(range(settings.runs), NAME, settings.runs):
        tokens = iid(settings.tokens, settings.width, generator(seed, NAME, "tokens", run)).to(device)
        weights = _weights(settings, seed, run, device)
        probe = torch.randn(tokens.shape, generator=generator(seed, NAME, "probe", run), dtype=torch.float64).to(device)
        probe /= tokens.numel() ** 0.5
        _add(sections["remedies"], _with_gradients(settings, remedies, tokens, weights, probe))
        _add(sections["swept"], _forward(settings, swept, tokens, weights))
        _add(sections["kinds"], _kinds(settings, compared, tokens, weights, seed, run))
    grids = {
        "remedies": (len(remedies),),
        "swept": (len(settings.swept), len(SWEPT), len(settings.scales)),
        "kinds": (len(settings.kinds), len(compared)),
    }
    results = {
        f"{section}/{name}": torch.stack(values, 1).unflatten(0, grids[section])
        for section, table in sections.items()
        for name, values in table.items()
    }
    _check(results)
    return results


def _factor(what: str) -> str:
    return "gain" if what.startswith("gain") else "query_scale"


def _weights(settings: RemediesDepth, seed: int, run: int, device: torch.device) -> list[Weights]:
    width, hidden = settings.width, settings.mlp_ratio * settings.width
    draws = (generator(seed, NAME, "weights", run, layer) for layer in range(settings.blocks))
    return [Weights.draw(width, hidden, draw, device) for draw in draws]


def _add(table: Table, run: dict[str, Tensor]) -> None:
    for name, value in run.items():
        table.setdefault(name, []).append(value.cpu())


def _with_gradients(
    settings: RemediesDepth, remedies: Sequence[Remedy], tokens: Tensor, weights: list[Weights], probe: Tensor
) -> dict[str, Tensor]:
    """Forward and backward; the first and the last block get values of their own for every network, so do gradients."""
    expanded = list(weights)
    for end in (0, -1):
        values = weights[end].values.expand(len(remedies), -1, -1).clone().requires_grad_()
        expanded[end] = weights[end]._replace(values=values)
    last: list[Tensor] = []
    found = _forward(settings, remedies, tokens, expanded, last.append)
    loss = (probe * last[-1]).sum()
    gradients = torch.autograd.grad(loss, [expanded[0].values, expanded[-1].values])
    sizes = torch.stack([torch.linalg.matrix_norm(gradient) for gradient in gradients], -1)
    return found | {"log10_gradients": sizes.log10().nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)}


def _forward(
    settings: RemediesDepth,
    remedies: Sequence[Remedy],
    tokens: Tensor,
    weights: list[Weights],
    keep: Callable[[Tensor], None] | None = None,
) -> dict[str, Tensor]:
    """Softmax attention; every block's inside is computed again in the backward pass, to save memory."""
    networks = Networks.of(remedies, settings.logit_std, tokens.device)
    tokens = tokens.expand(len(remedies), -1, -1)
    outside, inside = [_observe(tokens.detach())], []
    for layer in weights:
        inside.append(_observe_attention(tokens.detach(), layer, networks))
        tokens = checkpoint(
            block,
            tokens,
            layer,
            networks,
            lambda first, second: softmax(first),
            use_reentrant=False,
            preserve_rng_state=False,
        )
        outside.append(_observe(tokens.detach()))
    if keep:
        keep(tokens)
    return _by_layer(outside, inside)


def _kinds(
    settings: RemediesDepth,
    compared: Sequence[Remedy],
    tokens: Tensor,
    weights: list[Weights],
    seed: int,
    run: int,
) -> dict[str, Tensor]:
    networks = Networks.of(compared, settings.logit_std, tokens.device)
    kinds = attention_kinds(settings.tokens, settings.window, tokens.device)
    now = {kind: tokens.expand(len(compared), -1, -1) for kind in settings.kinds}
    outside = [_observe(torch.cat(list(now.values())))]
    for number, layer in enumerate(weights, 1):
        draw = generator(seed, NAME, "second", run, number)
        second = tuple(normal1d(settings.width, settings.width, draw).to(tokens.device) for _ in range(2))
        for kind in now:

            def attend(first: Tensor, other: Tensor | None, kind: str = kind, number: int = number) -> Tensor:
                return kinds[kind](first, first if other is None else other, number)

            extra = (second[0], second[1]) if kind == "differential" else None
            now[kind] = block(now[kind], layer, networks, attend, extra)
        outside.append(_observe(torch.cat(list(now.values()))))
    return _by_layer(outside, [])


def _observe(tokens: Tensor) -> dict[str, Tensor]:
    moment = tokens.square().mean((-2, -1))
    there = torch.where(moment.isfinite()[:, None, None], tokens, 0.0)
    return {
        "log10_moment": moment.log10().nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf),
        "cosine": mean_cosine(there),
        "rank_excess": stable_rank_excess(there),
    }


@torch.no_grad()
def _observe_attention(tokens: Tensor, weights: Weights, networks: Networks) -> dict[str, Tensor]:
    found = logits(branch_input(tokens, networks), weights.queries, weights.keys, networks)
    return {
        "log10_logit": found.square().mean((-2, -1)).log10() / 2,
        "log10_spread": found.var(-1).mean(-1).log10() / 2,
        "entropy": attention_entropy(softmax(found)),
    }


def _by_layer(outside: list[dict[str, Tensor]], inside: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Stack along the layers, and note from where on there is nothing any more."""
    table = {name: torch.stack([at[name] for at in outside], -1) for name in outside[0]}
    lost = table["log10_moment"].isposinf().cummax(-1).values
    for name in table:
        table[name] = torch.where(lost, torch.inf, table[name])
    for name in inside[0] if inside else ():
        values = torch.stack([at[name] for at in inside], -1)
        table[name] = torch.where(lost[:, :-1], torch.inf, values)
    overflow = torch.where(lost.any(-1), lost.int().argmax(-1), 0)
    return table | {"overflow": overflow}


def _check(results: dict[str, Tensor]) -> None:
    """Refuse what is not finite, but for what the docstring of ``measure`` explains."""
    for key, tensor in results.items():
        moment = results[f"{key.split('/')[0]}/log10_moment"]
        lost = moment.isposinf()
        if key.endswith("/log10_moment"):
            bad = tensor.isnan()
            bad[..., 1:] |= lost[..., 1:] & (tensor[..., :-1] < LARGE)
        elif key.endswith(("/overflow", "/log10_gradients")):
            bad = tensor.isnan()
        else:
            bad = ~tensor.isfinite() & ~lost[..., : tensor.shape[-1]]
        if bad.any():
            raise FloatingPointError(f"{NAME}: {key} is not finite at index {bad.nonzero()[0].tolist()}")
