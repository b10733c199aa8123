"""What is done to a block against collapse, as numbers: where it is normalised and how its branches are scaled.

A name such as ``post-LN + QK-norm`` is a sum of parts. No torch.
"""

from dataclasses import dataclass
from typing import Any, Literal

from rankcollapse.validation import allowed


@dataclass(frozen=True)
class Remedy:
    """X <- N(alpha X + a f(N' X)) for each of a block's two branches f, attention and MLP."""

    placement: Literal["none", "pre", "post"] = "none"  # whether N' (pre) or N (post) normalises
    centred: bool = True  # LayerNorm; RMSNorm otherwise
    skip: float = 1.0  # alpha
    branch: float = 1.0  # a
    mlp: bool = True  # whether there is an MLP after attention
    query_norm: bool = False  # whether every query and key is normalised
    gain: float = 1.0  # factor of the logits: what a learned gain of the queries' norm does
    query_scale: float = 1.0  # factor of W_Q, in front of that norm


def deepnorm_scales(blocks: int) -> tuple[float, float]:
    """Return alpha = (2 N)^{1/4} and beta = (8 N)^{-1/4} of an encoder of N blocks, two branches each.

    Wang et al. (2022, DeepNet), figure 2: X <- LN(alpha X + f(X)), and every weight of f but those of queries and
    keys is drawn beta times as large.
    """
    return (2 * blocks) ** 0.25, (8 * blocks) ** -0.25


def parts(blocks: int) -> dict[str, dict[str, Any]]:
    """Return what every part of a name stands for in a network of that many blocks.

    Values and output, and both weights of a ReLU MLP, scale their branch linearly: DeepNorm's init is a = beta².
    """
    alpha, beta = deepnorm_scales(blocks)
    return {
        "none": {},
        "pre-LN": {"placement": "pre"},
        "post-LN": {"placement": "post"},
        "RMSNorm": {"placement": "pre", "centred": False},
        "QK-norm": {"query_norm": True},
        "DeepNorm": {"placement": "post", "skip": alpha, "branch": beta**2},
        "DeepNorm without its init": {"placement": "post", "skip": alpha},
        "1/sqrt(2L)": {"branch": (2 * blocks) ** -0.5},
        "no skip": {"skip": 0.0},
        "attention alone": {"mlp": False},
    }


def remedy(name: str, blocks: int, **more: Any) -> Remedy:
    """Return the remedy of that name, ``more`` replacing single numbers; ValueError for an unknown part."""
    known = parts(blocks)
    chosen: dict[str, Any] = {}
    for part in name.split(" + "):
        if part not in known:
            raise ValueError(f"remedy {name!r}: part {part!r}: {allowed(part, known)}")
        chosen |= known[part]
    return Remedy(**chosen | more)
