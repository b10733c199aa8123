"""Spectral gap by activation, with and without its mean, and how much energy the top direction holds."""

from itertools import product

import torch
from torch import Tensor

from rankcollapse.attention import ACTIVATIONS, centre, differential, differential_weight, softmax
from rankcollapse.logits import orthonormal_logits
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import GapActivations
from rankcollapse.spectrum import eigenvalues
from rankcollapse.theory.random_attention import moments

LEADING = 2  # eigenvalues and singular values kept


def measure(settings: GapActivations, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Return the leading spectra of A = f(M) for every activation f, and of differential attention.

    M holds the logits of one random head on orthonormal tokens (gamma = T/d; 0 for independent logits), scaled to
    variance s^2. All activations and variances of a run share M, so their differences are their own. Axes:

        activation: ``settings.activations``; variance: ``settings.logit_variances``; ratio: ``settings.ratios``;
        tokens: ``settings.tokens``; run; removed: nothing, 11^T/T, or m 11^T/T with m = E f of
        ``theory.random_attention.moments``; kind: softmax, differential with the lambda of each of
        ``settings.differential_layers``, centred softmax; rank: first and second.

    Returns:
        eigenvalue: ``[activation, variance, ratio, tokens, run, removed, rank]``, moduli by descending size.
        singular: the same axes, singular values.
        share/top: ``[kind, variance, ratio, tokens, run]``, s_1^2 / ||A||_F^2.
        share/uniform: the same axes, (1^T A 1 / T)^2 / ||A||_F^2, the energy in the direction of 11^T.
        share/weight: ``[kind]``, lambda; 0 for softmax and 1 for what is centred, where 11^T/T stands for softmax(M_2).

    Raises:
        FloatingPointError: A has a NaN or an infinite entry; names gamma, T and the run.
    """
    grid = list(product(settings.ratios, settings.tokens, range(settings.runs)))
    spectra, shares = [], []
    for ratio, tokens, run in track(grid, "gap_activations: gamma, T, run", len(grid)):
        random = generator(seed, "gap_activations", ratio, tokens, run)
        first, second = (orthonormal_logits(tokens, ratio, random, device) for _ in range(2))
        try:
            spectra.append(torch.stack([_gaps(settings, first, variance) for variance in settings.logit_variances]))
        except FloatingPointError as error:
            raise FloatingPointError(f"gap_activations: gamma = {ratio:g}, T = {tokens}, run {run}: {error}") from error
        shares.append(torch.stack([_shares(settings, first, second, s2) for s2 in settings.logit_variances]))
    axes = (len(settings.ratios), len(settings.tokens), settings.runs)
    # [ratio, tokens, run, variance, activation, removed, kind of value, rank] and [.., variance, kind, top or uniform]
    spectrum = torch.stack(spectra).unflatten(0, axes).permute(6, 4, 3, 0, 1, 2, 5, 7).contiguous()
    share = torch.stack(shares).unflatten(0, axes).permute(5, 4, 3, 0, 1, 2).contiguous()
    return {
        "eigenvalue": spectrum[0].contiguous(),
        "singular": spectrum[1].contiguous(),
        "share/top": share[0].contiguous(),
        "share/uniform": share[1].contiguous(),
        "share/weight": torch.tensor([0.0, *_weights(settings), 1.0], dtype=torch.float64),
    }


def _weights(settings: GapActivations) -> list[float]:
    return [differential_weight(layer) for layer in settings.differential_layers]


def _gaps(settings: GapActivations, logits: Tensor, variance: float) -> Tensor:
    """``[activation, removed, eigen or singular, rank]`` of one draw."""
    return torch.stack([_removals(name, logits, variance) for name in settings.activations])


def _removals(activation: str, logits: Tensor, variance: float) -> Tensor:
    attention = ACTIVATIONS[activation](variance**0.5 * logits)
    means = (0.0, 1.0, moments(activation, variance, logits.shape[-1]).mean)
    matrices = torch.stack([centre(attention, mean) for mean in means])
    moduli = eigenvalues(matrices).abs()[:, :LEADING]
    return torch.stack([moduli, torch.linalg.svdvals(matrices)[:, :LEADING]], 1).cpu()


def _shares(settings: GapActivations, first: Tensor, second: Tensor, variance: float) -> Tensor:
    """``[kind, top or uniform]`` of one draw; both softmaxes of differential attention have the same gamma."""
    first, second = variance**0.5 * first, variance**0.5 * second
    kinds = [differential(first, second, weight) for weight in (0.0, *_weights(settings))]
    matrices = torch.stack([*kinds, centre(softmax(first))])
    energy = matrices.square().sum((-2, -1))
    top = torch.linalg.svdvals(matrices)[:, 0].square()
    uniform = (matrices.sum((-2, -1)) / matrices.shape[-1]).square()
    return torch.stack([top / energy, uniform / energy], -1).cpu()
