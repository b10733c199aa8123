"""A multi-head self-attention layer on plain tokens, and the same layer on a scale-free state.

X' = sum_h P_h (X Wv_h + 1 bv_hᵀ) Wo_h + 1 boᵀ,  P_h = softmax over j of gain (x_i Wq + bq)·(x_j Wk) / sqrt(dk) + M_ij.
A bias on the keys adds the same number to a whole row of logits, which softmax ignores, so there is none here.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankcollapse.scalefree import State, state

# exp(x) overflows a double at 709; from far below, the softmax itself separates P from p without cancellation.
LARGE_LOGIT = 50.0
# Here expm1(t B) / t = B (1 + t B / 2 + ...) is B to the last bit, for any B that a layer can have.
TINY_SQUARE = 1e-100


@dataclass(frozen=True)
class Attention:
    """The parameters of one layer; every bias may be a number or a row.

    ``gain`` multiplies W_QK (a number, or a tensor that broadcasts against "*batch heads tokens tokens").
    ``position`` is added to the logits: -inf where a mask forbids, a slope times a distance for ALiBi.
    ``frozen`` replaces the attention matrix by a fixed row-stochastic one. Both broadcast against the logits.
    """

    query: Float[Tensor, "width keys"]
    key: Float[Tensor, "width keys"]
    value: Float[Tensor, "width values"]
    output: Float[Tensor, "values width"]
    heads: int
    query_bias: Tensor | float = 0.0
    value_bias: Tensor | float = 0.0
    output_bias: Tensor | float = 0.0
    gain: Tensor | float = 1.0
    position: Tensor | None = None
    frozen: Tensor | None = None

    def split(self, rows: Float[Tensor, "*#batch rows channels"]) -> Float[Tensor, "*#batch heads rows own"]:
        """Give every head its own columns."""
        return rows.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def merge(self, rows: Float[Tensor, "*#batch heads rows own"]) -> Float[Tensor, "*#batch rows channels"]:
        """Undo ``split``."""
        return rows.transpose(-2, -3).flatten(-2)

    @property
    def factor(self) -> Tensor | float:
        """The factor of the query-key products: gain / sqrt(dk)."""
        return self.gain * (self.query.shape[-1] / self.heads) ** -0.5


def attention_matrix(
    tokens: Float[Tensor, "*#batch tokens width"], layer: Attention
) -> Float[Tensor, "*#batch heads tokens tokens"]:
    """Return P_h, head by head, from plain tokens."""
    if layer.frozen is not None:
        return layer.frozen
    queries = layer.split(tokens @ layer.query + layer.query_bias)
    logits = layer.factor * queries @ layer.split(tokens @ layer.key).mT
    return torch.softmax(logits if layer.position is None else logits + layer.position, -1)


def plain_attention(
    tokens: Float[Tensor, "*#batch tokens width"], layer: Attention
) -> Float[Tensor, "*#batch tokens width"]:
    """Return X' from X in the tokens' own precision: what an ordinary forward pass computes."""
    values = layer.split(tokens @ layer.value + layer.value_bias)
    return layer.merge(attention_matrix(tokens, layer) @ values) @ layer.output + layer.output_bias


def logit_parts(
    before: State, layer: Attention
) -> tuple[Float[Tensor, "*#batch heads tokens tokens"], Float[Tensor, "*#batch heads 1 tokens"]]:
    """Return B and r₁, with which the logits are e^{2ρ} B_ij + e^ρ r₁_j + (terms that are constant along a row).

    B = gain (S Wq)(S Wk)ᵀ / sqrt(dk), and r₁ = gain (S Wk)(Wqᵀ x + bq) / sqrt(dk) is what the mean token asks of every
    token: the same in every row, so softmax does NOT ignore it.
    """
    keys = layer.split(before.direction @ layer.key)
    asked = layer.split(before.mean @ layer.query + layer.query_bias)
    varying = layer.factor * layer.split(before.direction @ layer.query) @ keys.mT
    return varying, layer.factor * asked @ keys.mT


def _pick(tensor: Tensor, index: Tensor, dim: int) -> Tensor:
    """Take one row or column per batch entry and head; leading axes broadcast."""
    return torch.take_along_dim(tensor[(None,) * (index.ndim - tensor.ndim)], index, dim)


def departure(
    varying: Float[Tensor, "*#batch heads tokens tokens"],
    common: Float[Tensor, "*#batch heads 1 tokens"],
    scale: Float[Tensor, "*#batch 1 1 1"],
) -> tuple[
    Float[Tensor, "*#batch heads 1 tokens"],
    Float[Tensor, "*#batch heads tokens tokens"],
    Int[Tensor, "*#batch heads 1 1"],
]:
    """Return p = softmax(e^ρ r₁), D = (P - 1 pᵀ) / e^{2ρ} without cancellation, and the token J of the largest p.

    With t = e^{2ρ}, C_ij = B_ij - B_iJ, G = expm1(t C) / t and g = G p (one number a row),
    D_ij = p_j (G_ij - g_i) / (1 + t g_i), since softmax(log p + t C) = p (1 + t G) / (1 + t g) exactly.

    Rows of D sum to zero, so D V = D (V - 1 v_J): column J, the only one that cancels when p is nearly one-hot, is
    never used. The others are then exact as long as p_j is not below the smallest double.
    """
    log_p = torch.log_softmax(scale * common, -1)
    p, square = log_p.exp(), scale * scale
    largest = p.argmax(-1, keepdim=True)
    centred = varying - _pick(varying, largest, -1)
    tiny = square < TINY_SQUARE
    safe = torch.where(tiny, 1.0, square)
    grown = torch.where(tiny, centred, torch.expm1(square * centred) / safe)
    average = (grown * p).sum(-1, keepdim=True)
    result = p * (grown - average) / (1 + square * average)
    large = (square * centred).abs().amax((-2, -1), keepdim=True) > LARGE_LOGIT
    if bool(large.any()):
        result = torch.where(large, (torch.softmax(log_p + square * centred, -1) - p) / safe, result)
    return p, result, largest


def _cubic(before: State, layer: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Full attention: P - 1 pᵀ is of order ‖R‖², so the residual is e^{3ρ} sum_h D_h (V_h - 1 v_hJ) Wo_h."""
    p, deviation, largest = departure(*logit_parts(before, layer), before.scale[..., None])
    values = layer.split(before.direction @ layer.value)
    reference = _pick(values, largest, -2)
    return layer.merge(p @ values), layer.merge(deviation @ (values - reference)), 3 * before.log_norm


