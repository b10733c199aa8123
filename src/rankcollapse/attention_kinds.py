"""Kinds of attention side by side, by name: what each makes of the logits, in which layer, and what it sees."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import causal_bias, centre, differential, differential_weight, relu, sigmoid, softmax

Logits = Float[Tensor, "*batch tokens tokens"]
Kind = Callable[[Logits, Logits, int], Float[Tensor, "*batch tokens tokens"]]


def window_bias(tokens: int, reach: int) -> Float[Tensor, "tokens tokens"]:
    """B_ij = -inf for abs(i - j) > reach, else 0: a token sees itself and its neighbours, in a line."""
    position = torch.arange(tokens)
    far = (position[:, None] - position).abs() > reach
    return torch.zeros(tokens, tokens, dtype=torch.float64).masked_fill(far, -torch.inf)


def attention_kinds(tokens: int, reach: int, device: torch.device) -> dict[str, Kind]:
    """Return every kind as a function of two sets of logits and the layer 1, 2, ...; all but one use the first set.

    Differential attention has its weight at initialisation and no normalisation of the head behind it.
    """
    causal, window = causal_bias(tokens, 1)[0].to(device), window_bias(tokens, reach).to(device)
    return {
        "softmax": lambda first, second, layer: softmax(first),
        "centred": lambda first, second, layer: centre(softmax(first)),
        "differential": lambda first, second, layer: differential(first, second, differential_weight(layer)),
        "relu": lambda first, second, layer: relu(first),
        "sigmoid": lambda first, second, layer: sigmoid(first),
        "causal": lambda first, second, layer: softmax(first + causal),
        "window": lambda first, second, layer: softmax(first + window),
    }
