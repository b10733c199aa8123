"""Gradients of two attention blocks by the first one's values, by width (rebuttal figure VIII)."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.gradients import Variant, Weights, linearise, transposed_gradient, value_gradient
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import GradientNorms

ENTRIES_AT_ONCE = 2**16  # of the tokens of the runs taken together: what a processor's cache holds
DOUBLED = 4.0  # the released block adds itself to itself with skip: twice the Jacobian, four times its squared norm


def measure(settings: GradientNorms, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Return log ||dX_2/dW_V||_F^2 of two blocks on orthonormal tokens, T = d, as defined and as it was plotted.

    W_Q, W_K, W_V ~ N(0, 1), logits / sqrt(d); "A(X)_perp" uses A - 11^T/T in both blocks. All configurations of a run
    share its tokens and weights, so their differences are the configurations' own.

    Returns:
        For every T: ``as_defined/<T>`` and ``as_plotted/<T>``, ``[config, run]``, configs in the order of the settings.
        as_defined: log ||dX_2/dW_V||_F^2, W_V of the first block, the second one's Jacobian at its input X_1.
        as_plotted: log ||J^T (A_1 X_0 ⊗ I)||_F^2, the second block's Jacobian J at the network's input X_0, transposed;
            with skip plus log 4, the released block being doubled.
        ``as_defined/frozen/<T>``, ``as_plotted/frozen/<T>``: the same with the second block's attention matrix held
            fixed, so that only its values and its skip carry the derivative.

    Raises:
        FloatingPointError: a norm is not finite; names the configuration and T.
    """
    batches = [(tokens, runs) for tokens, count in settings.sizes for runs in batched(tokens, count)]
    measured: dict[str, list[Tensor]] = {}
    for tokens, runs in track(batches, "gradient_norms: T, runs", len(batches)):
        drawn = draw(seed, tokens, runs, device)
        norms = [gradients(variant_of(config), *drawn) for config in settings.configs]
        for name in norms[0]:
            values = torch.stack([by_name[name] for by_name in norms]).log().cpu()
            require_finite(f"gradient_norms: {name}", settings.configs, tokens, values)
            measured.setdefault(f"{name}/{tokens}", []).append(values)
    return {key: torch.cat(parts, -1) for key, parts in measured.items()}


def gradients(
    variant: Variant, tokens: Float[Tensor, "runs tokens width"], weights: tuple[Weights, Weights]
) -> dict[str, Float[Tensor, "runs"]]:
    """Return the squared norms by name, as defined and as plotted, whole and with the attention frozen."""
    first = linearise(tokens, weights[0], variant)
    behind, at_input = (linearise(X, weights[1], variant) for X in (first.output, tokens))
    doubled = DOUBLED if variant.skip else 1.0
    return {
        "as_defined": value_gradient(first, behind),
        "as_defined/frozen": value_gradient(first, behind, frozen=True),
        "as_plotted": doubled * transposed_gradient(first, at_input),
        "as_plotted/frozen": doubled * transposed_gradient(first, at_input, frozen=True),
    }


def variant_of(config: str) -> Variant:
    """Return the block that a label of figure VIII names."""
    attention, *modules = config.split(" + ")
    return Variant(centred=attention == "A(X)_perp", skip="skip" in modules, norm="LN" in modules)


def draw(
    seed: int, tokens: int, runs: range, device: torch.device
) -> tuple[Float[Tensor, "runs tokens width"], tuple[Weights, Weights]]:
    """Return orthonormal tokens X_0 X_0^T = I, uniform among those, and N(0, 1) weights of two blocks; T = d.

    Every run has a generator of its own, so the numbers do not depend on how the runs are batched.
    """
    drawn = torch.stack(
        [
            torch.randn(
                7, tokens, tokens, generator=generator(seed, "gradient_norms", tokens, run), dtype=torch.float64
            )
            for run in runs
        ],
        dim=1,
    ).to(device)
    q, r = torch.linalg.qr(drawn[0])
    start = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return start, (Weights(*drawn[1:4]), Weights(*drawn[4:7]))


def batched(tokens: int, count: int) -> Iterator[range]:
    """Split the runs so that a batch fits into a cache."""
    size = max(1, ENTRIES_AT_ONCE // tokens**2)
    return (range(start, min(start + size, count)) for start in range(0, count, size))


def one_run(
    seed: int, tokens: int, run: int, device: torch.device
) -> tuple[Float[Tensor, "tokens width"], list[Weights]]:
    """Return the same for a single run, without the axis of runs."""
    start, weights = draw(seed, tokens, range(run, run + 1), device)
    return start[0], [Weights(*(weight[0] for weight in head)) for head in weights]


def require_finite(what: str, configs: tuple[str, ...], tokens: int, values: Float[Tensor, "configs *rest"]) -> None:
    """Raise ``FloatingPointError`` naming the configuration and T of the first value that is not finite."""
    for config, value in zip(configs, values, strict=True):
        if not torch.isfinite(value).all():
            raise FloatingPointError(f"{what} of {config} at T = {tokens} is not finite")
