"""The data of the training tasks: hand values, a second way to the labels, and the laws they are drawn from."""

import math

import numpy as np
import pytest
import torch

from rankcollapse.geometry import hull_distance
from rankcollapse.randomness import generator
from rankcollapse.tasks import RADIUS, best_by, circle, hull, majority, memorization, sorting


def random(*key):
    return generator(0, "test_tasks", *key)


def test_sorted_symbols_are_the_labels():
    inputs, labels = sorting(200, 8, 10, random("sorting"))
    assert [sorted(row) for row in inputs.tolist()] == labels.tolist()
    assert inputs.unique().tolist() == list(range(10))
    # 1600 symbols: standard error 0.0075 of a share of 0.1
    assert all(abs((inputs == symbol).float().mean() - 0.1) < 0.03 for symbol in range(10))


def test_hull_labels_agree_with_a_linear_programme():
    inputs, labels = hull(20, 7, random("hull"))
    for points, found in zip(inputs.double().numpy(), labels.tolist(), strict=True):
        outside = [hull_distance(point, np.delete(points, k, 0)).separation > 0 for k, point in enumerate(points)]
        assert found == [int(vertex) for vertex in outside]


def test_points_of_a_set_share_a_shift_and_a_square():
    inputs, labels = hull(400, 10, random("square"))
    assert (inputs.amax(1) - inputs.amin(1)).max() <= 10
    spread = (inputs.mean(1) - 5).std()
    # sd of a mean: sqrt(3.3² + 10²/12/10) = 3.42; 800 of them: 2.5 %
    assert spread == pytest.approx(3.42, rel=0.1)
    assert labels.sum(1).min() >= 3
    assert labels.sum(1).max() <= 10


def test_two_points_have_no_hull():
    with pytest.raises(ValueError, match="hull: 2 points; at least 3 needed"):
        hull(1, 2, random())


def test_texts_follow_zipfs_law_and_labels_are_fair():
    inputs, labels = memorization(200, 128, 50, 1.0, random("texts"))
    harmonic = sum(1 / s for s in range(1, 51))
    for symbol in (1, 2, 10):
        expected = 1 / symbol / harmonic
        error = math.sqrt(expected / inputs.numel())
        assert abs((inputs == symbol - 1).float().mean().item() - expected) < 5 * error
    assert labels.float().mean() == pytest.approx(0.5, abs=0.016)  # 25600 coins: five standard errors


def test_pairs_follow_each_other_around_the_circle():
    inputs, labels = circle(1000)
    assert inputs.shape == labels.shape == (499, 2, 2)
    torch.testing.assert_close(inputs.norm(dim=-1), torch.full((499, 2), RADIUS))
    torch.testing.assert_close(inputs[1:], labels[:-1])
    torch.testing.assert_close(inputs[0, 0], torch.tensor([RADIUS, 0.0]))
    step = 2 * RADIUS * math.sin(math.pi / 1000)
    torch.testing.assert_close((labels - inputs).norm(dim=-1), torch.full((499, 2), step), rtol=1e-3, atol=0)
    angle = torch.atan2(inputs[:, 1, 1], inputs[:, 1, 0]) - torch.atan2(inputs[:, 0, 1], inputs[:, 0, 0])
    torch.testing.assert_close(angle.remainder(2 * math.pi), torch.full((499,), 499 * 2 * math.pi / 1000))


def test_baselines_by_hand():
    labels = torch.tensor([[0, 1, 1, 2], [0, 1, 2, 2]])
    assert majority(labels) == 3 / 8
    position = torch.arange(4).expand(2, -1)
    assert best_by(position, labels) == (2 + 2 + 1 + 2) / 8
    assert best_by(torch.zeros_like(labels), labels) == majority(labels)
    assert best_by(torch.arange(8).view(2, 4), labels) == 1
