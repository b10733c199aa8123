"""Changed attention against the library's own, and against a forward pass written out by hand."""

import math

import pytest
import torch
from torch import einsum
from torch.nn.functional import gelu, layer_norm
from transformers import AutoConfig

from rankcollapse import changed_attention
from rankcollapse.changed_attention import UNCHANGED, Change, changed, deflated, make_changeable
from rankcollapse.encoders import attention_weights, hidden_states, random_encoder
from rankcollapse.randomness import generator

WIDTH, HEADS, LAYERS = 12, 3, 3
BERT = {
    "vocab_size": 40,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}
SMALL = {
    "bert": BERT,
    "roberta": BERT | {"layer_norm_eps": 1e-5, "type_vocab_size": 1, "pad_token_id": 1},
    "gpt2": {"vocab_size": 40, "n_embd": WIDTH, "n_head": HEADS, "n_layer": LAYERS, "n_positions": 16},
}
IDS = torch.tensor([[5, 9, 7, 9, 30, 11], [12, 9, 9, 8, 6, 5]])
# Float64 forward passes of three small layers, written in another order of operations, agree to a few hundred eps.
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def encoder(kind, std=0.4):
    """A small float64 encoder; weights of std 0.4 take its attention far from uniform."""
    config = AutoConfig.for_model(kind, **SMALL[kind], initializer_range=std)
    config._attn_implementation = "eager"
    return random_encoder(config, generator(0, "test_changed_attention", kind)).double()


def random_attention(tokens=7):
    logits = torch.randn(2, HEADS, tokens, tokens, generator=generator(0, "attention"), dtype=torch.float64)
    return logits.softmax(-1)


@pytest.mark.parametrize("kind", SMALL)
@torch.inference_mode()
def test_without_a_change_it_is_eager_attention_bit_for_bit(kind):
    model = encoder(kind)
    eager = hidden_states(model, IDS), attention_weights(model, IDS)
    make_changeable(model)
    for change in (None, UNCHANGED):
        ours = hidden_states(model, IDS, change), attention_weights(model, IDS, change)
        for expected, found in zip(eager, ours, strict=True):
            assert all(map(torch.equal, expected, found))


