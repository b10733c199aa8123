"""Paths through attention with skips: counted exactly, and summed by length against brute force."""

from dataclasses import replace
from itertools import product

import mpmath
import numpy as np
import pytest
import torch

from rankcollapse.inits import gaussian
from rankcollapse.path_counts import path_counts, path_shares
from rankcollapse.paths import (
    along_path,
    bias_row,
    log_product_distance,
    one_head,
    path_lengths,
    path_lengths_uncentred,
    rank_one_distance,
    residual_products,
    residual_shares,
)
from rankcollapse.published import RESOLUTION, read
from rankcollapse.randomness import generator
from rankcollapse.residual import decompose, local_order
from rankcollapse.scalefree import from_tokens
from rankcollapse.scalefree_attention import Attention, attention_matrix, plain_attention


def network(tokens=8, width=12, heads=3, layers=4, *, biases=True, scale=1.0, seed=0):
    """Tokens, layers frozen at their own forward pass, and its output."""
    g = generator(seed, "test_paths")
    x, frozen = gaussian(tokens, width, g), []
    output = x
    for _ in range(layers):
        query, key, value, out = (gaussian(width, width, g, scale * width**-0.5) for _ in range(4))
        rows = [gaussian(1, width, g) if biases else 0.0 for _ in range(3)]
        layer = Attention(query, key, value, out, heads, query_bias=rows[0], value_bias=rows[1], output_bias=rows[2])
        frozen.append(replace(layer, frozen=attention_matrix(output, layer)))
        output = output + plain_attention(output, layer)
    return x, frozen, output


def enumerated(x, layers):
    """Every path on its own, in numpy: per layer the skip (None) or a head; summed by length, without biases."""
    heads = layers[0].heads
    own = x.shape[1] // heads
    sums = np.zeros((len(layers) + 1, *x.shape))
    count = 0
    for path in product([None, *range(heads)], repeat=len(layers)):
        tokens = x.numpy()
        for layer, head in zip(layers, path, strict=True):
            if head is not None:
                columns = slice(head * own, (head + 1) * own)
                value = layer.value.numpy()[:, columns] @ layer.output.numpy()[columns]
                tokens = layer.frozen[head].numpy() @ tokens @ value
        sums[sum(head is not None for head in path)] += tokens
        count += 1
    return sums, count


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (4, 3), (12, 1), (12, 12), (96, 96)])
def test_counts_are_exact_and_sum_to_all_paths(layers, heads):
    counts = path_counts(layers, heads)
    assert sum(counts) == (heads + 1) ** layers
    assert counts[0] == 1
    assert counts[-1] == heads**layers
    shares = path_shares(layers, heads)
    # each is rounded once, so the sum is off by at most L + 1 half units
    assert sum(shares) == pytest.approx(1, abs=(layers + 1) * 2**-53)


def test_counts_by_hand():
    assert path_counts(3, 2) == [1, 6, 12, 8]
    assert path_shares(1, 3) == [0.25, 0.75]
    assert sum(path_counts(12, 1)) == 2**12


def test_counts_need_a_head():
    with pytest.raises(ValueError, match="3 layers, 0 heads; allowed"):
        path_counts(3, 0)


def test_published_shares_are_the_exact_ones():
    table = read("dong_path_length")
    exact = [path_shares(row.L, row.H)[row.path_length] for row in table.itertuples()]
    assert np.abs(table["proportion"] - exact).max() <= RESOLUTION["dong_path_length"]


def test_lengths_agree_with_every_path_enumerated():
    x, layers, _ = network()
    sums, count = enumerated(x, layers)
    assert count == sum(path_counts(4, 3)) == 256
    lengths = path_lengths(x, [replace(layer, value_bias=0.0, output_bias=0.0) for layer in layers])
    # Sums of at most 108 products of 4 matrices of inner size 12: a few hundred roundings of 1e-16
    for k, expected in enumerate(sums):
        size = np.linalg.norm(expected)
        assert np.linalg.norm(lengths.tokens[k].numpy() - expected) < 1e-13 * size
        residual = expected - expected.mean(0)
        found = (lengths.scale * lengths.direction)[k].numpy()
        # the reference subtracts the mean at the end, which costs it the ratio of the two
        assert np.linalg.norm(found - residual) < 1e-13 * size
    uncentred = path_lengths_uncentred(x, layers)
    assert np.abs(uncentred.numpy() - sums).max() < 1e-13 * np.abs(sums).max()


