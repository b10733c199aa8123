"""Over-smoothing on graphs: graph networks and dense attention by depth, bare and with one remedy at a time.

After Noci et al. (2022) and the graph literature it touches. Every network of a run has the same features and weights.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import get_args

import networkx  # type: ignore[import-untyped]
import torch
from torch import Tensor

from rankcollapse.finite import finite
from rankcollapse.graphs import (
    adjacency,
    connected,
    distances,
    edge_list,
    laplacian_encoding,
    second_modulus,
    with_virtual_node,
)
from rankcollapse.inits import gaussian, shared_mean
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.scalefree import State, add, from_tokens
from rankcollapse.scalefree_attention import attend
from rankcollapse.settings.smoothing import GraphModel, GraphSmoothing
from rankcollapse.smoothing import coordinates, first_nodes, layer, log_dirichlet, log_relative

NAME = "graph_smoothing"
MODELS: tuple[GraphModel, ...] = get_args(GraphModel)
NONE, INPUT, EVERY, VIRTUAL, DISTANCE, SKIP, SCALED = (
    "none",
    "Laplacian encoding",
    "Laplacian encoding, every layer",
    "virtual node",
    "distance bias",
    "skip",
    "skip, scaled",
)
REMEDIES = (NONE, INPUT, EVERY, VIRTUAL, DISTANCE, SKIP, SCALED)
ATTENTIVE: tuple[GraphModel, ...] = ("gat", "transformer")
LN10 = math.log(10)


@dataclass(frozen=True)
class Case:
    """One graph with the draws of all runs."""

    edges: Tensor  # A
    distance: Tensor  # edges of the shortest path
    features: Tensor  # [run, node, width]
    encoding: Tensor  # [run, node, width]: Laplacian eigenvectors, mapped to the width
    weights: Tensor  # [layer, query key value, run, width, width]


@dataclass(frozen=True)
class Network:
    """What is run on a case."""

    model: GraphModel
    remedy: str
    depth: int
    gain: float = 1.0


def measure(settings: GraphSmoothing, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure how fast tokens on a graph become alike, by scale-free propagation.

    Models ``MODELS``, remedies ``REMEDIES``, each alone; layers 0..L; residuals are ||X - s x^T||_F / ||X||_F with each
    network's own limit s x^T and the graph's own nodes only.

    - ``log10_relative``, ``log10_dirichlet`` [model, remedy, graph, run, layer]: log10 of the relative residual, and of
      the Dirichlet energy over the edges relative to ||X||_F^2.
    - ``log10_by_gain`` [gain, model, graph, run, layer]: the residual of GAT and transformer, without remedy.
    - ``log10_scaled`` [depth, model, graph, run]: at the end of scaled-skip networks of each depth.
    - ``second_modulus`` [model, remedy, graph]: |lambda_2| of the averaging where logits vanish.
    - ``nodes``, ``edge_count``, ``diameter`` [graph].
    - ``similarity`` [model, shown layer, node], ``positions`` [node, 2], ``edges`` [edge, 2]: on the first graph, in
      run 0 without remedy, the cosine of a node's token to that of node 0; where nodes are drawn, and their edges.

    Raises FloatingPointError, naming the place, when a value is not finite.
    """
    grid = (len(MODELS), len(REMEDIES), len(settings.graphs))
    last = (settings.runs, settings.layers + 1)
    results = {name: torch.zeros(*grid, *last, dtype=torch.float64) for name in ("log10_relative", "log10_dirichlet")}
    results["log10_by_gain"] = torch.zeros(len(settings.gains), len(ATTENTIVE), grid[2], *last, dtype=torch.float64)
    results["log10_scaled"] = torch.zeros(
        len(settings.scaled_depths), len(MODELS), grid[2], last[0], dtype=torch.float64
    )
    results["second_modulus"] = torch.zeros(grid, dtype=torch.float64)
    results |= {name: torch.zeros(grid[2], dtype=torch.int64) for name in ("nodes", "edge_count", "diameter")}
    for place, name in enumerate(track(settings.graphs, NAME, grid[2])):
        graph = _graph(settings, name, generator(seed, NAME, "graph", name))
        case = _case(settings, graph, name, device, seed)
        for key, number in (("nodes", len(case.edges)), ("edge_count", len(edge_list(case.edges)))):
            results[key][place] = number
        results["diameter"][place] = int(case.distance.max())
        _fill(results, settings, case, place)
        if place == 0:
            results |= _picture(settings, graph, case)
    return finite(NAME, results)


def _graph(settings: GraphSmoothing, name: str, rng: torch.Generator) -> networkx.Graph:
    match name:
        case "karate club":
            return networkx.karate_club_graph()
        case "Les Miserables":
            return networkx.convert_node_labels_to_integers(networkx.les_miserables_graph())
        case "grid":
            return networkx.convert_node_labels_to_integers(
                networkx.grid_2d_graph(settings.grid_side, settings.grid_side)
            )
        case "Erdos-Renyi":
            draw = partial(networkx.gnp_random_graph, settings.random_nodes, settings.edge_probability)
        case _:
            draw = partial(
                networkx.planted_partition_graph,
                settings.blocks,
                settings.block_nodes,
                settings.inside,
                settings.between,
            )
    return connected(draw, rng)


