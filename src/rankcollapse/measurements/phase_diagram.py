"""Phase diagram of attention with skip at initialisation: skip strength alpha against inverse temperature beta."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import layer_norm

from rankcollapse.inits import gaussian
from rankcollapse.phase_signal import forward, signal
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.phase import PhaseDiagram
from rankcollapse.skip_attention import Cells, cells

NAME = "phase_diagram"
CELLS_AT_ONCE = 30  # 0.7 GiB of activations at the published sizes


def measure(settings: PhaseDiagram, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure the signal at initialisation in every cell of the grid; all cells of a run share tokens and weights.

    X_0 = LN of Gaussian rows; W_Q, W_K, W_V ~ N(0, 1/d); probe G ~ N(0, 1)/sqrt(n d), so a network that is the identity
    has a gradient of norm 1. Everything is float64.

    - ``beta`` [beta], the columns.
    - Axes [alpha, beta, run, layer 1..L]: ``entropy`` H / ln n; ``participation`` Y2; ``overlap`` O; ``sharp``, the
      share of rows of attention with an entry above 0.99.
    - ``cosine`` [alpha, beta, run, layer 0..L]: mean cosine of two tokens.
    - ``gradient`` [alpha, beta, run, layer 0..L-1]: ||dL/dX_l||_F; -1 where it overflows.
    - ``query_value_ratio``, ``stable_rank`` [alpha, beta, run]: of the last ``ratio_layers`` layers; of X_L X_L^T.
    - ``far/entropy``, ``far/sharp`` [alpha, far beta, run, layer 1..L]: the same at the betas beyond the grid.

    Raises FloatingPointError, naming the cell, when an observable other than a gradient is not finite.
    """
    betas = torch.logspace(*settings.beta_decades, settings.beta_points, dtype=torch.float64)
    beyond_betas = torch.tensor(settings.sharp_betas, dtype=torch.float64)
    points, far = (grid(settings.skips, columns) for columns in (betas, beyond_betas))
    found: dict[str, list[Tensor]] = {}
    for run in track(range(settings.runs), NAME, settings.runs):
        tokens, weights, probe = draw(settings, device, seed, run)
        chunks = [
            signal(_repeat(tokens, part), weights, _cells(part, settings, device), probe, settings.ratio_layers)
            for part in points.split(CELLS_AT_ONCE)
        ]
        for name in chunks[0]:
            found.setdefault(name, []).append(_table([chunk[name] for chunk in chunks], settings))
        with torch.no_grad():
            beyond = [
                forward(_repeat(tokens, part), weights, _cells(part, settings, device))[1]
                for part in far.split(CELLS_AT_ONCE)
            ]
        for name in ("entropy", "sharp"):
            found.setdefault(f"far/{name}", []).append(_table([chunk[name] for chunk in beyond], settings))
    results = {name: torch.stack(runs, 2).contiguous() for name, runs in found.items()}
    check_finite(NAME, results, settings.skips)
    return {"beta": betas} | results


def draw(settings: PhaseDiagram, device: torch.device, seed: int, run: int) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return tokens, weights by layer and probe of one run."""
    n, d = settings.tokens, settings.width
    random = generator(seed, NAME, run)
    tokens, probe = layer_norm(gaussian(n, d, random), (d,)), gaussian(n, d, random, (n * d) ** -0.5)
    weights = [gaussian(d, 3 * d, random, d**-0.5).to(device) for _ in range(settings.layers)]
    return tokens.to(device), weights, probe.to(device)


def grid(skips: tuple[float, ...], betas: Float[Tensor, "beta"]) -> Float[Tensor, "cells 2"]:
    """Return alpha and beta of every cell, beta running fastest."""
    return torch.cartesian_prod(torch.tensor(skips, dtype=torch.float64), betas.double())


def check_finite(name: str, results: dict[str, Tensor], skips: tuple[float, ...]) -> None:
    """Raise FloatingPointError naming the first cell where a value is neither finite nor marked as an overflow."""
    for key, tensor in results.items():
        if not bool(tensor.isfinite().all()):
            first = (~tensor.isfinite()).nonzero()[0].tolist()
            raise FloatingPointError(f"{name}: {key} is not finite at alpha {skips[first[0]]:g}, index {first}")


def _repeat(tokens: Float[Tensor, "tokens width"], part: Float[Tensor, "cells 2"]) -> Tensor:
    return tokens.expand(len(part), 1, *tokens.shape)


def _cells(part: Float[Tensor, "cells 2"], settings: PhaseDiagram, device: torch.device) -> Cells:
    return cells(part.to(device), settings.tokens)


def _table(chunks: list[Tensor], settings: PhaseDiagram) -> Tensor:
    """Cells of one run as [alpha, beta, ...]."""
    return torch.cat(chunks).unflatten(0, (len(settings.skips), -1)).cpu()
