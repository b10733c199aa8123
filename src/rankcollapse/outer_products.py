r"""Norms of sums of outer products of vectors, taken through Gram matrices: the sums themselves are never formed.

A term stands for one tensor a row i,

    T_i = sum_k w_ik a_ik ⊗ b_ik ⊗ ...,

where each factor is either the same for all summands (a vector a row, a_i) or the same for all rows (a vector a
summand, a_k). The scalar product of two terms then needs only scalar products of vectors,

    <T_i, T'_i> = sum_{k,k'} w_ik w'_ik' <a_ik, a'_ik'> <b_ik, b'_ik'> ...,

each a matrix over (i), (i, k), (i, k') or (k, k'): a few products of matrices, O(n^3) for n rows, summands and entries,
where the tensors themselves have O(n^4) entries in all and take O(n^5) operations to form. Derived here; exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Vectors:
    """One place of the products: a vector a row, or a vector a summand. Two of them are equal if they are one object.

    Sharing an object between terms shares its Gram matrices, and lets terms of like factors be added.
    """

    data: Float[Tensor, "*batch number size"]
    per_row: bool = False


class Term(NamedTuple):
    """The tensors sum_k w_ik a_ik ⊗ b_ik ⊗ ..., one a row i. Without a factor a summand there is one summand."""

    weight: Float[Tensor, "*batch rows summands"]
    factors: tuple[Vectors, ...]


def squared_norms(terms: Sequence[Term]) -> Float[Tensor, "*batch rows"]:
    """Squared Frobenius norm of the sum of all terms, one number a row."""
    terms = tidy(terms)
    gram = _shared(_gram)
    pairs = combinations_with_replacement(terms, 2)
    products = [(1 if one is other else 2) * _scalar_product(one, other, gram) for one, other in pairs]
    return torch.stack(products).sum(0)


def replaced(term: Term, place: int, by: Vectors, factor: float) -> Term:
    """Return ``factor`` times the term after the projection a -> <by, a> by of the factors in one place."""
    there = _with_weight(term, place, by, factor)
    return Term(there, (*term.factors[:place], by, *term.factors[place + 1 :]))


def contracted(term: Term, by: Vectors) -> Term:
    """Return the term after its first factors a have become numbers, <by, a>: tensors of one order less."""
    return Term(_with_weight(term, 0, by, 1.0), term.factors[1:])


def tidy(terms: Sequence[Term]) -> list[Term]:
    """Return as few terms of the same sum as possible.

    A term in which only one factor runs over the summands is summed into one with a vector a row, and terms with the
    same factors are added.
    """
    added: dict[tuple[Vectors, ...], Tensor] = {}
    for term in terms:
        weight, factors = _summed(term)
        added[factors] = added[factors] + weight if factors in added else weight
    return [Term(weight, factors) for factors, weight in added.items()]


def _summed(term: Term) -> Term:
    running = [place for place, factor in enumerate(term.factors) if not factor.per_row]
    if not running:
        return term._replace(weight=term.weight.sum(-1, keepdim=True))
    if len(running) > 1:
        return term
    (place,) = running
    total = Vectors(term.weight @ term.factors[place].data, per_row=True)
    ones = torch.ones_like(term.weight[..., :1])
    return Term(ones, (*term.factors[:place], total, *term.factors[place + 1 :]))


def _with_weight(term: Term, place: int, by: Vectors, factor: float) -> Tensor:
    product = _gram(by, term.factors[place], same_summand=True)
    return factor * term.weight * product


def _gram(one: Vectors, other: Vectors, same_summand: bool = False) -> Tensor:
    """Scalar products: [i, 1] or [1, k] between vectors of the same row or summand, else [i, k] or [k, k']."""
    if one.per_row and other.per_row:
        return (one.data * other.data).sum(-1, keepdim=True)
    if same_summand and not one.per_row and not other.per_row:
        return (one.data * other.data).sum(-1).unsqueeze(-2)
    if other.per_row:
        one, other = other, one
    return one.data @ other.data.mT


def _shared(function: Callable[[Vectors, Vectors], Tensor]) -> Callable[[Vectors, Vectors], Tensor]:
    """Keep each Gram matrix as long as one norm is computed."""
    known: dict[tuple[Vectors, Vectors], Tensor] = {}

    def gram(one: Vectors, other: Vectors) -> Tensor:
        if (one, other) not in known:
            known[one, other] = function(one, other)
        return known[one, other]

    return gram


def _scalar_product(one: Term, other: Term, gram: Callable[[Vectors, Vectors], Tensor]) -> Float[Tensor, "*batch rows"]:
    left, right, middle = one.weight, other.weight, None
    for mine, theirs in zip(one.factors, other.factors, strict=True):
        product = gram(mine, theirs)
        if theirs.per_row:  # [i, 1] or [i, k]
            left = left * product
        elif mine.per_row:  # [i, k']
            right = right * product
        else:  # [k, k']
            middle = product if middle is None else middle * product
    if middle is None:
        return left.sum(-1) * right.sum(-1)
    return ((left @ middle) * right).sum(-1)
