"""A transformer block at any place of its LayerNorms, on a scale-free state."""

from collections.abc import Callable
from functools import partial

from rankcollapse.scalefree import State, add, layer_norm
from rankcollapse.scalefree_attention import Attention, attend
from rankcollapse.scalefree_mlp import Mlp, transform
from rankcollapse.settings.dong import NormPlacement

Step = Callable[[State], State]


def residual_step(before: State, branch: Step, placement: NormPlacement) -> State:
    """Return X + f(X) ("none"), X + f(LN X) ("pre", Xiong et al. 2020) or LN(X + f(X)) ("post", Vaswani et al.)."""
    moved = branch(layer_norm(before) if placement == "pre" else before)
    after = add(before, moved)
    return layer_norm(after) if placement == "post" else after


def block(before: State, attention: Attention, mlp: Mlp | None, placement: NormPlacement) -> State:
    """Apply attention and, where there is one, an MLP, each inside its own skip."""
    after = residual_step(before, partial(attend, layer=attention), placement)
    return after if mlp is None else residual_step(after, partial(transform, layer=mlp), placement)
