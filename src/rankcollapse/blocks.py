"""One attention block with or without its skip connection and layer normalisation; the attention is given.

X in R^{T x d}, A in R^{T x T}, W_V in R^{d x d}:  Y = LN( [X +] A X W_V ).  Post-LN, one head, no MLP.
"""

import torch
from jaxtyping import Float
from torch import Tensor

LAYER_NORM_EPSILON = 1e-5  # torch's default, in units of the variance over the width


def layer_norm(tokens: Float[Tensor, "*batch tokens width"]) -> Float[Tensor, "*batch tokens width"]:
    """Layer normalisation of every token without affine weights: (x - mean x) / sqrt(var x + eps) over the width."""
    return torch.nn.functional.layer_norm(tokens, tokens.shape[-1:], eps=LAYER_NORM_EPSILON)


def attention_block(
    tokens: Float[Tensor, "*batch tokens width"],
    attention: Float[Tensor, "*batch tokens tokens"],
    values: Float[Tensor, "*batch width width"],
    *,
    skip: bool,
    norm: bool,
) -> Float[Tensor, "*batch tokens width"]:
    """Apply one block, Y = A X W_V, then + X with ``skip``, then layer normalisation with ``norm`` (post-LN).

    Without ``norm`` the block is linear in X for a given A, so Y(c X) = c Y(X): a caller may rescale X between blocks.
    With ``norm`` it may not, because of eps, and need not: every token leaves with unit variance.

    Raises:
        ValueError: the three shapes do not fit.
    """
    wanted = (tokens.shape[-2], tokens.shape[-1])
    if attention.shape[-2:] != (wanted[0],) * 2 or values.shape[-2:] != (wanted[1],) * 2:
        raise ValueError(
            f"attention_block: tokens {tuple(tokens.shape)} do not fit attention {tuple(attention.shape)} "
            f"and values {tuple(values.shape)}"
        )
    mixed = attention @ tokens @ values
    mixed = tokens + mixed if skip else mixed
    return layer_norm(mixed) if norm else mixed
