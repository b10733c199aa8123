"""What is guaranteed about the residual of one layer of self-attention, without a skip from above and with one below.

R' = Pi sum_h (P_h - 1 p_h^T) R W_VO,h with P_h = softmax(E_h + 1 r_h^T), E_h = R W_QK,h R^T / sqrt(d_k), as in
``contraction``. All bounds from above are cubic, ||R'|| <= C ||R||^3; C is returned as its logarithm.

**Composite norm**, ||M||_{1,inf} = sqrt(||M||_1 ||M||_inf). Dong, Cordonnier & Loukas (2021), theorems 2.2 and 2.3 as
we read them, have C = 4 gamma H beta / sqrt(d_k), with beta = max_h ||W_QK,h||_1 ||W_VO,h||_{1,inf} and a gamma that
depends on the attention's logits; the first version of the paper, as we recall it, has none. We take the smallest one
that the argument works with, gamma = max_h of sum_i max_jj' |E_ij - E_ij'| / max_jj' sum_i |E_ij - E_ij'|, at least 1
and at most n.

**One head, derived here.** Entry (i, c) of (P - 1 p^T) R is a mean over q of the covariance Cov_q(E_i., R_.c)
(``contraction``), at most osc(E_i) / 2 max_j |R_jc|, osc the largest difference in a row. So (P - 1 p^T) R has a 1-norm
of at most sum_i osc(E_i) / 2 ||R||_1 and an inf-norm of at most max_i osc(E_i) / 2 ||R||_inf, while sum_i osc(E_i) <=
2 gamma ||E||_1 and osc(E_i) <= 2 ||E||_1. With ||E||_1 <= ||R||_{1,inf}^2 ||W_QK||_1 / sqrt(d_k) and
||Pi M|| <= 2 (1 - 1/n) ||M|| in either norm,

    ||R'||_{1,inf} <= 2 (1 - 1/n) sqrt(gamma) ||W_QK||_1 ||W_VO||_{1,inf} ||R||_{1,inf}^3 / sqrt(d_k)

for every input: theirs follows, with room to spare, also where their residual is not taken about the mean.

**Several heads.** The composite norm breaks the triangle inequality, so heads may not be added in it, as a factor H
does; ||.||_1 and ||.||_inf may: C = 2 (1 - 1/n) sqrt(sum_h gamma_h a_h ||W_VO,h||_1 sum_h a_h ||W_VO,h||_inf), with
a_h = ||W_QK,h||_1 / sqrt(d_k) (derived here).

**What needs no bound.** Any row-stochastic P at all has ||Pi P R||_F <= sqrt(2 ab / n) ||R||_F (``contraction``), and
||P M||_1 <= n ||M||_1, ||P M||_inf <= ||M||_inf; a cubic bound says something once it is below that.

**With a skip**, R' = R + B(R), B(R) = Pi sum_h P_h R W_VO,h: if ||B(R)||_F <= gamma ||R||_F then ||R'||_F is at least
(1 - gamma) ||R||_F, by the triangle inequality. This gamma is that of the whole branch, values included, and at most
sum_h ||Pi P_h Pi||_2 ||W_VO,h||_2. The contraction of P alone says nothing: P = [[3, 1], [1, 3]] / 4 and W_VO = -2 I
give R' = 0 for every R.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.contraction import growth_bound
from rankcollapse.residual import composite_norm, decompose
from rankcollapse.scalefree import State
from rankcollapse.scalefree_attention import Attention, logit_parts

COMPOSITE_BOUNDS = ("published", "published, no gamma", "derived")
FROBENIUS_BOUNDS = ("proved", "leading order")


def head_maps(
    layer: Attention,
) -> tuple[Float[Tensor, "heads width width"], Float[Tensor, "heads width width"]]:
    """Return W_QK,h = W_Q W_K^T and W_VO,h = W_V W_O of every head; biases do not enter a residual's bound."""
    query, key, value = (layer.split(w) for w in (layer.query, layer.key, layer.value))
    output = layer.output.unflatten(0, (layer.heads, -1))
    return layer.gain * query @ key.mT, value @ output


def product_norms(
    left: Float[Tensor, "*batch rows inner"], right: Float[Tensor, "*batch inner columns"]
) -> Float[Tensor, "*batch"]:
    """||A B||_2 of thin factors, from the triangles of their QR decompositions instead of the product itself."""
    triangles = torch.linalg.qr(left, mode="r").R, torch.linalg.qr(right.mT, mode="r").R
    return torch.linalg.matrix_norm(triangles[0] @ triangles[1].mT, ord=2)


