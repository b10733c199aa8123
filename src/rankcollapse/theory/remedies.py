"""How alike tokens become by depth under a remedy, in expectation over random weights (derived here)."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rankcollapse.remedy import Remedy
from rankcollapse.theory.noci import kappa


def similarity(
    remedy: Remedy, blocks: int, tokens: int, start: float = 0.0
) -> tuple[Float[ndarray, " blocks+1"], Float[ndarray, " blocks+1"]]:
    """Return second moment q_l and cosine rho_l of tokens, l = 0..blocks, if attention were uniform.

    q = E‖x_i‖²/d and p = E<x_i, x_j>/d, rho = p/q; alpha the skip's factor and a the branch's. Of the mean token's
    energy m = (q + (n - 1) p) / n uniform attention passes m on to every token, and a ReLU MLP with He weights passes
    q and q kappa(rho), so that a block is q, p <- alpha² (q, p) + a² (m, m), then + a² (q, q kappa). A norm before the
    branches divides what they see by q; one after the sum divides q and p by q.

    With a norm before the branches q grows by at most 2 a² a block. Of e = 1 - rho attention alone leaves
    e' = -e (1 - e) / q with q ~ l, so e ~ 1 / l; with the MLP, d(q e) = 1 - kappa = e - c e^{3/2} and q ~ 2 l, so
    2 l e' = -e - c e^{3/2}, whose solution is e = (A l^{1/4} - c)^{-2} ~ l^{-1/2} with c = 2 sqrt(2) / (3 pi).
    """
    q, p = 1.0, start
    moments, cosines = [q], [p / q]
    for _ in range(blocks):
        for branch in (_attention(tokens), _mlp) if remedy.mlp else (_attention(tokens),):
            size = q if remedy.placement == "pre" else 1.0
            more_q, more_p = branch(q / size, p / size)
            q, p = (remedy.skip**2 * old + remedy.branch**2 * more for old, more in ((q, more_q), (p, more_p)))
            if remedy.placement == "post":
                q, p = 1.0, p / q
        moments.append(q)
        cosines.append(p / q)
    return np.array(moments), np.array(cosines)


def _attention(tokens: int) -> Callable[[float, float], tuple[float, float]]:
    def branch(q: float, p: float) -> tuple[float, float]:
        return ((q + (tokens - 1) * p) / tokens,) * 2

    return branch


def _mlp(q: float, p: float) -> tuple[float, float]:
    return q, q * float(kappa(p / q))
