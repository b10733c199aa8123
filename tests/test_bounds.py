"""Bounds on the residual: by hand, against plain matrices, and never violated; and what the composite norm is not."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rankcollapse.bounds import (
    attention_contractions,
    branch,
    branch_contraction,
    head_maps,
    iterated,
    log_composite_constants,
    log_frobenius_constants,
    log_trivial_factors,
    logit_gammas,
    product_norms,
)
from rankcollapse.contraction import Heads, gain_product
from rankcollapse.inits import gaussian
from rankcollapse.randomness import generator
from rankcollapse.residual import composite_norm, decompose
from rankcollapse.scalefree import from_tokens
from rankcollapse.scalefree_attention import Attention, attend, attention_matrix, logit_parts, plain_attention


def layer_of(width, heads, scale=1.0, seed=0):
    g = generator(seed, "test_bounds", width, heads)
    return Attention(*(gaussian(width, width, g, scale * width**-0.5) for _ in range(4)), heads)


def tokens_of(tokens, width, seed=0):
    return gaussian(tokens, width, generator(seed, "tokens", tokens, width))


def test_the_composite_norm_is_submultiplicative_but_no_norm():
    for seed in range(20):
        left, right = tokens_of(5, 7, seed), tokens_of(7, 4, seed)
        assert composite_norm(left @ right) <= composite_norm(left) * composite_norm(right) * (1 + 1e-15)
    column, row = torch.zeros(2, 9, 9, dtype=torch.float64)
    column[:, 0], row[0] = 1, 1
    # each is sqrt(9 x 1) = 3; the sum has a column and a row of 10: more than 3 + 3
    assert [float(composite_norm(m)) for m in (column, row, column + row)] == pytest.approx([3, 3, 10], abs=1e-14)


def test_head_maps_multiply_to_the_layer():
    layer, x = layer_of(12, 3), tokens_of(5, 12)
    query_key, value_output = head_maps(layer)
    logits = x @ query_key @ x.T / 2  # sqrt(d_k) = 2
    attention = torch.softmax(logits, -1)
    torch.testing.assert_close(attention, attention_matrix(x, layer), rtol=0, atol=1e-13)
    torch.testing.assert_close((attention @ x @ value_output).sum(0), plain_attention(x, layer), rtol=0, atol=1e-13)


def test_norms_of_thin_products_are_those_of_the_products():
    left, right = tokens_of(20, 3), tokens_of(3, 15)
    wanted = np.linalg.norm((left @ right).numpy(), 2)
    assert float(product_norms(left, right)) == pytest.approx(wanted, rel=1e-13)


def test_frobenius_constants_are_those_of_contraction():
    layer = layer_of(12, 3)
    query, key, value = (layer.split(w) for w in (layer.query, layer.key, layer.value))
    heads = Heads(query, key, value, layer.output.unflatten(0, (3, -1)))
    proved, leading = log_frobenius_constants(layer, 7).exp()
    assert float(proved) == pytest.approx(float(gain_product(heads)) / 2, rel=1e-13)
    assert float(leading) == pytest.approx(float(gain_product(heads)) / 7, rel=1e-13)


def test_gamma_by_hand_and_without_scale():
    same = torch.tensor([[0.0, 1.0, 3.0], [0.0, 1.0, 3.0]])  # keys 0 and 2 are worst for both rows
    other = torch.tensor([[0.0, 4.0, 1.0], [0.0, 1.0, 4.0]])  # rows 4 + 4; pairs 4 + 1, 1 + 4, 3 + 3 = 6
    assert logit_gammas(torch.stack([same, other])).tolist() == pytest.approx([1.0, 8 / 6], rel=1e-6)
    assert float(logit_gammas(1e-3 * other)) == pytest.approx(8 / 6, rel=1e-6)
    assert float(logit_gammas(torch.ones(3, 3))) == 1


def test_composite_constants_by_loops():
    layer, x = layer_of(6, 2), tokens_of(4, 6)
    before = from_tokens(x)
    found, gamma = log_composite_constants(before, layer)
    norms, columns, rows, gammas = [], [], [], []
    for head in range(2):
        own = slice(3 * head, 3 * head + 3)
        query_key = (layer.query[:, own] @ layer.key[:, own].T).numpy()
        value_output = (layer.value[:, own] @ layer.output[own]).numpy()
        norms.append(np.linalg.norm(query_key, 1) / math.sqrt(3))
        columns.append(np.linalg.norm(value_output, 1))
        rows.append(np.linalg.norm(value_output, np.inf))
        e = logit_parts(before, layer)[0][head].numpy()
        pairs = [np.abs(e[:, i] - e[:, j]).sum() for i in range(4) for j in range(4)]
        gammas.append((e.max(1) - e.min(1)).sum() / max(pairs))
    beta = max(a * math.sqrt(c * r) for a, c, r in zip(norms, columns, rows, strict=True))
    sums = sum(g * a * c for g, a, c in zip(gammas, norms, columns, strict=True)), np.dot(norms, rows)
    wanted = [4 * 2 * beta * max(gammas), 4 * 2 * beta, 2 * (1 - 1 / 4) * math.sqrt(sums[0] * sums[1])]
    assert gamma.tolist() == pytest.approx(gammas, rel=1e-13)
    assert found.exp().tolist() == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize(("tokens", "width", "heads"), [(2, 2, 1), (3, 6, 3), (12, 4, 1), (20, 12, 2)])
def test_no_proved_bound_is_violated_at_any_size(tokens, width, heads, scale):
    for seed in range(6):
        layer = layer_of(width, heads, scale, seed)
        for size in (-3.0, 0.0, 2.0):
            before = replace(from_tokens(tokens_of(tokens, width, seed)), log_norm=torch.tensor(size).double())
            after = attend(before, layer)
            log_composite, _ = log_composite_constants(before, layer)
            composite = [s.log_norm + composite_norm(s.direction).log() for s in (before, after)]
            # published, derived: rounding is 1e-15 of quantities of order one
            assert composite[1] <= log_composite[0] + 3 * composite[0] + 1e-12
            assert composite[1] <= log_composite[2] + 3 * composite[0] + 1e-12
            assert after.log_norm <= log_frobenius_constants(layer, tokens)[0] + 3 * before.log_norm + 1e-12
            trivial = log_trivial_factors(layer, tokens)
            assert composite[1] <= trivial[0] + composite[0] + 1e-12
            assert after.log_norm <= trivial[1] + before.log_norm + 1e-12


def test_an_iterated_bound_is_the_power_of_the_theorem():
    constant, start, layers = 0.7, 0.3, 4
    found = iterated(torch.full((layers,), math.log(constant)), torch.tensor(math.log(start)))
    wanted = [constant ** ((3**n - 1) / 2) * start ** (3**n) for n in range(layers + 1)]
    assert found.exp().tolist() == pytest.approx(wanted, rel=1e-4)  # float32, exponents up to 81


def test_the_branch_is_what_attention_adds_to_the_residual():
    layer, x = layer_of(12, 3), tokens_of(5, 12)
    residual = decompose(x)[1]
    attention = attention_matrix(x, layer)
    wanted = decompose(plain_attention(x, replace(layer, frozen=attention)))[1]
    torch.testing.assert_close(branch(residual, attention, layer), wanted, rtol=0, atol=1e-13)


def test_contraction_of_a_branch_is_the_norm_of_its_matrix():
    layer, x = layer_of(4, 2), tokens_of(3, 4)
    attention, residual = attention_matrix(x, layer), decompose(x)[1]
    centre = np.eye(3) - 1 / 3
    _, value_output = head_maps(layer)
    whole = sum(np.kron(centre @ p @ centre, w.T) for p, w in zip(attention.numpy(), value_output.numpy(), strict=True))
    here, largest = branch_contraction(residual, attention, layer, 2000)
    flat = residual.numpy().ravel()
    assert float(here) == pytest.approx(np.linalg.norm(whole @ flat) / np.linalg.norm(flat), rel=1e-12)
    assert float(largest) == pytest.approx(np.linalg.norm(whole, 2), rel=1e-9)  # power steps, from below
    assert float(branch_contraction(residual, attention, layer, 3)[1]) <= float(largest) * (1 + 1e-15)
    alone = [np.linalg.norm(centre @ p @ centre, 2) for p in attention.numpy()]
    assert attention_contractions(attention).tolist() == pytest.approx(alone, rel=1e-12)


def test_two_tokens_lose_their_residual_in_one_layer_with_a_skip():
    p = torch.tensor([[[0.75, 0.25], [0.25, 0.75]]], dtype=torch.float64)
    identity = torch.eye(3, dtype=torch.float64)
    residual = decompose(tokens_of(2, 3))[1]
    after = residual + branch(residual, p, Attention(identity, identity, -2 * identity, identity, 1))
    assert float(after.abs().max()) == 0  # powers of two throughout
    assert attention_contractions(p).tolist() == pytest.approx([0.5], abs=1e-15)
