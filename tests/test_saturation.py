import math

import numpy as np
import pytest
import torch

from rankcollapse.markov import random_markov
from rankcollapse.randomness import generator
from rankcollapse.saturation import attended_core, attention_eigenvalues, second_modulus

EXACT = 1e-14  # eigenvalues of a permutation, or 20 numbers of order one


def one_hot(*targets):
    return torch.nn.functional.one_hot(torch.tensor(targets), len(targets)).double()


def permuted(matrix, seed=0):
    order = torch.randperm(len(matrix), generator=generator(seed, "test_saturation"))
    return matrix[order][:, order]


def test_map_onto_one_token():
    assert second_modulus(one_hot(0, 0, 0, 0)).item() == 0
    assert attended_core(one_hot(0, 0, 0, 0)).tolist() == [[1]]


def test_map_with_a_cycle_of_three_and_tails():
    # 0 -> 1 -> 2 -> 0, and 5 -> 4 -> 3 -> 0 hanging on
    matrix = permuted(one_hot(1, 2, 0, 0, 3, 4))
    values = attention_eigenvalues(matrix)
    root = complex(-0.5, math.sqrt(0.75))
    np.testing.assert_allclose(values[:3].numpy()[[0, 1, 2]].real.sum(), 0, atol=EXACT)
    np.testing.assert_allclose(np.sort_complex(values.numpy()[:3].round(12)), [root.conjugate(), root, 1], atol=1e-12)
    assert (values[3:] == 0).all()
    assert attended_core(matrix).shape == (3, 3)


def test_a_long_tail_is_exact_where_an_eigensolver_is_not():
    chain = permuted(one_hot(0, *range(40)))  # a Jordan block of 40 zeros
    assert second_modulus(chain + 1e-18).item() == 0
    # for comparison: an error of 1e-16 moves an eigenvalue of that block by up to its 40th root, 0.4
    plain = np.sort(np.abs(np.linalg.eigvals(chain.numpy() + 1e-16)))
    assert plain[-2] > 0.1


def test_two_fixed_points_close_the_gap():
    assert second_modulus(one_hot(0, 1, 0, 1, 1)).item() == pytest.approx(1, abs=EXACT)


def test_positive_attention_is_left_whole():
    attention = random_markov(20, 3, generator(0, "test_saturation", "markov"), 0.0, 1.0)
    expected = np.linalg.eigvals(attention.numpy())
    for ours, theirs in zip(attention_eigenvalues(attention).numpy(), expected, strict=True):
        assert (np.diff(np.abs(ours)) <= EXACT).all()
        np.testing.assert_allclose(np.sort_complex(ours.round(10)), np.sort_complex(theirs.round(10)), atol=2e-10)


def test_block_triangular_by_hand():
    # token 3 is attended by nobody, token 2 by token 3 alone; left are rows (0.9, 0.1), (0.3, 0.7): 1 and 0.6
    matrix = torch.tensor([[0.9, 0.1, 0, 0], [0.3, 0.7, 0, 0], [0.5, 0.5, 0, 0], [0, 0.2, 0.8, 0]], dtype=torch.float64)
    assert attention_eigenvalues(matrix).tolist() == pytest.approx([1, 0.6, 0, 0], abs=EXACT)
    assert attended_core(matrix).shape == (2, 2)


def test_a_solver_that_gives_up_is_replaced(monkeypatch):
    def give_up(_):
        raise torch.linalg.LinAlgError("no convergence")

    matrix = random_markov(8, 1, generator(0, "test_saturation", "small"), 0.0, 1.0)
    expected = second_modulus(matrix)
    monkeypatch.setattr(torch.linalg, "eigvals", give_up)
    torch.testing.assert_close(second_modulus(matrix), expected, rtol=0, atol=EXACT)


def test_non_finite_attention_is_refused():
    with pytest.raises(FloatingPointError, match=r"attention_eigenvalues: A \(2, 2\) has NaN or infinite"):
        attention_eigenvalues(torch.full((2, 2), math.nan))
