import math

import numpy as np
import pytest
import torch

from rankcollapse.markov import random_markov
from rankcollapse.randomness import generator
from rankcollapse.spectrum import bulk_radius, effective_rank, eigenvalues, split, stable_rank, stable_rank_excess

EXACT = 1e-12  # float64 sums and eigenvalues of matrices of at most 60 rows: a few hundred rounding errors of 1e-16


def normal(*shape, key="x"):
    return torch.randn(*shape, generator=generator(0, "test_spectrum", key), dtype=torch.float64)


def test_stable_rank_by_hand():
    # singular values of X 2, 1: of S 4, 1; sr = (16 + 1) / 16
    assert stable_rank(torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))).item() == pytest.approx(
        17 / 16, abs=EXACT
    )
    assert stable_rank(torch.eye(5, dtype=torch.float64)).item() == pytest.approx(5, abs=EXACT)
    assert stable_rank(torch.ones(4, 7, dtype=torch.float64)).item() == pytest.approx(1, abs=EXACT)


def test_an_annihilated_stream_has_rank_zero():
    batch = torch.stack([torch.zeros(3, 4), torch.ones(3, 4)]).double()
    assert stable_rank(batch).tolist() == pytest.approx([0, 1], abs=EXACT)
    assert stable_rank_excess(batch).tolist() == pytest.approx([-1, 0], abs=EXACT)
    assert effective_rank(torch.zeros(3, 4)).item() == 1


@pytest.mark.parametrize("shape", [(20, 60), (60, 20), (30, 30)])
def test_stable_rank_is_that_of_the_covariance(shape):
    tokens = normal(3, *shape)
    squares = np.linalg.svd((tokens @ tokens.mT).numpy(), compute_uv=False) ** 2
    np.testing.assert_allclose(stable_rank(tokens), squares.sum(-1) / squares.max(-1), rtol=EXACT)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_stable_rank_has_no_scale(scale):
    tokens = normal(10, 12)
    assert stable_rank(scale * tokens).item() == pytest.approx(stable_rank(tokens).item(), rel=EXACT)


def test_stable_rank_in_float32_overflows_nowhere():
    tokens = 1e30 * normal(10, 12)
    assert stable_rank(tokens.float()).item() == pytest.approx(
        stable_rank(tokens).item(), rel=1e-5
    )  # float32: 6e-8 x 10


def test_excess_is_the_stable_rank_less_one():
    tokens = normal(3, 12, 20)
    torch.testing.assert_close(stable_rank_excess(tokens), stable_rank(tokens) - 1, rtol=EXACT, atol=EXACT)


def test_excess_goes_on_where_the_stable_rank_is_exactly_one():
    tokens = torch.diag(torch.tensor([1.0, 1e-12, 2e-12], dtype=torch.float64))
    assert stable_rank(tokens).item() == 1
    assert stable_rank_excess(tokens).item() == pytest.approx(17e-48, rel=1e-9)  # 4 x the singular values' 1e-16


def test_ranks_ignore_rotations_and_permutations():
    tokens = normal(12, 12)
    rotation = torch.linalg.qr(normal(12, 12, key="rotation")).Q
    for rank in (stable_rank, effective_rank):
        for other in (tokens @ rotation, tokens.flip(0), tokens.mT):
            assert rank(other).item() == pytest.approx(rank(tokens).item(), rel=EXACT)


def test_effective_rank_by_hand():
    assert effective_rank(torch.eye(6, dtype=torch.float64)).item() == pytest.approx(6, abs=EXACT)
    skewed = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    assert effective_rank(skewed).item() == pytest.approx(4 / 3**0.75, abs=EXACT)  # exp(-3/4 ln 3/4 - 1/4 ln 1/4)


def test_effective_rank_resolves_what_a_gram_matrix_cannot():
    small = 1e-10
    tokens = torch.diag(torch.tensor([1.0, small], dtype=torch.float64))
    # e^H - 1 with H = small (1 - ln small) to first order; 1e-16 is the resolution of a number near 1
    assert effective_rank(tokens).item() - 1 == pytest.approx(small * (1 - math.log(small)), abs=1e-15)


def test_eigenvalues_of_a_cycle_are_roots_of_unity_in_order():
    cycle = torch.eye(4).roll(1, 0)
    values = eigenvalues(0.5 * cycle + 0.5 * torch.ones(4, 4) / 4)
    assert values.dtype == torch.complex128
    np.testing.assert_allclose(values, [1, 0.5j, -0.5j, -0.5], atol=EXACT)


def test_eigenvalues_match_numpy_and_come_by_modulus():
    matrix = normal(2, 40, 40)
    ours, numpys = eigenvalues(matrix).numpy(), np.linalg.eigvals(matrix.numpy())
    assert (np.diff(np.abs(ours), axis=-1) <= 0).all()
    for a, b in zip(ours, numpys, strict=True):
        np.testing.assert_allclose(np.sort_complex(a.round(9)), np.sort_complex(b.round(9)), atol=2e-9)  # rounding step


def test_two_states_split_by_hand():
    # rows (1 - a, a), (b, 1 - b): eigenvalues 1 and 1 - a - b
    chain = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    outlier, bulk = split(eigenvalues(chain))
    assert outlier.item() == pytest.approx(1, abs=EXACT)
    assert bulk.tolist() == pytest.approx([0.6], abs=EXACT)
    assert bulk_radius(eigenvalues(chain)).item() == pytest.approx(0.6, abs=EXACT)


def test_bulk_radius_of_random_markov_matrices():
    variance, tokens = math.log(2), 200
    radius = bulk_radius(eigenvalues(random_markov(tokens, 4, generator(0, "markov"), 0.0, variance)))
    # sqrt(e^variance - 1) / sqrt(T) = 1 / sqrt(T) in the limit; runs at T = 200 spread by 3 % and lie up to 8 % above
    assert (radius * tokens**0.5).tolist() == pytest.approx([1.0] * 4, abs=0.12)


@pytest.mark.parametrize("function", [stable_rank, stable_rank_excess, effective_rank, eigenvalues])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_matrices_are_refused(function, bad):
    with pytest.raises(FloatingPointError, match=rf"{function.__name__}: .*\(3, 3\).*NaN or infinite"):
        function(torch.full((3, 3), bad))
