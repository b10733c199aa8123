r"""Exact Frobenius norms of the derivatives of two attention blocks, from their structure.

One block is Y = LN([X +] A X W_V), A = softmax(X W_Q W_K^T X^T / sqrt(d)) = P, or P - 11^T/T when centred, post-LN.
With u_ij = W_V^T (x_j - sum_l P_il x_l), q_i = W_K W_Q^T x_i / sqrt(d) and k_j = W_Q W_K^T x_j / sqrt(d) its derivative
is, in blocks of one output token i and one input token k (derived here),

    dY_i / dx_k = N_i (A_ik W_V^T + P_ik u_ik q_i^T + delta_ik (D_i [+ I])),     D_i = sum_j P_ij u_ij k_j^T,

the value path, the key path (token k is attended to) and the query path (token i attends). N_i is the derivative of
LayerNorm, N_i = (C - n_i n_i^T / d) / s_i with n_i its output, s_i = sqrt(var + eps) and C = I - 11^T/d. Every weight W
of the first block enters its output as dX_1,k = L_k dW^T b_k (or with its two sides exchanged), so

    ||dX_2/dW||_F^2 = sum_i || sum_k (dY_i/dx_k) L_k ⊗ b_k ||^2,

with L_k = N_k, b_k = (A X)_k for W_V, L_k = N_k sum_j P_kj u_kj (W_K^T x_j)^T / sqrt(d), b_k = x_k for W_Q and
L_k = N_k sum_j P_kj u_kj x_j^T, b_k = W_Q^T x_k / sqrt(d) for W_K. The dense Jacobian has (T d)^2 entries and is formed
nowhere. Norms are dimensionless and computed in the precision of the input.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import centre, softmax, token_logits
from rankcollapse.blocks import LAYER_NORM_EPSILON, attention_block, layer_norm
from rankcollapse.outer_products import Term, Vectors, contracted, replaced, squared_norms


class Variant(NamedTuple):
    """What a block has besides attention."""

    centred: bool = False  # A = P - 11^T/T, its spectral gap removed
    skip: bool = False
    norm: bool = False  # layer normalisation of the output


PLAIN = Variant()


class Weights(NamedTuple):
    """The weights of one head, each ``[*batch, width, width]``."""

    queries: Tensor
    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class Block:
    """One block at given tokens: its output and what its derivative is made of, in the symbols of this module.

    Values and keys are taken about their mean over the tokens: the derivative of softmax does not feel a common shift,
    and differences of nearly equal tokens keep their digits. With LayerNorm C is applied to ``value_map`` and so to
    all values.
    """

    tokens: Tensor  # x_i
    weights: Weights
    variant: Variant
    softmax: Tensor  # P
    attention: Tensor  # A
    value_map: Tensor  # W_V C
    values: Tensor  # v_j = C W_V^T x_j
    mean_values: Tensor  # sum_j P_ij v_j, so that C u_ij = v_j less this
    queries: Tensor  # q_i
    keys: Tensor  # k_j
    output: Tensor  # Y
    scale: Tensor  # s_i, [*batch, tokens, 1]; 1 without LayerNorm


def linearise(tokens: Float[Tensor, "*batch tokens width"], weights: Weights, variant: Variant = PLAIN) -> Block:
    """Apply one block and keep what its derivative is made of.

    Raises:
        FloatingPointError: the output has a NaN or an infinite entry.
    """
    width = tokens.shape[-1]
    P = softmax(token_logits(tokens, weights.queries.unsqueeze(-3), weights.keys.unsqueeze(-3)).squeeze(-3))
    A = centre(P) if variant.centred else P
    plain = attention_block(tokens, A, weights.values, skip=variant.skip, norm=False)
    if not torch.isfinite(plain).all():
        raise FloatingPointError(f"linearise: the output of {variant} on {tuple(tokens.shape)} is not finite")
    variance = plain.var(-1, correction=0, keepdim=True)
    differences = tokens - tokens.mean(-2, keepdim=True)
    value_map = _centred(weights.values, variant.norm)
    values = differences @ value_map
    return Block(
        tokens=tokens,
        weights=weights,
        variant=variant,
        softmax=P,
        attention=A,
        value_map=value_map,
        values=values,
        mean_values=P @ values,
        queries=tokens @ weights.queries @ weights.keys.mT / width**0.5,
        keys=differences @ weights.keys @ weights.queries.mT / width**0.5,
        output=layer_norm(plain) if variant.norm else plain,
        scale=(variance + LAYER_NORM_EPSILON).sqrt() if variant.norm else torch.ones_like(variance),
    )


def value_gradient(first: Block, second: Block, *, frozen: bool = False) -> Float[Tensor, "*batch"]:
    """||dX_2/dW_V||_F^2 for the values of the first of two blocks, in O(T^3) for T = d; ``second`` is at its output.

    All paths of the second block are sums of outer products of three vectors, and LayerNorm of either block turns one
    such sum into two, so the norm follows from Gram matrices (see ``outer_products``). ``frozen`` holds the second
    block's attention matrix fixed: the value path (and the skip) alone.
    """
    n = Vectors(second.output, per_row=True)
    terms = _paths(first, second, frozen)
    norms = squared_norms(terms)
    if second.variant.norm:  # ||N_i T||^2 = (||C T||^2 - gamma_i ||n_i^T T||^2) / s_i^2
        norms = norms - _shrinkage(second) * squared_norms([contracted(term, n) for term in terms])
    return (norms / second.scale.squeeze(-1).square()).sum(-1)


def transposed_gradient(first: Block, second: Block, *, frozen: bool = False) -> Float[Tensor, "*batch"]:
    """||J^T (A_1 X_0 ⊗ I)||_F^2 with J the derivative of ``second`` at the tokens it was linearised at, in O(T^3).

    It sums over output tokens what dX_2/dW_V sums over input tokens: sum_k || sum_i (dY_i/dx_k) ⊗ b_i ||^2 with
    b = A_1 X_0. With ``second`` at the network's input this is what the rebuttal's figure VIII shows, up to the
    factor 4 of its doubled skip. ``frozen`` as in ``value_gradient``.
    """
    b = first.attention @ first.tokens / second.scale
    P, (basis, ones), q = second.softmax, _basis(second), Vectors(second.queries)
    by_token = b, second.values, second.mean_values, second.output
    (outputs, rows), (v, v_row), (mean, mean_row), (n, n_row) = ((Vectors(x), Vectors(x, True)) for x in by_token)
    value = Term(ones, (Vectors(second.value_map), basis, Vectors(second.attention.mT @ b, per_row=True)))
    as_key, as_query = [], []
    if not frozen:
        k = Vectors(second.keys)
        as_key = [Term(P.mT, (v_row, q, outputs)), Term(-P.mT, (mean, q, outputs))]
        as_query = [Term(P, (v, k, rows)), Term(-P, (mean_row, k, rows))]
    if second.variant.skip:
        as_query.append(Term(ones, (Vectors(_centred(basis.data, second.variant.norm)), basis, rows)))
    terms = [value, *as_key, *as_query]
    if second.variant.norm:
        factor = -1 / second.output.shape[-1]
        terms.append(Term(factor * second.attention.mT, (n, Vectors(second.output @ second.value_map.mT), outputs)))
        terms += [replaced(term, 0, n, factor) for term in as_key]
        terms += [replaced(term, 0, n_row, factor) for term in as_query]
    return squared_norms(terms).sum(-1)


def logit_gradients(first: Block, second: Block, rows: int = 16) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """||dX_2/dW_Q||_F^2 and ||dX_2/dW_K||_F^2 for the first of two blocks, in O(T^4) for T = d; no batch axes.

    ``rows`` output tokens are taken at once; the memory is that of two T d^2 tensors and of 8 rows T d ones.
    """
    queries, keys = (chained_gradient(second, *entry(first, name), rows) for name in ("queries", "keys"))
    return queries, keys


def entry(block: Block, weight: str) -> tuple[Float[Tensor, "tokens width inner"], Float[Tensor, "tokens outer"]]:
    """L_k and b_k with which one of the weights ("values", "queries", "keys") enters the block's output; no batch axes.

    The derivative of the block's own output has the squared norm sum_k ||L_k||^2 |b_k|^2.
    """
    tokens, width = block.tokens, block.tokens.shape[-1]
    if weight == "values":
        eye = torch.eye(width, dtype=tokens.dtype, device=tokens.device)
        return _normalised(
            block, _centred(eye, block.variant.norm).expand(len(tokens), -1, -1)
        ), block.attention @ tokens
    differences = tokens - tokens.mean(-2, keepdim=True)
    if weight == "queries":
        inner, outer = differences @ block.weights.keys / width**0.5, tokens
    elif weight == "keys":
        inner, outer = differences, tokens @ block.weights.queries / width**0.5
    else:
        raise ValueError(f"entry: weight {weight!r}; allowed: values, queries, keys")
    return _normalised(block, _spread(block, inner, slice(None))), outer


def chained_gradient(
    second: Block, L: Float[Tensor, "tokens width inner"], b: Float[Tensor, "tokens outer"], rows: int = 16
) -> Float[Tensor, ""]:
    """sum_i || sum_k (dY_i/dx_k) L_k ⊗ b_k ||^2 for any L and b, in O(T^4), ``rows`` output tokens at a time.

    With Lambda_k = C W_V^T L_k, y_ik = L_k^T q_i, omega_i = C (D_i [+ I]) L_i and G = b b^T it expands the square of

        A_ik Lambda_k + P_ik C u_ik y_ik^T + delta_ik omega_i

    into its six products, none of which has more than three of the indices i, k, k' and one of the width.
    """
    G = b @ b.mT
    Lambda = second.value_map.mT @ L
    value_value = G * (Lambda.flatten(1) @ Lambda.flatten(1).mT)
    total = torch.zeros((), dtype=L.dtype, device=L.device)
    for start in range(0, len(b), rows):
        part = slice(start, start + rows)
        total += _chained_rows(second, L, Lambda, G, value_value, part)
        total += _value_key(second, L, Lambda, G, part)
    return total


def _chained_rows(
    second: Block, L: Tensor, Lambda: Tensor, G: Tensor, value_value: Tensor, i: slice
) -> Float[Tensor, ""]:
    """All products for the output tokens ``i`` but the one of value and key path that runs over k' (``_value_key``).

    Tensors over i and k have their axes in the order ``[k, i, inner]``, in which none of the products copies L.
    """
    A, P, mean = second.attention[i].mT.unsqueeze(-1), second.softmax[i].mT.unsqueeze(-1), second.mean_values[i]
    u = second.values - mean.unsqueeze(-2)  # [i, k, width]
    y = P * (second.queries[i] @ L)
    mixed = (G @ y.flatten(1)).view_as(y)
    omega = _query_path(second, i) @ L[i]
    norms = ((second.attention[i] @ value_value) * second.attention[i]).sum(-1)
    norms += ((y.transpose(0, 1) @ y.permute(1, 2, 0)) * (u @ u.mT) * G).sum((-2, -1))
    norms += G.diagonal()[i] * omega.square().sum((-2, -1))
    norms -= 2 * (A * (mean @ Lambda) * mixed).sum((0, -1))
    norms += 2 * (((second.attention[i] * G[i]) @ Lambda.flatten(1)).view_as(omega) * omega).sum((-2, -1))
    norms += 2 * ((u @ omega) * G[i].unsqueeze(-1) * y.transpose(0, 1)).sum((-2, -1))
    if second.variant.norm:
        n = second.output[i]
        z = A * (n @ Lambda) + (u @ n.unsqueeze(-1)).transpose(0, 1) * y
        z[i].diagonal(dim1=0, dim2=1).add_((n.unsqueeze(-2) @ omega).squeeze(-2).mT)
        norms -= _shrinkage(second)[i] * (z * (G @ z.flatten(1)).view_as(z)).sum((0, -1))
    return (norms / second.scale[i].squeeze(-1).square()).sum()


def _query_path(block: Block, i: slice) -> Float[Tensor, "rows width width"]:
    """C (D_i [+ I]) for the tokens ``i``."""
    path = _spread(block, block.keys, i)
    return path + _centred(_basis(block)[0].data, block.variant.norm) if block.variant.skip else path


def _value_key(second: Block, L: Tensor, Lambda: Tensor, G: Tensor, k: slice) -> Float[Tensor, ""]:
    """2 sum_i sum_k' A_ik' G_k'k P_ik (Lambda_k'^T v_k) . y_ik over the key tokens ``k``, all i and k'."""
    of_values = G[:, k].unsqueeze(-1) * (second.values[k] @ Lambda)  # [k', k, inner]
    mixed = (second.attention @ of_values.flatten(1)).view(-1, *of_values.shape[1:])
    y = (second.queries @ L[k]).transpose(0, 1)
    products = second.softmax[:, k] * (mixed * y).sum(-1)
    return 2 * (products.sum(-1) / second.scale.squeeze(-1).square()).sum()


