import numpy as np
import pytest

from rankcollapse.theory.causal import uniform_causal_singular_values


@pytest.mark.parametrize("tokens", [2, 3, 40, 280])
def test_against_a_singular_value_decomposition(tokens):
    matrix = np.tril(np.ones((tokens, tokens))) / np.arange(1, tokens + 1)[:, None]
    expected = np.linalg.svd(matrix, compute_uv=False)[:2]
    # 4 T^2 eps = 7e-11 of 1/s^2, which is between 0.25 and 4
    np.testing.assert_allclose(uniform_causal_singular_values(tokens), expected, rtol=1e-9)


def test_two_tokens_by_hand():
    # U = [[1, 0], [1/2, 1/2]]: U U^T has trace 3/2 and determinant 1/4
    root = np.sqrt(9 / 4 - 1)
    expected = np.sqrt([(1.5 + root) / 2, (1.5 - root) / 2])
    np.testing.assert_allclose(uniform_causal_singular_values(2), expected, rtol=1e-14)


def test_the_gap_closes_below_hardys_bound():
    values = np.array([uniform_causal_singular_values(tokens) for tokens in (70, 280, 1000, 10_000)])
    ratio = values[:, 1] / values[:, 0]
    assert (np.diff(ratio) > 0.03).all()
    assert (values < 2).all()
    assert (np.diff(values, axis=0) > 0).all()


def test_too_few_tokens_are_refused():
    with pytest.raises(ValueError, match="2 of 1 tokens"):
        uniform_causal_singular_values(1)
