import dataclasses
import hashlib

import pytest
import torch
from pydantic import ValidationError
from test_checkpoints import save
from test_validation import changed, merged

from rankcollapse import checkpoints, encoders, flow, inputs, pretrained
from rankcollapse.config import check_config, input_files
from rankcollapse.measurements import trained_encoders
from rankcollapse.residual import relative_residual
from rankcollapse.settings.dong import TrainedEncoders
from rankcollapse.tokens import TextError
from rankcollapse.validation import ConfigError

VARIANTS = ("SAN", "SAN + MLP", "SAN + MLP, no MLP skip", "SAN + skip", "transformer")
CPU = torch.device("cpu")
SETTINGS = TrainedEncoders(variants=VARIANTS, layers=3, text="pydoc", texts=4, tokens=16, inits=2, cycles=2)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "xlnet-base-cased"
    save(folder, "xlnet")
    return folder


@pytest.fixture(scope="module")
def tensors(checkpoint):
    settings = dataclasses.replace(SETTINGS, models=(str(checkpoint),))
    return trained_encoders.measure(settings, device=CPU, seed=0)


def test_axes(tensors):
    scale_free = {
        f"{weights}/{key}": ((5, count, layers), torch.float64)
        for weights, count in (("trained", 4), ("random", 2))
        for key, layers in (("log10_relative_composite", 7), ("log10_relative", 7), ("order", 5))
    }
    assert {key: (tuple(value.shape), value.dtype) for key, value in tensors.items()} == scale_free | {
        "trained/relative_residual": ((5, 4, 4), torch.float32),
        "random/relative_residual": ((5, 2, 2, 4), torch.float32),
        "model_0/relative_residual": ((5, 4, 3), torch.float32),
        "text/ids": ((4, 16), torch.int64),
        "text/sha256": ((32,), torch.uint8),
    }


def test_the_hash_is_that_of_the_tokens_read(tensors):
    numbers = b"".join(int(token).to_bytes(8, "little") for token in tensors["text/ids"].flatten())
    assert bytes(tensors["text/sha256"].tolist()) == hashlib.sha256(numbers).digest()


@pytest.mark.parametrize("weights", ["trained", "random"])
def test_plain_and_scale_free_agree_where_float32_has_digits(tensors, weights):
    plain = tensors[f"{weights}/relative_residual"]
    plain = plain if weights == "trained" else plain[:, :, 0]
    followed = 10 ** tensors[f"{weights}/log10_relative_composite"][..., :4]
    resolved = plain > 1e-3
    assert resolved.sum() > plain.numel() / 2
    # Rounding of float32, 1e-7 of the tokens, through three layers; a residual of 1e-3 of them has 1e-3 of the digits.
    torch.testing.assert_close(plain[resolved].double(), followed[resolved], rtol=2e-3, atol=0)


def test_layer_0_is_the_same_in_all_variants(tensors):
    for key, value in tensors.items():
        if "relative" in key:
            assert torch.equal(value[..., 0], value[:1, ..., 0].expand_as(value[..., 0])), key


@torch.inference_mode()
def test_the_embedded_encoder_by_itself(tensors):
    """Float64 passes of the trained weights, text by text, without any of the measurement's code."""
    model = pretrained.load(checkpoints.minilm(), "MiniLM").double()
    for place, name in enumerate(VARIANTS):
        states = encoders.hidden_states(encoders.variant(model, name), tensors["text/ids"])[:4]
        relative = torch.stack([relative_residual(state) for state in states], -1)
        followed = 10 ** tensors["trained/log10_relative"][place, :, :4]
        # Rounding of float64 in the plain pass, some 1e-15 of the tokens a layer.
        torch.testing.assert_close(relative, followed, rtol=1e-9, atol=1e-13)


def test_a_draw_depends_on_the_seed_and_its_number_alone(tensors):
    fewer = dataclasses.replace(SETTINGS, variants=("SAN",), texts=2, inits=1)
    again, other = (trained_encoders.measure(fewer, device=CPU, seed=seed) for seed in (0, 1))
    assert torch.equal(again["random/log10_relative"][0, 0], tensors["random/log10_relative"][0, 0])
    assert not torch.equal(other["random/log10_relative"], again["random/log10_relative"])
    assert torch.equal(other["trained/order"], again["trained/order"])


def test_the_order_is_the_ratio_of_two_steps_of_the_logarithm(tensors):
    """‖X‖ hardly moves from layer to layer, so log relF has nearly the steps of log ‖R‖ once they are large."""
    steps = tensors["trained/log10_relative"][0].diff(dim=-1)
    assert (tensors["trained/order"][0, :, -1] - steps[:, -1] / steps[:, -2]).abs().max() < 0.05
    assert (tensors["trained/order"][0, :, -1] - 3).abs().max() < 0.05


