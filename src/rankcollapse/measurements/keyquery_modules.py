"""Gap and stable rank of key-query attention with LayerNorm, skip and both, by depth and width (rebuttal, replies)."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import softmax
from rankcollapse.blocks import attention_block
from rankcollapse.inits import orthogonal
from rankcollapse.keyquery import ATTENTION, Weights, keyquery_logits, normal_weights
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import mean_cosine
from rankcollapse.saturation import attention_eigenvalues
from rankcollapse.settings.gap import KeyqueryModules
from rankcollapse.spectrum import stable_rank_excess

# Powers of d in the standard deviations of (W_Q and W_K, W_V).
WEIGHTS = {"unit": (0.0, 0.0), "xavier": (-0.5, 0.0), "scaled": (-0.5, -0.5)}
OBSERVED = ("second_modulus", "singular_ratio", "largest_entry", "cosine")


def measure(settings: KeyqueryModules, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Propagate orthonormal tokens by X_l = LN([X_{l-1} +] A(X_{l-1}) X_{l-1} W_V), width d = T, weights fresh.

    Labels of configurations as in ``markov_depth``, but A looks at the tokens; "A_perp" is A - 11^T/T. Weights: "unit"
    all N(0, 1); "xavier" W_Q, W_K ~ N(0, 1/d); "scaled" all N(0, 1/d). All configurations and scales of a run share
    their tokens and draws.

    Returns:
        stable_rank_excess: ``[weights, config, T, layer, run]``, layers 1..settings.layers: sr(X_l X_l^T) - 1; -1
            where X_l = 0.
        second_modulus, singular_ratio: ``[weights, config, layer, run]`` at T = settings.spectrum_tokens: |lambda_2|
            and s_2/s_1 of the softmax A(X_{l-1}), before a gap is removed.
        largest_entry: as these: the mean over rows of the largest entry, 1 when softmax has saturated.
        cosine: as these: the mean cosine of two tokens of X_{l-1}.
        eigenvalues_re, eigenvalues_im: ``[weights, spectrum layer, run, T]``: those of A(X_{l-1}), configuration "A".

    Raises:
        FloatingPointError: X has a NaN or an infinite entry; names the weights, configuration, T and layer.
    """
    axes = (len(settings.weights), len(settings.configs))
    excess = torch.empty(*axes, len(settings.tokens), settings.layers, settings.runs, dtype=torch.float64)
    observed = torch.empty(len(OBSERVED), *axes, settings.layers, settings.runs, dtype=torch.float64)
    shape = (axes[0], len(settings.spectrum_layers), settings.runs, settings.spectrum_tokens)
    spectra = torch.zeros(shape, dtype=torch.complex128)
    for size, tokens in enumerate(settings.tokens):
        steps = layers(settings, tokens, device, seed)
        for layer, step in enumerate(track(steps, f"keyquery_modules: layers at T = {tokens}", settings.layers), 1):
            for (scale, config), (before, attention, after) in step.items():
                where = settings.weights.index(scale), settings.configs.index(config)
                try:
                    excess[*where, size, layer - 1] = stable_rank_excess(after).cpu()
                except FloatingPointError as error:
                    place = f"{scale} weights, {config} at T = {tokens}, layer {layer}"
                    raise FloatingPointError(f"keyquery_modules: {place}: {error}") from error
                if tokens != settings.spectrum_tokens:
                    continue
                eigenvalues = attention_eigenvalues(attention)
                observed[:, *where, layer - 1] = _observe(before, attention, eigenvalues).cpu()
                if config == "A" and layer in settings.spectrum_layers:
                    spectra[where[0], settings.spectrum_layers.index(layer)] = eigenvalues
    return {
        "stable_rank_excess": excess,
        **dict(zip(OBSERVED, observed.contiguous(), strict=True)),
        "eigenvalues_re": spectra.real.contiguous(),
        "eigenvalues_im": spectra.imag.contiguous(),
    }


Step = tuple[Tensor, Tensor, Tensor]  # tokens before, softmax attention, tokens after, each with the runs in front


def layers(
    settings: KeyqueryModules, tokens: int, device: torch.device, seed: int
) -> Iterator[dict[tuple[str, str], Step]]:
    """Yield one layer after the other, by weights and configuration."""
    draw = generator(seed, "keyquery_modules", tokens, "tokens")
    start = torch.stack([orthogonal(tokens, draw) for _ in range(settings.runs)]).to(device)
    streams: dict[tuple[str, str], Tensor] = {
        (scale, config): start for scale in settings.weights for config in settings.configs
    }
    for layer in range(1, settings.layers + 1):
        drawn = normal_weights(settings.runs, tokens, generator(seed, "keyquery_modules", tokens, layer)).to(device)
        step = {}
        for scale, config in streams:
            powers = (float(tokens) ** power for power in WEIGHTS[scale])
            step[scale, config] = _layer(config, streams[scale, config], drawn.scaled(*powers))
        yield step
        streams = {key: after for key, (_, _, after) in step.items()}


def _layer(config: str, before: Tensor, weights: Weights) -> Step:
    kind, *modules = config.split(" + ")
    logits = keyquery_logits(before, weights)
    after = attention_block(
        before, ATTENTION[kind](logits), weights.values, skip="skip" in modules, norm="LN" in modules
    )
    return before, softmax(logits), after


def _observe(before: Tensor, attention: Tensor, eigenvalues: Tensor) -> Float[Tensor, "observed runs"]:
    """Return the quantities named in ``OBSERVED``."""
    singular = torch.linalg.svdvals(attention).cpu()
    return torch.stack(
        [
            eigenvalues[:, 1].abs(),
            singular[:, 1] / singular[:, 0],
            attention.amax(-1).mean(-1).cpu(),
            mean_cosine(before).cpu(),
        ]
    )
