"""Attention matrices: logits, what is added to them for the positions, and the activation that normalises them.

One head is A = phi(Q K^T / sqrt(d_k) + B), with Q, K in R^{T x d_k}, an additive position bias B in R^{T x T}
(0, or -inf above the diagonal for a causal mask, or -m |i - j| for ALiBi) and an activation phi. Every function acts on
the last two axes, so runs and heads may stand in front. Dimensionless.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

EXPANDED_UP_TO = 1.0  # largest |B| in a row for which e^B - 1 is used: there the plain difference still has all digits


def scaled_logits(
    queries: Float[Tensor, "*batch queries key_width"], keys: Float[Tensor, "*batch keys key_width"]
) -> Float[Tensor, "*batch queries keys"]:
    """Query-key logits Q K^T / sqrt(d_k) (Vaswani et al. 2017, eq. 1).

    Raises:
        ValueError: the widths differ.
    """
    if queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"scaled_logits: queries {tuple(queries.shape)} and keys {tuple(keys.shape)} must have the same last axis"
        )
    return queries @ keys.mT / keys.shape[-1] ** 0.5


def token_logits(
    tokens: Float[Tensor, "*batch tokens width"],
    query_weights: Float[Tensor, "*batch heads width key_width"],
    key_weights: Float[Tensor, "*batch heads width key_width"],
) -> Float[Tensor, "*batch heads tokens tokens"]:
    """Logits of every head of self-attention, X W_Q W_K^T X^T / sqrt(d_k).

    Raises:
        ValueError: the tokens' width is not the weights'.
    """
    for name, weights in (("query_weights", query_weights), ("key_weights", key_weights)):
        if tokens.shape[-1] != weights.shape[-2]:
            raise ValueError(
                f"token_logits: tokens {tuple(tokens.shape)} and {name} {tuple(weights.shape)} differ in width"
            )
    each_head = tokens.unsqueeze(-3)
    return scaled_logits(each_head @ query_weights, each_head @ key_weights)


def softmax(logits: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """Row softmax P_ij = e^{M_ij} / sum_k e^{M_ik}: row-stochastic, unchanged by M + c 1^T (a constant per row)."""
    return torch.softmax(logits, dim=-1)


Activation = Callable[[Float[Tensor, "*batch queries keys"]], Float[Tensor, "*batch queries keys"]]
ACTIVATIONS: dict[str, Activation] = {"softmax": softmax}


def no_bias(tokens: int, heads: int) -> Float[Tensor, "heads tokens tokens"]:
    """B = 0: every token sees every token, wherever they stand."""
    return torch.zeros(heads, tokens, tokens, dtype=torch.float64)


def causal_bias(tokens: int, heads: int) -> Float[Tensor, "heads tokens tokens"]:
    """B_ij = -inf for j > i, else 0: token i sees the tokens up to itself."""
    return torch.full((heads, tokens, tokens), -torch.inf, dtype=torch.float64).triu(1)


def alibi_bias(tokens: int, heads: int) -> Float[Tensor, "heads tokens tokens"]:
    """B_ij = -m_h |i - j| with slopes m_h = 2^{-8 h / H}, h = 1..H (Press, Smith & Lewis 2022, sec. 3).

    The distance is two-sided, for attention without a mask; with ``causal_bias`` added it is theirs. Their sequence of
    slopes is used for every H, also where their code interleaves two sequences (H not a power of two).
    """
    position = torch.arange(tokens, dtype=torch.float64)
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)
    return -slopes[:, None, None] * (position[:, None] - position).abs()


POSITION_BIASES: dict[str, Callable[[int, int], Float[Tensor, "heads tokens tokens"]]] = {
    "full": no_bias,
    "causal": causal_bias,
    "alibi": alibi_bias,
}


def centre(attention: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """Attention without its uniform part, A - 11^T / T (Nait Saada, Naderi & Tanner 2025, the removed spectral gap).

    For a row-stochastic A this takes the eigenvalue 1 of the vector 1 to 0 and leaves every other eigenvalue.
    """
    return attention - 1 / attention.shape[-1]


def softmax_deviation(
    pairwise: Float[Tensor, "*batch queries keys"], key_logits: Float[Tensor, "*batch keys"]
) -> Float[Tensor, "*batch queries keys"]:
    """D = softmax(E + 1 r^T) - 1 p^T with p = softmax(r), accurate however small the pairwise logits E are.

    Subtracting the two softmaxes loses every digit once E is below rounding. With B = E - (E p) 1^T, G = e^B - 1 and
    g = G p the difference is, exactly,

        D_ij = p_j (G_ij - g_i) / (1 + g_i),

    where g is of second order in B, so nothing cancels (derived here). Rows with |B| > 1 are subtracted plainly.

    Args:
        pairwise: E, the part of the logits that depends on both tokens.
        key_logits: r, the part that depends on the key alone.

    Raises:
        ValueError: E and r have different numbers of keys.
    """
    if pairwise.shape[-1] != key_logits.shape[-1]:
        raise ValueError(
            f"softmax_deviation: pairwise {tuple(pairwise.shape)} and key_logits {tuple(key_logits.shape)} "
            "must have the same last axis"
        )
    p = torch.softmax(key_logits, dim=-1).unsqueeze(-2)
    centred = pairwise - (pairwise * p).sum(-1, keepdim=True)
    small = centred.abs().amax(-1, keepdim=True) <= EXPANDED_UP_TO
    expanded = torch.expm1(torch.where(small, centred, 0.0))
    mean = (expanded * p).sum(-1, keepdim=True)
    plain = torch.softmax(pairwise + key_logits.unsqueeze(-2), dim=-1) - p
    return torch.where(small, p * (expanded - mean) / (1 + mean), plain)
