import dataclasses
import math

import pytest
import torch
from pydantic import ValidationError

from rankcollapse import encoders
from rankcollapse.changed_attention import Change, make_changeable
from rankcollapse.measurements import roberta_rank
from rankcollapse.measurements.roberta_rank import VARIANTS, change
from rankcollapse.randomness import generator
from rankcollapse.settings.encoders import RobertaRank
from rankcollapse.tokens import TextError, longest_pattern, shortened
from rankcollapse.validation import ConfigError

SMALL = """
roberta-small: {model_type: roberta, vocab_size: 50265, hidden_size: 24, num_hidden_layers: 12, num_attention_heads: 3,
  intermediate_size: 48, max_position_embeddings: 80, type_vocab_size: 1, layer_norm_eps: 1.0e-5, pad_token_id: 1,
  initializer_range: 0.02}
"""
CPU = torch.device("cpu")
REPEATS = "resources/published/fig_II_token_repeats.csv"
FIXED = "A_perp + values + sqrt T"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    models = tmp_path_factory.mktemp("roberta_rank") / "models.yaml"
    models.write_text(SMALL)
    return RobertaRank(
        models=str(models),
        architecture="roberta-small",
        repeats=REPEATS,
        depth=3,
        fixed=FIXED,
        width_controls=("A", "A_perp"),
        depth_controls=tuple(name for name in VARIANTS if name != FIXED),
        lengths=(8, 30),
        layers=(1, 3),
        depth_length=30,
        runs=4,
        control_runs=3,
    )


@pytest.fixture(scope="module")
def tensors(settings):
    return roberta_rank.measure(settings, device=CPU, seed=0)


def test_keys_and_axes(settings, tensors):
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    assert shapes.pop(f"width/{FIXED}") == (4, 2, 2)
    assert shapes.pop(f"depth/{FIXED}") == (4, 4)
    assert {shapes.pop(f"width/{name}") for name in ("A", "A_perp")} == {(3, 2, 2)}
    assert set(shapes) == {f"depth/{name}" for name in settings.depth_controls}
    assert set(shapes.values()) == {(3, 4)}
    assert all(value.isfinite().all() and (value >= 0).all() for value in tensors.values())


def test_both_views_of_a_run_are_the_same_numbers(tensors):
    for name in ("A", "A_perp", FIXED):
        assert torch.equal(tensors[f"width/{name}"][:, 1], tensors[f"depth/{name}"][:, [1, 3]])


def test_variants_of_a_run_share_tokens_and_first_layer_fix_shares_layer_one(tensors):
    start = tensors["depth/A"][:, 0]
    assert all(torch.equal(value[:3, 0], start) for key, value in tensors.items() if key.startswith("depth/"))
    only_first = tensors[f"depth/{FIXED}, layer 1"]
    assert torch.equal(only_first[:, 1], tensors[f"depth/{FIXED}"][:3, 1])
    assert (only_first[:, 2] != tensors[f"depth/{FIXED}"][:3, 2]).all()


@torch.inference_mode()
def test_unit_values_are_value_weights_drawn_at_unit_variance(settings, tensors):
    """The stable rank of a model whose W_V are N(0, 1), from singular values, in float64."""
    config = encoders.architecture(settings.models, "roberta-small", 3)
    config.vocab_size = 4 + 30
    encoder = encoders.random_encoder(config, generator(0, "roberta_rank", 1)).double()
    for block in encoder.encoder.layer:
        value = block.attention.self.value.weight
        value.div_(config.initializer_range)
        assert abs(value.std() - 1) < 5 / math.sqrt(2 * value.numel())  # five standard errors
    make_changeable(encoder)
    ids = 4 + torch.tensor([shortened(longest_pattern(REPEATS), 30)])
    for name, edit in (("A + values", None), (FIXED, Change("centred", gain=math.sqrt(30)))):
        singular = torch.stack([torch.linalg.svdvals(state[0]) for state in encoders.hidden_states(encoder, ids, edit)])
        expected = singular[:, 1:].pow(4).sum(-1) / singular[:, 0].pow(4)
        # float32 tokens: eps = 1.2e-7 times a gain of up to 270, through three layers
        torch.testing.assert_close(tensors[f"depth/{name}"][1], expected, rtol=1e-3, atol=1e-4)


