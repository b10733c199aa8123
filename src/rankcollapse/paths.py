"""The tokens behind L layers of attention with skips as a sum over paths, by path length and path by path.

    X_{l+1} = X_l + sum_h P_{l,h} X_l W_VO,l,h,   W_VO = W_V W_O.

With the attention matrices P held fixed at what an ordinary forward pass has, the network is linear and X_L is the sum
over all paths: each layer is passed by its skip or through one head. Dong, Cordonnier & Loukas (2021), section 3.1.

**All paths of a length at once** (derived here). The sum of all paths through k heads of the first l layers is

    X_{0,0} = X_0,   X_{l+1,k} = X_{l,k} + sum_h P_{l,h} X_{l,k-1} W_VO,l,h.

Each X_{l,k} = 1 x^T + R is carried centred: since P 1 = 1, a head adds (P - 1 p^T) R W_VO to the residual, p the mean
row of P, exactly. Subtracting the mean at the end instead loses R_{L,k} once it is below 1e-16 of x.

**Biases.** P 1 = 1 also makes a layer's biases add 1 b^T, b = sum_h b_V,h W_O,h + b_O, to X_{l+1} whatever P is: a path
of length 1 that starts in that layer, here counted in X_{l+1,1}. Later heads keep it of the form 1 b'^T, so it never
reaches a residual. Dong et al. collect all of them in one term 1 b^T.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.residual import composite_norm
from rankcollapse.scalefree import State, add, from_tokens, layer_norm, state
from rankcollapse.scalefree_attention import Attention, attend, plain_attention

# Above it a singular value decomposition of the product itself has ten digits of the second singular value left.
SEEN_BY_SVD = 1e-6


def bias_row(layer: Attention) -> Float[Tensor, "#1 width"]:
    """b = sum_h b_V,h W_O,h + b_O: what the biases of a layer add to every token."""
    rows = torch.as_tensor(layer.value_bias, dtype=layer.value.dtype, device=layer.value.device)
    return rows.expand(1, layer.value.shape[1]) @ layer.output + layer.output_bias


def without_biases(layer: Attention) -> Attention:
    """Return the layer without the biases of its values and its output."""
    return replace(layer, value_bias=0.0, output_bias=0.0)


def one_head(layer: Attention, head: int) -> Attention:
    """Return a layer that consists of head h alone (counted from 0), without the biases of the values.

    Raises:
        ValueError: the layer has no such head.
    """
    if not 0 <= head < layer.heads:
        raise ValueError(f"one_head: head {head} of a layer with {layer.heads}; counted from 0")
    keys, values = (
        slice(head * width // layer.heads, (head + 1) * width // layer.heads)
        for width in (layer.query.shape[1], layer.value.shape[1])
    )
    bias = layer.query_bias[..., keys] if isinstance(layer.query_bias, Tensor) else layer.query_bias
    return replace(
        without_biases(layer),
        query=layer.query[:, keys],
        key=layer.key[:, keys],
        value=layer.value[:, values],
        output=layer.output[values],
        heads=1,
        query_bias=bias,
        frozen=None if layer.frozen is None else layer.frozen[head : head + 1],
    )


def path_lengths(tokens: Float[Tensor, "tokens width"], layers: Sequence[Attention]) -> State:
    """Return X_{L,k} for k = 0..L as a batch of scale-free states: exact, in the time of (L + 1)/2 forward passes.

    A length's residual keeps full relative precision however small it is; the sum over k is the network's output.

    Raises:
        ValueError: a layer's attention is not frozen.
    """
    if any(layer.frozen is None for layer in layers):
        raise ValueError("path_lengths: every layer needs a frozen attention matrix; the sum over paths is no other")
    lengths = from_tokens(tokens[None])
    for layer in layers:
        moved = attend(lengths, without_biases(layer))
        lengths = add(_between(0, lengths, 1), _between(1, moved, 0))
        lengths.mean[1] += bias_row(layer)
    return lengths


def _between(before: int, lengths: State, after: int) -> State:
    """Return the batch with that many lengths without any path, X = 0, in front and behind."""
    pad = torch.nn.functional.pad
    edges = (0, 0, 0, 0, before, after)
    log_norm = pad(lengths.log_norm, (before, after), value=-torch.inf)
    return State(pad(lengths.mean, edges), pad(lengths.direction, edges), log_norm)


def path_lengths_uncentred(
    tokens: Float[Tensor, "tokens width"], layers: Sequence[Attention]
) -> Float[Tensor, "lengths tokens width"]:
    """Return the same X_{L,k} as plain numbers, without biases: residuals below 1e-16 of the mean token are lost."""
    lengths = tokens[None]
    for layer in layers:
        moved = plain_attention(lengths, without_biases(layer))
        none = torch.zeros_like(lengths[:1])
        lengths = torch.cat([lengths, none]) + torch.cat([none, moved])
    return lengths


def residual_products(lengths: State) -> Float[Tensor, "lengths lengths"]:
    """cos_kk' = <R_k, R_k'>_F / (||R_k|| ||R_k'||): how the residuals of two path lengths lie to each other."""
    rows = lengths.direction.flatten(1)
    return rows @ rows.mT


def residual_shares(lengths: State) -> Float[Tensor, "lengths"]:
    """<R_k, R>_F / ||R||_F^2 with R = sum_k R_k: what each length contributes to the whole residual. They sum to 1.

    A length that works against the others has a negative share.
    """
    size = (lengths.log_norm - lengths.log_norm.max()).exp()
    weighted = size[:, None] * residual_products(lengths) * size
    return weighted.sum(1) / weighted.sum()


def along_path(
    start: State, layers: Sequence[Attention], heads: Sequence[int], *, recompute: bool, norm: bool = False
) -> Iterator[State]:
    """Follow one path through head ``heads[l]`` of every layer, no skips: X <- P_h X W_VO,h, after each step.

    Either P is the frozen one, or it is recomputed from the path's own tokens, as in the released training tasks; with
    ``norm`` each step ends in a LayerNorm without affine weights, as there.
    """
    for layer, head in zip(layers, heads, strict=True):
        alone = one_head(layer, head)
        start = attend(start, replace(alone, frozen=None) if recompute else alone)
        start = layer_norm(start) if norm else start
        yield start


def rank_one_distance(matrix: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """||M - s_1 u_1 v_1^T||_{1,inf} / ||M||_{1,inf}: how far M is from its best approximation of rank one."""
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    leading = s[..., :1, None] * u[..., :, :1] * vh[..., :1, :]
    return composite_norm(matrix - leading) / composite_norm(matrix)


def log_product_distance(
    matrices: Float[Tensor, "factors *batch tokens tokens"],
) -> Float[Tensor, "*batch"]:
    """ln of ``rank_one_distance`` of P_k ... P_1 for row-stochastic P_1, ..., P_k, at any size.

    P_k ... P_1 = 1 q^T + E with 1^T E = 0 and E 1 = 0, and E' = (P - 1 p^T) E, p the mean row of P. Where E is
    far below q, the best approximation of rank one leaves E (I - q q^T / ||q||^2), to first order in E (derived here).
    """
    rest = from_tokens(torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device))
    for matrix in matrices:
        mean = matrix.mean(-2, keepdim=True)
        q = rest.mean + rest.scale * mean @ rest.direction
        rest = replace(state(torch.zeros_like(q), (matrix - mean) @ rest.direction, rest.log_norm), mean=q)
    q, product = rest.mean, rest.tokens
    left = rest.direction - rest.direction @ q.mT @ q / q.square().sum(-1, keepdim=True)
    found = rest.log_norm + (composite_norm(left) / composite_norm(product)).log()
    seen = found > math.log(SEEN_BY_SVD)
    found[seen] = rank_one_distance(product[seen]).log()
    return found
