"""Blocks of one-head attention and a ReLU MLP under many remedies at once: one batch axis, shared weights.

Every remedy is a row of numbers, so all networks run in the same few matrix products. Dimensionless.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from rankcollapse.attention import scaled_logits
from rankcollapse.blocks import LAYER_NORM_EPSILON
from rankcollapse.inits import gaussian, normal1d
from rankcollapse.remedy import Remedy

Attend = Callable[[Float[Tensor, "nets tokens tokens"], Float[Tensor, "nets tokens tokens"] | None], Tensor]


class Weights(NamedTuple):
    """The weights of one block, all with variance 1 / fan-in but the MLP's first, 2 / fan-in (He et al. 2015)."""

    queries: Float[Tensor, "width width"]
    keys: Float[Tensor, "width width"]
    values: Float[Tensor, "*nets width width"]
    output: Float[Tensor, "width width"]
    inner: Float[Tensor, "width hidden"]
    outer: Float[Tensor, "hidden width"]

    @staticmethod
    def draw(width: int, hidden: int, generator: Generator, device: torch.device) -> "Weights":
        """Draw them and move them; E‖f(x)‖² = ‖x‖² for the MLP and for values times output."""
        weights = [normal1d(width, width, generator) for _ in range(4)]
        weights += [gaussian(width, hidden, generator, (2 / width) ** 0.5), normal1d(hidden, width, generator)]
        return Weights(*(weight.to(device) for weight in weights))


class Networks(NamedTuple):
    """The numbers of ``Remedy``, one network a row."""

    pre: Bool[Tensor, "nets 1 1"]
    post: Bool[Tensor, "nets 1 1"]
    centring: Float[Tensor, "nets 1 1"]
    skip: Float[Tensor, "nets 1 1"]
    branch: Float[Tensor, "nets 1 1"]
    mlp: Bool[Tensor, "nets 1 1"]
    query_norm: Bool[Tensor, "nets 1 1"]
    gain: Float[Tensor, "nets 1 1"]
    query_scale: Float[Tensor, "nets 1 1"]

    @staticmethod
    def of(remedies: Sequence[Remedy], logit_std: float, device: torch.device) -> "Networks":
        """Stack them; ``logit_std`` sigma is that of the logits of uncorrelated tokens of unit variance."""

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)[:, None, None]

        return Networks(
            pre=column([r.placement == "pre" for r in remedies]).bool(),
            post=column([r.placement == "post" for r in remedies]).bool(),
            centring=column([float(r.centred) for r in remedies]),
            skip=column([r.skip for r in remedies]),
            branch=column([r.branch for r in remedies]),
            mlp=column([r.mlp for r in remedies]).bool(),
            query_norm=column([r.query_norm for r in remedies]).bool(),
            gain=column([logit_std * r.gain for r in remedies]),
            query_scale=column([r.query_scale for r in remedies]),
        )


def normalise(
    tokens: Float[Tensor, "*batch tokens width"], centring: Float[Tensor, "*batch 1 1"] | float = 0.0
) -> Float[Tensor, "*batch tokens width"]:
    """Every token over its root mean square: LayerNorm with ``centring`` 1, RMSNorm with 0; no weights."""
    shifted = tokens - centring * tokens.mean(-1, keepdim=True)
    return shifted * (shifted.square().mean(-1, keepdim=True) + LAYER_NORM_EPSILON).rsqrt()


def branch_input(tokens: Float[Tensor, "nets tokens width"], networks: Networks) -> Float[Tensor, "nets tokens width"]:
    """What a branch sees: the tokens, normalised where the norm stands before it."""
    return torch.where(networks.pre, normalise(tokens, networks.centring), tokens)


def logits(
    seen: Float[Tensor, "nets tokens width"], queries: Tensor, keys: Tensor, networks: Networks
) -> Float[Tensor, "nets tokens tokens"]:
    """Z = sigma g N(X s W_Q) N(X W_K)^T / sqrt(d), N the queries' and keys' RMSNorm (Dehghani et al. 2023) or nothing.

    By Cauchy and Schwarz abs(Z_ij) <= sigma g sqrt(d) with the norm, whatever X, W_Q and W_K.
    """
    q, k = networks.query_scale * (seen @ queries), seen @ keys
    q, k = (torch.where(networks.query_norm, normalise(x), x) for x in (q, k))
    return networks.gain * scaled_logits(q, k)


def block(
    tokens: Float[Tensor, "nets tokens width"],
    weights: Weights,
    networks: Networks,
    attend: Attend,
    second: tuple[Tensor, Tensor] | None = None,
) -> Float[Tensor, "nets tokens width"]:
    """Apply one block: X <- N(alpha X + a A N'(X) W_V W_O), then the same with relu(N'(X) W_1) W_2.

    Args:
        attend: attention from the logits, and from those of ``second``, the other queries and keys of some kinds.
    """
    seen = branch_input(tokens, networks)
    other = logits(seen, *second, networks) if second else None
    attention = attend(logits(seen, weights.queries, weights.keys, networks), other)
    tokens = _join(tokens, attention @ (seen @ weights.values) @ weights.output, networks)
    moved = torch.relu(branch_input(tokens, networks) @ weights.inner) @ weights.outer
    return torch.where(networks.mlp, _join(tokens, moved, networks), tokens)


def _join(tokens: Tensor, branch: Tensor, networks: Networks) -> Tensor:
    summed = networks.skip * tokens + networks.branch * branch
    return torch.where(networks.post, normalise(summed, networks.centring), summed)
