import dataclasses

import pytest
import torch
from pydantic import ValidationError

from rankcollapse import encoders
from rankcollapse.measurements import encoder_depth
from rankcollapse.settings.dong import EncoderDepth
from rankcollapse.tokens import TextError
from rankcollapse.validation import ConfigError

SMALL = """
bert-small: {model_type: bert, vocab_size: 900, hidden_size: 24, num_hidden_layers: 4, num_attention_heads: 3,
  intermediate_size: 48, max_position_embeddings: 32, pad_token_id: 0}
albert-small: {model_type: albert, vocab_size: 900, embedding_size: 8, hidden_size: 24, num_hidden_layers: 4,
  num_attention_heads: 3, intermediate_size: 48, max_position_embeddings: 32, pad_token_id: 0}
xlnet-small: {model_type: xlnet, vocab_size: 900, d_model: 24, n_layer: 4, n_head: 3, d_inner: 48}
"""
ARCHITECTURES = ("bert-small", "albert-small", "xlnet-small")
VARIANTS = ("SAN", "SAN + MLP", "SAN + skip", "transformer")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    models = tmp_path_factory.mktemp("encoder_depth") / "models.yaml"
    models.write_text(SMALL)
    return EncoderDepth(
        models=str(models),
        architectures=ARCHITECTURES,
        variants=VARIANTS,
        layers=4,
        text="resources/text/passages.txt",
        texts=4,
        tokens=20,
        inits=2,
    )


@pytest.fixture(scope="module")
def tensors(settings):
    return encoder_depth.measure(settings, device=CPU, seed=0)


def test_axes(tensors):
    assert {key: (tuple(value.shape), value.dtype) for key, value in tensors.items()} == {
        "relative_residual": ((3, 4, 2, 2, 5), torch.float32),
        "token_repeats": ((2, 2, 20), torch.int64),
    }


def test_layer_0_is_the_same_in_all_variants_of_an_init(tensors):
    embedded = tensors["relative_residual"][..., 0]
    assert torch.equal(embedded, embedded[:, :1].expand_as(embedded))


def test_san_collapses_and_the_transformer_does_not(tensors):
    final = tensors["relative_residual"][..., -1].mean((-1, -2))
    assert (final[:, :2] < 1e-5).all()  # without attention skip: the float32 rounding floor, about 1e-7
    assert (final[:, 2:] > 0.05).all()  # four layers with skips leave most of it


def test_residuals_are_the_definition_worked_out_in_float64(settings, tensors):
    """Rebuild one encoder and take sums and maxima of numpy arrays, text by text."""
    config = encoders.architecture(settings.models, "albert-small", 4)
    encoder = encoders.random_encoder(config, encoder_depth.generator(0, "encoder_depth", "albert-small", 1))
    texts = encoder_depth.renumbered(encoder_depth.passages(settings.text, 4, 20, "bert"), encoder_depth.FIRST_ID)
    operated = encoders.variant(encoder, "SAN + skip")
    for place, text in enumerate(texts[2:]):  # init 1 reads the second half
        with torch.inference_mode():
            states = encoders.hidden_states(operated, torch.tensor([text]))
        for layer, state in enumerate(states):
            x = state[0].double().numpy()
            residual = abs(x - x.mean(0))
            ratio = (residual.sum(0).max() * residual.sum(1).max() / (abs(x).sum(0).max() * abs(x).sum(1).max())) ** 0.5
            # Float32 sums of at most 24 entries, batched or not: a few eps = 1.2e-7.
            assert tensors["relative_residual"][1, 2, 1, place, layer].item() == pytest.approx(ratio, rel=5e-6)


def test_only_which_tokens_are_equal_matters(settings, tensors):
    """Permuting the embedding rows leaves the law alone: exactly so when the rows move with the tokens."""
    config = encoders.architecture(settings.models, "bert-small", 4)
    encoder = encoders.random_encoder(config, encoder_depth.generator(0, "permuted"))
    moved = torch.randperm(890, generator=encoder_depth.generator(0, "rows")) + 10
    ids = torch.tensor(encoder_depth.renumbered(encoder_depth.passages(settings.text, 4, 20, "bert"), 10))
    before = torch.stack(encoders.hidden_states(encoder, ids))
    with torch.no_grad():
        table = encoder.embeddings.word_embeddings.weight
        table[moved] = table[10:].clone()
    assert torch.equal(before, torch.stack(encoders.hidden_states(encoder, moved[ids - 10])))


def test_a_seed_gives_the_same_numbers_again_and_another_seed_others(settings, tensors):
    few = dataclasses.replace(settings, architectures=("bert-small",))
    again, other = (encoder_depth.measure(few, device=CPU, seed=seed)["relative_residual"] for seed in (0, 1))
    # An architecture's numbers do not depend on which others are measured.
    assert torch.equal(again, tensors["relative_residual"][:1])
    assert not torch.equal(again, other)


def test_bad_settings_are_refused_in_one_line(settings):
    with pytest.raises(ValidationError, match=r"texts: 4; must be a multiple of inits = 3"):
        dataclasses.replace(settings, inits=3)
    with pytest.raises(ConfigError, match="bert-small has positions for 32 tokens, 33 asked for"):
        encoder_depth.measure(dataclasses.replace(settings, tokens=33), device=CPU, seed=0)
    with pytest.raises(ConfigError, match="no architecture 'bert-big'"):
        encoder_depth.measure(dataclasses.replace(settings, architectures=("bert-big",)), device=CPU, seed=0)
    with pytest.raises(TextError, match=r"has 34 passages of at least 20 bert tokens, 36 needed"):
        encoder_depth.measure(dataclasses.replace(settings, texts=36), device=CPU, seed=0)


def test_a_residual_that_is_not_finite_stops_with_its_name(settings, monkeypatch):
    monkeypatch.setattr(encoder_depth, "relative_residual_composite", lambda x: x.sum((-1, -2)) * float("nan"))
    with pytest.raises(FloatingPointError, match="encoder_depth: bert-small, SAN, init 0: a residual is not finite"):
        encoder_depth.measure(settings, device=CPU, seed=0)