def _paths(first: Block, second: Block, frozen: bool) -> list[Term]:
    """Return C N_i^-1 (dX_2,i/dx_k) N_k ⊗ b_k summed over k as terms with a row i: values, keys, queries, skip."""
    norm, width = first.variant.norm, first.tokens.shape[-1]
    b = first.attention @ first.tokens / first.scale
    inputs, rows = Vectors(b), Vectors(b, per_row=True)
    basis, ones = _basis(second)
    inner = Vectors(_centred(basis.data, norm))
    P, v, mean = second.softmax, Vectors(second.values), Vectors(second.mean_values, per_row=True)
    q, k = Vectors(_centred(second.queries, norm), per_row=True), Vectors(_centred(second.keys, norm))
    value = Term(ones, (Vectors(second.value_map), inner, Vectors(second.attention @ b, per_row=True)))
    as_key, as_query = [], []
    if not frozen:
        as_key = [Term(P, (v, q, inputs)), Term(-P, (mean, q, inputs))]
        as_query = [Term(P, (v, k, rows)), Term(-P, (mean, k, rows))]
    if second.variant.skip:
        as_query.append(Term(ones, (Vectors(_centred(basis.data, second.variant.norm)), inner, rows)))
    terms = [value, *as_key, *as_query]
    if norm:
        factor = -1 / width
        m, m_row = Vectors(first.output), Vectors(first.output, per_row=True)
        terms.append(Term(factor * second.attention, (Vectors(first.output @ second.value_map), m, inputs)))
        terms += [replaced(term, 1, m, factor) for term in as_key]
        terms += [replaced(term, 1, m_row, factor) for term in as_query]
    return terms


