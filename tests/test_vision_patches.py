"""Vision transformers: patches by hand, blocks against transformers and torch, checkpoints, measurement, judge."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import BertConfig, BertModel, DeiTConfig, DeiTModel, Dinov2Config, Dinov2Model, ViTConfig, ViTModel

from rankcollapse.checkpoints import CheckpointError, check_checkpoint
from rankcollapse.inits import gaussian
from rankcollapse.judges.vision_patches import s22
from rankcollapse.measurements.vision_patches import measure
from rankcollapse.pictures import PICTURES, crop, normalised, patches
from rankcollapse.randomness import generator
from rankcollapse.residual import mean_cosine
from rankcollapse.scalefree_attention import Attention
from rankcollapse.scalefree_mlp import Mlp
from rankcollapse.settings.smoothing import VisionPatches
from rankcollapse.tokens import TextError
from rankcollapse.trained_vision import hidden_patches, load_vision
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN
from rankcollapse.vision import LAYER_NORM_EPSILON, Weights, apply_block, draw_weights, embed

CPU = torch.device("cpu")
SIZES = {
    "widths": (8, 16),
    "head_width": 4,
    "mlp_ratio": 2,
    "layers": 3,
    "picture_size": 32,
    "patch": 8,
    "runs": 2,
    "inits": ("timm", "xavier"),
    "blocks": ("pre-LN", "post-LN", "no LN", "no skip", "scaled"),
    "scaled_depths": (1, 3),
    "input_scales": (1.0, 3.0),
    "position_std": 0.02,
    "marked_patch": 5,
    "shown_layers": (0, 3),
    "checkpoint": "",
}
TINY = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 32,
    "patch_size": 8,
}


@pytest.fixture(scope="module")
def measured():
    return measure(VisionPatches(**SIZES), device=CPU, seed=1)


# ---------------------------------------------------------------- pictures


def test_patches_by_hand():
    picture = torch.arange(16.0).reshape(1, 4, 4).expand(2, 4, 4) * torch.tensor([1.0, 10.0])[:, None, None]
    found = patches(picture, 2)
    assert found.shape == (4, 8)
    assert found[1].tolist() == [2, 3, 6, 7, 20, 30, 60, 70]
    assert found[2].tolist() == [8, 9, 12, 13, 80, 90, 120, 130]


def test_patches_are_what_a_convolution_sees():
    picture, kernel = torch.randn(2, 3, 32, 32, generator=generator(0, "p")), gaussian(5, 3 * 64, generator(0, "k"))
    expected = torch.nn.functional.conv2d(picture.double(), kernel.unflatten(1, (3, 8, 8)), stride=8)
    torch.testing.assert_close(patches(picture.double(), 8) @ kernel.T, expected.flatten(2).mT)


def test_pictures_are_the_originals_and_crops_have_names():
    crops = [crop(name, 32, generator(1, name)) for name in PICTURES]
    assert [found.dtype for found in crops] == [torch.uint8] * 2
    assert crops[0].shape == (32, 32, 3)
    assert crops[0].equal(crop("temple", 32, generator(1, "temple")))
    assert not crops[0].equal(crop("temple", 32, generator(2, "temple")))
    assert normalised(torch.tensor([[[0, 255, 51]]], dtype=torch.uint8)).flatten().tolist() == [-1, 1, -0.6]


def test_a_picture_that_is_not_the_original_is_refused(monkeypatch):
    monkeypatch.setitem(PICTURES, "temple", PICTURES["temple"]._replace(sha256="0" * 64))
    with pytest.raises(TextError, match=r"china\.jpg: sha256 8378.*reinstall scikit-learn"):
        crop("temple", 32, generator(1, "temple"))


# ---------------------------------------------------------------- blocks


@pytest.mark.parametrize(("width", "heads", "layers", "patch"), list(product((8, 24), (1, 4), (1, 3), (8, 16))))
def test_the_network_is_that_of_transformers(width, heads, layers, patch):
    torch.manual_seed(0)
    config = ViTConfig(
        **TINY | {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers, "patch_size": patch},
        layer_norm_eps=LAYER_NORM_EPSILON,
        initializer_range=0.3,  # so that attention is far from uniform
    )
    model = ViTModel(config, add_pooling_layer=False).double().eval()
    picture = torch.randn(2, 3, 32, 32, generator=generator(0, "picture"), dtype=torch.float64)
    expected = model(picture, output_hidden_states=True).hidden_states
    tokens = expected[0].detach()
    mapped = patches(picture, patch) @ model.embeddings.patch_embeddings.projection.weight.flatten(1).T
    torch.testing.assert_close(tokens[:, 1:], (mapped + model.embeddings.position_embeddings[:, 1:]).detach())
    for layer, hidden in zip(model.layers, expected[1:], strict=True):
        attention = [getattr(layer.attention, name).weight.T for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
        mlp = Mlp(layer.mlp.fc1.weight.T, layer.mlp.fc2.weight.T, "gelu")
        tokens = apply_block(tokens, Weights(Attention(*attention, heads), mlp), "pre-LN")
        torch.testing.assert_close(tokens, hidden, rtol=0, atol=1e-12)  # some hundred roundings of numbers near 10


@pytest.mark.parametrize("kind", ["pre-LN", "post-LN"])
def test_both_places_of_the_norm_are_those_of_torch(kind):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        12, 3, 24, 0.0, "gelu", LAYER_NORM_EPSILON, True, kind == "pre-LN", dtype=torch.float64
    ).eval()
    for bias in (layer.linear1.bias, layer.linear2.bias):
        torch.nn.init.zeros_(bias)
    square = [part.T for part in (*layer.self_attn.in_proj_weight.chunk(3), layer.self_attn.out_proj.weight)]
    weights = Weights(Attention(*square, 3), Mlp(layer.linear1.weight.T, layer.linear2.weight.T, "gelu"))
    tokens = gaussian(5, 12, generator(0, "tokens"))[None]
    torch.testing.assert_close(apply_block(tokens, weights, kind), layer(tokens), rtol=0, atol=1e-13)


def test_scale_and_skip():
    weights = draw_weights(8, 2, 2, "xavier", generator(0, "weights"), CPU)
    tokens = gaussian(5, 8, generator(0, "tokens")).float()
    assert apply_block(tokens, weights, "scaled", 0.0).equal(tokens)
    assert apply_block(tokens, weights, "no skip", 0.0).equal(0 * tokens)
    assert apply_block(tokens, weights, "scaled").equal(apply_block(tokens, weights, "pre-LN"))
    shuffled = torch.randperm(5, generator=generator(0, "order"))  # blocks know no places
    for kind in SIZES["blocks"]:
        after = apply_block(tokens, weights, kind)
        torch.testing.assert_close(apply_block(tokens[shuffled], weights, kind), after[shuffled], rtol=0, atol=1e-5)


def test_the_embedding_has_a_class_token_and_positions():
    cut = torch.zeros(2, 4, 12, dtype=torch.float64)
    start = embed(cut, 2048, "timm", 0.02, generator(0, "e"))
    assert start.shape == (2, 5, 2048)
    assert start.dtype == torch.float32
    assert start[0].equal(start[1])
    # N(0, s^2) from n draws: the standard deviation of its estimate is s / sqrt(2 n)
    assert start[0, 1:].std().item() == pytest.approx(0.02, rel=5 / 128)
    assert start[0, 0].std().item() == pytest.approx(0.02 * 2**0.5, rel=5 / 64)


# ---------------------------------------------------------------- checkpoints


@pytest.fixture
def saved(tmp_path):
    ViTModel(ViTConfig(**TINY)).save_pretrained(tmp_path / "vit", safe_serialization=True)
    return tmp_path / "vit"


@pytest.mark.parametrize(
    ("config", "kind"), [(ViTConfig, ViTModel), (DeiTConfig, DeiTModel), (Dinov2Config, Dinov2Model)]
)
def test_a_checkpoint_gives_its_patches(tmp_path, config, kind):
    sizes = TINY | ({"mlp_ratio": 2} if kind is Dinov2Model else {})
    model = kind(config(**sizes)).eval()
    model.save_pretrained(tmp_path / "saved", safe_serialization=True)
    pixels = torch.stack([crop(name, 32, generator(1, name)) for name in PICTURES])
    found = hidden_patches(load_vision(str(tmp_path / "saved")), pixels, CPU)
    with torch.no_grad():
        expected = model(normalised(pixels).float(), output_hidden_states=True).hidden_states
    assert [tuple(layer.shape) for layer in found] == [(2, 16, 8)] * 3
    for layer, other in zip(found, expected, strict=True):
        torch.testing.assert_close(layer, other[:, -16:])


def test_the_preprocessor_of_a_checkpoint_is_obeyed(saved):
    pixels = torch.stack([crop(name, 48, generator(1, name)) for name in PICTURES])  # resized to the model's 32
    plain = hidden_patches(load_vision(str(saved)), pixels, CPU)
    processor = {"image_mean": [0.1] * 3, "image_std": [0.2] * 3}
    (saved / "preprocessor_config.json").write_text(json.dumps(processor))
    assert plain[0].shape == (2, 16, 8)
    assert not hidden_patches(load_vision(str(saved)), pixels, CPU)[0].allclose(plain[0])


@pytest.mark.parametrize("text", ["not json", '{"image_mean": 5}', '{"image_std": [1, 1, 0]}', "[]"])
def test_a_preprocessor_that_cannot_be_obeyed_is_refused(saved, text):
    (saved / "preprocessor_config.json").write_text(text)
    with pytest.raises(CheckpointError, match="image_mean and image_std, three each"):
        check_checkpoint(str(saved), None)


def test_pictures_that_are_not_square_are_refused(saved):
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"image_size": [32, 48]}))
    with pytest.raises(CheckpointError, match="allowed: squares of patches"):
        check_checkpoint(str(saved), None)


def test_a_checkpoint_is_measured(saved):
    settings = VisionPatches(**SIZES | {"checkpoint": str(saved)})
    found = measure(settings, device=CPU, seed=1)
    assert found["trained_cosine"].shape == (2, 2, 3)
    assert found["trained_similarity"].shape == (2, 2, 16)
    layers = hidden_patches(load_vision(str(saved)), found["pixels"].flatten(0, 1), CPU)
    torch.testing.assert_close(found["trained_cosine"][1, 0, 2], mean_cosine(layers[2][2].double()))
    torch.testing.assert_close(found["trained_similarity"][..., 5], torch.ones(2, 2, dtype=torch.float64))


def test_checkpoints_that_cannot_be_used_are_refused(tmp_path, saved):
    """What else may be wrong with a checkpoint is in ``test_checkpoints``; a picture's model has no tokenizer."""
    small = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    BertModel(BertConfig(**small)).save_pretrained(tmp_path / "bert", safe_serialization=True)
    check_checkpoint(str(saved), None)
    with pytest.raises(CheckpointError, match="no patches for the architecture 'bert'; allowed: vit, deit, dinov2"):
        check_checkpoint(str(tmp_path / "bert"), None)
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match="allowed: a whole encoder"):
        load_vision(str(saved))
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="only pickled weights"):
        load_vision(str(saved))


