"""Hugging Face encoders: at random initialisation, with parts of every block cut out, and opened up.

Every function works on model instances; no library code is edited. Sources: the architectures are those of
transformers; the variants are those of Dong, Cordonnier & Loukas (2021), section 4 and the released notebook.
"""

import copy
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.albert.modeling_albert import AlbertAttention, AlbertLayer, eager_attention_forward
from transformers.models.xlnet.modeling_xlnet import XLNetFeedForward, XLNetRelativeAttention

from rankcollapse.architectures import read_architecture
from rankcollapse.changed_attention import NAME, UNCHANGED, Change


class Parts(NamedTuple):
    """Which parts of a block a variant keeps."""

    attention_skip: bool
    mlp: bool
    mlp_skip: bool  # goes with the MLP


VARIANTS = {
    "SAN": Parts(attention_skip=False, mlp=False, mlp_skip=False),
    "SAN + MLP": Parts(attention_skip=False, mlp=True, mlp_skip=True),
    "SAN + skip": Parts(attention_skip=True, mlp=False, mlp_skip=False),
    "SAN + MLP, no MLP skip": Parts(attention_skip=False, mlp=True, mlp_skip=False),
    "transformer": Parts(attention_skip=True, mlp=True, mlp_skip=True),
}


def architecture(path: str | Path, name: str, layers: int | None = None) -> PretrainedConfig:
    """Return the configuration called ``name`` in a YAML file of architectures, cut to its first ``layers`` blocks.

    Attention is eager: the fused kernels return no attention weights. Raises ``ConfigError`` naming the file and the
    architectures it has when ``name`` is not one of them.
    """
    config = AutoConfig.for_model(**read_architecture(path, name))
    config._attn_implementation = "eager"
    if layers is not None:
        config.num_hidden_layers = layers
    return config


def random_encoder(
    config: PretrainedConfig, rng: torch.Generator, *, word_embedding_std: float | None = None
) -> PreTrainedModel:
    """Return an encoder in evaluation mode with freshly drawn weights, the law being the library's own.

    Weights, embeddings and XLNet's attention parameters are N(0, s^2) with s = ``config.initializer_range``; GPT-2's
    output projections have s / sqrt(2 L), L layers; biases are 0 and so is the padding token's row; layer norms are
    the identity. ``word_embedding_std`` replaces s for the word embeddings. Only ``rng`` is used and moved on: the
    library would draw from the global generator.
    """
    with no_init_weights():
        encoder = AutoModel.from_config(config)
    _draw(encoder, rng)
    if word_embedding_std is not None:
        with torch.no_grad():
            encoder.get_input_embeddings().weight.mul_(word_embedding_std / config.initializer_range)
    return encoder.eval()


@torch.no_grad()
def _draw(encoder: PreTrainedModel, rng: torch.Generator) -> None:
    std = encoder.config.initializer_range
    for path, module in encoder.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                parameter.zero_()
            elif isinstance(module, nn.LayerNorm):
                parameter.fill_(1.0)
            else:
                residual = encoder.config.model_type == "gpt2" and path.endswith("c_proj")
                parameter.normal_(0.0, std / math.sqrt(2 * encoder.config.n_layer) if residual else std, generator=rng)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx].zero_()


