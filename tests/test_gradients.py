import itertools

import pytest
import torch
from torch.func import jacrev

from rankcollapse import gradients
from rankcollapse.attention import centre, softmax, token_logits
from rankcollapse.blocks import attention_block
from rankcollapse.gradients import Variant, Weights

VARIANTS = [Variant(*flags) for flags in itertools.product((False, True), repeat=3)]
SHAPES = [(5, 6), (6, 4)]  # (tokens, width): fewer and more tokens than channels
EXACT = {"rtol": 1e-10, "atol": 0}


def attend(tokens, weights, variant):
    attention = softmax(token_logits(tokens, weights.queries[None], weights.keys[None])[0])
    return centre(attention) if variant.centred else attention


def forward(tokens, weights, variant, attention=None):
    attention = attend(tokens, weights, variant) if attention is None else attention
    return attention_block(tokens, attention, weights.values, skip=variant.skip, norm=variant.norm)


def drawn(tokens, width, seed=0, scale=1.0):
    random = torch.Generator().manual_seed(seed)
    start = torch.randn(tokens, width, generator=random, dtype=torch.float64)
    heads = torch.randn(2, 3, width, width, generator=random, dtype=torch.float64) * scale
    return start, *(Weights(*head) for head in heads)


def blocks(start, one, two, variant):
    first = gradients.linearise(start, one, variant)
    return first, gradients.linearise(first.output, two, variant), gradients.linearise(start, two, variant)


def by_autograd(start, one, two, variant, name):
    """||dX_2/dW||_F^2 of the dense Jacobian."""

    def output(weight):
        return forward(forward(start, one._replace(**{name: weight}), variant), two, variant)

    return jacrev(output)(getattr(one, name)).square().sum()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_weight_and_variant_agrees_with_the_dense_jacobian(shape, variant):
    start, one, two = drawn(*shape)
    first, second, _ = blocks(start, one, two, variant)
    ours = gradients.value_gradient(first, second), *gradients.logit_gradients(first, second, rows=4)
    for value, name in zip(ours, ("values", "queries", "keys"), strict=True):
        torch.testing.assert_close(value, by_autograd(start, one, two, variant, name), **EXACT)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_product_agrees_with_the_dense_jacobian(shape, variant):
    start, one, two = drawn(*shape)
    first, _, second = blocks(start, one, two, variant)
    jacobian = jacrev(lambda tokens: forward(tokens, two, variant))(start)  # [i, c, k, b]
    dense = torch.einsum("ickb,ia->kbca", jacobian, first.attention @ start).square().sum()
    torch.testing.assert_close(gradients.transposed_gradient(first, second), dense, **EXACT)


@pytest.mark.parametrize("variant", VARIANTS)
def test_frozen_attention_agrees_with_the_dense_jacobian(variant):
    start, one, two = drawn(5, 6)
    first, second, at_input = blocks(start, one, two, variant)

    def frozen(weight):
        return forward(forward(start, one._replace(values=weight), variant), two, variant, second.attention)

    dense = jacrev(frozen)(one.values).square().sum()
    torch.testing.assert_close(gradients.value_gradient(first, second, frozen=True), dense, **EXACT)
    jacobian = jacrev(lambda tokens: forward(tokens, two, variant, at_input.attention))(start)
    dense = torch.einsum("ickb,ia->kbca", jacobian, first.attention @ start).square().sum()
    torch.testing.assert_close(gradients.transposed_gradient(first, at_input, frozen=True), dense, **EXACT)


@pytest.mark.parametrize("variant", VARIANTS)
def test_both_algorithms_agree_on_values_and_any_chunk(variant):
    start, one, two = drawn(9, 7, seed=1)
    first, second, _ = blocks(start, one, two, variant)
    entered = gradients.entry(first, "values")
    for rows in (1, 4, 100):
        torch.testing.assert_close(
            gradients.chained_gradient(second, *entered, rows), gradients.value_gradient(first, second), **EXACT
        )


@pytest.mark.parametrize("name", ["values", "queries", "keys"])
@pytest.mark.parametrize("norm", [False, True])
def test_entry_is_the_derivative_of_one_block(name, norm):
    variant = Variant(norm=norm)
    start, one, _ = drawn(5, 6, seed=2)
    maps, inputs = gradients.entry(gradients.linearise(start, one, variant), name)
    dense = jacrev(lambda weight: forward(start, one._replace(**{name: weight}), variant))(getattr(one, name))
    product = "kca,kb->kcab" if name == "keys" else "kcb,ka->kcab"  # W_K enters with its two sides exchanged
    torch.testing.assert_close(torch.einsum(product, maps, inputs), dense, rtol=1e-9, atol=1e-12)


def test_hand_value_of_uniform_attention():
    # W_Q = 0: A = 11^T/T in both blocks and keys do not matter, so X_2,i = W_2^T W_1^T xbar for every i and
    # ||dX_2/dW_1||^2 = T |xbar|^2 ||W_2||^2
    start, one, two = drawn(5, 6)
    one, two = (head._replace(queries=torch.zeros(6, 6, dtype=torch.float64)) for head in (one, two))
    first, second, _ = blocks(start, one, two, Variant())
    hand = 5 * start.mean(0).square().sum() * two.values.square().sum()
    torch.testing.assert_close(gradients.value_gradient(first, second), hand, rtol=1e-13, atol=0)


def test_collapsed_tokens_have_no_query_or_key_gradient():
    start, one, two = drawn(8, 8)
    first, second, _ = blocks(start[:1].expand(8, 8).contiguous(), one, two, Variant())
    value = gradients.value_gradient(first, second)
    # the differences of equal tokens are their mean's rounding, 1e-16, and enter to the fourth power
    assert all(norm / value < 1e-50 for norm in gradients.logit_gradients(first, second))


def test_small_residuals_keep_their_digits():
    # the norm falls as eps^4 down to 1e-32 of the value gradient, far below what subtracting norms could see
    start, one, two = drawn(8, 8, scale=8**-0.5)
    norms = []
    for eps in (1e-4, 1e-5):
        tokens = start[:1] + eps * (start - start.mean(0))
        norms.append(gradients.logit_gradients(*blocks(tokens, one, two, Variant())[:2])[0])
    torch.testing.assert_close(norms[0] / norms[1], torch.tensor(1e4, dtype=torch.float64), rtol=1e-2, atol=0)


def test_runs_of_a_batch_are_independent():
    two_runs = [drawn(5, 6, seed) for seed in (3, 4)]
    start = torch.stack([run[0] for run in two_runs])
    one, two = (
        Weights(*(torch.stack(weights) for weights in zip(*(run[k] for run in two_runs), strict=True))) for k in (1, 2)
    )
    variant = Variant(centred=True, skip=True, norm=True)
    first, second, at_input = blocks(start, one, two, variant)
    for k, run in enumerate(two_runs):
        alone = blocks(*run, variant)
        torch.testing.assert_close(
            gradients.value_gradient(first, second)[k], gradients.value_gradient(*alone[:2]), **EXACT
        )
        torch.testing.assert_close(
            gradients.transposed_gradient(first, at_input)[k],
            gradients.transposed_gradient(alone[0], alone[2]),
            **EXACT,
        )


def test_mistakes_are_named():
    start, one, _ = drawn(5, 6)
    with pytest.raises(ValueError, match="entry: weight 'value'; allowed: values, queries, keys"):
        gradients.entry(gradients.linearise(start, one), "value")
    with pytest.raises(FloatingPointError, match=r"linearise: .* \(5, 6\) is not finite"):
        gradients.linearise(start * float("nan"), one)