def _biased(before: State, layer: Attention, position: Tensor) -> Float[Tensor, "*#batch heads tokens tokens"]:
    """Return P itself, where a mask or a position bias keeps it away from 1 pᵀ."""
    varying, common = logit_parts(before, layer)
    scale = before.scale[..., None]
    return torch.softmax(position + scale * common + scale * scale * varying, -1)


def _linear(before: State, layer: Attention, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Attention that is not uniform at zero logits: P 1 = 1, so the residual is e^ρ sum_h (P_h - 1 p̄_hᵀ) S W_VO,h."""
    values = layer.split(before.direction @ layer.value)
    average = weights.mean(-2, keepdim=True)
    return layer.merge(average @ values), layer.merge((weights - average) @ values), before.log_norm


def attend(before: State, layer: Attention) -> State:
    """Apply one self-attention layer, without its skip, to a scale-free state (derived here).

    x' = (x Wv + bv) Wo + bo + e^ρ [p_hᵀ S Wv_h] Wo, and the residual of ``_cubic`` for full attention (order 3,
    whether or not r is zero) or of ``_linear`` with a mask, a position bias or a frozen attention matrix (order 1).
    """
    if layer.frozen is not None:
        mixed, residual, log_scale = _linear(before, layer, layer.frozen)
    elif layer.position is not None:
        mixed, residual, log_scale = _linear(before, layer, _biased(before, layer, layer.position))
    else:
        mixed, residual, log_scale = _cubic(before, layer)
    mean = (before.mean @ layer.value + layer.value_bias + before.scale * mixed) @ layer.output + layer.output_bias
    return state(mean, residual @ layer.output, log_scale)


def leading_residual(
    before: State, layer: Attention, softmax_weights: bool = False
) -> Float[Tensor, "*#batch tokens width"]:
    """Return the leading order of R' / ‖R‖³ for full attention: (1 / (n sqrt(dk))) sum_h S W_QK,h (Sᵀ S) W_VO,h.

    That is with p = 1/n. With ``softmax_weights`` p = softmax(r) stays in, sum_h B_h (diag p - p pᵀ) S W_VO,h: the
    error is then of relative order ‖R‖² instead of ‖R‖.
    """
    varying, common = logit_parts(before, layer)
    p = torch.softmax(before.scale[..., None] * common if softmax_weights else torch.zeros_like(common), -1)
    values = layer.split(before.direction @ layer.value)
    weighted = p.mT * (values - p @ values)
    return layer.merge(varying @ weighted) @ layer.output
