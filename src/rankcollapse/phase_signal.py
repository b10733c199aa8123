"""What a network of ``skip_attention`` does to a signal at initialisation, forwards and backwards, cell by cell."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.mixing import attention_entropy, overlaps
from rankcollapse.residual import mean_cosine
from rankcollapse.skip_attention import Cells, attend
from rankcollapse.spectrum import stable_rank

SHARP = 0.99  # largest entry above which a row of attention counts as one-hot
OVERFLOW = -1.0  # stands for a gradient that is not finite


class Attention(NamedTuple):
    """What is kept of the attention of one layer, mean over queries and sequences."""

    entropy: Float[Tensor, "cells"]  # H / ln n of a row
    participation: Float[Tensor, "cells"]  # Y2 = sum_j P_ij^2
    overlap: Float[Tensor, "cells"]  # O = sum_j P_ij P_i'j, i' != i
    sharp: Float[Tensor, "cells"]  # share of rows whose largest entry is above ``SHARP``


def observe(attention: Float[Tensor, "cells batch tokens tokens"]) -> Attention:
    """Return the entropy, participation, overlap and sharpness of attention matrices."""
    sharp = (attention.amax(-1) > SHARP).to(attention.dtype).mean(-1)
    found = (attention_entropy(attention), *overlaps(attention).unbind(-1), sharp)
    return Attention(*(values.mean(1) for values in found))


def forward(
    tokens: Float[Tensor, "cells batch tokens width"], weights: Sequence[Tensor], grid: Cells
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return the tokens X_0 ... X_L and the observables of every layer's attention, ``[cells, layer]``."""
    by_layer, observed = [tokens], []
    for weight in weights:
        tokens, attention = attend(tokens, weight, grid)
        by_layer.append(tokens)
        observed.append(observe(attention.detach()))
    return by_layer, Attention(*(torch.stack(of, -1) for of in zip(*observed, strict=True)))._asdict()


def signal(
    tokens: Float[Tensor, "cells batch tokens width"],
    weights: Sequence[Float[Tensor, "width three_widths"]],
    grid: Cells,
    probe: Float[Tensor, "batch tokens width"],
    last: int,
) -> dict[str, Tensor]:
    """Observables of all cells; the backward pass is that of sum(<G_b, X_L,b>), G = ``probe``.

    Returns those of ``Attention`` [cells, layer 1..L]; ``cosine`` [cells, layer 0..L], mean cosine of two tokens;
    ``stable_rank`` [cells] of X_L X_L^T; ``gradient`` [cells, layer 0..L-1], ||dL/dX_l||_F, root mean square over
    sequences; ``query_value_ratio`` [cells], ||dL/dW_Q|| / ||dL/dW_V|| over the last layers. A gradient that is not
    finite is ``OVERFLOW``.
    """
    count, width = len(tokens), tokens.shape[-1]
    own = [weight.expand(count, *weight.shape).clone().requires_grad_() for weight in weights[-last:]]
    start = tokens.detach().requires_grad_()
    by_layer, observed = forward(start, [*weights[:-last], *own], grid)
    gradients = torch.autograd.grad((by_layer[-1] * probe).sum(), [*by_layer[:-1], *own])
    at_tokens, at_weights = gradients[:-last], torch.stack(gradients[-last:])
    sizes = [gradient.square().sum((-2, -1)).mean(1).sqrt() for gradient in at_tokens]
    query, _, value = (part.square().sum((0, 2, 3)).sqrt() for part in at_weights.split(width, -1))
    found = {"gradient": torch.stack(sizes, -1), "query_value_ratio": query / value}
    final = by_layer[-1].detach()
    observed |= {name: values.where(values.isfinite(), OVERFLOW) for name, values in found.items()}
    observed["cosine"] = torch.stack([mean_cosine(tokens.detach()).mean(1) for tokens in by_layer], -1)
    return observed | {"stable_rank": stable_rank(final).mean(1)}
