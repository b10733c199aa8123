"""Graphs and the networks over them: by hand, against networkx and numpy, against theory; measurement, judges."""

import math

import networkx
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rankcollapse.crossing import layers_to_fall
from rankcollapse.graphs import (
    adjacency,
    connected,
    distances,
    edge_list,
    laplacian_encoding,
    random_walk,
    second_modulus,
    symmetric,
    with_virtual_node,
)
from rankcollapse.inits import gaussian, orthogonal, shared_mean
from rankcollapse.judges import graph_smoothing as judges
from rankcollapse.measurements.graph_smoothing import MODELS, REMEDIES, measure
from rankcollapse.randomness import generator
from rankcollapse.scalefree import from_tokens
from rankcollapse.scalefree_attention import attend, attention_matrix
from rankcollapse.settings.smoothing import GraphSmoothing
from rankcollapse.smoothing import coordinates, first_nodes, layer, log_dirichlet, log_relative
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS

SIZES = {
    "graphs": ("karate club", "Erdos-Renyi", "grid", "block model"),
    "random_nodes": 10,
    "edge_probability": 0.5,
    "grid_side": 4,
    "blocks": 2,
    "block_nodes": 5,
    "inside": 0.8,
    "between": 0.3,
    "width": 8,
    "layers": 6,
    "runs": 2,
    "gains": (1.0, 4.0),
    "encodings": 2,
    "distance_slope": 1.0,
    "scaled_depths": (3, 6),
    "shown_layers": (0, 2),
}
PATH = adjacency(networkx.path_graph(3))
KARATE = adjacency(networkx.karate_club_graph())


@pytest.fixture(scope="module")
def measured():
    return measure(GraphSmoothing(**SIZES), device=torch.device("cpu"), seed=1)


def close(found, expected, atol=1e-14):
    torch.testing.assert_close(
        torch.as_tensor(found), torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=atol
    )


# ---------------------------------------------------------------- graphs


def test_three_nodes_in_a_row_by_hand():
    assert PATH.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert distances(PATH).tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    assert edge_list(PATH).tolist() == [[0, 1], [1, 2]]
    kernel = PATH + torch.eye(3)
    close(random_walk(kernel), [[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]])
    close(symmetric(kernel), [[1 / 2, 6**-0.5, 0], [6**-0.5, 1 / 3, 6**-0.5], [0, 6**-0.5, 1 / 2]])
    close(second_modulus(kernel), 0.5)  # of (1, 0, -1): trace 4/3 = 1 + 1/2 - 1/6
    # The Laplacian of the path has eigenvalues 0, 1, 2, with (1, 0, -1)/sqrt 2 and (1, -sqrt 2, 1)/2.
    encoding = laplacian_encoding(PATH, 2)
    close(encoding.abs(), [[1.5**0.5, 0.75**0.5], [0, 1.5**0.5], [1.5**0.5, 0.75**0.5]])


def test_a_virtual_node_joins_all():
    larger = with_virtual_node(PATH)
    assert larger[:3, :3].equal(PATH)
    assert larger[-1].tolist() == larger[:, -1].tolist() == [1, 1, 1, 0]
    assert distances(larger).max() == 2
    # The walk of K + 1 on the larger graph is nearer to its limit.
    grid = adjacency(networkx.grid_2d_graph(5, 5))
    modulus = [float(second_modulus(edges + torch.eye(len(edges)))) for edges in (grid, with_virtual_node(grid))]
    assert modulus[1] < modulus[0]


def test_distances_are_those_of_networkx():
    graph = networkx.gnp_random_graph(20, 0.1, seed=1)
    expected = np.full((20, 20), np.inf)
    for source, found in networkx.all_pairs_shortest_path_length(graph):
        expected[source, list(found)] = list(found.values())
    assert np.isinf(expected).any()
    assert distances(adjacency(graph)).numpy().tolist() == expected.tolist()


def test_encodings_are_eigenvectors_of_the_laplacian_of_networkx():
    laplacian = networkx.normalized_laplacian_matrix(networkx.karate_club_graph(), weight=None).toarray()
    encoding = laplacian_encoding(KARATE, 5).numpy()
    values = np.linalg.eigvalsh(laplacian)[1:6]
    np.testing.assert_allclose(laplacian @ encoding, encoding * values, atol=1e-13)
    np.testing.assert_allclose(encoding.T @ encoding, 34 * np.eye(5), atol=1e-12)
    with pytest.raises(ValueError, match="3 encodings of 3 nodes; allowed: 1 to 2"):
        laplacian_encoding(PATH, 3)


