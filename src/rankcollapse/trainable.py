"""Attention-only networks that can be trained, many at once: every weight has a leading axis of models.

One block, post-LN, without an MLP (Dong, Cordonnier & Loukas 2021, section 4; BERT's block less its feed-forward):

    X' = LN(X + D(sum_h D(P_h) (X V_h + 1 v_h^T) O_h + 1 o^T))
    P_h = softmax((X Q_h + 1 q_h^T)(X K_h + 1 k_h^T)^T / sqrt(d/H))

with dropout D on attention, on the block's addition and before the head, LN with gain and shift, and a linear head for
every token. Before the first block tokens are embedded and normalised. Float32: training needs no more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import gelu, layer_norm

from rankcollapse.inits import gaussian, linear

EPSILON = 1e-12  # of every LayerNorm, in units of the variance over the width; BERT's
STD = 0.02  # of embeddings, queries, keys and head at the start; BERT's

Weights = Mapping[str, Float[Tensor, "models *shape"]]
Dropping = Callable[[Tensor], Tensor]  # multiplies by the next mask
Inputs = Int[Tensor, "models sets tokens"] | Float[Tensor, "models sets tokens 2"]


def _keep_all(tokens: Tensor) -> Tensor:
    return tokens


class Architecture(NamedTuple):
    """The shape of a network; ``inputs`` counts the vocabulary of symbols, or the coordinates of a point."""

    width: int
    heads: int
    layers: int
    outputs: int  # numbers the head gives for a token
    inputs: int
    kind: Literal["symbols", "points"]
    positions: int = 0  # learned position embeddings; 0: none, so a set of tokens has no order
    mixed: bool = True  # a second linear map in the embedding, for points after a gelu

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight of one network; blocks are stacked on the first axis."""
        d, blocks = self.width, self.layers
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.inputs, d)}
        shapes |= {"embed_bias": (d,)} if self.kind == "points" else {}
        shapes |= {"position": (self.positions, d)} if self.positions else {}
        shapes |= {"mix": (d, d), "mix_bias": (d,)} if self.mixed else {}
        shapes |= {"embed_gain": (d,), "embed_shift": (d,)}
        shapes |= {"qkv": (blocks, d, 3 * d), "qkv_bias": (blocks, 3 * d)}
        shapes |= {"output": (blocks, d, d), "output_bias": (blocks, d), "gain": (blocks, d), "shift": (blocks, d)}
        return shapes | {"head": (d, self.outputs), "head_bias": (self.outputs,)}

    def draw(self, random: Generator) -> dict[str, Float[Tensor, "*shape"]]:
        """Draw one network as released: values and outputs U(±1/sqrt(d)) (kaiming_uniform, a = sqrt 5), the other
        matrices N(0, 0.02^2), biases 0, gains 1."""
        drawn = {}
        for name, shape in self.shapes().items():
            if name == "qkv":
                drawn[name] = torch.stack([self._draw_block(random) for _ in range(self.layers)])
            elif name == "output":
                drawn[name] = torch.stack([linear(self.width, self.width, random) for _ in range(self.layers)])
            elif name.endswith(("bias", "shift")):
                drawn[name] = torch.zeros(shape)
            elif name.endswith("gain"):
                drawn[name] = torch.ones(shape)
            else:
                drawn[name] = gaussian(shape[0], shape[1], random, STD)
        return {name: weight.float() for name, weight in drawn.items()}

    def _draw_block(self, random: Generator) -> Float[Tensor, "width 3*width"]:
        d = self.width
        queries, keys, values = gaussian(d, d, random, STD), gaussian(d, d, random, STD), linear(d, d, random)
        by_head = [matrix.unflatten(1, (self.heads, -1)) for matrix in (queries, keys, values)]
        return torch.stack(by_head, 2).flatten(1)  # columns: head, then its queries, keys and values


class Block(NamedTuple):
    """The weights of one block, with a leading axis of models. Columns of ``qkv``: head, then query, key, value."""

    qkv: Float[Tensor, "models width 3*heads*head_width"]
    qkv_bias: Float[Tensor, "models 3*heads*head_width"]
    output: Float[Tensor, "models heads*head_width width"]
    output_bias: Float[Tensor, "models width"]
    gain: Float[Tensor, "models width"]
    shift: Float[Tensor, "models width"]

    def head(self, index: int, heads: int) -> "Block":
        """Return the block with one of its heads alone; the output's bias stays whole, as released."""
        third, width = self.qkv.shape[-1] // heads, self.output.shape[1] // heads
        return self._replace(
            qkv=self.qkv.narrow(-1, index * third, third),
            qkv_bias=self.qkv_bias.narrow(-1, index * third, third),
            output=self.output.narrow(1, index * width, width),
        )


def blocks(weights: Weights) -> list[Block]:
    """Return the blocks in order."""
    return [Block(*layer) for layer in zip(*(weights[name].unbind(1) for name in Block._fields), strict=True)]


