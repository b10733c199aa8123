"""Attention of Hugging Face models with its matrix and values changed: an attention function in the library's registry.

A model whose attention is set to ``NAME`` computes softmax(Q K^T / sqrt(d_k)) V as the library's eager attention does,
bit for bit, until a forward pass is given a ``Change``. No code of a model is edited, so every architecture that asks
the registry for its attention is served: BERT, RoBERTa, GPT-2 and others. Unlike the fused kernels it returns weights.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from rankcollapse.attention import centre

NAME = "changed"
CONVERGED = 1e-6  # of power iteration in float32, relative to the singular value; eps is 1.2e-7
MOST_STEPS = 200

Matrix = Literal["as it is", "centred", "mean removed", "deflated"]


@dataclass(frozen=True)
class Change:
    """What to do to every head's attention: output = gain B V with B made from the attention matrix A in R^{T x T}.

    ``matrix`` says how (Nait Saada, Naderi & Tanner 2025, state the second; the others are controls of ours):

    - ``as it is``: B = A.
    - ``centred``: B = A - 11^T/T, the stated removal of the spectral gap. B 1 = 0. Where a mask hides keys, the uniform
      attention over the visible ones is taken off instead, so that a causal decoder stays causal.
    - ``mean removed``: B = (I - 11^T/T) A: the mean of the head's output over tokens is taken off. B 1 = 0, 1^T B = 0.
    - ``deflated``: B = A - s_1 u_1 v_1^T: the largest singular value itself is removed.
    """

    matrix: Matrix = "as it is"
    gain: float = 1.0  # factor of the values; 1/s is W_V of unit variance where W_V was drawn with std s and no bias
    layers: tuple[int, ...] | None = None  # where, counted from 0; None: everywhere

    def reaches(self, layer: int) -> bool:
        """Tell whether the change is made in a layer, counted from 0."""
        return self.layers is None or layer in self.layers

    def row_sum(self, layer: int) -> float | None:
        """Return what every row of B sums to in a layer, counted from 0; None when that is not known."""
        sums = {"as it is": 1.0, "centred": 0.0, "mean removed": 0.0, "deflated": None}
        return sums[self.matrix] if self.reaches(layer) else 1.0


UNCHANGED = Change()


def make_changeable(encoder: PreTrainedModel) -> PreTrainedModel:
    """Let ``encoder`` take a ``Change`` in its forward pass; return it."""
    encoder.set_attn_implementation(NAME)
    return encoder


def attend(
    module: Any,
    query: Float[Tensor, "text head query key_width"],
    key: Float[Tensor, "text head key key_width"],
    value: Float[Tensor, "text head key value_width"],
    attention_mask: Float[Tensor, "#text #head query key"] | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    change: Change = UNCHANGED,
    **_: Any,
) -> tuple[Float[Tensor, "text query head value_width"], Float[Tensor, "text head query key"]]:
    """Return gain B V, heads behind tokens as the library wants them, and B.

    Raises ``ValueError`` for a change that is not defined under a mask.
    """
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    weights = (logits if attention_mask is None else logits + attention_mask).softmax(-1)
    if not change.reaches(module.layer_idx):
        change = UNCHANGED
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    weights = changed(weights, change, None if attention_mask is None else attention_mask == 0)
    # A factor of 1 is not multiplied by, to stay with the library bit for bit.
    output = weights @ (value if change.gain == 1 else change.gain * value)
    return output.transpose(1, 2).contiguous(), weights


def changed(
    attention: Float[Tensor, "text head query key"],
    change: Change,
    visible: Bool[Tensor, "#text #head query key"] | None = None,
) -> Float[Tensor, "text head query key"]:
    """Return B of ``change``; ``visible`` tells which keys a query may see, None that it may see all."""
    kind = change.matrix
    if visible is not None and kind in ("mean removed", "deflated"):
        raise ValueError(f"attention {kind!r} is not defined under a mask; allowed: as it is, centred")
    match kind:
        case "as it is":
            return attention
        case "centred":
            if visible is None:
                return centre(attention)
            uniform = visible.to(attention.dtype)
            return attention - uniform / uniform.sum(-1, keepdim=True)
        case "mean removed":
            return attention - attention.mean(-2, keepdim=True)
        case "deflated":
            return deflated(attention)


def deflated(attention: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """Return A - s_1 u_1 v_1^T = A - (A v_1) v_1^T by power iteration on A^T A, started at the vector 1.

    The entries of A are positive, so v_1 is too (Perron and Frobenius) and the start cannot be orthogonal to it.

    Raises:
        FloatingPointError: no convergence, which takes s_2 almost as large as s_1.
    """
    v = torch.full_like(attention[..., 0, :, None], attention.shape[-1] ** -0.5)
    for _ in range(MOST_STEPS):
        image = attention.mT @ (attention @ v)
        size = torch.linalg.vector_norm(image, dim=-2, keepdim=True)
        off = torch.linalg.vector_norm(image - size * v, dim=-2, keepdim=True) / size
        v = image / size
        if off.max() <= CONVERGED:
            return attention - (attention @ v) @ v.mT
    raise FloatingPointError(f"deflated: no convergence in {MOST_STEPS} steps; s_2 is almost s_1")


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, eager_mask)  # without it the library would pass no mask on: no causality