def test_the_second_modulus_is_that_of_a_general_solver():
    kernel = KARATE + torch.eye(34)
    moduli = np.sort(np.abs(np.linalg.eigvals(random_walk(kernel).numpy())))
    assert second_modulus(kernel).item() == pytest.approx(moduli[-2], abs=1e-13)
    assert second_modulus(torch.ones(5, 5, dtype=torch.float64)).item() == pytest.approx(0, abs=1e-15)


def test_random_graphs_are_connected_or_refused():
    def draw(seed):
        return networkx.gnp_random_graph(12, 0.2, seed=seed)

    graph = connected(draw, generator(1, "test"))
    assert networkx.is_connected(graph)
    assert graph.edges == connected(draw, generator(1, "test")).edges
    with pytest.raises(ValueError, match="none of 100 draws"):
        connected(lambda seed: networkx.empty_graph(3), generator(1, "test"))


# ---------------------------------------------------------------- networks


def weights(width=8, factor=1.0):
    g = generator(0, "test_graph_smoothing")
    return factor * gaussian(width, width, g), gaussian(width, width, g), orthogonal(width, g)


@pytest.mark.parametrize("model", MODELS)
def test_attention_is_row_stochastic_and_only_where_the_kernel_allows(model):
    kernel = torch.ones_like(KARATE) if model == "transformer" else KARATE + torch.eye(34)
    tokens = shared_mean(34, 8, generator(0, "tokens"))
    weight = attention_matrix(tokens, layer(model, kernel, *weights()))
    close(weight.sum(-1).squeeze(), torch.ones(34))
    assert ((weight == 0) == (kernel == 0)).all()


def test_gat_is_a_softmax_over_neighbours():
    tokens, (query, key, value) = shared_mean(3, 8, generator(0, "tokens")), weights()
    weight = attention_matrix(tokens, layer("gat", PATH + torch.eye(3), query, key, value, gain=2.0))[0]
    logits = 2 * tokens @ query @ (tokens @ key).mT / 8**0.5
    close(weight[0], torch.cat([torch.softmax(logits[0, :2], -1), torch.zeros(1)]))
    close(weight[1], torch.softmax(logits[1], -1))


@pytest.mark.parametrize("model", ["gcn", "gcn_symmetric", "gat"])
def test_with_zero_queries_every_graph_network_is_one_propagation(model):
    kernel = KARATE + torch.eye(34)
    s, (query, key, value) = coordinates(model, kernel), weights(factor=0.0)
    tokens = shared_mean(34, 8, generator(0, "tokens"))
    after = s * attend(from_tokens(tokens / s), layer(model, kernel, query, key, value)).tokens
    propagation = symmetric(kernel) if model == "gcn_symmetric" else random_walk(kernel)
    close(after, propagation @ tokens @ value, atol=1e-13)


@pytest.mark.parametrize("model", ["gcn", "gcn_symmetric", "gat"])
def test_the_rate_is_the_second_eigenvalue(model):
    # With an orthogonal W_V norms do not move; after 400 layers |lambda_3 / lambda_2|^400 is left of a third mode.
    kernel = KARATE + torch.eye(34)
    s, (query, key, value) = coordinates(model, kernel), weights()
    states = [from_tokens(shared_mean(34, 8, generator(0, "tokens")) / s)]
    for _ in range(400):
        states.append(attend(states[-1], layer(model, kernel, query, key, value)))
    fall = log_relative(states[-1], s) - log_relative(states[-2], s)
    assert fall.item() == pytest.approx(math.log(second_modulus(kernel)), abs=1e-6)
    assert log_relative(states[-1], s) < -40  # below machine precision


def test_each_network_is_measured_against_its_own_limit():
    kernel = PATH + torch.eye(3)
    s = coordinates("gcn_symmetric", kernel)
    close(s, [[2**0.5], [3**0.5], [2**0.5]])
    row, other = gaussian(1, 8, generator(0, "row")), gaussian(3, 8, generator(0, "other"))
    tokens = s * row + 1e-3 * other
    best = s @ torch.linalg.lstsq(s, tokens).solution  # the nearest matrix of the form s x^T
    expected = torch.linalg.norm(tokens - best) / torch.linalg.norm(tokens)
    close(log_relative(from_tokens(tokens / s), s).exp(), expected)
    plain = from_tokens(tokens)
    close(log_relative(plain, torch.ones(3, 1, dtype=torch.float64)), plain.log_relative)


