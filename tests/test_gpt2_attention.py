import dataclasses

import pytest
import torch

from rankcollapse import encoders
from rankcollapse.measurements import gpt2_attention
from rankcollapse.measurements.gpt2_attention import pattern
from rankcollapse.randomness import generator
from rankcollapse.settings.encoders import Gpt2Attention
from rankcollapse.tokens import TextError, repeat_patterns
from rankcollapse.validation import ConfigError

SMALL = """
gpt2-small: {model_type: gpt2, vocab_size: 50257, n_embd: 24, n_layer: 2, n_head: 3, n_positions: 64,
  activation_function: gelu_new, initializer_range: 0.2}
"""
CPU = torch.device("cpu")
KEYS = ("eigenvalues_re", "eigenvalues_im", "diagonal")
REPEATS = "resources/published/fig_II_token_repeats.csv"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    models = tmp_path_factory.mktemp("gpt2_attention") / "models.yaml"
    models.write_text(SMALL)
    return Gpt2Attention(
        models=str(models),
        architecture="gpt2-small",
        sources=("text", "published"),
        text="resources/text/attention.txt",
        repeats=REPEATS,
        length=30,
        lengths=(10, 60),
        head=1,
        runs=3,
    )


@pytest.fixture(scope="module")
def tensors(settings):
    return gpt2_attention.measure(settings, device=CPU, seed=0)


def test_keys_and_axes(tensors):
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    expected = {"second_eigenvalue": (2, 3), "singular_ratio": (2, 3)}
    for source in ("text", "published"):
        expected[f"attention/{source}"] = (30, 30)
        expected |= dict.fromkeys((f"{key}/{source}" for key in KEYS), (3, 30))
    assert shapes == expected
    assert all(value.isfinite().all() and value.is_contiguous() for value in tensors.values())


def test_eigenvalues_are_the_diagonal_and_real(tensors):
    for source in ("text", "published"):
        assert (tensors[f"eigenvalues_im/{source}"] == 0).all()
        # A float64 solver moves eigenvalues of a triangular matrix by some eps = 2e-16 at most
        torch.testing.assert_close(
            tensors[f"eigenvalues_re/{source}"], tensors[f"diagonal/{source}"], rtol=0, atol=1e-12
        )
        diagonal = tensors[f"attention/{source}"].diagonal().double().sort(descending=True).values
        assert torch.equal(diagonal, tensors[f"diagonal/{source}"][0])
        assert (diagonal[0], (tensors[f"attention/{source}"].triu(1) == 0).all()) == (1, True)


@torch.inference_mode()
def test_gaps_against_a_softmax_by_hand(settings, tensors):
    config = encoders.architecture(settings.models, "gpt2-small", 1)
    config.vocab_size = 60  # with its MLP, which changes nothing below it
    encoder = encoders.random_encoder(config, generator(0, "gpt2_attention", 2)).double()
    block = encoder.h[0]
    ids = torch.tensor([pattern(settings, "text", 60)])
    tokens = block.ln_1(encoder.wte(ids) + encoder.wpe(torch.arange(60)))
    q, k, _ = block.attn.c_attn(tokens)[0].view(60, 3, 3, 8)[:, :, 1].unbind(1)  # head 1 of three, 8 wide
    logits = (q @ k.mT / 8**0.5).masked_fill(torch.ones(60, 60).triu(1) > 0, -torch.inf)
    singular = torch.linalg.svdvals(logits.softmax(-1))
    # ours is a float32 forward pass: logits of order one are good to some eps = 1.2e-7
    assert tensors["singular_ratio"][1, 2].item() == pytest.approx((singular[1] / singular[0]).item(), rel=1e-5)
    second = logits.softmax(-1).diagonal()[1:].max().item()
    assert tensors["second_eigenvalue"][1, 2].item() == pytest.approx(second, rel=1e-5)


def test_patterns(settings):
    published = repeat_patterns(REPEATS)[282]
    found = pattern(settings, "published", 280)
    assert found == [position - 1 for position in published[1:-1]]
    assert len(pattern(settings, "text", 30)) == 30
    with pytest.raises(TextError, match="has 446 tokens, 447 needed"):
        pattern(settings, "published", 445)


def test_a_seed_gives_the_same_numbers_again_and_a_subset_too(settings, tensors):
    fewer = dataclasses.replace(settings, runs=2, sources=("published",), lengths=(60, 10))
    again, other = (gpt2_attention.measure(fewer, device=CPU, seed=seed) for seed in (0, 1))
    assert torch.equal(again["diagonal/published"], tensors["diagonal/published"][:2])
    assert torch.equal(again["singular_ratio"], tensors["singular_ratio"][:, :2].flip(0))
    assert not torch.equal(again["diagonal/published"], other["diagonal/published"])


def test_bad_settings_are_refused_in_one_line(settings):
    with pytest.raises(ConfigError, match="gpt2-small has positions for 64 tokens, 65 asked for"):
        gpt2_attention.measure(dataclasses.replace(settings, length=65), device=CPU, seed=0)


def test_attention_to_later_tokens_is_refused(settings, monkeypatch):
    monkeypatch.setattr(gpt2_attention.encoders, "attention_weights", lambda *_: [torch.full((1, 3, 30, 30), 1 / 30)])
    with pytest.raises(RuntimeError, match=r"gpt2_attention: T = 30: attention to later tokens"):
        gpt2_attention.measure(settings, device=CPU, seed=0)
