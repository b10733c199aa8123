"""Graphs as symmetric matrices: adjacency, distances, Laplacian encodings, virtual nodes, and what averages over them.

A kernel K is symmetric with non-negative entries and says how much a node listens to another. Its random walk
P = D^{-1} K, D = diag(K 1), is what a graph convolution applies, and what softmax attention with logits ln K becomes
where tokens no longer differ. D^{-1/2} K D^{-1/2} = D^{1/2} P D^{-1/2} has the same eigenvalues.
"""

from collections.abc import Callable

import networkx  # type: ignore[import-untyped]
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

DRAWS = 100  # of a random graph until one is connected


def adjacency(graph: networkx.Graph) -> Float[Tensor, "nodes nodes"]:
    """Return A with A_ij = 1 where an edge joins i and j, weights of the edges left aside."""
    return torch.from_numpy(networkx.to_numpy_array(graph, weight=None))


def connected(draw: Callable[[int], networkx.Graph], rng: Generator) -> networkx.Graph:
    """Return the first connected one of the graphs that ``draw`` makes from seeds of ``rng``.

    Raises ``ValueError`` when none of DRAWS is connected: then the edges are too few.
    """
    for _ in range(DRAWS):
        graph = draw(int(torch.randint(2**31, (), generator=rng)))
        if networkx.is_connected(graph):
            return graph
    raise ValueError(f"none of {DRAWS} draws of a random graph is connected; allowed: a higher probability of an edge")


def distances(adjacency: Float[Tensor, "nodes nodes"]) -> Float[Tensor, "nodes nodes"]:
    """Return the number of edges on the shortest path between two nodes, inf where there is none.

    One more edge a step: what is reached for the first time after l steps is at distance l.
    """
    steps = torch.eye(len(adjacency), dtype=adjacency.dtype) + adjacency
    found = torch.full_like(adjacency, torch.inf).fill_diagonal_(0.0)
    reached = torch.eye(len(adjacency), dtype=torch.bool)
    for length in range(1, len(adjacency)):
        now = (reached.to(steps) @ steps) > 0
        found[now & ~reached] = length
        if bool((now == reached).all()):
            break
        reached = now
    return found


def with_virtual_node(adjacency: Float[Tensor, "nodes nodes"]) -> Float[Tensor, "nodes+1 nodes+1"]:
    """Return the adjacency with one more node, the last, joined to every other (Gilmer et al. 2017)."""
    larger = torch.nn.functional.pad(adjacency, (0, 1, 0, 1), value=1.0)
    larger[-1, -1] = 0.0
    return larger


def laplacian_encoding(adjacency: Float[Tensor, "nodes nodes"], count: int) -> Float[Tensor, "nodes count"]:
    """Return sqrt(n) times the eigenvectors of the ``count`` smallest eigenvalues of 1 - D^{-1/2} A D^{-1/2}.

    The smallest of all, 0, of D^{1/2} 1, is left out (Dwivedi & Bresson 2021, section 2). Columns have mean square 1,
    an arbitrary sign, and where eigenvalues coincide an arbitrary basis: a Gaussian map of them has one law for all.

    Raises ``ValueError`` when the graph has not that many.
    """
    if not 0 < count < len(adjacency):
        raise ValueError(f"{count} encodings of {len(adjacency)} nodes; allowed: 1 to {len(adjacency) - 1}")
    _, vectors = torch.linalg.eigh(symmetric(adjacency))
    return len(adjacency) ** 0.5 * vectors[:, -count - 1 : -1].flip(-1)  # largest of D^{-1/2} A D^{-1/2} last


def random_walk(kernel: Float[Tensor, "nodes nodes"]) -> Float[Tensor, "nodes nodes"]:
    """Return P = D^{-1} K: rows sum to one (the normalisation of GraphSAGE's mean, and of a lazy random walk)."""
    return kernel / kernel.sum(-1, keepdim=True)


def symmetric(kernel: Float[Tensor, "nodes nodes"]) -> Float[Tensor, "nodes nodes"]:
    """Return D^{-1/2} K D^{-1/2}, with K = A + 1 the propagation of Kipf & Welling (2017, eq. 2)."""
    root = kernel.sum(-1).rsqrt()
    return root[:, None] * kernel * root


def second_modulus(kernel: Float[Tensor, "nodes nodes"]) -> Float[Tensor, ""]:
    """Return |lambda_2|, the second largest modulus of an eigenvalue of P (they are real: P is similar to a symmetric
    matrix). What is left of a difference of tokens after l steps falls like |lambda_2|^l.
    """
    return torch.linalg.eigvalsh(symmetric(kernel)).abs().sort(descending=True).values[1]


def edge_list(adjacency: Float[Tensor, "nodes nodes"]) -> Int[Tensor, "edges 2"]:
    """Return the two ends of every edge, once."""
    return adjacency.triu(1).nonzero()