def variant(encoder: PreTrainedModel, name: str) -> PreTrainedModel:
    """Return ``encoder`` as a variant of Dong et al.: a copy that shares its weights; ``encoder`` stays as it was.

    In all variants the layer norm behind the attention stays. Without attention skip a block's attention
    output is LN(Attn(X) W_O + b_O) and not LN(X + Attn(X) W_O + b_O). Without MLP the feed-forward part, its skip and
    its layer norm are dropped, except in ALBERT: there its two linear maps become identities, which leaves
    LN(phi(Y) + Y), phi the activation, as in the released notebook. With the MLP but without its skip a block is
    LN(MLP(Y)), a variant that Dong et al. do not have. Raises ``ValueError`` for a variant or an
    architecture that is not known, naming those that are.
    """
    if name not in VARIANTS:
        raise ValueError(f"no variant {name!r} of an encoder; allowed: {', '.join(VARIANTS)}")
    kind = encoder.config.model_type
    if kind not in ANATOMY:
        raise ValueError(f"no surgery for the architecture {kind!r}; allowed: {', '.join(ANATOMY)}")
    shared = {id(tensor): tensor for tensor in (*encoder.parameters(), *encoder.buffers())}
    operated = copy.deepcopy(encoder, shared)
    anatomy, keep = ANATOMY[kind], VARIANTS[name]
    for block in anatomy.blocks(operated.base_model):
        if not keep.attention_skip:
            anatomy.remove_skip(block)
        if not keep.mlp:
            anatomy.remove_mlp(block)
        elif not keep.mlp_skip:
            anatomy.remove_mlp_skip(block)
    return operated


def hidden_states(
    encoder: PreTrainedModel, ids: Int[Tensor, "text token"], change: Change | None = None
) -> list[Float[Tensor, "text token width"]]:
    """Return the hidden states 0..L: the embedding output (in ALBERT already mapped to full width), then each layer's.

    ``change`` is made to the attention of an encoder that ``make_changeable`` has seen. Raises ``RuntimeError`` when
    the library does not hand over L + 1 hidden states, ``ValueError`` when it would not make the change.
    """
    output = encoder(input_ids=ids, output_hidden_states=True, **_arguments(encoder, change))
    layers = encoder.config.num_hidden_layers
    if len(output.hidden_states) != layers + 1:
        raise RuntimeError(f"{len(output.hidden_states)} hidden states from {layers} layers; {layers + 1} expected")
    return list(output.hidden_states)


def attention_weights(
    encoder: PreTrainedModel, ids: Int[Tensor, "text token"], change: Change | None = None
) -> list[Float[Tensor, "text head token token"]]:
    """Return the attention matrices of layers 1..L, with ``change`` made to them as in ``hidden_states``.

    Raises ``RuntimeError`` when their number or shape is wrong or a row does not sum to 1 (0 where it is centred)
    within 1e-5 (float32 sums of up to a few thousand entries are good to about 1e-6): a fused attention kernel
    silently returns none.
    """
    output = encoder(input_ids=ids, output_attentions=True, **_arguments(encoder, change))
    weights = [layer for layer in output.attentions or () if layer is not None]
    texts, tokens = ids.shape
    expected = [(texts, encoder.config.num_attention_heads, tokens, tokens)] * encoder.config.num_hidden_layers
    if [tuple(layer.shape) for layer in weights] != expected:
        raise RuntimeError(f"{len(weights)} attention tensors; {len(expected)} of shape {expected[0]} expected")
    for number, layer in enumerate(weights):
        expected_sum = (change or UNCHANGED).row_sum(number)
        off = 0.0 if expected_sum is None else (layer.sum(-1) - expected_sum).abs().max().item()
        if not off < 1e-5:
            raise RuntimeError(
                f"attention of layer {number + 1}: row sums are off {expected_sum:g} by {off:.1e}, allowed 1e-5"
            )
    return weights


def _arguments(encoder: PreTrainedModel, change: Change | None) -> dict[str, Any]:
    # XLNet would also keep a copy of every layer's input for a next segment that never comes.
    arguments: dict[str, Any] = {"use_mems": False} if encoder.config.model_type == "xlnet" else {}
    if change is not None:
        if encoder.config._attn_implementation != NAME:
            raise ValueError(
                f"attention {encoder.config._attn_implementation!r} takes no change; make_changeable first"
            )
        arguments["change"] = change
    return arguments


class Anatomy(NamedTuple):
    """Where the parts of an architecture are: its blocks, and how to cut a part out of one."""

    blocks: Callable[[Any], Iterable[Any]]
    remove_skip: Callable[[Any], None]
    remove_mlp: Callable[[Any], None]
    remove_mlp_skip: Callable[[Any], None]


