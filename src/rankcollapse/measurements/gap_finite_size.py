"""Leading eigenvalue and singular values of softmax attention against their limits, by number of tokens."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rankcollapse.attention import centre, softmax
from rankcollapse.logits import orthonormal_logits
from rankcollapse.measurements.gaussian_spectrum import unit_token_logits
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import GapFiniteSize
from rankcollapse.spectrum import eigenvalues

Draw = Callable[[int, Generator, torch.device], Float[Tensor, "tokens tokens"]]


def measure(settings: GapFiniteSize, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Return what the gap of A = softmax(M) is made of, logits M of variance s^2.

    Inputs, in this order: orthonormal tokens for each of ``settings.orthonormal_ratios``, Gaussian tokens of unit
    length for each of ``settings.gaussian_ratios``, and a control in which the entries of T A are independent normal
    numbers of the same mean 1 and variance e^{s^2} - 1, so that it has the same limits.

    Returns:
        For every number of tokens T, with axes ``[input, run]``:
        ``radius/tokens_<T>``: sqrt(T) |lambda_2|, the largest modulus of A - 11^T/T.
        ``top/tokens_<T>``: s_1 of A.
        ``edge/tokens_<T>``: sqrt(T) s_2 of A.
        ``entry/tokens_<T>``: sqrt(T) max A_ij.

    Raises:
        FloatingPointError: A has a NaN or an infinite entry; names T.
    """
    measured: dict[str, Tensor] = {}
    draws = inputs(settings)
    sizes = list(zip(settings.tokens, settings.runs, strict=True))
    for tokens, runs in track(sizes, "gap_finite_size: T", len(sizes)):
        columns = []
        for name, draw in draws.items():
            randoms = [generator(seed, "gap_finite_size", name, tokens, run) for run in range(runs)]
            try:
                columns.append(torch.stack([_leading(draw(tokens, random, device)) for random in randoms]))
            except FloatingPointError as error:
                raise FloatingPointError(f"gap_finite_size: {name}, T = {tokens}: {error}") from error
        for quantity, values in zip(("radius", "top", "edge", "entry"), torch.stack(columns).unbind(-1), strict=True):
            measured[f"{quantity}/tokens_{tokens}"] = values.contiguous()
    return measured


def inputs(settings: GapFiniteSize) -> dict[str, Draw]:
    """Return by name how an attention matrix is drawn, in the order of the tensors' axis."""
    variance = settings.logit_variance

    def orthonormal(ratio: float) -> Draw:
        return lambda tokens, random, device: softmax(variance**0.5 * orthonormal_logits(tokens, ratio, random, device))

    def gaussian(ratio: float) -> Draw:
        return lambda tokens, random, device: softmax(
            variance**0.5 * unit_token_logits(tokens, round(tokens / ratio), random, device)
        )

    def control(tokens: int, random: Generator, device: torch.device) -> Tensor:
        normal = torch.randn(tokens, tokens, generator=random, dtype=torch.float64).to(device)
        return (1 + math.expm1(variance) ** 0.5 * normal) / tokens

    return {
        **{f"orthonormal {ratio:g}": orthonormal(ratio) for ratio in settings.orthonormal_ratios},
        **{f"gaussian {ratio:g}": gaussian(ratio) for ratio in settings.gaussian_ratios},
        "control": control,
    }


def _leading(attention: Float[Tensor, "tokens tokens"]) -> Float[Tensor, "quantities"]:
    """sqrt(T) |lambda_2|, s_1, sqrt(T) s_2 and sqrt(T) max A_ij of one matrix.

    Always the dense solver: an iterative one with a small subspace can settle on a smaller modulus of the crowded
    edge.
    """
    scale = attention.shape[-1] ** 0.5
    radius = eigenvalues(centre(attention))[0].abs()
    top, edge = torch.linalg.svdvals(attention)[:2]
    return torch.stack([scale * radius, top, scale * edge, scale * attention.amax()]).cpu()
