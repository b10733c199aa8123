import dataclasses

import pytest
import torch
from scipy.stats import ks_2samp

from rankcollapse.measurements import roberta_attention
from rankcollapse.measurements.roberta_attention import statistics, token_inputs, tokens_with_pattern
from rankcollapse.randomness import generator
from rankcollapse.settings.encoders import RobertaAttention
from rankcollapse.tokens import TextError, first_positions, repeat_patterns
from rankcollapse.validation import ConfigError

SMALL = """
roberta-small: {model_type: roberta, vocab_size: 50300, hidden_size: 24, num_hidden_layers: 2, num_attention_heads: 3,
  intermediate_size: 48, max_position_embeddings: 80, type_vocab_size: 1, layer_norm_eps: 1.0e-5, pad_token_id: 1}
"""
CPU = torch.device("cpu")
STDS = ("0.02", "1")
REPEATS = "resources/published/fig_II_token_repeats.csv"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    models = tmp_path_factory.mktemp("roberta_attention") / "models.yaml"
    models.write_text(SMALL)
    return RobertaAttention(
        models=str(models),
        architecture="roberta-small",
        word_embedding_stds=(0.02, 1.0),
        sources=("text", "published"),
        text="resources/text/attention.txt",
        repeats=REPEATS,
        lengths=(75,),
        head=1,
        runs=3,
    )


@pytest.fixture(scope="module")
def tensors(settings):
    return roberta_attention.measure(settings, device=CPU, seed=0)


def test_keys_and_axes(tensors):
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    assert {key: shape for key, shape in shapes.items() if "/gram/" in key} == {
        f"{std}/gram/{source}/75": (75, 75) for std in STDS for source in ("text", "published")
    }
    assert shapes["0.02/eigenvalues_re/text/75"] == shapes["1/eigenvalues_im/published/75"] == (3, 75)
    assert shapes["token_repeats/text/75"] == (75,)
    tables = {"stable_rank", "top_eigenvalue", "bulk_radius", "diagonal/mean", "off_diagonal/q99"}
    assert {shapes[f"{std}/{key}"] for std in STDS for key in tables} == {(2, 1, 3)}
    assert all(value.is_contiguous() and value.isfinite().all() for value in tensors.values())


def test_eigenvalues_are_those_of_a_row_stochastic_matrix(tensors):
    for std, source in (("0.02", "text"), ("1", "text"), ("0.02", "published")):
        values = torch.complex(*(tensors[f"{std}/eigenvalues_{part}/{source}/75"] for part in ("re", "im")))
        # Attention is float32: its rows sum to 1 within a few eps = 1.2e-7, and so is its Perron eigenvalue 1.
        assert (values[:, 0] - 1).abs().max() < 1e-6
        assert values[:, 1:].abs().max() < 0.5
        assert values.imag.sum(-1).abs().max() < 1e-12  # a real matrix: conjugate pairs
    assert torch.equal(tensors["0.02/top_eigenvalue"][1, 0], values[:, 0].abs())
    assert torch.equal(tensors["0.02/bulk_radius"][1, 0], values[:, 1].abs())


def test_gram_matrix_is_that_of_layer_normed_tokens(tensors):
    gram = tensors["0.02/gram/text/75"].double()
    # A layer norm with eps 1e-5 of an embedding of variance v = 3 s^2 (word, position, type) has squared length
    # d v / (v + eps) per token: 24 / (1 + 1e-5/1.2e-3) = 23.80, with v fluctuating by sqrt(2/24) = 29 %.
    assert gram.diagonal().mean().item() == pytest.approx(23.80, abs=0.1)
    torch.testing.assert_close(gram, gram.mT, rtol=0, atol=1e-5)  # rounded to float32 for filing
    assert tensors["0.02/diagonal/mean"][0, 0, 0].item() == pytest.approx(gram.diagonal().mean().item(), rel=1e-6)
    singular = torch.linalg.eigvalsh(gram)
    expected = (singular.square().sum() / singular[-1].square()).item()
    assert tensors["0.02/stable_rank"][0, 0, 0].item() == pytest.approx(expected, rel=1e-5)


def test_random_word_embeddings_make_the_tokens_nearly_orthogonal(tensors):
    # Equal variances: cosine 1/3 from the shared token-type row; std 1 against 0.02: distinct tokens share nothing.
    assert tensors["0.02/off_diagonal/median"].mean() / 24 > 0.2
    assert tensors["1/off_diagonal/median"].abs().mean() / 24 < 0.05
    # Equal tokens in front of negligible position embeddings give an entry as large as the diagonal.
    pattern = torch.tensor(repeat_patterns(REPEATS)[75])
    equal = (pattern[:, None] == pattern[None]) & ~torch.eye(75, dtype=torch.bool)
    gram = tensors["1/gram/published/75"]
    assert gram[equal].min() > 0.95 * 24
    assert gram[~equal & ~torch.eye(75, dtype=torch.bool)].max() < 0.95 * 24


