"""Trained blocks on a scale-free state: against the library's float64 pass, and against mpmath far below it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from transformers import AutoConfig

from rankcollapse.encoders import VARIANTS, hidden_states, random_encoder, variant
from rankcollapse.randomness import generator
from rankcollapse.residual import local_order, relative_residual_composite
from rankcollapse.scalefree import from_tokens
from rankcollapse.scalefree_bert import blocks, follow, step

WIDTH, HEADS, LAYERS, TOKENS = 6, 2, 4, 5
SIZES = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "vocab_size": 30}
SIZES |= {"intermediate_size": 10, "max_position_embeddings": 16}
IDS = torch.tensor([[5, 9, 7, 9, 22], [12, 9, 9, 8, 6]])


def encoder(kind="bert", **changes):
    """A small encoder in float64 whose biases and layer norms are random too, as a trained one's are."""
    config = AutoConfig.for_model(kind, **SIZES | changes)
    config._attn_implementation = "eager"
    made = random_encoder(config, generator(0, "test_scalefree_bert", kind)).double()
    rng = generator(0, "test_scalefree_bert", "all parameters")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64), alpha=0.5)
    return made


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@torch.inference_mode()
def test_every_variant_is_the_librarys_pass_where_that_has_digits(kind, name):
    model = encoder(kind)
    plain = torch.stack(hidden_states(variant(model, name), IDS))
    states = follow(plain[0], blocks(model), VARIANTS[name])
    assert len(states) == LAYERS + 1
    # Rows of order one through four blocks in another order of operations: some hundred roundings of 1e-16.
    torch.testing.assert_close(torch.stack([state.tokens for state in states]), plain, rtol=1e-11, atol=1e-12)
    composite = torch.stack([state.log_relative_composite for state in states])
    # A residual of 1e-3 has three digits less in the plain pass.
    expected = relative_residual_composite(plain).log()
    resolved = expected > np.log(1e-3)
    torch.testing.assert_close(composite[resolved], expected[resolved], rtol=0, atol=1e-8)


# ---------------------------------------------------------------- the reference: the same block in mpmath numbers

exp, root = (np.vectorize(f, otypes=[object]) for f in (mp.exp, mp.sqrt))
gelu = np.vectorize(lambda a: a * mp.erfc(-a / mp.sqrt(2)) / 2, otypes=[object])


def exact(tensor):
    return np.vectorize(mpf, otypes=[object])(tensor.detach().double().numpy())


def linear(x, module):
    return x @ exact(module.weight).T + exact(module.bias)


def norm(x, module):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / root(variance + mpf(module.eps)) * exact(module.weight) + exact(module.bias)


def block_in_mpmath(x, layer, keep):
    inner, part = layer.attention.self, WIDTH // HEADS
    q, k, v = (linear(x, module) for module in (inner.query, inner.key, inner.value))
    mixed = []
    for head in range(HEADS):
        own = slice(head * part, (head + 1) * part)
        weights = exp(q[:, own] @ k[:, own].T / mp.sqrt(part))
        mixed.append(weights / weights.sum(-1, keepdims=True) @ v[:, own])
    y = linear(np.hstack(mixed), layer.attention.output.dense)
    y = norm(x + y if keep.attention_skip else y, layer.attention.output.LayerNorm)
    if not keep.mlp:
        return y
    z = linear(gelu(linear(y, layer.intermediate.dense)), layer.output.dense)
    return norm(y + z if keep.mlp_skip else z, layer.output.LayerNorm)


@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_the_residual_is_mpmaths_far_below_double_precision(name):
    """From a residual of 1e-6 on, the cube of the cube ... reaches 1e-480; the reference has the digits to see it."""
    model, keep = encoder(), VARIANTS[name]
    embedded = from_tokens(hidden_states(model, IDS[:1])[0][0])
    state = replace(embedded, log_norm=torch.tensor(np.log(1e-6)))
    with mp.workdps(1000):
        x = exact(state.mean) + mp.exp(mpf(state.log_norm.item())) * exact(state.direction)
        for layer, block in zip(model.encoder.layer, blocks(model), strict=True):
            x, state = block_in_mpmath(x, layer, keep), step(state, block, keep)
            residual = x - x.mean(0)
            log_norm = mp.log(mp.sqrt((residual * residual).sum()))
            assert float(abs(mpf(state.log_norm.item()) / log_norm - 1)) < 1e-12
    if not keep.attention_skip:
        assert state.log_norm < -480 * np.log(10)


@pytest.mark.parametrize("name", [name for name, keep in VARIANTS.items() if not keep.attention_skip])
@torch.inference_mode()
def test_one_block_has_order_three_without_its_skip(name):
    model = encoder()
    embedded = hidden_states(model, IDS)[0]
    states = follow(embedded, blocks(model), VARIANTS[name], cycles=3)
    assert len(states) == 3 * LAYERS + 1
    order = local_order(torch.stack([state.log_norm for state in states], -1))
    # By then the logarithm is in the thousands, and what the weights of a block add to it is a few units.
    assert (order[..., -1] - 3).abs().max() < 0.01


@torch.inference_mode()
def test_the_keys_bias_does_not_matter():
    model = encoder()
    before = follow(hidden_states(model, IDS)[0], blocks(model), VARIANTS["SAN"])[-1]
    plain = hidden_states(model, IDS)[-1]
    for layer in model.encoder.layer:
        layer.attention.self.key.bias.add_(3.0)
    assert torch.equal(
        follow(hidden_states(model, IDS)[0], blocks(model), VARIANTS["SAN"])[-1].log_norm, before.log_norm
    )
    torch.testing.assert_close(hidden_states(model, IDS)[-1], plain, rtol=1e-10, atol=1e-12)


@torch.inference_mode()
def test_one_block_at_a_time_is_the_stack():
    model = encoder()
    stack = blocks(model)
    states = follow(hidden_states(model, IDS)[0], stack, VARIANTS["transformer"], cycles=2)
    again = step(states[LAYERS], stack[0], VARIANTS["transformer"])
    assert torch.equal(again.log_norm, states[LAYERS + 1].log_norm)


def test_what_has_no_scale_free_step_is_refused_in_one_line():
    other = AutoConfig.for_model("albert", **SIZES, embedding_size=4)
    with pytest.raises(
        ValueError, match=r"^no scale-free block for the architecture 'albert'; allowed: bert, roberta$"
    ):
        blocks(random_encoder(other, generator(0)))
    with pytest.raises(
        ValueError, match=r"^no scale-free step for the activation 'gelu_new'; allowed: relu, tanh, gelu$"
    ):
        blocks(encoder(hidden_act="gelu_new"))
