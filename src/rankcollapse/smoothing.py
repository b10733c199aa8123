"""Networks that average over a graph, on a scale-free state, each with the distance to its own limit.

Every layer is X' = P(X) X W_V with a row-stochastic P, which takes X to 1 x^T; the symmetric normalisation is the same
map in other coordinates, X = diag(s) Y with s = D^{1/2} 1, and takes X to s x^T.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankcollapse.graphs import random_walk
from rankcollapse.scalefree import State, state
from rankcollapse.scalefree_attention import Attention
from rankcollapse.settings.smoothing import GraphModel


def layer(
    model: GraphModel,
    kernel: Float[Tensor, "nodes nodes"],
    query: Float[Tensor, "*runs width width"],
    key: Float[Tensor, "*runs width width"],
    value: Float[Tensor, "*runs width width"],
    gain: float = 1.0,
) -> Attention:
    """Return one layer of a network over a kernel K of weights between nodes, one head, no output matrix.

    GCN, either normalisation: the random walk of K, whatever the tokens. GAT and transformer: softmax over j of
    gain x_i W_Q W_K^T x_j / sqrt(d) + ln K_ij, so K = 0 forbids and K = 1 changes nothing; the GAT's K is zero where
    there is no edge. (Velickovic et al. 2018 have additive logits; these are those of Dwivedi & Bresson 2021.)
    """
    identity = torch.eye(value.shape[-1], dtype=value.dtype, device=value.device)
    if model in ("gcn", "gcn_symmetric"):
        return Attention(query, key, value, identity, 1, frozen=random_walk(kernel))
    position = None if bool((kernel == 1).all()) else kernel.log()
    return Attention(query, key, value, identity, 1, gain=gain, position=position)


def coordinates(model: GraphModel, kernel: Float[Tensor, "nodes nodes"]) -> Float[Tensor, "nodes 1"]:
    """Return s: the square roots of the degrees for the symmetric normalisation, ones for the others."""
    degrees = kernel.sum(-1, keepdim=True)
    return degrees.sqrt() if model == "gcn_symmetric" else torch.ones_like(degrees)


def first_nodes(before: State, count: int) -> State:
    """Return the state of the first ``count`` tokens: the graph's own, without a virtual node."""
    return state(before.mean, before.direction[..., :count, :], before.log_norm)


def _sizes(
    y: State, s: Float[Tensor, "nodes 1"]
) -> tuple[Float[Tensor, "*batch nodes width"], Float[Tensor, " *batch"]]:
    """Return diag(s)(S - 1 m), m the mean of S with weights s^2, and ln ||X||_F^2 of X = diag(s) Y."""
    weights = s.square() / s.square().sum()
    mean = (weights * y.direction).sum(-2, keepdim=True)
    residual = s * (y.direction - mean)
    common = (y.mean + y.scale * mean).square().sum((-2, -1)).log() + s.square().sum().log()
    return residual, torch.logaddexp(common, 2 * y.log_norm + residual.square().sum((-2, -1)).log())


def log_relative(y: State, s: Float[Tensor, "nodes 1"]) -> Float[Tensor, " *batch"]:
    """Return ln of min_x ||X - s x^T||_F / ||X||_F for X = diag(s) Y, at any depth (derived here).

    The minimum is at x = X^T s / s^T s. With s = 1 this is relF, the relative residual of Dong et al. (2021).
    """
    residual, log_square = _sizes(y, s)
    return y.log_norm + (residual.square().sum((-2, -1)).log() - log_square) / 2


def log_dirichlet(y: State, s: Float[Tensor, "nodes 1"], edges: Int[Tensor, "edges 2"]) -> Float[Tensor, " *batch"]:
    """Return ln of sum over edges of ||x_i/s_i - x_j/s_j||^2 / ||X||_F^2, the Dirichlet energy of X = diag(s) Y.

    As a sum over edges of differences it is never negative; the trace tr X^T (1 - P) X is, at the size of round-off.
    """
    difference = y.direction[..., edges[:, 0], :] - y.direction[..., edges[:, 1], :]
    return 2 * y.log_norm + difference.square().sum((-2, -1)).log() - _sizes(y, s)[1]
