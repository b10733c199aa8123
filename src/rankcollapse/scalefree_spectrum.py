"""Singular values, stable rank and effective rank of tokens whose residual is below machine precision.

Neither rank is ever exactly 1 while a residual is left; how far above 1 it is has a logarithm, and that is finite.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.scalefree import State

# Above this relF an ordinary SVD resolves the small singular values to 1e-16 / 1e-6 = 1e-10 of themselves; below it
# dropping the second-order coupling to the mean costs its square, 1e-12.
RESOLVED = 1e-6


def log_singular_values(state: State) -> Float[Tensor, "*#batch rank"]:
    """Return ln σ_i of X = 1 x + e^ρ S, largest first.

    For a small residual σ_1 = sqrt(n ‖x‖² + ‖R x̂‖²) and the others are e^ρ times the singular values of
    S (I - x̂ x̂ᵀ), up to a relative relF² (first-order perturbation of the rank-one part 1 x; derived here).
    """
    x = state.mean
    small = (state.log_relative < math.log(RESOLVED))[..., None]
    unit = x / torch.linalg.norm(x, dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    along = state.direction @ unit.mT
    rest = torch.linalg.svdvals(state.direction - along @ unit)[..., :-1].log() + state.log_norm[..., None]
    top = (x.square().sum((-2, -1)) * along.shape[-2] + (state.scale * along).square().sum((-2, -1))).log() / 2
    collapsed = torch.cat([top[..., None], rest], -1)
    return collapsed if bool(small.all()) else torch.where(small, collapsed, torch.linalg.svdvals(state.tokens).log())


def log_stable_rank_excess(log_sigma: Float[Tensor, "*#batch rank"]) -> Float[Tensor, "*#batch"]:
    """Return ln(sr - 1) of the stable rank sr = ‖X‖_F² / ‖X‖₂²: ln sum_{i>1} (σ_i / σ_1)²."""
    return torch.logsumexp(2 * (log_sigma[..., 1:] - log_sigma[..., :1]), -1)


def log_effective_rank_excess(log_sigma: Float[Tensor, "*#batch rank"]) -> Float[Tensor, "*#batch"]:
    """Return ln(e^H - 1) of the effective rank e^H, H = -sum p_i ln p_i, p_i = σ_i / sum σ (Roy & Vetterli 2007).

    With δ = 1 - p_1, H = -(1 - δ) ln(1 - δ) - sum_{i>1} p_i ln p_i. Every term is kept as a logarithm, so that
    H = 1e-100000 is as precise as H = 1.
    """
    log_p = log_sigma - torch.logsumexp(log_sigma, -1, keepdim=True)
    rest = log_p[..., 1:]
    log_delta = torch.logsumexp(rest, -1)
    delta = log_delta.exp()
    tiny = delta < torch.finfo(delta.dtype).eps
    safe = torch.where(tiny, 0.5, delta)
    first = torch.where(tiny, 1.0, -(1 - safe) * torch.log1p(-safe) / safe).log() + log_delta
    others = torch.where(rest.isfinite(), rest + (-rest).log(), rest)
    log_entropy = torch.logsumexp(torch.cat([first[..., None], others], -1), -1)
    entropy = log_entropy.exp()
    flat = entropy < torch.finfo(entropy.dtype).eps
    return torch.where(flat, log_entropy, torch.expm1(torch.where(flat, 1.0, entropy)).log())
