"""How attention mixes: the entropy of its rows, and how much rows overlap with themselves and with each other."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attention_entropy(attention: Float[Tensor, "*batch tokens tokens"]) -> Float[Tensor, "*batch"]:
    """Mean entropy of a row over ln n: 1 when uniform, 0 when one-hot.

    ``torch.special.entr`` gives 0 for an entry 0, where p ln p with p clamped away from 0 gives NaN in 32 bits.
    """
    return torch.special.entr(attention).sum(-1).mean(-1) / math.log(attention.shape[-1])


def overlaps(attention: Float[Tensor, "*batch tokens tokens"]) -> Float[Tensor, "*batch 2"]:
    """Mean over i of sum_j P_ij^2, and mean over i != i' of sum_j P_ij P_i'j."""
    count = attention.shape[-1]
    own = attention.square().sum((-2, -1))
    all_pairs = attention.sum(-2).square().sum(-1)
    return torch.stack([own / count, (all_pairs - own) / (count * (count - 1))], -1)
