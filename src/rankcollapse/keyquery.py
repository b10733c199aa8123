"""One head of key-query attention that reads its own tokens, A(X) = softmax(X W_Q W_K^T X^T / sqrt(d)).

X in R^{T x d} holds one token a row; W_Q, W_K, W_V in R^{d x d} are Gaussian and fresh in every layer. With values
N(0, 1), not N(0, 1/d), a layer multiplies the tokens by up to sqrt(d) and the logits by up to d. Their size decides
what softmax does, so the tokens must not be rescaled between layers; float64 has room (1e26 after ten layers at
d = 350, of 1e308) and softmax subtracts each row's largest logit. In float32 the squared covariance overflows instead.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankcollapse.attention import Activation, scaled_logits, softmax, softmax_deviation
from rankcollapse.residual import decompose

INDISTINCT = 1e-13  # relative difference of tokens that is rounding: a few hundred sums of errors of 1e-16


class Weights(NamedTuple):
    """The three matrices of one layer, for every run."""

    queries: Float[Tensor, "runs width width"]
    keys: Float[Tensor, "runs width width"]
    values: Float[Tensor, "runs width width"]

    def scaled(self, logit_std: float, value_std: float) -> "Weights":
        """The same matrices with standard deviation ``logit_std`` of W_Q and W_K and ``value_std`` of W_V."""
        return Weights(logit_std * self.queries, logit_std * self.keys, value_std * self.values)

    def to(self, like: Tensor | torch.device) -> "Weights":
        """The same matrices on a device, or on the device and in the precision of a tensor."""
        return Weights(*(matrix.to(like) for matrix in self))


def normal_weights(runs: int, width: int, generator: torch.Generator) -> Weights:
    """N(0, 1) entries, float64, on the CPU."""
    return Weights(*torch.randn(3, runs, width, width, generator=generator, dtype=torch.float64))


def keyquery_logits(
    tokens: Float[Tensor, "*runs tokens width"], weights: Weights
) -> Float[Tensor, "*runs tokens tokens"]:
    """X W_Q W_K^T X^T / sqrt(d); 0 where the tokens differ by rounding alone, so that equal tokens give A = 11^T/T."""
    logits = scaled_logits(tokens @ weights.queries, tokens @ weights.keys)
    return logits.where(distinct(tokens)[..., None, None], 0.0)


def centred_softmax(logits: Float[Tensor, "*runs tokens tokens"]) -> Float[Tensor, "*runs tokens tokens"]:
    """softmax - 11^T/T, the attention without its spectral gap, with all digits also where the logits are tiny.

    It is 0 for logits 0: a layer without its gap annihilates tokens that have become equal.
    """
    return softmax_deviation(logits, torch.zeros_like(logits[..., 0, :]))


def distinct(tokens: Float[Tensor, "*runs tokens width"]) -> Bool[Tensor, "*runs"]:
    """Tell whether the tokens differ by more than rounding; false for X = 0."""
    _, residual = decompose(tokens)
    return residual.abs().amax((-2, -1)) > INDISTINCT * tokens.abs().amax((-2, -1))


ATTENTION: dict[str, Activation] = {"A": softmax, "A_perp": centred_softmax}
