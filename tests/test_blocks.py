import pytest
import torch

from rankcollapse.blocks import LAYER_NORM_EPSILON, attention_block, layer_norm
from rankcollapse.randomness import generator

EXACT = 1e-12  # float64, products over 8 terms


@pytest.fixture
def parts():
    g = generator(0, "test_blocks")
    return [torch.randn(2, *shape, generator=g, dtype=torch.float64) for shape in ((5, 8), (5, 5), (8, 8))]


def test_block_by_hand():
    tokens = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    attention = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    values = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    # A X = (.5, 1; 0, 2), swapped columns (1, .5; 2, 0)
    assert attention_block(tokens, attention, values, skip=False, norm=False).tolist() == [[1, 0.5], [2, 0]]
    assert attention_block(tokens, attention, values, skip=True, norm=False).tolist() == [[2, 0.5], [2, 2]]


def test_norm_comes_after_the_skip(parts):
    tokens, attention, values = parts
    plain = attention_block(tokens, attention, values, skip=True, norm=False)
    torch.testing.assert_close(
        attention_block(tokens, attention, values, skip=True, norm=True), layer_norm(plain), rtol=EXACT, atol=EXACT
    )


def test_layer_norm_by_its_formula(parts):
    tokens = parts[0]
    centred = tokens - tokens.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    expected = centred / (variance + LAYER_NORM_EPSILON).sqrt()
    torch.testing.assert_close(layer_norm(tokens), expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("skip", [False, True])
def test_without_norm_the_block_is_linear_in_the_tokens(parts, skip):
    tokens, attention, values = parts
    whole = attention_block(1e3 * tokens, attention, values, skip=skip, norm=False)
    torch.testing.assert_close(
        whole, 1e3 * attention_block(tokens, attention, values, skip=skip, norm=False), rtol=EXACT, atol=1e3 * EXACT
    )


def test_permuting_tokens_permutes_the_output(parts):
    tokens, attention, values = parts
    order = torch.tensor([3, 1, 4, 0, 2])
    permuted = attention_block(tokens[:, order], attention[:, order][:, :, order], values, skip=True, norm=True)
    expected = attention_block(tokens, attention, values, skip=True, norm=True)[:, order]
    torch.testing.assert_close(permuted, expected, rtol=EXACT, atol=EXACT)


def test_shapes_that_do_not_fit_are_named(parts):
    tokens, attention, values = parts
    with pytest.raises(ValueError, match=r"tokens \(2, 5, 8\) do not fit attention \(2, 4, 4\)"):
        attention_block(tokens, attention[:, :4, :4], values, skip=False, norm=False)
    with pytest.raises(ValueError, match=r"values \(2, 7, 7\)"):
        attention_block(tokens, attention, values[:, :7, :7], skip=False, norm=False)
