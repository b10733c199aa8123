import dataclasses

import numpy as np
import pytest
import torch

from rankcollapse import encoders
from rankcollapse.measurements import tinybert_width
from rankcollapse.measurements.tinybert_width import pattern
from rankcollapse.randomness import generator
from rankcollapse.settings.encoders import TinybertWidth
from rankcollapse.tokens import TextError
from rankcollapse.validation import ConfigError

SMALL = """
bert-small: {model_type: bert, vocab_size: 30522, hidden_size: 24, num_hidden_layers: 2, num_attention_heads: 3,
  intermediate_size: 48, max_position_embeddings: 64, type_vocab_size: 2, layer_norm_eps: 1.0e-12, pad_token_id: 0}
"""
CPU = torch.device("cpu")
SOURCES = ("text", "published", "distinct")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    models = tmp_path_factory.mktemp("tinybert_width") / "models.yaml"
    models.write_text(SMALL)
    return TinybertWidth(
        models=str(models),
        architecture="bert-small",
        sources=SOURCES,
        text="resources/text/attention.txt",
        repeats="resources/published/fig_II_token_repeats.csv",
        lengths=(8, 40),
        spectrum_lengths=(40,),
        head=1,
        runs=3,
    )


@pytest.fixture(scope="module")
def tensors(settings):
    return tinybert_width.measure(settings, device=CPU, seed=0)


def test_keys_and_axes(tensors):
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    assert shapes.pop("stable_rank") == (3, 2, 2, 3, 2)
    assert shapes == {f"eigenvalues_{part}/{source}/40": (3, 40) for part in ("re", "im") for source in SOURCES}
    assert all(value.isfinite().all() and value.is_contiguous() for value in tensors.values())


@torch.inference_mode()
def test_against_the_encoder_itself(settings, tensors):
    """Stable ranks from singular values, eigenvalues from numpy, the token-type row taken out by hand."""
    config = encoders.architecture(settings.models, "bert-small", 1)
    config.vocab_size = 41
    encoder = encoders.random_encoder(config, generator(0, "tinybert_width", 2))
    ids = 1 + torch.tensor([pattern(settings, "published", 40)])
    moduli = np.abs(np.linalg.eigvals(encoders.attention_weights(encoder, ids)[0][0, 1].numpy()))
    expected = torch.from_numpy(moduli).double().sort(descending=True).values
    found = torch.complex(tensors["eigenvalues_re/published/40"][2], tensors["eigenvalues_im/published/40"][2]).abs()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)  # numpy's are float32: some eps = 1.2e-7
    table = encoder.embeddings
    places = table.word_embeddings(ids) + table.position_embeddings(torch.arange(40))
    for row, kind in enumerate((table.token_type_embeddings.weight[0], torch.zeros(24))):
        singular = torch.linalg.svdvals(table.LayerNorm(places + kind)[0].double())
        rank = (singular.pow(4).sum() / singular[0].pow(4)).item()
        assert tensors["stable_rank"][1, row, 1, 2, 0].item() == pytest.approx(rank, rel=1e-5)  # float32 tokens


def test_the_shared_row_makes_tokens_alike_before_any_attention(tensors):
    shared, none = tensors["stable_rank"][2, :, 1, :, 0]
    # Cosine 1/3 between distinct tokens: sr - 1 is 4 (1/T + 1/d) = 0.27; without it tokens are Gaussian, of stable rank
    # T (1 + g) / (1 + sqrt g)^4, g = T/d = 40/24: 3.9. Both to a third at these sizes.
    assert (shared - 1 < 0.4).all()
    assert (none > 2.6).all()


def test_patterns(settings):
    assert pattern(settings, "distinct", 5) == [0, 1, 2, 3, 4]
    text, published = pattern(settings, "text", 40), pattern(settings, "published", 40)
    for found in (text, published):
        assert len(set(found)) < len(found) == 40
        assert found[-1] == 39  # the end token occurs once
    with pytest.raises(TextError, match="447 needed"):
        pattern(settings, "published", 447)


def test_a_seed_gives_the_same_numbers_again_and_a_subset_too(settings, tensors):
    fewer = dataclasses.replace(settings, runs=2, sources=("distinct", "text"))
    again = tinybert_width.measure(fewer, device=CPU, seed=0)
    assert torch.equal(again["eigenvalues_re/text/40"], tensors["eigenvalues_re/text/40"][:2])
    assert torch.equal(again["stable_rank"], tensors["stable_rank"][[2, 0]][:, :, :, :2])
    other = tinybert_width.measure(fewer, device=CPU, seed=1)
    assert not torch.equal(again["stable_rank"], other["stable_rank"])


def test_bad_settings_are_refused_in_one_line(settings):
    with pytest.raises(ConfigError, match="bert-small has positions for 64 tokens, 65 asked for"):
        tinybert_width.measure(dataclasses.replace(settings, lengths=(8, 65)), device=CPU, seed=0)
    with pytest.raises(ConfigError, match="bert-small has 3 heads, head 3"):
        tinybert_width.measure(dataclasses.replace(settings, head=3), device=CPU, seed=0)


def test_states_that_are_not_finite_stop_with_their_name(settings, monkeypatch):
    broken = [torch.full((1, 8, 24), torch.inf)] * 2
    monkeypatch.setattr(tinybert_width.encoders, "hidden_states", lambda *_: broken)
    with pytest.raises(FloatingPointError, match=r"tinybert_width: text, run 0: stable_rank"):
        tinybert_width.measure(settings, device=CPU, seed=0)