class WithoutSkip(nn.Module):
    """LN(W h + b) from a BERT output block, which computes LN(W h + b + x)."""

    def __init__(self, output: nn.Module):
        super().__init__()
        self.output = output

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """Return the block's output with a zero in place of the skipped-over input."""
        return self.output(hidden_states, torch.zeros_like(input_tensor))


class FirstInput(nn.Module):
    """Passes its first input on: a BERT feed-forward output that does nothing."""

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """Return ``hidden_states``."""
        return hidden_states


def _bert_without_skip(block: Any) -> None:
    block.attention.output = WithoutSkip(block.attention.output)


def _bert_without_mlp(block: Any) -> None:
    block.intermediate, block.output = nn.Identity(), FirstInput()


def _bert_without_mlp_skip(block: Any) -> None:
    block.output = WithoutSkip(block.output)


class AlbertAttentionWithoutSkip(AlbertAttention):
    """ALBERT's attention, whose skip is inside its forward pass, without that skip."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return LN(Attn(X) W_O + b_O) and the attention weights."""
        split = (*hidden_states.shape[:-1], self.num_attention_heads, self.attention_head_size)
        q, k, v = (linear(hidden_states).view(split).transpose(1, 2) for linear in (self.query, self.key, self.value))
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.attention_dropout.p if self.training else 0.0
        heads, weights = attend(self, q, k, v, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs)
        projected = self.output_dropout(self.dense(heads.reshape(hidden_states.shape)))
        return self.LayerNorm(projected), weights


class XLNetAttentionWithoutSkip(XLNetRelativeAttention):
    """XLNet's attention, told to leave its skip out."""

    def post_attention(self, h: Tensor, attn_vec: Tensor, residual: bool = False) -> Tensor:
        """Return LN(Attn(X) W_O)."""
        return super().post_attention(h, attn_vec, residual=False)


class AlbertLayerWithoutMlpSkip(AlbertLayer):
    """An ALBERT block, whose feed-forward skip is inside its forward pass, without that skip."""

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Return LN(MLP(Y)), Y the block's attention with its own skip and layer norm."""
        attended, _ = self.attention(hidden_states, attention_mask, **kwargs)
        return self.full_layer_layer_norm(self.ff_chunk(attended))


class XLNetFeedForwardWithoutSkip(XLNetFeedForward):
    """XLNet's feed-forward part without its skip."""

    def forward(self, inp: Tensor) -> Tensor:
        """Return LN(MLP(Y))."""
        hidden = self.dropout(self.activation_function(self.layer_1(inp)))
        return self.layer_norm(self.dropout(self.layer_2(hidden)))


def _albert_without_skip(block: Any) -> None:
    block.attention.__class__ = AlbertAttentionWithoutSkip  # of a copy: same weights, settings and hooks


def _albert_without_mlp(block: Any) -> None:
    block.ffn, block.ffn_output = nn.Identity(), nn.Identity()


def _albert_without_mlp_skip(block: Any) -> None:
    block.__class__ = AlbertLayerWithoutMlpSkip


def _xlnet_without_skip(block: Any) -> None:
    block.rel_attn.__class__ = XLNetAttentionWithoutSkip


def _xlnet_without_mlp(block: Any) -> None:
    block.ff = nn.Identity()


def _xlnet_without_mlp_skip(block: Any) -> None:
    block.ff.__class__ = XLNetFeedForwardWithoutSkip


_BERT = Anatomy(lambda model: model.encoder.layer, _bert_without_skip, _bert_without_mlp, _bert_without_mlp_skip)
ANATOMY = {
    "bert": _BERT,
    "roberta": _BERT,
    "albert": Anatomy(
        # Layers of a group share one block: each block is cut once and met many times.
        lambda model: [block for group in model.encoder.albert_layer_groups for block in group.albert_layers],
        _albert_without_skip,
        _albert_without_mlp,
        _albert_without_mlp_skip,
    ),
    "xlnet": Anatomy(lambda model: model.layer, _xlnet_without_skip, _xlnet_without_mlp, _xlnet_without_mlp_skip),
}
