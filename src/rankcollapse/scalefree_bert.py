"""A BERT block, whole or with parts cut out, on a scale-free state: its trained weights and all of its biases.

One block is Y = LN(X + Attn(X)), X' = LN(Y + MLP(Y)) (Devlin et al. 2019, section 3, after Vaswani et al. 2017), each
norm with gain and bias; a variant leaves out one skip, both, or the MLP with its skip and norm, as ``encoders`` does.
"""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from rankcollapse.encoders import Parts
from rankcollapse.scalefree import State, add, from_tokens, layer_norm
from rankcollapse.scalefree_attention import Attention, attend
from rankcollapse.scalefree_mlp import ACTIVATIONS, Mlp, transform


@dataclass(frozen=True)
class Norm:
    """A layer norm's gain and bias, rows of the width, and the number under its root."""

    gain: Float[Tensor, "width"]
    bias: Float[Tensor, "width"]
    epsilon: float

    def __call__(self, before: State) -> State:
        """Apply it to a scale-free state."""
        return layer_norm(before, self.gain, self.bias, self.epsilon)


@dataclass(frozen=True)
class Block:
    """The parameters of one block, in float64."""

    attention: Attention
    after_attention: Norm
    mlp: Mlp
    after_mlp: Norm


def blocks(encoder: PreTrainedModel) -> list[Block]:
    """Return the blocks of a Hugging Face BERT or RoBERTa in float64.

    The keys' bias is left out: it adds the same number to a whole row of logits, which softmax ignores. Raises
    ``ValueError`` for another architecture, or an activation without an exact divided difference.
    """
    config = encoder.config
    if config.model_type not in ("bert", "roberta"):
        raise ValueError(f"no scale-free block for the architecture {config.model_type!r}; allowed: bert, roberta")
    if config.hidden_act not in ACTIVATIONS:
        raise ValueError(
            f"no scale-free step for the activation {config.hidden_act!r}; allowed: {', '.join(ACTIVATIONS)}"
        )
    return [_block(layer, config) for layer in encoder.base_model.encoder.layer]


def step(before: State, block: Block, keep: Parts) -> State:
    """Apply one block, or what ``keep`` leaves of it, to a scale-free state."""
    after = attend(before, block.attention)
    after = block.after_attention(add(before, after) if keep.attention_skip else after)
    if not keep.mlp:
        return after
    moved = transform(after, block.mlp)
    return block.after_mlp(add(after, moved) if keep.mlp_skip else moved)


def follow(
    embedded: Float[Tensor, "*batch tokens width"], stack: list[Block], keep: Parts, cycles: int = 1
) -> list[State]:
    """Return the states 0 .. cycles L, layer 0 being the embedding output: the stack of L blocks, again and again.

    A stack that is repeated is no trained network any more; it shows what order the trained blocks end up with.
    """
    states = [from_tokens(embedded.double())]
    for block in stack * cycles:
        states.append(step(states[-1], block, keep))
    return states


def _block(layer: Any, config: Any) -> Block:
    inner, output = layer.attention.self, layer.attention.output
    attention = Attention(
        query=_matrix(inner.query),
        key=_matrix(inner.key),
        value=_matrix(inner.value),
        output=_matrix(output.dense),
        heads=config.num_attention_heads,
        query_bias=_bias(inner.query),
        value_bias=_bias(inner.value),
        output_bias=_bias(output.dense),
    )
    first, second = layer.intermediate.dense, layer.output.dense
    mlp = Mlp(_matrix(first), _matrix(second), config.hidden_act, _bias(first), _bias(second))
    return Block(attention, _norm(output.LayerNorm), mlp, _norm(layer.output.LayerNorm))


def _matrix(linear: Any) -> Tensor:
    """Return W of x W: the library keeps its transpose."""
    return linear.weight.detach().double().T.contiguous()


def _bias(linear: Any) -> Tensor:
    return linear.bias.detach().double()


def _norm(module: Any) -> Norm:
    return Norm(module.weight.detach().double(), module.bias.detach().double(), module.eps)