def logit_gammas(pairwise: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """gamma = sum_i max_jj' |E_ij - E_ij'| / max_jj' sum_i |E_ij - E_ij'|: 1 where one pair of keys is worst for all i.

    Does not depend on the scale of E. 1 for E constant along its rows.
    """
    rows = (pairwise.amax(-1) - pairwise.amin(-1)).sum(-1)
    pairs = torch.cdist(pairwise.mT, pairwise.mT, p=1).amax((-2, -1))
    return torch.where(pairs > 0, rows / torch.where(pairs > 0, pairs, 1.0), 1.0)


def log_composite_constants(before: State, layer: Attention) -> tuple[Float[Tensor, "bounds"], Float[Tensor, "heads"]]:
    """ln C of ``COMPOSITE_BOUNDS`` for ||R'||_{1,inf} <= C ||R||_{1,inf}^3, and gamma of every head; no batch."""
    query_key, value_output = head_maps(layer)
    tokens = before.direction.shape[-2]
    columns, rows = (torch.linalg.matrix_norm(value_output, ord=order) for order in (1, math.inf))
    key_norm = torch.linalg.matrix_norm(query_key, ord=1) / (layer.query.shape[-1] / layer.heads) ** 0.5
    gamma = logit_gammas(logit_parts(before, layer)[0])
    plain = 4 * layer.heads * (key_norm * composite_norm(value_output)).max()
    derived = (gamma * key_norm * columns).sum() * (key_norm * rows).sum()
    constants = [plain * gamma.max(), plain, 2 * (1 - 1 / tokens) * derived.sqrt()]
    return torch.stack(constants).log(), gamma


def log_frobenius_constants(layer: Attention, tokens: int) -> Float[Tensor, "bounds"]:
    """ln C of ``FROBENIUS_BOUNDS``: what ``contraction`` proves for every input, and the leading order, 1/n for 1/2."""
    query, key, value = (layer.split(w) for w in (layer.query, layer.key, layer.value))
    output = layer.output.unflatten(0, (layer.heads, -1))
    gains = product_norms(query, key.mT) * product_norms(value, output)
    total = gains.sum() * layer.gain / (layer.query.shape[-1] / layer.heads) ** 0.5
    return torch.stack([total / 2, total / tokens]).log()


def log_trivial_factors(layer: Attention, tokens: int) -> Float[Tensor, "norms"]:
    """ln of the factor by which ||R||_{1,inf} and ||R||_F can grow under any row-stochastic P_h (derived here)."""
    value, output = layer.split(layer.value), layer.output.unflatten(0, (layer.heads, -1))
    columns, rows = (torch.linalg.matrix_norm(value @ output, ord=order).sum() for order in (1, math.inf))
    composite = 2 * (1 - 1 / tokens) * (tokens * columns * rows).sqrt()
    return torch.stack([composite, growth_bound(tokens) * product_norms(value, output).sum()]).log()


def iterated(
    log_constants: Float[Tensor, "*batch layers"], log_start: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch layers+1"]:
    """ln of the bound after 0..L layers from ||R_0|| alone: b_{l+1} = C_l b_l^3.

    With one C for all layers that is C^((3^L - 1)/2) b_0^(3^L), as in the theorems.
    """
    found = [log_start]
    for constant in log_constants.unbind(-1):
        found.append(constant + 3 * found[-1])
    return torch.stack(found, -1)


def attention_contractions(attention: Float[Tensor, "*batch tokens tokens"]) -> Float[Tensor, "*batch"]:
    """||Pi P Pi||_2: the largest factor by which P alone can change ||R||_F."""
    centred = decompose(attention)[1]
    return torch.linalg.matrix_norm(centred - centred.mean(-1, keepdim=True), ord=2)


def branch(
    residual: Float[Tensor, "tokens width"],
    attention: Float[Tensor, "heads tokens tokens"],
    layer: Attention,
) -> Float[Tensor, "tokens width"]:
    """B(R) = Pi sum_h P_h R W_VO,h for a centred R."""
    deviation = decompose(attention)[1]
    return layer.merge(deviation @ layer.split(residual @ layer.value)) @ layer.output


def branch_contraction(
    residual: Float[Tensor, "tokens width"],
    attention: Float[Tensor, "heads tokens tokens"],
    layer: Attention,
    steps: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """||B(R)||_F / ||R||_F at this R, and after that many power steps towards the R where it is largest, from below.

    The largest is the gamma of the branch. A power step never lowers the ratio.
    """
    deviation = decompose(attention)[1]
    unit = residual / torch.linalg.norm(residual)
    image = branch(unit, attention, layer)
    first = ratio = torch.linalg.norm(image)
    for _ in range(steps):
        back = layer.merge(deviation.mT @ layer.split(image @ layer.output.T)) @ layer.value.T
        back = decompose(back)[1]
        unit = back / torch.linalg.norm(back)
        image = branch(unit, attention, layer)
        ratio = torch.maximum(ratio, torch.linalg.norm(image))
    return first, ratio
