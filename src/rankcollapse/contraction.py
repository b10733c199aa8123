"""One layer of pure self-attention acting on the residual R = X - 1 x^T: exact step, leading order, and its bounds.

    X' = sum_h P_h X W_V,h W_O,h,   P_h = softmax(E_h + 1 r_h^T),
    E_h = R W_Q,h W_K,h^T R^T / sqrt(d_k),   r_h = R W_K,h W_Q,h^T x / sqrt(d_k).

Since P 1 = 1, only D_h = P_h - 1 p_h^T with p_h = softmax(r_h) reaches the next residual: R' = Pi sum_h D_h R W_VO,h,
Pi = I - 11^T/n, W_QK = W_Q W_K^T, W_VO = W_V W_O. Norms: F Frobenius, 2 spectral. Dimensionless.

**A cubic bound for every X** (derived here). Row i of D is the integral over t in [0, 1] of E_i J(q), with
q = softmax(r + t E_i) and J(q) = diag q - q q^T. J is positive semi-definite and its row sums of absolute values are
2 q_j (1 - q_j) <= 1/2, so ||J||_2 <= 1/2. With ||E||_F <= ||W_QK||_2 ||R||_2 ||R||_F / sqrt(d_k),

    ||R'||_F <= 1/2 sum_h ||W_QK,h||_2 ||W_VO,h||_2 ||R||_2^2 ||R||_F / sqrt(d_k)
             <= 1/2 sum_h ||W_QK,h||_2 ||W_VO,h||_2 ||R||_F^3 / sqrt(d_k),

whatever R and x are (query biases act through r, all others not at all). A position bias breaks it: then D does not
vanish with E. No factor below 1/2 will do at any n: ``pair_tokens`` comes as near as one likes. The factor 1/n of the
leading order at r = 0 is therefore not a bound for n > 2; at x = 0, where p is uniform, ``extreme_tokens`` passes it
for every n > 6 however small R is, and by n / (4 ln n) where its logits reach ln n.

**What averaging can do to ||R||_F** (derived here). P keeps every coordinate within its old range, and a column y
orthogonal to 1 has ||y||^2 >= range^2 / 2, while n numbers of range at most 1 have ||Pi y'||^2 <= a b / n with
a = floor(n/2), b = ceil(n/2). So ||Pi P R||_F <= sqrt(2 a b / n) ||R||_F, about sqrt(n/2), and ``growing_tokens`` gets
there: convex averages may be MORE spread in this norm, for n > 2.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import softmax, softmax_deviation, token_logits
from rankcollapse.residual import decompose


class Heads(NamedTuple):
    """The weights of one layer; runs may stand in front of the heads. d_k = d_v = key_width."""

    query: Float[Tensor, "*batch heads width key_width"]
    key: Float[Tensor, "*batch heads width key_width"]
    value: Float[Tensor, "*batch heads width key_width"]
    output: Float[Tensor, "*batch heads key_width width"]


class HeadLogits(NamedTuple):
    """E_h and r_h: the logits that depend on both tokens, and those that depend on the key alone."""

    pairwise: Float[Tensor, "*batch heads tokens tokens"]
    key: Float[Tensor, "*batch heads tokens"]


def centred(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch tokens width"]:
    """Pi X: the tokens without their mean."""
    return decompose(tokens)[1]


def frobenius(matrix: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """||M||_F over the last two axes."""
    return torch.linalg.matrix_norm(matrix)


def head_logits(
    residual: Float[Tensor, "*batch tokens width"], mean: Float[Tensor, "*batch width"], heads: Heads
) -> HeadLogits:
    """Split the logits of X = 1 x^T + R into E_h and r_h, leaving out what is constant along a row: softmax ignores it.

    Raises:
        ValueError: mean token and residual differ in width.
    """
    if residual.shape[-1] != mean.shape[-1]:
        raise ValueError(f"head_logits: residual {tuple(residual.shape)} and mean {tuple(mean.shape)} differ in width")
    pairwise = token_logits(residual, heads.query, heads.key)
    query_of_mean = torch.einsum("...d,...hdk->...hk", mean, heads.query)
    key = torch.einsum("...td,...hdk,...hk->...ht", residual, heads.key, query_of_mean)
    return HeadLogits(pairwise, key / heads.key.shape[-1] ** 0.5)


def mixed(
    attention: Float[Tensor, "*batch heads tokens tokens"], residual: Float[Tensor, "*batch tokens width"], heads: Heads
) -> Float[Tensor, "*batch tokens width"]:
    """Pi sum_h A_h R W_V,h W_O,h for any matrices A_h in place of the attention."""
    values = residual.unsqueeze(-3) @ heads.value
    return centred((attention @ values @ heads.output).sum(-3))


def next_residual(
    residual: Float[Tensor, "*batch tokens width"], mean: Float[Tensor, "*batch width"], heads: Heads
) -> Float[Tensor, "*batch tokens width"]:
    """R' = Pi sum_h (P_h - 1 p_h^T) R W_VO,h, to full relative precision however small R is."""
    return mixed(softmax_deviation(*head_logits(residual, mean, heads)), residual, heads)


