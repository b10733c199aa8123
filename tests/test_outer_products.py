import itertools

import pytest
import torch

from rankcollapse.outer_products import Term, Vectors, contracted, replaced, squared_norms, tidy

ROWS, SUMMANDS, WIDTHS = 4, 5, (3, 2, 6)
EXACT = {"rtol": 1e-12, "atol": 0}  # sums of a few hundred products of order one


def normal(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drawn(seed, kinds, summands=SUMMANDS):
    factors = [
        Vectors(normal(10 * seed + place, ROWS if row else summands, width), row)
        for place, (row, width) in enumerate(zip(kinds, WIDTHS, strict=True))
    ]
    return Term(normal(10 * seed + 9, ROWS, summands), tuple(factors))


def expanded(factor, term):
    """[row, summand, entry]."""
    along = 1 if factor.per_row else 0
    return factor.data.unsqueeze(along).expand(ROWS, term.weight.shape[1], -1)


def formed(term):
    """The tensors themselves, [row, a, b, c]."""
    letters = "abc"[: len(term.factors)]
    each = ",".join(f"ik{letter}" for letter in letters)
    return torch.einsum(f"ik,{each}->i{letters}", term.weight, *(expanded(factor, term) for factor in term.factors))


KINDS = list(itertools.product((False, True), repeat=3))


@pytest.mark.parametrize("kinds", KINDS)
def test_norm_of_one_term(kinds):
    term = drawn(0, kinds)
    torch.testing.assert_close(squared_norms([term]), formed(term).square().sum((1, 2, 3)), **EXACT)


@pytest.mark.parametrize("pair", list(itertools.combinations(range(len(KINDS)), 2)))
def test_norm_of_a_sum_of_two_kinds_with_different_numbers_of_summands(pair):
    one, other = drawn(1, KINDS[pair[0]]), drawn(2, KINDS[pair[1]], summands=7)
    both = formed(one) + formed(other)
    torch.testing.assert_close(squared_norms([one, other]), both.square().sum((1, 2, 3)), rtol=1e-11, atol=0)


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("kinds", KINDS)
def test_replaced_is_a_projection_of_one_place(kinds, per_row):
    term = drawn(3, kinds)
    by = Vectors(normal(8, ROWS if per_row else SUMMANDS, WIDTHS[1]), per_row)
    a, b, c = (expanded(factor, term) for factor in term.factors)
    u = expanded(by, term)
    wanted = -2 * torch.einsum("ik,ika,ikb,ikb,ikd,ikc->iadc", term.weight, a, b, u, u, c)
    torch.testing.assert_close(formed(replaced(term, 1, by, -2.0)), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kinds", KINDS)
def test_contracted_leaves_one_order_less(kinds):
    term = drawn(4, kinds)
    by = Vectors(normal(9, ROWS, WIDTHS[0]), per_row=True)
    wanted = torch.einsum("iabc,ia->ibc", formed(term), by.data)
    torch.testing.assert_close(formed(contracted(term, by)), wanted, rtol=1e-12, atol=1e-12)


def test_tidy_adds_terms_of_the_same_factors_and_sums_single_ones():
    term = drawn(5, (False, False, True))
    once = drawn(6, (True, False, True))
    few = tidy([term, term._replace(weight=2 * term.weight), once])
    assert len(few) == 2
    torch.testing.assert_close(few[0].weight, 3 * term.weight)
    assert few[1].weight.shape == (ROWS, 1)
    assert all(factor.per_row for factor in few[1].factors)
    torch.testing.assert_close(formed(few[1]), formed(once), rtol=1e-12, atol=1e-14)


def test_batch_axes():
    term = drawn(7, (False, True, False))
    batched = Term(
        torch.stack([term.weight, 2 * term.weight]),
        tuple(Vectors(torch.stack([f.data, f.data]), f.per_row) for f in term.factors),
    )
    torch.testing.assert_close(squared_norms([batched])[1], 4 * squared_norms([term]), **EXACT)
