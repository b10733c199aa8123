"""Paths through a network: one by one by hand, what they share, and how often each is drawn."""

import itertools
import math

import pytest
import torch

from rankcollapse.path_accuracy import (
    LEFT_OUT,
    accuracy_without_skips,
    draw_paths,
    evaluate_paths,
    sums_over_paths,
)
from rankcollapse.randomness import generator
from rankcollapse.residual import relative_residual
from rankcollapse.tasks import Labelled
from rankcollapse.trainable import EPSILON, Architecture, blocks, embed

SHAPE = Architecture(6, 2, 3, 4, 4, "symbols", 3)
MODELS, D = 2, 6


@pytest.fixture(scope="module")
def weights():
    """Two networks with all weights, biases included, of order one, in float64."""
    random = generator(0, "test_path_accuracy")
    return {
        name: torch.randn(MODELS, *shape, generator=random, dtype=torch.float64)
        for name, shape in SHAPE.shapes().items()
    }


@pytest.fixture(scope="module")
def data():
    random = generator(0, "test_path_accuracy", "data")
    draw = lambda: torch.randint(4, (MODELS, 5, 3), generator=random)  # noqa: E731
    return Labelled(draw(), draw())


def walk(weights, tokens, path):
    """One path of one network over one set, written out."""
    for layer, head in enumerate(path):
        if head == LEFT_OUT:
            continue
        qkv, bias = weights["qkv"][layer].view(D, 2, 3, 3)[:, head], weights["qkv_bias"][layer].view(2, 3, 3)[head]
        query, key, value = (tokens @ qkv[:, part] + bias[part] for part in range(3))
        attention = torch.softmax(query @ key.T / math.sqrt(3), dim=1)
        tokens = attention @ value @ weights["output"][layer][3 * head : 3 * head + 3] + weights["output_bias"][layer]
        centred = tokens - tokens.mean(1, keepdim=True)
        tokens = centred / (centred.square().mean(1, keepdim=True) + EPSILON).sqrt()
    return tokens


def test_sums_over_paths_are_the_paths_one_by_one(weights, data):
    start = embed(SHAPE, weights, data.inputs)
    everything = list(itertools.product((0, 1, LEFT_OUT), repeat=3))
    bundles = [everything, [(0, 1, 1)], [(LEFT_OUT, 1, 0)] * 3, [(LEFT_OUT,) * 3, (1, 1, 1)]]
    found = sums_over_paths(start, blocks(weights), 2, bundles)
    for row, bundle in zip(found, bundles, strict=True):
        for model in range(MODELS):
            own = {name: weight[model] for name, weight in weights.items()}
            wanted = torch.stack([sum(walk(own, one, path) for path in bundle) for one in start[model]])
            torch.testing.assert_close(row[model], wanted, atol=1e-12, rtol=1e-12)  # some 1e4 eps, 27 terms


def test_accuracy_and_residual_of_a_bundle(weights, data):
    bundle = [(0, LEFT_OUT, 1), (1, 1, LEFT_OUT)]
    found = evaluate_paths(SHAPE, weights, data, [bundle])
    start = embed(SHAPE, weights, data.inputs)
    for model in range(MODELS):
        own = {name: weight[model] for name, weight in weights.items()}
        total = torch.stack([sum(walk(own, one, path) for path in bundle) for one in start[model]])
        normed = torch.nn.functional.layer_norm(total, (D,), eps=EPSILON)
        right = (normed @ own["head"] + own["head_bias"]).argmax(-1) == data.labels[model]
        assert found.accuracy[model, 0] == pytest.approx(right.double().mean().item())
        assert found.residual[model, 0] == pytest.approx(relative_residual(normed).mean().item())


def test_with_one_head_the_longest_path_is_the_network_without_skips(data):
    shape = SHAPE._replace(heads=1)
    random = generator(0, "test_path_accuracy", "one head")
    weights = {name: torch.randn(MODELS, *size, generator=random) for name, size in shape.shapes().items()}
    alone = accuracy_without_skips(shape, weights, data)
    assert torch.equal(evaluate_paths(shape, weights, data, [[(0, 0, 0)]]).accuracy[:, 0], alone)


def test_paths_are_drawn_uniformly():
    paths = draw_paths(SHAPE, 2, 6000, generator(0, "test_path_accuracy", "draw"))
    counts = {path: paths.count(path) for path in set(paths)}
    assert len(counts) == math.comb(3, 2) * 2**2
    # 500 expected of each, standard deviation 21
    assert all(abs(count - 500) < 100 for count in counts.values())
    assert all(sum(head != LEFT_OUT for head in path) == 2 for path in counts)
    assert draw_paths(SHAPE, 0, 2, generator(0)) == [(LEFT_OUT,) * 3] * 2


@pytest.mark.parametrize("length", [-1, 4])
def test_a_length_that_no_path_has_is_refused(length):
    with pytest.raises(ValueError, match=f"length {length}; between 0 and the 3 blocks"):
        draw_paths(SHAPE, length, 1, generator(0))
