import mpmath
import pytest
import torch

from rankcollapse.keyquery import ATTENTION, Weights, distinct, keyquery_logits, normal_weights
from rankcollapse.randomness import generator

EXACT = 1e-13  # sums of ten products in float64, and softmax's few roundings, all of order one


def normal(*shape, key="x"):
    return torch.randn(*shape, generator=generator(0, "test_keyquery", key), dtype=torch.float64)


def weights(runs=3, width=10, **scales):
    drawn = normal_weights(runs, width, generator(0, "test_keyquery", "weights"))
    return drawn.scaled(**scales) if scales else drawn


def test_weights_are_standard_normal_and_independent():
    drawn = torch.stack(normal_weights(4, 50, generator(1, "w")))
    assert drawn.shape == (3, 4, 50, 50)
    assert drawn.mean().item() == pytest.approx(0, abs=4 / 30000**0.5)  # four standard errors of 30000 entries
    assert drawn.var().item() == pytest.approx(1, abs=4 * (2 / 30000) ** 0.5)
    assert torch.equal(weights().scaled(2, 3).values, 3 * weights().values)
    assert torch.equal(weights().scaled(2, 3).keys, 2 * weights().keys)


def test_logits_by_hand():
    identity = torch.eye(4, dtype=torch.float64).expand(1, -1, -1)
    tokens = torch.tensor([[[1.0, 0, 0, 0], [0, 2.0, 0, 0]]], dtype=torch.float64)
    found = keyquery_logits(tokens, Weights(identity, 3 * identity, identity))
    assert found.tolist() == [[[1.5, 0], [0, 6]]]  # 3 x_i.x_j / sqrt(4)


def test_centred_attention_is_attention_without_its_gap():
    tokens = normal(3, 6, 10)
    logits = keyquery_logits(tokens, weights())
    torch.testing.assert_close(ATTENTION["A_perp"](logits), ATTENTION["A"](logits) - 1 / 6, rtol=0, atol=EXACT)
    assert torch.allclose(ATTENTION["A"](logits).sum(-1), torch.ones(3, 6, dtype=torch.float64), atol=EXACT)


def test_centred_attention_of_tiny_logits_has_all_its_digits():
    logits = 1e-20 * normal(4, 4)  # softmax - 1/4 in float64 is rounding alone
    with mpmath.workdps(60):
        expected = [
            [float(mpmath.exp(x) / mpmath.fsum(mpmath.exp(y) for y in row) - mpmath.mpf(1) / 4) for x in row]
            for row in logits.tolist()
        ]
    # the logits' row mean is taken off: one rounding relative to the largest logit
    torch.testing.assert_close(
        ATTENTION["A_perp"](logits), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-36
    )


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_tokens_equal_to_rounding_give_uniform_attention_and_are_annihilated(scale):
    equal = scale * (1 + 1e-16 * normal(3, 6, 1)) * normal(1, 1, 10, key="row")
    logits = keyquery_logits(equal, weights())
    assert not distinct(equal).any()
    assert (ATTENTION["A"](logits) == 1 / 6).all()
    assert (ATTENTION["A_perp"](logits) == 0).all()


def test_each_run_is_judged_by_itself():
    tokens = torch.stack([torch.ones(6, 10).double(), normal(6, 10), torch.zeros(6, 10).double()])
    assert distinct(tokens).tolist() == [False, True, False]
    assert ATTENTION["A_perp"](keyquery_logits(tokens, weights())).abs().amax((-2, -1)).gt(0).tolist() == [
        False,
        True,
        False,
    ]


def test_huge_logits_are_one_hot_and_finite():
    attention = ATTENTION["A"](keyquery_logits(1e60 * normal(3, 6, 10), weights()))  # logits of 1e120
    assert (attention.amax(-1) == 1).all()
    assert (attention.sum(-1) == 1).all()