def by_hand(model, change_matrix, gain):
    """A BERT or RoBERTa whose heads compute gain B V, B = change_matrix(A)."""
    table, start = model.embeddings, 2 if model.config.model_type == "roberta" else 0
    x = table.word_embeddings.weight[IDS] + table.position_embeddings.weight[start : start + IDS.shape[1]]
    states = [norm(x + table.token_type_embeddings.weight[0], table.LayerNorm)]
    for block in model.encoder.layer:
        x, inner = states[-1], block.attention.self
        q, k, v = (linear(x, part).unflatten(-1, (HEADS, -1)) for part in (inner.query, inner.key, inner.value))
        a = (einsum("bihd,bjhd->bhij", q, k) / math.sqrt(WIDTH // HEADS)).softmax(-1)
        heads = gain * einsum("bhij,bjhd->bihd", change_matrix(a), v).flatten(-2)
        y = norm(linear(heads, block.attention.output.dense) + x, block.attention.output.LayerNorm)
        z = linear(gelu(linear(y, block.intermediate.dense)), block.output.dense)
        states.append(norm(z + y, block.output.LayerNorm))
    return states


def norm(x, module):
    return layer_norm(x, x.shape[-1:], module.weight, module.bias, module.eps)


def linear(x, module):
    return einsum("bti,oi->bto", x, module.weight) + module.bias


def without_largest_singular_value(a):
    u, s, vh = torch.linalg.svd(a)
    return a - s[..., :1, None] * u[..., :1] @ vh[..., :1, :]


REFERENCE = {
    "as it is": lambda a: a,
    "centred": lambda a: einsum("bhij,jk->bhik", a, torch.eye(6, dtype=a.dtype) - 1 / 6),  # A 1 = 1: A (I - 11^T/T)
    "mean removed": lambda a: einsum("ij,bhjk->bhik", torch.eye(6, dtype=a.dtype) - 1 / 6, a),
    "deflated": without_largest_singular_value,
}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("matrix", REFERENCE)
@torch.inference_mode()
def test_changed_models_are_the_forward_pass_written_by_hand(kind, matrix, monkeypatch):
    monkeypatch.setattr(changed_attention, "CONVERGED", 1e-13)  # in float64 power iteration can be that good
    model = make_changeable(encoder(kind))
    found = hidden_states(model, IDS, Change(matrix, gain=3.0))
    expected = by_hand(model, REFERENCE[matrix], 3.0)
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-9, atol=1e-10)
    if matrix != "as it is":
        assert not torch.allclose(found[1], by_hand(model, REFERENCE["as it is"], 3.0)[1], atol=0.1)


@pytest.mark.parametrize("kind", SMALL)
@torch.inference_mode()
def test_centred_attention_sends_the_vector_of_ones_to_zero(kind):
    model = make_changeable(encoder(kind))
    plain, centred = attention_weights(model, IDS), attention_weights(model, IDS, Change("centred", gain=5.0))
    assert max(layer.sum(-1).abs().max() for layer in centred) < 1e-14
    # The first layer's own attention is that of the model as it is: nothing below it has changed.
    uniform = torch.ones(6, 6, dtype=torch.float64)
    uniform = uniform.tril() if kind == "gpt2" else uniform
    torch.testing.assert_close(centred[0] + uniform / uniform.sum(-1, keepdim=True), plain[0], rtol=0, atol=1e-14)
    if kind == "gpt2":
        assert all((layer.triu(1) == 0).all() for layer in centred)


@torch.inference_mode()
def test_a_centred_causal_decoder_is_still_causal():
    model = make_changeable(encoder("gpt2"))
    change = Change("centred", gain=2.0)
    whole, start = hidden_states(model, IDS, change), hidden_states(model, IDS[:, :4], change)
    for long, short in zip(whole, start, strict=True):
        torch.testing.assert_close(long[:, :4], short, **CLOSE)


@torch.inference_mode()
def test_hidden_keys_have_no_part_in_the_uniform_attention():
    model = make_changeable(encoder("bert"))
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    change = Change("centred", gain=2.0)
    padded = model(input_ids=IDS, attention_mask=mask, change=change).last_hidden_state
    alone = model(input_ids=IDS[:1, :4], change=change).last_hidden_state
    torch.testing.assert_close(padded[:1, :4], alone, **CLOSE)


@torch.inference_mode()
def test_a_gain_is_a_factor_of_the_value_weights():
    model = make_changeable(encoder("roberta"))
    gained = hidden_states(model, IDS, Change(gain=50.0))
    for block in model.encoder.layer:
        block.attention.self.value.weight.mul_(50)
    torch.testing.assert_close(torch.stack(gained), torch.stack(hidden_states(model, IDS)), **CLOSE)


@torch.inference_mode()
def test_without_attention_the_values_do_not_matter():
    model = make_changeable(encoder("roberta"))
    off = hidden_states(model, IDS, Change(gain=0.0))
    for block in model.encoder.layer:
        block.attention.self.value.weight.zero_()
    torch.testing.assert_close(torch.stack(off), torch.stack(hidden_states(model, IDS)), **CLOSE)


@pytest.mark.parametrize("kind", SMALL)
@torch.inference_mode()
def test_a_change_in_one_layer_leaves_those_below_alone(kind):
    model = make_changeable(encoder(kind))
    plain = hidden_states(model, IDS)
    second = hidden_states(model, IDS, Change("centred", layers=(1,)))
    assert [torch.equal(*pair) for pair in zip(plain, second, strict=True)] == [True, True, False, False]
    sums = [layer.sum(-1) for layer in attention_weights(model, IDS, Change("centred", layers=(1,)))]
    # float64 sums of six entries of order one
    torch.testing.assert_close(
        torch.stack(sums).mean((1, 2, 3)), torch.tensor([1.0, 0, 1]).double(), atol=1e-14, rtol=0
    )


def test_deflation_is_that_of_a_singular_value_decomposition():
    attention = random_attention()
    # CONVERGED bounds the error of v_1 by 1e-6 over the relative gap of s^2, which is not below 0.3 here.
    torch.testing.assert_close(deflated(attention), without_largest_singular_value(attention), rtol=0, atol=1e-5)


def test_deflation_without_a_gap_says_so():
    with pytest.raises(FloatingPointError, match="no convergence in 200 steps"):
        deflated(torch.diag(torch.tensor([1.0, 0.99])))


def test_changes_of_a_matrix_by_hand():
    attention = torch.tensor([[0.75, 0.25], [0.25, 0.75]]).expand(1, 1, 2, 2)
    half = torch.tensor([[0.25, -0.25], [-0.25, 0.25]])
    for matrix in ("centred", "mean removed", "deflated"):  # symmetric and doubly stochastic: all three are the same
        torch.testing.assert_close(changed(attention, Change(matrix))[0, 0], half, rtol=0, atol=1e-7)  # float32
    skewed = torch.tensor([[1.0, 0.0], [0.5, 0.5]]).expand(1, 1, 2, 2)
    assert changed(skewed, Change("centred"))[0, 0].tolist() == [[0.5, -0.5], [0, 0]]
    assert changed(skewed, Change("mean removed"))[0, 0].tolist() == [[0.25, -0.25], [-0.25, 0.25]]


def test_centring_takes_one_to_zero_and_leaves_the_other_eigenvalues():
    attention = random_attention()
    before, after = (
        torch.linalg.eigvals(matrix).abs().sort(-1, descending=True).values
        for matrix in (attention, changed(attention, Change("centred")))
    )
    # eigenvalues of a non-normal 7 x 7 matrix: good to eps times a condition number of some thousands at most
    torch.testing.assert_close(after[..., :-1], before[..., 1:], rtol=0, atol=1e-11)
    assert after[..., -1].max() < 1e-11


def test_what_is_not_defined_is_refused():
    with pytest.raises(ValueError, match="'deflated' is not defined under a mask; allowed: as it is, centred"):
        hidden_states(make_changeable(encoder("gpt2")), IDS, Change("deflated"))
    with pytest.raises(ValueError, match="attention 'eager' takes no change; make_changeable first"):
        hidden_states(encoder("bert"), IDS, Change("centred"))


@torch.inference_mode()
def test_rows_that_do_not_sum_to_zero_are_refused(monkeypatch):
    monkeypatch.setattr(changed_attention, "centre", lambda attention: attention - 0.1)
    with pytest.raises(RuntimeError, match=r"attention of layer 1: row sums are off 0 by 4\.0e-01, allowed 1e-5"):
        attention_weights(make_changeable(encoder("bert")), IDS, Change("centred"))