def embed(architecture: Architecture, weights: Weights, inputs: Inputs, drop: Dropping = _keep_all) -> Tensor:
    """Embed every token on its own: look up or map linearly, add positions, mix, normalise.

    Returns:
        Float ``[models, sets, tokens, width]``.
    """
    models, sets = inputs.shape[:2]
    if architecture.kind == "symbols":
        index = inputs.flatten(1).unsqueeze(-1).expand(-1, -1, architecture.width)
        tokens = weights["embed"].gather(1, index)
    else:
        tokens = _affine(inputs.flatten(1, 2), weights["embed"], weights["embed_bias"])
    if architecture.positions:
        tokens = (tokens.view(models, sets, architecture.positions, -1) + weights["position"].unsqueeze(1)).flatten(
            1, 2
        )
    if architecture.mixed:
        tokens = gelu(tokens) if architecture.kind == "points" else tokens
        tokens = _affine(tokens, weights["mix"], weights["mix_bias"])
    tokens = _normalised(tokens, weights["embed_gain"], weights["embed_shift"])
    return drop(tokens.view(*inputs.shape[:3], architecture.width))


def attend(
    tokens: Float[Tensor, "models sets tokens width"], block: Block, heads: int, drop: Dropping = _keep_all
) -> Float[Tensor, "models sets tokens width"]:
    """Return what a block adds to its tokens: all heads' attention, mapped by the output matrix."""
    models, sets, count, width = tokens.shape
    merged = _affine(tokens.view(models, sets * count, width), block.qkv, block.qkv_bias)
    queries, keys, values = merged.view(models, sets, count, heads, 3, -1).permute(4, 0, 1, 3, 2, 5).unbind(0)
    logits = keys @ (queries * keys.shape[-1] ** -0.5).mT  # transposed, [key, query]: softmax of short rows is slow
    mixed = drop(torch.softmax(logits, dim=-2)).mT @ values
    joined = mixed.transpose(-2, -3).reshape(models, sets * count, -1)
    return drop(_affine(joined, block.output, block.output_bias).view(tokens.shape))


def forward(
    architecture: Architecture,
    weights: Weights,
    inputs: Inputs,
    drop: Dropping = _keep_all,
    skip: Float[Tensor, "models 1 1 1"] | float = 1.0,
) -> Float[Tensor, "models sets tokens outputs"]:
    """Return the head's output for every token; ``skip`` multiplies what each block's skip connection carries."""
    tokens = embed(architecture, weights, inputs, drop)
    for block in blocks(weights):
        added = attend(tokens, block, architecture.heads, drop)
        tokens = added + (tokens if isinstance(skip, float) and skip == 1 else skip * tokens)
        tokens = _normalised(tokens.flatten(1, 2), block.gain, block.shift).view(added.shape)
    return read_out(weights, drop(tokens))


def read_out(
    weights: Weights, tokens: Float[Tensor, "models sets tokens width"]
) -> Float[Tensor, "models sets tokens outputs"]:
    """Apply the head to every token."""
    return _affine(tokens.flatten(1, 2), weights["head"], weights["head_bias"]).view(*tokens.shape[:-1], -1)


def plain_norm(tokens: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """LayerNorm without gain and shift."""
    return layer_norm(tokens, tokens.shape[-1:], eps=EPSILON)


def masks(
    architecture: Architecture,
    shape: tuple[int, int],
    rate: float,
    random: Mapping[int, Generator],
    runs: Sequence[int],
) -> Dropping:
    """Draw the dropout masks of one pass over ``shape`` = (sets, tokens), all of a run at once from its generator.

    ``runs`` names the run of each column. The result multiplies its argument, whose models are ordered learning rate
    first, by the next mask, the same for every rate.
    """
    if not rate:
        return _keep_all
    sets, tokens = shape
    state, attention = (sets, tokens, architecture.width), (sets, architecture.heads, tokens, tokens)
    shapes = [state, *[attention, state] * architecture.layers, state]
    sizes = [torch.Size(one).numel() for one in shapes]
    kept = torch.empty(len(random), sum(sizes))
    for row, one in zip(kept, random.values(), strict=True):
        row.uniform_(generator=one)
    kept.ge_(rate).div_(1 - rate)
    if list(random) != list(runs):
        kept = kept[[list(random).index(run) for run in runs]]
    pending = iter([mask.unflatten(1, one) for mask, one in zip(kept.split(sizes, dim=1), shapes, strict=True)])

    def drop(tokens: Tensor) -> Tensor:
        mask = next(pending).to(tokens.device)
        return (tokens.unflatten(0, (-1, len(mask))) * mask).flatten(0, 1)

    return drop


def _affine(tokens: Tensor, matrix: Tensor, bias: Tensor) -> Float[Tensor, "models tokens columns"]:
    return torch.baddbmm(bias.unsqueeze(1), tokens, matrix)


def _normalised(tokens: Tensor, gain: Tensor, shift: Tensor) -> Float[Tensor, "models tokens width"]:
    return torch.addcmul(shift.unsqueeze(1), plain_norm(tokens), gain.unsqueeze(1))
