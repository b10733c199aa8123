"""Gradients of two attention blocks by the first one's queries and keys, by width (beside rebuttal figure VIII)."""

import torch
from torch import Tensor

from rankcollapse.gradients import linearise, logit_gradients
from rankcollapse.measurements.gradient_norms import one_run, require_finite, variant_of
from rankcollapse.progress import Track, silent
from rankcollapse.settings.gap import LogitGradientNorms


def measure(
    settings: LogitGradientNorms, *, device: torch.device, seed: int, track: Track = silent
) -> dict[str, Tensor]:
    r"""Return log ||dX_2/dW_Q||_F^2 and log ||dX_2/dW_K||_F^2 for W_Q and W_K of the first of two blocks, T = d.

    Tokens and weights are those of the runs of the same T and number in ``gradient_norms``.

    Returns:
        For every T: ``queries/<T>`` and ``keys/<T>``, ``[config, run]``, configs in the order of the settings.

    Raises:
        FloatingPointError: a norm is not finite; names the configuration and T.
    """
    grid = [(tokens, run) for tokens, count in settings.sizes for run in range(count)]
    measured: dict[str, list[Tensor]] = {}
    for tokens, run in track(grid, "logit_gradient_norms: T, run", len(grid)):
        start, weights = one_run(seed, tokens, run, device)
        by_config = []
        for config in settings.configs:
            first = linearise(start, weights[0], variant_of(config))
            second = linearise(first.output, weights[1], variant_of(config))
            by_config.append(torch.stack(logit_gradients(first, second)))
        values = torch.stack(by_config).log().cpu()
        require_finite("logit_gradient_norms: queries or keys", settings.configs, tokens, values)
        for name, norms in zip(("queries", "keys"), values.unbind(-1), strict=True):
            measured.setdefault(f"{name}/{tokens}", []).append(norms)
    return {key: torch.stack(parts, -1) for key, parts in measured.items()}
