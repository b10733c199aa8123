"""The residual and its norms: hand values, numpy, and the order of sequences whose order is known."""

import numpy as np
import pytest
import torch

from rankcollapse.inits import gaussian
from rankcollapse.randomness import generator
from rankcollapse.residual import (
    composite_norm,
    decompose,
    local_order,
    mean_cosine,
    relative_residual,
    relative_residual_composite,
)

HAND = torch.tensor([[1.0, 2.0], [3.0, -2.0]], dtype=torch.float64)


def test_decomposition_by_hand() -> None:
    mean, residual = decompose(HAND)
    assert mean.tolist() == [[2.0, 0.0]]
    assert residual.tolist() == [[-1.0, 2.0], [1.0, -2.0]]


def test_norms_by_hand() -> None:
    assert composite_norm(HAND).item() == pytest.approx(20**0.5, abs=1e-15)  # columns 4, 4; rows 3, 5
    # ‖R‖² = 10, ‖X‖² = 18; columns of R 2, 4; rows 3, 3. 1e-15: two roundings
    assert relative_residual(HAND).item() == pytest.approx((10 / 18) ** 0.5, abs=1e-15)
    assert relative_residual_composite(HAND).item() == pytest.approx((12 / 20) ** 0.5, abs=1e-15)


def test_composite_norm_equals_numpy() -> None:
    matrices = gaussian(12, 5, generator(0, "composite")).reshape(3, 4, 5)
    want = [np.sqrt(np.linalg.norm(m, 1) * np.linalg.norm(m, np.inf)) for m in matrices.numpy()]
    np.testing.assert_allclose(composite_norm(matrices).numpy(), want, rtol=1e-14)  # sums of five in another order


def test_residual_ignores_what_all_tokens_share_and_relf_is_at_most_one() -> None:
    tokens, shared = gaussian(6, 4, generator(0, "tokens")), gaussian(1, 4, generator(0, "shared"))
    # 1e-14: rounding at the size of the shifted tokens
    torch.testing.assert_close(decompose(tokens + shared)[1], decompose(tokens)[1], rtol=0, atol=1e-14)
    assert relative_residual(decompose(tokens)[1]).item() == pytest.approx(1, abs=1e-15)
    assert relative_residual(shared.expand(6, -1)).item() < 1e-15


@pytest.mark.parametrize(("order", "log_constant"), [(3.0, -2.0), (3.0, 1.5), (2.0, 0.3), (1.0, -0.7)])
def test_local_order_is_the_order_whatever_the_constant(order: float, log_constant: float) -> None:
    logs = [-4.0]
    for _ in range(6):
        logs.append(order * logs[-1] + log_constant)
    found = local_order(torch.tensor(logs, dtype=torch.float64))
    assert found.shape == (5,)
    assert (found - order).abs().max() < 1e-14  # differences of numbers below 1e4, in steps that grow with them


def test_mean_cosine_by_hand() -> None:
    tokens = torch.tensor([[3.0, 0], [0, 5.0], [2.0, 2.0]], dtype=torch.float64)
    assert mean_cosine(tokens).item() == pytest.approx(2 * 0.5**0.5 / 3, abs=1e-15)  # pairs 0, 1/sqrt2, 1/sqrt2
    assert mean_cosine(torch.eye(5).double()).item() == pytest.approx(0, abs=1e-15)
    assert mean_cosine(torch.ones(4, 3).double()).item() == pytest.approx(1, abs=1e-15)
    assert mean_cosine(torch.zeros(4, 3).double()).item() == 0