def test_lengths_with_biases_sum_to_the_output():
    x, layers, output = network()
    lengths = path_lengths(x, layers)
    torch.testing.assert_close(lengths.tokens.sum(0), output, rtol=0, atol=1e-13 * float(output.abs().max()))


def test_biases_reach_no_residual_and_are_paths_of_length_one_from_their_layer():
    x, layers, _ = network(layers=2)
    bare = path_lengths(x, [replace(layer, value_bias=0.0, output_bias=0.0) for layer in layers])
    full = path_lengths(x, layers)
    torch.testing.assert_close(full.log_norm, bare.log_norm, rtol=0, atol=0)
    torch.testing.assert_close(full.direction, bare.direction, rtol=0, atol=0)
    first, second = (bias_row(layer) for layer in layers)
    through_second = first @ layers[1].value @ layers[1].output  # all heads: P 1 = 1
    added = full.mean - bare.mean
    torch.testing.assert_close(added[1], first + second, rtol=0, atol=1e-13)
    torch.testing.assert_close(added[2], through_second, rtol=0, atol=1e-13)
    assert not added[0].any()


def test_tiny_residuals_keep_full_precision_where_plain_numbers_do_not():
    x, layers, _ = network(layers=12, biases=False, scale=0.15)
    lengths = path_lengths(x, layers)
    mpmath.mp.dps = 60
    exact = [mpmath.matrix(x.tolist())]
    for layer in layers:
        exact = _exact_step(exact, layer)
    plain = decompose(path_lengths_uncentred(x, layers))[1]
    for k in (6, 12):
        mean = [mpmath.fsum(exact[k][i, j] for i in range(8)) / 8 for j in range(12)]
        norm = mpmath.sqrt(mpmath.fsum((exact[k][i, j] - mean[j]) ** 2 for i in range(8) for j in range(12)))
        # rows of a rounded P sum to 1 within 2e-16 only, which the exact reference normalises and ours takes as 1;
        # their departures of about 1e-2 lose two digits, and 12 layers add up
        assert float(mpmath.log(norm)) == pytest.approx(float(lengths.log_norm[k]), abs=1e-11)
    assert abs(float(mpmath.log(norm)) - float(torch.linalg.norm(plain[12]).log())) > 1


def _exact_step(lengths, layer):
    heads, own = layer.heads, layer.value.shape[1] // layer.heads
    maps = []
    for head in range(heads):
        columns = slice(head * own, (head + 1) * own)
        p = mpmath.matrix(layer.frozen[head].tolist())
        for i in range(p.rows):
            row = mpmath.fsum(p[i, j] for j in range(p.cols))
            for j in range(p.cols):
                p[i, j] /= row
        value = mpmath.matrix(layer.value[:, columns].tolist()) * mpmath.matrix(layer.output[columns].tolist())
        maps.append((p, value))
    zero = mpmath.zeros(lengths[0].rows, lengths[0].cols)
    moved = [sum((p * x * value for p, value in maps), zero) for x in lengths]
    return [a + b for a, b in zip([*lengths, zero], [zero, *moved], strict=True)]


def test_shares_sum_to_one_and_are_projections():
    x, layers, output = network()
    lengths = path_lengths(x, layers)
    shares, cosines = residual_shares(lengths), residual_products(lengths)
    assert float(shares.sum()) == pytest.approx(1, abs=1e-14)
    assert cosines.diagonal().tolist() == pytest.approx([1.0] * 5, abs=1e-14)
    whole = decompose(output)[1]
    each = lengths.scale * lengths.direction
    expected = (each * whole).sum((1, 2)) / whole.square().sum()
    torch.testing.assert_close(shares, expected, rtol=0, atol=1e-13)


def test_lengths_do_not_depend_on_the_order_of_tokens():
    x, layers, _ = network()
    order = torch.randperm(8, generator=generator(0, "order"))
    shuffled = [replace(layer, frozen=layer.frozen[:, order][:, :, order]) for layer in layers]
    found, wanted = path_lengths(x[order], shuffled), path_lengths(x, layers)
    torch.testing.assert_close(found.tokens, wanted.tokens[:, order], rtol=1e-12, atol=1e-12)


