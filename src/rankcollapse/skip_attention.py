"""Attention with a skip of strength alpha and LayerNorm after the sum, X <- LN(alpha X + P X W_V), many cells at once.

A cell is one point of a grid of skip strengths and logit scales. P = softmax(sigma Q K^T / sqrt(d)), Q = X W_Q,
K = X W_K, one head, no MLP, no bias, LayerNorm without gain (epsilon 1e-5). With weights of variance 1/d and
uncorrelated tokens of unit variance the logits have standard deviation sigma; sigma = beta sqrt(ln n) defines the
inverse temperature beta of the random-energy model.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import layer_norm, rms_norm


class Cells(NamedTuple):
    """The cells of a grid: alpha and sigma of each, shaped to multiply its tokens; and whether Q, K are normalised."""

    skip: Float[Tensor, "cells 1 1 1"]
    scale: Float[Tensor, "cells 1 1 1"]
    qk_norm: bool = False


def cells(points: Float[Tensor, "cells 2"], tokens: int, *, qk_norm: bool = False) -> Cells:
    """Return the cells of the given (alpha, beta), for sequences of n tokens: sigma = beta sqrt(ln n)."""
    skip, beta = points[:, :, None, None, None].unbind(1)
    return Cells(skip, beta * math.log(tokens) ** 0.5, qk_norm)


def project(
    tokens: Float[Tensor, "cells batch tokens width"], weights: Float[Tensor, "*cells width out"]
) -> Float[Tensor, "cells batch tokens out"]:
    """X W with one W for all cells or one for each; for each, a cell's sequences are one matrix."""
    if weights.ndim == 2:
        return tokens @ weights
    return (tokens.flatten(1, 2) @ weights).unflatten(1, tokens.shape[1:3])


def attend(
    tokens: Float[Tensor, "cells batch tokens width"], weights: Float[Tensor, "*cells width three_widths"], grid: Cells
) -> tuple[Float[Tensor, "cells batch tokens width"], Float[Tensor, "cells batch tokens tokens"]]:
    """One layer: the new tokens, and P with a row a query.

    ``weights`` holds W_Q, W_K and W_V side by side. With QK-norm every row of Q and of K is divided by its root mean
    square before sigma is applied (no learned gain), so no logit exceeds sigma sqrt(d).
    """
    width = tokens.shape[-1]
    queries, keys, values = project(tokens, weights).chunk(3, -1)
    if grid.qk_norm:
        queries, keys = rms_norm(queries, (width,)), rms_norm(keys, (width,))
    # Keys before queries: a softmax over the last axis but one is several times faster where that axis is short.
    by_key = torch.softmax((keys * (grid.scale / width**0.5)) @ queries.mT, dim=-2)
    return layer_norm(grid.skip * tokens + by_key.mT @ values, (width,)), by_key.mT