def test_statistics_by_hand():
    tokens = torch.tensor([[2.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    found = statistics(tokens @ tokens.mT, tokens, torch.tensor([1.0, -0.25j], dtype=torch.complex128))
    assert {key: value.item() for key, value in found.items() if key != "stable_rank"} == {
        "diagonal/mean": 3.0,
        "diagonal/min": 2.0,
        "diagonal/max": 4.0,
        "off_diagonal/mean": 2.0,
        "off_diagonal/std": 0.0,
        "off_diagonal/min": 2.0,
        "off_diagonal/q01": 2.0,
        "off_diagonal/median": 2.0,
        "off_diagonal/q99": 2.0,
        "off_diagonal/max": 2.0,
        "top_eigenvalue": 1.0,
        "bulk_radius": 0.25,
    }
    # S = [[4, 2], [2, 2]]: eigenvalues 3 +- sqrt 5, so sr = (16 + 4 + 4 + 4) / (3 + sqrt 5)^2.
    assert found["stable_rank"].item() == pytest.approx(28 / (3 + 5**0.5) ** 2, rel=1e-14)


def test_drawn_tokens_are_equal_exactly_where_the_pattern_says():
    pattern = repeat_patterns(REPEATS)[446]
    ids = tokens_with_pattern(pattern, 50265, generator(0, "pattern")).tolist()
    assert first_positions(ids) == pattern
    assert min(ids) >= 4  # no special tokens: the padding row is zero, and positions skip it
    assert max(ids) < 50265


def test_only_the_pattern_of_repeats_matters(settings, monkeypatch):
    """The text's own ids and random ids of the same pattern have the same law of the bulk and of X_0 X_0^T."""
    many = dataclasses.replace(settings, runs=24, sources=("text",), word_embedding_stds=(1.0,))
    ids = token_inputs(many, 50300, 0)["text", 75]
    own = roberta_attention.measure(many, device=CPU, seed=0)
    redrawn = tokens_with_pattern(first_positions(ids.tolist()), 50300, generator(0, "redrawn"))
    assert not torch.equal(ids, redrawn)
    monkeypatch.setattr(roberta_attention, "token_inputs", lambda *_: {("text", 75): redrawn})
    other = roberta_attention.measure(many, device=CPU, seed=1)  # independent weights
    for key in ("bulk_radius", "stable_rank", "off_diagonal/mean", "off_diagonal/std"):
        assert ks_2samp(own[f"1/{key}"].flatten(), other[f"1/{key}"].flatten()).pvalue > 1e-3, (
            key
        )  # fails one seed in 250
    # The same test sees a pattern with no repeats at all, where nothing but the pattern has changed.
    monkeypatch.setattr(roberta_attention, "token_inputs", lambda *_: {("text", 75): torch.arange(10, 85)})
    distinct = roberta_attention.measure(many, device=CPU, seed=1)
    assert ks_2samp(own["1/off_diagonal/std"].flatten(), distinct["1/off_diagonal/std"].flatten()).pvalue < 1e-6


def test_one_block_has_the_first_layer_of_the_full_encoder(settings):
    """Weights above layer 1 change nothing below them, exactly."""
    from rankcollapse import encoders

    config = encoders.architecture(settings.models, "roberta-small")
    full = encoders.random_encoder(config, generator(0, "full"))
    short = encoders.random_encoder(encoders.architecture(settings.models, "roberta-small", 1), generator(0, "short"))
    state = full.state_dict()
    short.load_state_dict({key: state[key] for key in short.state_dict()})
    ids = torch.arange(10, 40)[None]
    with torch.inference_mode():
        weights = [encoders.attention_weights(encoder, ids)[0] for encoder in (full, short)]
        assert torch.equal(*weights)
        assert torch.equal(short.embeddings(ids), encoders.hidden_states(full, ids)[0])


def test_a_seed_gives_the_same_numbers_again_and_another_seed_others(settings, tensors):
    fewer = dataclasses.replace(settings, runs=2)
    again, other = (roberta_attention.measure(fewer, device=CPU, seed=seed) for seed in (0, 1))
    # A run's numbers do not depend on how many there are.
    assert torch.equal(again["0.02/stable_rank"], tensors["0.02/stable_rank"][..., :2])
    assert torch.equal(again["1/eigenvalues_re/published/75"], tensors["1/eigenvalues_re/published/75"][:2])
    assert not torch.equal(again["0.02/stable_rank"], other["0.02/stable_rank"])


def test_bad_settings_are_refused_in_one_line(settings):
    def measure(**changes):
        return roberta_attention.measure(dataclasses.replace(settings, **changes), device=CPU, seed=0)

    with pytest.raises(TextError, match=r"fig_II_token_repeats\.csv: no T = 76; allowed: 75, 282, 446$"):
        measure(lengths=(76,))
    with pytest.raises(ConfigError, match="roberta-small has positions for 78 tokens, 282 asked for"):
        measure(lengths=(75, 282))
    with pytest.raises(ConfigError, match="roberta-small has 3 heads, head 3"):
        measure(head=3)


def test_tokens_that_are_not_finite_stop_with_their_name(settings, monkeypatch):
    draw = roberta_attention.encoders.random_encoder

    def broken(*arguments, **keywords):
        encoder = draw(*arguments, **keywords)
        encoder.embeddings.LayerNorm.bias[0] = float("inf")
        return encoder

    monkeypatch.setattr(roberta_attention.encoders, "random_encoder", broken)
    monkeypatch.setattr(roberta_attention.encoders, "attention_weights", lambda *_: [torch.ones(1, 3, 75, 75)])
    with pytest.raises(
        FloatingPointError, match=r"roberta_attention: word embeddings N\(0, 0\.02\^2\), text, T = 75, run 0"
    ):
        roberta_attention.measure(settings, device=CPU, seed=0)