def _basis(block: Block) -> tuple[Vectors, Tensor]:
    """Return the unit vectors of the width, and weights 1 for every row and unit vector: W = sum_e (W e) ⊗ e."""
    tokens = block.tokens
    eye = torch.eye(tokens.shape[-1], dtype=tokens.dtype, device=tokens.device)
    return Vectors(eye), torch.ones_like(tokens)


def _spread(block: Block, inner: Tensor, i: slice) -> Float[Tensor, "rows width inner"]:
    """sum_j P_ij C u_ij inner_j^T for the tokens i; ``inner`` may be shifted by any vector."""
    P = block.softmax[i]
    both = (P.unsqueeze(-1) * block.values).mT @ inner
    return both - block.mean_values[i].unsqueeze(-1) * (P @ inner).unsqueeze(-2)


def _normalised(block: Block, maps: Float[Tensor, "tokens width inner"]) -> Float[Tensor, "tokens width inner"]:
    """N_k L_k for every token, where C L_k is given; L_k itself without LayerNorm."""
    if not block.variant.norm:
        return maps
    n = block.output.unsqueeze(-1)
    return (maps - n * (n.mT @ maps) / n.shape[-2]) / block.scale.unsqueeze(-1)


def _shrinkage(block: Block) -> Float[Tensor, "*batch tokens"]:
    """gamma_i of N_i^2 = (C - gamma_i n_i n_i^T) / s_i^2: (2 - |n_i|^2/d) / d."""
    width = block.output.shape[-1]
    return (2 - block.output.square().sum(-1) / width) / width


def _centred(vectors: Float[Tensor, "*batch width"], norm: bool) -> Float[Tensor, "*batch width"]:
    """C x, the vector less its mean over the width, if there is a LayerNorm behind it."""
    return vectors - vectors.mean(-1, keepdim=True) if norm else vectors
