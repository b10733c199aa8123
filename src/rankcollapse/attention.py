"""Attention matrices: logits, what is added to them for the positions, and the activation that normalises them.

One head is A = phi(Q K^T / sqrt(d_k) + B), with Q, K in R^{T x d_k}, an additive position bias B in R^{T x T}
(0, or -inf above the diagonal for a causal mask, or -m |i - j| for ALiBi) and an activation phi. Every function acts on
the last two axes, so runs and heads may stand in front. Dimensionless.
"""

import math
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


def relu(logits: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """A_ij = max(M_ij, 0) / T over T keys: rows sum to order one, not to 1 (Wortsman et al. 2023)."""
    return torch.relu(logits) / logits.shape[-1]


def sigmoid(logits: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """A_ij = 1 / (1 + e^{-(M_ij - ln T)}): the bias keeps rows of order one (Ramapuram et al. 2024).

    Where e^{M_ij} is far below T this is e^{M_ij} / T, softmax without its normalisation by the row.
    """
    return torch.sigmoid(logits - math.log(logits.shape[-1]))


def scaled_sigmoid(logits: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """A_ij = 1 / (1 + e^{-M_ij}) / T: no bias but ReLU's scaling (a variant in Wortsman et al. 2023)."""
    return torch.sigmoid(logits) / logits.shape[-1]


def linear(logits: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """A_ij = M_ij / T, and 0 where the key is masked (M_ij = -inf): attention without a nonlinearity."""
    return logits.masked_fill(logits == -torch.inf, 0.0) / logits.shape[-1]


Activation = Callable[[Float[Tensor, "*batch queries keys"]], Float[Tensor, "*batch queries keys"]]
ACTIVATIONS: dict[str, Activation] = {
    "softmax": softmax,
    "relu": relu,
    "sigmoid": sigmoid,
    "sigmoid/T": scaled_sigmoid,
    "linear": linear,
}


def differential(
    first: Float[Tensor, "*batch queries keys"], second: Float[Tensor, "*batch queries keys"], weight: float
) -> Float[Tensor, "*batch queries keys"]:
    """Differential attention softmax(M_1) - lambda softmax(M_2) (Ye et al. 2024, eq. 1); rows sum to 1 - lambda."""
    return softmax(first) - weight * softmax(second)


def differential_weight(layer: int) -> float:
    """lambda at initialisation, 0.8 - 0.6 e^{-0.3 (l - 1)} in layer l = 1, 2, ... (Ye et al. 2024, sec. 2.1).

    Their lambda also holds e^{q_1 k_1} - e^{q_2 k_2} of learned vectors; that difference starts with mean 0.

    Raises:
        ValueError: a layer below 1.
    """
    if layer < 1:
        raise ValueError(f"differential_weight: layer {layer}; layers are counted from 1")
    return 0.8 - 0.6 * math.exp(-0.3 * (layer - 1))


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


def centre(attention: Float[Tensor, "*batch queries keys"], mean: float = 1.0) -> Float[Tensor, "*batch queries keys"]:
    """Attention without its uniform part, A - m 11^T / T (Nait Saada, Naderi & Tanner 2025, the removed spectral gap).

    For a row-stochastic A this takes the eigenvalue 1 of the vector 1 to 0 and leaves every other eigenvalue.

    Args:
        mean: m = T E[A_ij], the mean row sum: 1 for softmax; for other activations ``random_attention.moments``.
    """
    return attention - mean / attention.shape[-1]


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