def test_gains_by_hand(settings):
    config = encoders.architecture(settings.models, "roberta-small")
    gains = {name: change(variant, config, 36).gain for name, variant in VARIANTS.items()}
    assert gains["A"] == gains["A_perp"] == 1
    assert gains["no attention"] == 0
    assert gains["A + values"] == pytest.approx(50)  # 1 / 0.02
    assert gains[FIXED] == gains[f"{FIXED}, layer 1"] == pytest.approx(50 * 6)  # sqrt 36
    assert gains["A_perp + values + sqrt d"] == pytest.approx(50 * math.sqrt(24))
    for name, variant in VARIANTS.items():  # a name says what its variant does
        assert variant.matrix == {"A_perp": "centred", "mean removed": "mean removed", "deflated": "deflated"}.get(
            name.split(" + ")[0], "as it is"
        )
        assert ("values" in name) == variant.unit_values
        assert ("layer 1" in name) == variant.first_layer_only


def test_scaling_all_of_attention_outweighs_the_skip(tensors):
    # Heads of a nearly uniform A with large values replace every token by one and the same vector; centred they do not.
    assert (tensors["depth/A + values + sqrt T"][:, 1] < 0.1 * tensors["depth/A"][:, 1]).all()
    assert (tensors[f"depth/{FIXED}"][:3, 3] > tensors["depth/A"][:, 3]).all()


def test_a_seed_gives_the_same_numbers_again_and_a_subset_too(settings, tensors):
    fewer = dataclasses.replace(settings, runs=2, control_runs=2, depth_controls=("A_perp",), lengths=(30, 8))
    again, other = (roberta_rank.measure(fewer, device=CPU, seed=seed) for seed in (0, 1))
    for key in again:
        expected = tensors[key][:2].flip(1) if key.startswith("width/") else tensors[key][:2]
        assert torch.equal(again[key], expected)
    assert not torch.equal(again["depth/A_perp"], other["depth/A_perp"])


def test_bad_settings_are_refused_in_one_line(settings):
    def measure(**changes):
        return roberta_rank.measure(dataclasses.replace(settings, **changes), device=CPU, seed=0)

    with pytest.raises(ConfigError, match="roberta-small has positions for 78 tokens, 446 asked for"):
        measure(lengths=(8, 446))
    with pytest.raises(ValidationError, match="layers: 4 is beyond depth 3"):
        measure(layers=(1, 4))
    with pytest.raises(ValidationError, match="control_runs: 5 are more than runs = 4"):
        measure(control_runs=5)
    with pytest.raises(ValidationError, match="width_controls: A_perp \\+ values \\+ sqrt T; each at most once"):
        measure(width_controls=(FIXED,))
    with pytest.raises(ValidationError, match="depth_controls: A, A; each at most once"):
        measure(depth_controls=("A", "A"))


def test_states_that_are_not_finite_stop_with_their_name(settings, monkeypatch):
    broken = [torch.full((1, 8, 24), math.nan)] * 4
    monkeypatch.setattr(roberta_rank.encoders, "hidden_states", lambda *_: broken)
    with pytest.raises(FloatingPointError, match=r"roberta_rank: A_perp \+ values \+ sqrt T, T = 8, run 0: "):
        roberta_rank.measure(settings, device=CPU, seed=0)


def test_published_texts_are_one_text_cut_at_several_lengths():
    from rankcollapse.tokens import repeat_patterns

    patterns = repeat_patterns(REPEATS)
    longest = longest_pattern(REPEATS)
    assert len(longest) == 446
    assert all(shortened(longest, length) == pattern for length, pattern in patterns.items())
    assert shortened([0, 1, 1, 3], 3) == [0, 1, 2]
    with pytest.raises(TextError, match="has 446 tokens, 447 needed"):
        shortened(longest, 447)
