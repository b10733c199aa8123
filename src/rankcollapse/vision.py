"""A vision transformer (Dosovitskiy et al. 2021) at random initialisation, with any place of LayerNorm and skip.

X_0 = [class token; patches E] + positions, then blocks of attention and MLP. Biases are zero and LayerNorm has no
affine weights, as at initialisation, so neither is written.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rankcollapse.inits import WEIGHT_INITS, Init, gaussian
from rankcollapse.scalefree_attention import Attention, plain_attention
from rankcollapse.scalefree_mlp import Mlp, plain_mlp
from rankcollapse.settings.smoothing import VisionBlock

LAYER_NORM_EPSILON = 1e-6  # timm's for ViT
# timm draws weights from N(0, 0.02^2) cut at 100 standard deviations, which is the init of BERT.
INITS: dict[str, Init] = {"timm": WEIGHT_INITS["bert"], "xavier": WEIGHT_INITS["xavier"]}


@dataclass(frozen=True)
class Weights:
    """The weights of one block."""

    attention: Attention
    mlp: Mlp


def draw_weights(width: int, heads: int, mlp_ratio: int, init: str, rng: Generator, device: torch.device) -> Weights:
    """Draw one block's weights on the CPU and return them in float32."""

    def matrix(fan_in: int, fan_out: int) -> Tensor:
        return INITS[init](fan_in, fan_out, rng).float().to(device)

    query, key, value, output = (matrix(width, width) for _ in range(4))
    mlp = Mlp(matrix(width, mlp_ratio * width), matrix(mlp_ratio * width, width), "gelu")
    return Weights(Attention(query, key, value, output, heads), mlp)


def embed(
    patches: Float[Tensor, "pictures patches pixels"], width: int, init: str, position_std: float, rng: Generator
) -> Float[Tensor, "pictures 1+patches width"]:
    """Return X_0 in float32: the class token before the mapped patches, and every place's embedding added."""
    _, count, pixels = patches.shape
    mapped = patches @ INITS[init](pixels, width, rng).to(patches)
    first = gaussian(1, width, rng, position_std).to(patches).expand(len(patches), 1, width)
    positions = gaussian(count + 1, width, rng, position_std).to(patches)
    return (torch.cat([first, mapped], 1) + positions).float()


def _norm(tokens: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(tokens, tokens.shape[-1:], eps=LAYER_NORM_EPSILON)


def apply_block(
    tokens: Float[Tensor, "*batch tokens width"], weights: Weights, kind: VisionBlock, scale: float = 1.0
) -> Float[Tensor, "*batch tokens width"]:
    """Apply attention, then the MLP, each as a branch f.

    pre-LN and scaled: X + scale f(LN X); post-LN: LN(X + f(X)); no LN: X + f(X); no skip: f(LN X).
    """
    for branch in (lambda x: plain_attention(x, weights.attention), lambda x: plain_mlp(x, weights.mlp)):
        moved = scale * branch(tokens if kind in ("post-LN", "no LN") else _norm(tokens))
        tokens = moved if kind == "no skip" else tokens + moved
        tokens = _norm(tokens) if kind == "post-LN" else tokens
    return tokens