# ---------------------------------------------------------------- the measurement


def test_axes_and_what_must_be_so(measured):
    assert measured["cosine"].shape == measured["relative"].shape == (2, 2, 5, 2, 2, 4)
    assert measured["scaled_cosine"].shape == (2, 2, 2, 2, 2)
    assert measured["similarity"].shape == (2, 5, 2, 2, 16)
    assert measured["pixels"].shape == (2, 2, 32, 32, 3)
    start = measured["cosine"][..., 0]  # all blocks follow the same tokens
    torch.testing.assert_close(start, start[:, :, :1].expand_as(start), rtol=0, atol=0)
    torch.testing.assert_close(measured["scaled_cosine"][1], measured["cosine"][:, :, 4, ..., -1], rtol=0, atol=0)
    torch.testing.assert_close(measured["input_cosine"][0], measured["cosine"][0, :, 0, ..., -1], rtol=0, atol=0)
    assert not measured["input_cosine"][1].allclose(measured["input_cosine"][0], atol=1e-3)
    torch.testing.assert_close(measured["similarity"][..., 5], torch.ones(2, 5, 2, 2, dtype=torch.float64))
    for size, name in enumerate(PICTURES):
        assert measured["pixels"][0, size].equal(crop(name, 32, generator(1, "vision_patches", "crop", name, 0)))
    assert (measured["cosine"][:, 1, 3, ..., -1] > 0.9).all()  # Xavier without skip