def test_a_residual_that_is_not_finite_stops_with_its_name(monkeypatch):
    monkeypatch.setattr(trained_encoders, "relative_residual_composite", lambda x: x.sum((-1, -2)) * float("nan"))
    with pytest.raises(FloatingPointError, match=r"^trained_encoders: MiniLM, SAN: a residual is not finite$"):
        trained_encoders.measure(SETTINGS, device=CPU, seed=0)


def test_too_few_texts_are_named(tmp_path, checkpoint):
    file = tmp_path / "mine.txt"
    file.write_text("\n\n".join(["one two three four five six seven eight nine ten eleven twelve"] * 4))
    short = dataclasses.replace(SETTINGS, text=str(file), tokens=16)
    with pytest.raises(TextError, match=r"mine\.txt: has 0 passages of at least 16 bert tokens, 4 needed$"):
        trained_encoders.measure(short, device=CPU, seed=0)


def test_bad_settings_are_refused_in_one_line():
    for change, words in (
        ({"inits": 3}, "texts: 4; must be a multiple of inits = 3"),
        ({"layers": 2, "cycles": 1}, "at least 3 layers in all"),
        ({"layers": 7}, "less than or equal to 6"),
        ({"texts": 1}, "greater than or equal to 2"),
    ):
        with pytest.raises(ValidationError, match=words):
            dataclasses.replace(SETTINGS, **change)


# ---------------------------------------------------------------- the key `models` of the configuration


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ([], ()),
        ("", ()),
        (None, ()),
        ("bert-base-cased", ("bert-base-cased",)),
        ("bert-base-cased, a/b", ("bert-base-cased", "a/b")),
        (["a", "b c"], ("a", "b c")),
    ],
)
def test_models_are_a_name_names_between_commas_or_a_list(given, read):
    config = check_config(changed("models", given))
    assert config.models == config.measurements.trained_encoders.models == read
    assert flow.measurement_settings(config, "trained_encoders")["models"] == list(read)
    for name in flow.MEASUREMENTS:
        if name != "trained_encoders":  # no other measurement runs again
            settings = flow.measurement_settings(config, name)
            assert settings == flow.measurement_settings(check_config(merged("config.yaml")), name)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("models", 3, "models: 3; allowed: a name, names between commas, or a list of names"),
        ("models", [3], "models.0 = 3: must be a valid string"),
        ("models", ["a", "b", "a"], "models: a, b, a: an entry twice"),
        ("measurements.trained_encoders.models", ["a"], "unknown key; allowed: models, at the top"),
        ("measurements.trained_encoders.variants", ["MLP"], "measurements.trained_encoders.variants.0"),
    ],
)
def test_models_that_cannot_be_names(key, value, words):
    with pytest.raises(ConfigError) as caught:
        check_config(changed(key, value))
    (line,) = str(caught.value).splitlines()
    assert line.startswith("config: ")
    assert words in line


def test_models_and_texts_are_checked_before_any_job(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(inputs, "CHECKS", {"trained_encoders": inputs.CHECKS["trained_encoders"]})
    inputs.check_inputs(check_config(changed("models", str(checkpoint))).measurements)
    with pytest.raises(ConfigError, match=r"^model 'not-there': no such folder"):
        inputs.check_inputs(check_config(changed("models", "not-there")).measurements)
    with pytest.raises(ConfigError, match=r"trained_encoders\.variants: allowed: one without the attention skip"):
        inputs.check_inputs(
            check_config(changed("measurements.trained_encoders.variants", ["transformer"])).measurements
        )
    absent = changed("measurements.trained_encoders.text", str(tmp_path / "absent.txt"))
    with pytest.raises(ConfigError, match=r"absent\.txt': no such file"):
        inputs.check_inputs(check_config(absent).measurements)
    long = changed("measurements.trained_encoders.texts", 400)
    with pytest.raises(TextError, match=r"^pydoc: has \d+ passages of at least 128 bert tokens, 400 needed$"):
        inputs.check_inputs(check_config(long).measurements)


def test_a_users_text_and_weights_are_inputs_of_the_job(checkpoint):
    assert input_files(SETTINGS) == []
    own = dataclasses.replace(SETTINGS, text="mine.txt", models=(str(checkpoint), "bert-base-cased"))
    assert sorted(input_files(own)) == sorted(["mine.txt", str(checkpoint / "model.safetensors")])
