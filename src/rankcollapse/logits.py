"""Logits of one random attention head on orthonormal tokens, the inputs that "Mind the Gap" assumes."""

import torch
from jaxtyping import Float
from torch import Tensor


def orthonormal_logits(
    tokens: int, ratio: float, generator: torch.Generator, device: torch.device
) -> Float[Tensor, "tokens tokens"]:
    """Logits X W_Q W_K^T X^T / sqrt(d) of unit variance for X X^T = I, W_Q and W_K with N(0, 1) entries; float64.

    X has orthonormal rows, so X W_Q and X W_K are T x d matrices of independent N(0, 1) entries whatever X is, and they
    are drawn as such. d = T / gamma, rounded; gamma = 0 is the limit of infinite width, independent logits.

    Raises:
        ValueError: gamma < 0 or > 1: more tokens than dimensions cannot be orthonormal.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"orthonormal_logits: ratio {ratio}; allowed: 0 to 1")
    if ratio == 0:
        return torch.randn(tokens, tokens, generator=generator, dtype=torch.float64).to(device)
    width = round(tokens / ratio)
    queries, keys = torch.randn(2, tokens, width, generator=generator, dtype=torch.float64).to(device)
    return queries @ keys.mT / width**0.5
