"""The encoders against forward passes written out by hand, from the models' own weights."""

import math

import pytest
import torch
from scipy import stats
from torch import einsum
from torch.nn.functional import gelu, layer_norm
from transformers import AutoConfig, AutoModel

from rankcollapse import encoders
from rankcollapse.encoders import VARIANTS, attention_weights, hidden_states, random_encoder, variant
from rankcollapse.randomness import generator

MODELS = "config/models.yaml"
WIDTH, HEADS, LAYERS, INNER, VOCABULARY = 12, 3, 3, 20, 40
BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": INNER,
    "max_position_embeddings": 16,
}
XLNET = {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_head": HEADS, "n_layer": LAYERS, "d_inner": INNER}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_head": HEADS, "n_layer": LAYERS, "n_positions": 16}
SMALL = {
    "bert": BERT,
    "roberta": BERT | {"layer_norm_eps": 1e-5, "type_vocab_size": 1, "pad_token_id": 1},
    "albert": BERT | {"embedding_size": 8, "hidden_act": "gelu_new"},
    "xlnet": XLNET,
    "gpt2": GPT2,
}
# Float64 forward passes of three small layers, written in another order of operations, agree to a few hundred eps.
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
# XLNet computes its sinusoids in float32, whose eps is 1.2e-7.
AS_CLOSE = {"xlnet": {"rtol": 1e-6, "atol": 1e-7}}
IDS = torch.tensor([[5, 9, 7, 9, 30, 11], [12, 9, 9, 8, 6, 5]])


def config(kind, **changes):
    made = AutoConfig.for_model(kind, **SMALL[kind] | changes)
    made._attn_implementation = "eager"
    return made


def encoder(kind, key=0, **changes):
    """A small encoder in float64 whose biases and layer norms are random too, so that each of them is tested."""
    made = random_encoder(config(kind, **changes), generator(0, "test_encoders", kind, key)).double()
    rng = generator(0, "test_encoders", "all parameters", kind, key)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64), alpha=0.4)
    return made


def norm(x, module):
    return layer_norm(x, x.shape[-1:], module.weight, module.bias, module.eps)


def linear(x, module):
    return einsum("bti,oi->bto", x, module.weight) + module.bias