def _case(settings: GraphSmoothing, graph: networkx.Graph, name: str, device: torch.device, seed: int) -> Case:
    edges, width = adjacency(graph), settings.width
    features, encoding = [], []
    eigenvectors = laplacian_encoding(edges, settings.encodings)
    for run in range(settings.runs):
        features.append(shared_mean(len(edges), width, generator(seed, NAME, "features", name, run)))
        to_width = gaussian(settings.encodings, width, generator(seed, NAME, "encoding", run), settings.encodings**-0.5)
        encoding.append(eigenvectors @ to_width)
    depth = max(settings.scaled_depths)
    weights = [
        [
            torch.stack([gaussian(width, width, rng, width**-0.5) for _ in range(3)])
            for rng in (generator(seed, NAME, "weights", run, number) for run in range(settings.runs))
        ]
        for number in range(depth)
    ]
    drawn = torch.stack([torch.stack(runs, 1) for runs in weights])
    tensors = (edges, distances(edges), torch.stack(features), torch.stack(encoding), drawn)
    return Case(*(tensor.to(device) for tensor in tensors))


def _fill(results: dict[str, Tensor], settings: GraphSmoothing, case: Case, place: int) -> None:
    """Run every network on one graph."""
    edges = edge_list(case.edges)
    for (m, model), (r, remedy) in product(enumerate(MODELS), enumerate(REMEDIES)):
        s = coordinates(model, _kernel(settings, case, model, remedy))[: len(case.edges)]
        results["second_modulus"][m, r, place] = second_modulus(_kernel(settings, case, model, remedy))
        for depth, before in enumerate(_states(settings, case, Network(model, remedy, settings.layers))):
            results["log10_relative"][m, r, place, :, depth] = log_relative(before, s) / LN10
            results["log10_dirichlet"][m, r, place, :, depth] = log_dirichlet(before, s, edges) / LN10
    for (g, gain), (m, model) in product(enumerate(settings.gains), enumerate(ATTENTIVE)):
        for depth, before in enumerate(_states(settings, case, Network(model, NONE, settings.layers, gain))):
            results["log10_by_gain"][g, m, place, :, depth] = before.log_relative / LN10
    for (d, depth), (m, model) in product(enumerate(settings.scaled_depths), enumerate(MODELS)):
        *_, end = _states(settings, case, Network(model, SCALED, depth))
        s = coordinates(model, _kernel(settings, case, model, SCALED))
        results["log10_scaled"][d, m, place] = log_relative(end, s) / LN10


def _kernel(settings: GraphSmoothing, case: Case, model: GraphModel, remedy: str) -> Tensor:
    """Return K: edges and the node itself, or all pairs; e^{-slope distance} of it with the distance bias."""
    edges = with_virtual_node(case.edges) if remedy == VIRTUAL else case.edges
    reach = torch.ones_like(edges) if model == "transformer" else edges + torch.eye(len(edges)).to(edges)
    return reach * torch.exp(-settings.distance_slope * case.distance) if remedy == DISTANCE else reach


def _states(settings: GraphSmoothing, case: Case, network: Network) -> Iterator[State]:
    """Yield the state of the graph's own nodes at layer 0 and after each, in the coordinates of the network's limit."""
    kernel = _kernel(settings, case, network.model, network.remedy)
    s = coordinates(network.model, kernel)
    tokens = case.features + case.encoding if network.remedy in (INPUT, EVERY) else case.features
    count = tokens.shape[-2]
    tokens = torch.nn.functional.pad(tokens, (0, 0, 0, len(kernel) - count))  # a virtual node starts at zero
    now, encoding = from_tokens(tokens / s), from_tokens(case.encoding / s[:count])
    after: Callable[[State, State], State] = {
        EVERY: lambda before, moved: add(moved, encoding),
        SKIP: add,
        SCALED: add,
    }.get(network.remedy, lambda before, moved: moved)
    branch = network.depth**-0.5 if network.remedy == SCALED else 1.0
    yield first_nodes(now, count)
    for query, key, value in case.weights[: network.depth]:
        step = layer(network.model, kernel, query, key, branch * value, network.gain)
        now = after(now, attend(now, step))
        yield first_nodes(now, count)


def _picture(settings: GraphSmoothing, graph: networkx.Graph, case: Case) -> dict[str, Tensor]:
    """Return where the first graph's nodes are drawn, and how alike they are to node 0 at the shown layers."""
    where = networkx.kamada_kawai_layout(graph, weight=None)
    similarity = torch.zeros(len(MODELS), len(settings.shown_layers), len(graph), dtype=torch.float64)
    for m, model in enumerate(MODELS):
        s = coordinates(model, _kernel(settings, case, model, NONE))
        states = list(_states(settings, case, Network(model, NONE, settings.layers)))
        for index, depth in enumerate(settings.shown_layers):
            unit = torch.nn.functional.normalize((s * states[depth].tokens)[0], dim=-1)
            similarity[m, index] = (unit @ unit[0]).cpu()
    positions = torch.tensor([list(where[node]) for node in graph], dtype=torch.float64)
    return {"similarity": similarity, "positions": positions, "edges": edge_list(case.edges)}
