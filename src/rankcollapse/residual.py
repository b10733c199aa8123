"""Tokens as their mean plus a residual, X = 1 xᵀ + R, and the norms that measure how much of X is residual.

Dong, Cordonnier & Loukas (2021), section 2. The residual is zero exactly when every token is the same vector, which
is what rank collapse means. Below about 1e-16 ‖X‖ nothing here can see it any more: see ``scalefree``.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import norm


def decompose(
    tokens: Float[Tensor, "*batch tokens width"],
) -> tuple[Float[Tensor, "*batch 1 width"], Float[Tensor, "*batch tokens width"]]:
    """Return the mean token x = Xᵀ1/n, as a row, and the residual R = X - 1 xᵀ, whose columns sum to zero."""
    mean = tokens.mean(-2, keepdim=True)
    return mean, tokens - mean


def composite_norm(matrix: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """Return ‖M‖_{1,inf} = sqrt(‖M‖₁ ‖M‖_inf): largest absolute column sum times largest absolute row sum, rooted.

    Dong et al. (2021), section 2. Sub-multiplicative, since ‖·‖₁ and ‖·‖_inf are; but not a norm: the triangle
    inequality fails, as for a column of ones plus a row of ones.
    """
    size = matrix.abs()
    return (size.sum(-2).amax(-1) * size.sum(-1).amax(-1)).sqrt()


def relative_residual(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch"]:
    """Return relF = ‖R‖_F / ‖X‖_F, in [0, 1]: 0 when all tokens are equal, 1 when their mean is zero."""
    return norm(decompose(tokens)[1], dim=(-2, -1)) / norm(tokens, dim=(-2, -1))


def relative_residual_composite(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch"]:
    """Return ‖R‖_{1,inf} / ‖X‖_{1,inf}, the quantity that Dong et al. (2021) plot in their figures 2 and 4."""
    return composite_norm(decompose(tokens)[1]) / composite_norm(tokens)


def local_order(log_norm: Float[Tensor, "*batch layers"]) -> Float[Tensor, "*batch layers-2"]:
    """Return the local order of convergence q_l = (λ_{l+1} - λ_l) / (λ_l - λ_{l-1}) of λ_l = ln ‖R_l‖.

    If ‖R_{l+1}‖ = C ‖R_l‖^q then q_l = q whatever C is; the ratio λ_{l+1} / λ_l would be biased by ln C. Entry i
    belongs to layer l = i + 1. A singly exponential decay has q = 1.
    """
    step = log_norm.diff(dim=-1)
    return step[..., 1:] / step[..., :-1]


def mean_cosine(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch"]:
    """Mean cosine of two different tokens; 0 for X = 0. How correlated the tokens are: 0 when orthonormal."""
    count = tokens.shape[-2]
    unit = torch.nn.functional.normalize(tokens, dim=-1, eps=torch.finfo(tokens.dtype).tiny)
    together = unit.sum(-2).square().sum(-1) - unit.square().sum((-2, -1))
    return together / (count * (count - 1))