def test_dirichlet_energy_is_the_trace_of_the_laplacian():
    tokens, ones = gaussian(34, 8, generator(0, "tokens")), torch.ones(34, 1, dtype=torch.float64)
    degrees = KARATE.sum(-1)
    found = log_dirichlet(from_tokens(tokens), ones, edge_list(KARATE)).exp()
    close(found, (tokens.mT @ (torch.diag(degrees) - KARATE) @ tokens).trace() / tokens.square().sum(), atol=1e-12)
    s = degrees.sqrt()[:, None]
    found = log_dirichlet(from_tokens(tokens / s), s, edge_list(KARATE)).exp()
    laplacian = torch.eye(34) - KARATE / (s * s.mT)
    close(found, (tokens.mT @ laplacian @ tokens).trace() / tokens.square().sum(), atol=1e-12)


def test_the_first_nodes_of_a_state_are_those_of_the_tokens():
    tokens = gaussian(5, 8, generator(0, "tokens"))
    close(first_nodes(from_tokens(tokens), 3).tokens, tokens[:3])


# ---------------------------------------------------------------- crossing


def test_layers_to_fall_by_hand():
    log10 = np.array([[0, -1, -4], [-1, -1, -3], [0, -1, -1.5]])
    assert layers_to_fall(log10, 2).tolist() == [1 + 1 / 3, 2, 3]  # the last: not within two layers


# ---------------------------------------------------------------- the measurement


def test_axes_and_what_must_be_so(measured):
    log10 = measured["log10_relative"]
    assert log10.shape == (4, 7, 4, 2, 7)
    assert measured["log10_by_gain"].shape == (2, 2, 4, 2, 7)
    assert measured["log10_scaled"].shape == (2, 4, 4, 2)
    assert measured["nodes"].tolist() == [34, 10, 16, 10]
    assert measured["edge_count"][0] == 78
    assert measured["diameter"].tolist()[:3:2] == [5, 6]
    assert measured["similarity"].shape == (4, 2, 34)
    close(measured["similarity"][..., 0], torch.ones(4, 2))
    # the same tokens and weights whatever the table: factor 1 is the bare network, depth L the scaled one
    for model in (2, 3):
        close(measured["log10_by_gain"][0, model - 2], log10[model, 0], atol=1e-12)
    close(measured["log10_scaled"][1], log10[:, REMEDIES.index("skip, scaled"), ..., -1])
    assert (log10 <= 1e-12).all()
    assert (measured["second_modulus"] < 1).all()


def test_runs_are_independent_of_their_number(measured):
    fewer = measure(GraphSmoothing(**SIZES | {"runs": 1, "graphs": ("grid",)}), device=torch.device("cpu"), seed=1)
    close(fewer["log10_relative"][:2, :, 0, 0], measured["log10_relative"][:2, :, 2, 0], atol=1e-10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gains": (2.0,)}, "1 must be one of them"),
        ({"scaled_depths": (6,)}, r"layers and its half, \[3\], are missing"),
        ({"shown_layers": (7,)}, "at most layers = 6"),
        ({"encodings": 8, "grid_side": 3, "random_nodes": 8}, "fewer than the nodes of every graph"),
        ({"graphs": ("star",)}, "karate club"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change, words):
    with pytest.raises(ValidationError, match=words):
        GraphSmoothing(**SIZES | change)


# ---------------------------------------------------------------- judges


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [([[1, 1], [1, 1]], HOLDS), ([[1, 1], [1, 0.9]], CONDITION), ([[1, 0.9], [1, 1]], FALSE)],
)
def test_s23(shares, verdict):
    ruling = judges.s23(
        cases=["alone", "with a skip"],
        networks=["GCN", "GAT"],
        faster_share=shares,
        dense_layers=[[1, 2], [3, 4]],
        network_layers=[[8, 65], [9, 65]],
        layers=64,
        smoothed=0.01,
    )
    assert ruling.verdict == verdict
    assert "alone: 1.0 to 2.0 layers against 8.0 to more than 64" in ruling.reason
    assert ruling.reason.startswith("not always with a skip;") == (verdict == CONDITION)


@pytest.mark.parametrize(
    ("kept", "late", "verdict", "words"),
    [
        ([0.6, 0.6, 0.6], [1, 1, 1], HOLDS, "a 0.6 (1)"),
        ([0.6, 0.1, 0.6], [1, 1, 1], CONDITION, "only a, c prevent it"),
        ([0.6, 0.6, 0.6], [1, 1, 0.5], FALSE, "no form of second"),
        ([0.6, 1e-300, 0.1], [1, 1, 1], FALSE, "b below 1e-100 (1)"),
    ],
)
def test_s24(kept, late, verdict, words):
    ruling = judges.s24(
        kinds={"first": ["a", "b"], "second": ["c"]},
        kept_share=dict(zip("abc", kept, strict=True)),
        late_share=dict(zip("abc", late, strict=True)),
        layers_ratio=dict.fromkeys("abc", 1.0),
        kept=0.5,
        still=0.95,
    )
    assert ruling.verdict == verdict
    assert words in ruling.reason