def test_attention_must_be_frozen():
    x, layers, _ = network(layers=1)
    with pytest.raises(ValueError, match="needs a frozen attention matrix"):
        path_lengths(x, [replace(layers[0], frozen=None)])


def test_one_head_is_its_part_of_the_layer():
    x, layers, _ = network(layers=1)
    parts = [plain_attention(x, one_head(layers[0], head)) for head in range(3)]
    whole = plain_attention(x, layers[0]) - bias_row(layers[0])
    torch.testing.assert_close(sum(parts), whole, rtol=0, atol=1e-13)
    with pytest.raises(ValueError, match="head 3 of a layer with 3"):
        one_head(layers[0], 3)


def test_a_frozen_path_decays_singly_and_a_recomputed_one_doubly():
    x, layers, _ = network(layers=8, biases=False, scale=0.5)
    orders = []
    for recompute in (False, True):
        start = from_tokens(x)
        steps = [start, *along_path(start, layers, [0, 1, 2, 0, 1, 2, 0, 1], recompute=recompute)]
        orders.append(local_order(torch.stack([step.log_norm for step in steps])))
    # single draws of 12 channels: the factor of a frozen step scatters by tens of percent, in ln against steps of 5
    assert orders[0].median() == pytest.approx(1, abs=0.3)
    assert orders[1][-1] == pytest.approx(3, abs=0.01)


def test_a_frozen_path_is_the_product_of_its_matrices():
    x, layers, _ = network(biases=False)
    heads = [2, 0, 1, 1]
    *_, last = along_path(from_tokens(x), layers, heads, recompute=False)
    tokens = x
    for layer, head in zip(layers, heads, strict=True):
        alone = one_head(layer, head)
        tokens = layer.frozen[head] @ tokens @ alone.value @ alone.output
    residual = decompose(tokens)[1]
    # the reference subtracts the mean token, here a few hundred times the residual
    torch.testing.assert_close(last.scale * last.direction, residual, rtol=0, atol=1e-13 * float(tokens.abs().max()))


def test_distance_from_rank_one_by_hand():
    assert float(rank_one_distance(torch.eye(2, dtype=torch.float64))) == pytest.approx(1, abs=1e-15)
    ones = torch.ones(3, 4, dtype=torch.float64)
    assert float(rank_one_distance(ones)) < 1e-15
    # diag(3, 1): what is left is diag(0, 1), sqrt(1 x 1) over sqrt(3 x 3)
    assert float(rank_one_distance(torch.diag(torch.tensor([3.0, 1.0])))) == pytest.approx(1 / 3, abs=1e-6)


@pytest.mark.parametrize("factors", [1, 2, 5])
def test_distance_of_a_product_agrees_with_sixty_digits(factors):
    n = 5
    g = generator(factors, "product")
    matrices = torch.softmax(0.02 * torch.randn(factors, n, n, generator=g, dtype=torch.float64), -1)
    found = float(log_product_distance(matrices))
    mpmath.mp.dps = 60
    whole = mpmath.eye(n)
    for matrix in matrices:
        exact = mpmath.matrix(matrix.tolist())
        for i in range(n):
            row = mpmath.fsum(exact[i, j] for j in range(n))
            for j in range(n):
                exact[i, j] /= row
        whole = exact * whole
    u, s, v = mpmath.svd_r(whole)
    left = whole - s[0] * u[:, 0] * v[0, :]
    norms = [mpmath.sqrt(mpmath.mnorm(m, 1) * mpmath.mnorm(m, mpmath.inf)) for m in (left, whole)]
    # first order in E: relative error of the size of E, 1e-6 or less where it is used; else ten digits of an SVD
    assert found == pytest.approx(float(mpmath.log(norms[0] / norms[1])), abs=2e-6)


def test_products_in_a_batch_are_those_one_by_one():
    g = generator(0, "batch")
    matrices = torch.softmax(torch.randn(3, 4, 6, 6, generator=g, dtype=torch.float64), -1)
    together = log_product_distance(matrices)
    alone = torch.stack([log_product_distance(matrices[:, i]) for i in range(4)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
