"""The best that can be done about the previous token when every position sees the same bag of tokens. No torch."""

import math
from collections import Counter
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np


class Plateau(NamedTuple):
    """The optimum over all predictions that are the same at every position of a sequence."""

    accuracy: float
    loss: float  # mean cross-entropy, nats


def plateau(tokens: int, vocabulary: int) -> Plateau:
    """Accuracy E[max_v c_v] / n and loss E[-sum_v (c_v/n) ln(c_v/n)], c the counts of n uniform tokens; exact.

    Over the positions of one sequence the previous token takes the value v at c_v of n of them. Every bag is counted
    once, with its multinomial probability n! / prod c_v! / V^n.
    """
    accuracy = loss = 0.0
    for bag in combinations_with_replacement(range(vocabulary), tokens):
        counts = np.array(list(Counter(bag).values()))
        ways = math.factorial(tokens) // math.prod(map(math.factorial, counts.tolist()))
        probability = ways / vocabulary**tokens
        share = counts / tokens
        accuracy += probability * share.max()
        loss -= probability * float(share @ np.log(share))
    return Plateau(float(accuracy), loss)