def test_a_run_does_not_depend_on_the_others(measured):
    fewer = measure(VisionPatches(**SIZES | {"runs": 1, "blocks": ("post-LN",)}), device=CPU, seed=1)
    torch.testing.assert_close(fewer["cosine"][:, :, 0, 0], measured["cosine"][:, :, 1, 0])
    assert np.isfinite(fewer["scaled_cosine"].numpy()).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"widths": (8, 18)}, "18; must be a multiple of head_width = 4"),
        ({"picture_size": 33}, "must be a multiple of patch = 8"),
        ({"marked_patch": 16}, "below the number of patches"),
        ({"scaled_depths": (1,)}, "layers = 3 must be the largest"),
        ({"input_scales": (2.0,)}, "1 must be one of them"),
        ({"shown_layers": (4,)}, "at most layers = 3"),
        ({"blocks": ("middle-LN",)}, "pre-LN"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change, words):
    with pytest.raises(ValidationError, match=words):
        VisionPatches(**SIZES | change)


# ---------------------------------------------------------------- the judge


@pytest.mark.parametrize(
    ("end", "trained", "verdict", "words"),
    [
        ([0.95, 0.99], [], HOLDS, "a 0.95; b 0.99: mean cosine"),
        ([0.95, 0.5], [], CONDITION, "only with a 0.95 - not with b 0.50"),
        ([0.2, 0.5], [], FALSE, "not with a 0.20; b 0.50"),
        ([0.95, 0.99], [0.1, 0.95], HOLDS, "the trained checkpoint 0.95"),
        ([0.95, 0.99], [0.1, 0.5], CONDITION, "not with the trained checkpoint 0.50"),
        ([0.2, 0.5], [0.2, 0.95], CONDITION, "only with the trained checkpoint 0.95"),
        ([0.2, 0.5], [0.1, 0.5], FALSE, "from 0.10 to 0.10 after the embedding"),
        ([0.95, 0.95], [0.96, 0.95], CONDITION, "not with the trained checkpoint 0.95"),
    ],
)
def test_s22(end, trained, verdict, words):
    ruling = s22(configurations=["a", "b"], start=[0.1, 0.1], end=end, layers=48, trained=trained, alike=0.9)
    assert ruling.verdict == verdict
    assert words in ruling.reason
    assert (NOT_RUN in ruling.reason) == (not trained)