def leading_residual(
    residual: Float[Tensor, "*batch tokens width"],
    logits: HeadLogits,
    heads: Heads,
    weights: Float[Tensor, "*batch heads tokens"],
) -> Float[Tensor, "*batch tokens width"]:
    """R' to leading order, Pi sum_h E_h (diag p_h - p_h p_h^T) R W_VO,h.

    About p_h = softmax(r_h) the relative error is of order ||R||^2, whatever r is. About p = 1/n (Dong et al. 2021) it
    is so only where r = 0; else p differs from 1/n by order ||R|| ||x||, and so does R'.
    """
    p = weights.unsqueeze(-2)
    expanded = logits.pairwise * p
    return mixed(expanded - expanded.sum(-1, keepdim=True) * p, residual, heads)


def gain_product(heads: Heads) -> Float[Tensor, "*batch"]:
    """sum_h ||W_QK,h||_2 ||W_VO,h||_2 / sqrt(d_k): twice the constant C of the cubic bound."""
    gains = [torch.linalg.matrix_norm(w, ord=2) for w in (heads.query @ heads.key.mT, heads.value @ heads.output)]
    return (gains[0] * gains[1]).sum(-1) / heads.key.shape[-1] ** 0.5


def cubic_ratio(
    residual: Float[Tensor, "*batch tokens width"], mean: Float[Tensor, "*batch width"], heads: Heads
) -> Float[Tensor, "*batch"]:
    """||R'||_F / (sum_h ||W_QK,h||_2 ||W_VO,h||_2 ||R||_F^3 / sqrt(d_k)): at most 1/2 by the bound above."""
    return frobenius(next_residual(residual, mean, heads)) / (gain_product(heads) * frobenius(residual) ** 3)


def identity_head(width: int) -> Heads:
    """One head with W_Q = W_K = W_V = W_O = I and d_k = d."""
    identity = torch.eye(width, dtype=torch.float64)[None]
    return Heads(identity, identity, identity, identity)


class Tokens(NamedTuple):
    """X = 1 x^T + R given by its two parts."""

    residual: Float[Tensor, "tokens width"]
    mean: Float[Tensor, " width"]


def pair_tokens(tokens: int, logit: float) -> Tokens:
    """Tokens that reach the constant 1/2 as u -> 0: with ``identity_head(2)`` the cubic ratio is tanh(u) / (2 u).

    Two tokens are +-t along axis 1, u = t^2 / sqrt(2) their logit. The mean token, along axis 2, sends every query to
    these two alike (all others are e^{-60} as likely), so p = (1/2, 1/2, 0, ...). It can tell them from the others by
    their offset t/1000 along axis 2, which changes the ratio by a few parts in a million.
    """
    t = (2**0.5 * logit) ** 0.5
    offset = t / 1000
    residual = torch.zeros(tokens, 2, dtype=torch.float64)
    residual[:2, 0] = torch.tensor([t, -t], dtype=torch.float64)
    if tokens > 2:
        residual[:2, 1] = offset
        residual[2:, 1] = -2 * offset / (tokens - 2)
    gap = offset * tokens / max(tokens - 2, 1)
    return Tokens(residual, torch.tensor([0.0, 60 * 2**0.5 / gap], dtype=torch.float64))


def extreme_tokens(tokens: int, logit: float) -> Tokens:
    """Tokens (t, -t, 0, ..., 0) in one dimension, mean 0, u = t^2: more than leading order allows.

    With ``identity_head(1)`` the cubic ratio is sinh(u) / (u (2 cosh u + n - 2)); at u -> 0 it is 1/n.
    """
    residual = torch.zeros(tokens, 1, dtype=torch.float64)
    residual[:2, 0] = torch.tensor([1.0, -1.0], dtype=torch.float64) * logit**0.5
    return Tokens(residual, torch.zeros(1, dtype=torch.float64))


def growth_bound(tokens: int) -> float:
    """Largest ||Pi P R||_F / ||R||_F of any row-stochastic P: sqrt(2 floor(n/2) ceil(n/2) / n)."""
    return (2 * (tokens // 2) * (tokens - tokens // 2) / tokens) ** 0.5


def growing_tokens(tokens: int, offset: float) -> Float[Tensor, "tokens two"]:
    """Tokens whose own attention spreads them out by nearly ``growth_bound``.

    Along axis 1 the first token is at -1, the last at 1 and the rest at 0; along axis 2 the first half is at -offset,
    the second at +offset. Every query reads axis 2 only and picks the token at -1 or at 1.
    """
    x = torch.zeros(tokens, 2, dtype=torch.float64)
    x[0, 0], x[-1, 0] = -1.0, 1.0
    x[:, 1] = offset
    x[: tokens // 2, 1] = -offset
    return x


def growing_attention(x: Float[Tensor, "tokens two"], gain: float) -> Float[Tensor, "tokens tokens"]:
    """Attention of ``growing_tokens``: logits W_ij = gain sign(x_i2) x_j1: W_QK = (gain / offset) e_2 e_1^T."""
    return softmax(gain * torch.outer(x[:, 1] / x[:, 1].abs().max(), x[:, 0]))