def attention(x, query, key, value):
    """Heads side by side: softmax(q k^T / sqrt(d_k)) v."""
    q, k, v = (linear(x, module).unflatten(-1, (HEADS, -1)) for module in (query, key, value))
    logits = einsum("bihd,bjhd->bhij", q, k) / math.sqrt(WIDTH // HEADS)
    return einsum("bhij,bjhd->bihd", logits.softmax(-1), v).flatten(-2)


def embedded(model, ids, first_position):
    table = model.embeddings
    positions = torch.arange(first_position, first_position + ids.shape[1])
    x = table.word_embeddings.weight[ids] + table.position_embeddings.weight[positions]
    return norm(x + table.token_type_embeddings.weight[0], table.LayerNorm)


def bert_by_hand(model, ids, keep, first_position=0):
    states = [embedded(model, ids, first_position)]
    for block in model.encoder.layer:
        x, inner, output = states[-1], block.attention.self, block.attention.output
        y = linear(attention(x, inner.query, inner.key, inner.value), output.dense)
        y = norm(y + x if keep.attention_skip else y, output.LayerNorm)
        if keep.mlp:
            z = linear(gelu(linear(y, block.intermediate.dense)), block.output.dense)
            y = norm(z + y if keep.mlp_skip else z, block.output.LayerNorm)
        states.append(y)
    return states


def roberta_by_hand(model, ids, keep):
    return bert_by_hand(model, ids, keep, first_position=2)


def albert_by_hand(model, ids, keep):
    block = model.encoder.albert_layer_groups[0].albert_layers[0]
    inner = block.attention
    states = [linear(embedded(model, ids, 0), model.encoder.embedding_hidden_mapping_in)]
    for _ in range(LAYERS):
        x = states[-1]
        y = linear(attention(x, inner.query, inner.key, inner.value), inner.dense)
        y = norm(y + x if keep.attention_skip else y, inner.LayerNorm)
        z = gelu(linear(y, block.ffn) if keep.mlp else y, approximate="tanh")
        z = linear(z, block.ffn_output) if keep.mlp else z
        kept = keep.mlp_skip or not keep.mlp  # with identities for maps, the skip around them stays
        states.append(norm(z + y if kept else z, block.full_layer_layer_norm))
    return states


def xlnet_by_hand(model, ids, keep):
    tokens = ids.shape[1]
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None]
    angle = distance[..., None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    relative = torch.cat([angle.sin(), angle.cos()], -1).double()
    states = [model.word_embedding.weight[ids]]
    for block in model.layer:
        x, a = states[-1], block.rel_attn
        q, k, v = (einsum("bti,ihd->bthd", x, weight) for weight in (a.q, a.k, a.v))
        content = einsum("bihd,bjhd->bhij", q + a.r_w_bias, k)
        position = einsum("bihd,ijhd->bhij", q + a.r_r_bias, einsum("ijm,mhd->ijhd", relative, a.r))
        weights = ((content + position) / math.sqrt(WIDTH // HEADS)).softmax(-1)
        y = einsum("bhij,bjhd,ohd->bio", weights, v, a.o)
        y = norm(y + x if keep.attention_skip else y, a.layer_norm)
        if keep.mlp:
            z = linear(gelu(linear(y, block.ff.layer_1)), block.ff.layer_2)
            y = norm(z + y if keep.mlp_skip else z, block.ff.layer_norm)
        states.append(y)
    return states


BY_HAND = {"bert": bert_by_hand, "roberta": roberta_by_hand, "albert": albert_by_hand, "xlnet": xlnet_by_hand}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("kind", BY_HAND)
@torch.inference_mode()
def test_variants_are_the_forward_pass_written_by_hand(kind, name):
    model = encoder(kind)
    found = hidden_states(variant(model, name), IDS)
    expected = BY_HAND[kind](model, IDS, VARIANTS[name])
    assert len(found) == LAYERS + 1
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), **AS_CLOSE.get(kind, CLOSE))


@pytest.mark.parametrize("kind", BY_HAND)
@torch.inference_mode()
def test_surgery_copies_the_structure_and_shares_the_weights(kind):
    model = encoder(kind)
    before = torch.stack(hidden_states(model, IDS))
    copies = [variant(model, name) for name in VARIANTS]
    after = torch.stack(hidden_states(model, IDS))
    assert torch.equal(before, after)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    for operated in copies:
        assert {parameter.data_ptr() for parameter in operated.parameters()} <= own
    assert torch.equal(torch.stack(hidden_states(copies[-1], IDS)), before)  # "transformer" is the encoder itself


@pytest.mark.parametrize("kind", BY_HAND)
@torch.inference_mode()
def test_the_five_variants_are_five_different_networks(kind):
    model = encoder(kind)
    last = [hidden_states(variant(model, name), IDS)[-1] for name in VARIANTS]
    for place, one in enumerate(last):
        for other in last[:place]:
            assert (one - other).abs().max() > 1e-3  # the hidden states are of order one


@pytest.mark.parametrize("kind", BY_HAND)
@torch.inference_mode()
def test_surgery_on_a_model_with_a_head_reaches_its_encoder(kind):
    from transformers import AutoModelForSequenceClassification

    head = AutoModelForSequenceClassification.from_config(config(kind)).eval()
    operated = variant(head, "SAN")
    assert not torch.equal(operated(input_ids=IDS).logits, head(input_ids=IDS).logits)
    inner, alone = (hidden_states(model, IDS) for model in (operated.base_model, variant(head.base_model, "SAN")))
    assert torch.equal(torch.stack(inner), torch.stack(alone))


@torch.inference_mode()
def test_albert_without_skip_masks_as_the_library_does_whatever_the_kernel():
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    answers = []
    for kernel in ("eager", "sdpa"):
        model = encoder("albert")
        model.set_attn_implementation(kernel)
        answers.append(variant(model, "SAN")(input_ids=IDS, attention_mask=mask).last_hidden_state)
    torch.testing.assert_close(answers[0], answers[1], **CLOSE)
    alone = variant(encoder("albert"), "SAN")(input_ids=IDS[:1, :4]).last_hidden_state
    torch.testing.assert_close(answers[0][:1, :4], alone, **CLOSE)


def test_unknown_variants_and_architectures_are_answered_with_the_known_ones():
    model = random_encoder(config("bert"), generator(0))
    with pytest.raises(ValueError, match=r"^no variant 'MLP' of an encoder; allowed: SAN, SAN \+ MLP, SAN \+ skip, "):
        variant(model, "MLP")
    other = random_encoder(config("gpt2"), generator(0))
    with pytest.raises(
        ValueError, match=r"^no surgery for the architecture 'gpt2'; allowed: bert, roberta, albert, xln"
    ):
        variant(other, "SAN")


@pytest.mark.parametrize("kind", SMALL)
@torch.no_grad()
def test_initialisation_has_the_law_of_the_library(kind):
    """Parameter by parameter: the same constants where the library has constants, the same std where it draws."""
    size = 4 * WIDTH  # enough entries for a tight comparison of standard deviations
    wider = {"n_embd": size} if kind == "gpt2" else {"d_model": size} if kind == "xlnet" else {"hidden_size": size}
    made = config(kind, **wider, num_hidden_layers=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        reference = dict(AutoModel.from_config(made).named_parameters())
    ours = dict(random_encoder(made, generator(0, "law", kind)).named_parameters())
    assert ours.keys() == reference.keys()
    drawn = []
    for name, theirs in reference.items():
        same = theirs == 0 if (theirs == 0).any() else theirs == 1
        assert torch.equal(ours[name] == 0, theirs == 0), name
        assert torch.equal(ours[name] == 1, theirs == 1), name
        a, b = ours[name][~same], theirs[~same]
        if len(a):
            # The log ratio of two sample stds of n normals has std 1/sqrt(n); five of them, over some 60 parameters.
            assert abs(math.log(a.std() / b.std())) < 5 / math.sqrt(len(a)), name
            drawn.append(a / b.std())
    assert stats.kstest(torch.cat(drawn).numpy(), "norm").pvalue > 1e-3  # fails one seed in a thousand


def test_initialisation_by_the_rules():
    model = random_encoder(config("roberta"), generator(0, "rules"), word_embedding_std=1.0)
    table = model.embeddings
    assert (table.word_embeddings.weight[1] == 0).all()  # the padding token
    assert (table.position_embeddings.weight[1] == 0).all()  # and its position
    entries = VOCABULARY * WIDTH
    assert abs(table.word_embeddings.weight.std() - 1) < 5 / math.sqrt(2 * entries) + 1 / VOCABULARY  # the zero row
    assert abs(model.encoder.layer[0].attention.self.query.weight.std() / 0.02 - 1) < 5 / math.sqrt(2 * WIDTH**2)
    assert not model.training


def test_only_the_generator_decides_and_the_global_one_is_left_alone():
    before = torch.get_rng_state()
    first, again, other = (
        random_encoder(config("xlnet"), generator(0, "encoder", key)).layer[0].rel_attn.q for key in (1, 1, 2)
    )
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("kind", SMALL)
@torch.inference_mode()
def test_attention_weights_are_all_there(kind):
    weights = attention_weights(encoder(kind), IDS)
    assert [tuple(layer.shape) for layer in weights] == [(2, HEADS, 6, 6)] * LAYERS


@torch.inference_mode()
def test_attention_weights_against_a_softmax_by_hand():
    model = encoder("roberta")
    x = roberta_by_hand(model, IDS, VARIANTS["transformer"])[1]
    inner = model.encoder.layer[1].attention.self
    q, k = (linear(x, module).unflatten(-1, (HEADS, -1)) for module in (inner.query, inner.key))
    expected = (einsum("bihd,bjhd->bhij", q, k) / math.sqrt(WIDTH // HEADS)).softmax(-1)
    torch.testing.assert_close(attention_weights(model, IDS)[1], expected, **CLOSE)


@torch.inference_mode()
def test_attention_weights_that_are_missing_or_no_weights_are_refused(monkeypatch):
    model = encoder("bert")
    model.set_attn_implementation("sdpa")
    with pytest.raises(RuntimeError, match=r"^0 attention tensors; 3 of shape \(2, 3, 6, 6\) expected$"):
        attention_weights(model, IDS)
    model = encoder("bert").train()  # dropout on attention weights: rows no longer sum to 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with pytest.raises(RuntimeError, match="attention of layer 1: row sums are off 1"):
            attention_weights(model, IDS)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # those of the public checkpoints, pooler included
        ("roberta-base", 124_645_632),
        ("bert-base-cased", 108_310_272),
        ("albert-base-v2", 11_683_584),
        ("xlnet-base-cased", 116_718_336),
        ("tinybert-4l-312d", 14_350_248),
        ("gpt2", 124_439_808),
    ],
)
def test_architectures_have_as_many_parameters_as_the_public_checkpoints(name, parameters):
    with torch.device("meta"):
        model = AutoModel.from_config(encoders.architecture(MODELS, name))
    assert model.num_parameters() == parameters


def test_architectures_can_be_cut_short_and_are_eager():
    for name, layers in (("xlnet-base-cased", 2), ("roberta-base", 1)):
        made = encoders.architecture(MODELS, name, layers)
        assert (made.num_hidden_layers, made._attn_implementation) == (layers, "eager")
    made = encoders.architecture(MODELS, "roberta-base")
    assert (made.layer_norm_eps, made.type_vocab_size, made.max_position_embeddings) == (1e-5, 1, 514)
    assert made.num_hidden_layers == 12
