"""Trained encoders by name: found, checked and loaded, or refused in one line before anything is computed."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, BertTokenizerFast

from rankcollapse import pretrained
from rankcollapse.checkpoints import CheckpointError, check_checkpoint, fetch, minilm
from rankcollapse.encoders import ANATOMY, hidden_states, random_encoder
from rankcollapse.randomness import generator
from rankcollapse.tokens import WORDPIECE, TextError, installed, pieces

BERT = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 20}
BERT |= {"vocab_size": 30522, "max_position_embeddings": 40}
XLNET = {"vocab_size": 30522, "d_model": 12, "n_head": 3, "n_layer": 2, "d_inner": 20}
SMALL = {"bert": BERT, "roberta": BERT, "albert": BERT | {"embedding_size": 8}, "xlnet": XLNET}
OFFLINE = "huggingface_hub.constants.HF_HUB_OFFLINE"


def save(folder, kind):
    """A checkpoint as its makers leave one: configuration, safetensors weights, tokenizer."""
    config = AutoConfig.for_model(kind, **SMALL[kind])
    config._attn_implementation = "eager"
    model = random_encoder(config, generator(0, "test_checkpoints", kind))
    model.save_pretrained(folder, safe_serialization=True)
    BertTokenizerFast(vocab=str(installed(WORDPIECE))).save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "bert"
    save(folder, "bert")
    return folder


@pytest.fixture
def broken(bert, tmp_path):
    """A copy to break."""
    return shutil.copytree(bert, tmp_path / "broken")


@pytest.mark.parametrize("kind", SMALL)
@torch.inference_mode()
def test_a_checkpoint_in_a_folder_is_loaded_as_it_was_saved(kind, tmp_path):
    model = save(tmp_path / kind, kind)
    name = str(tmp_path / kind)
    check_checkpoint(name, 38)
    loaded = pretrained.load(fetch(name, 38), name)
    ids = pretrained.own_tokens(tmp_path / kind, loaded, name, ["one two three four five"] * 2, 2, 6, "here")
    assert ids.shape == (2, 6)
    assert (loaded.training, loaded.config._attn_implementation) == (False, "eager")
    assert all(torch.equal(a, b) for a, b in zip(hidden_states(loaded, ids), hidden_states(model, ids), strict=True))


def test_kinds_that_may_be_named_are_those_with_a_surgery():
    from rankcollapse.checkpoints import KNOWN

    assert set(KNOWN) == set(ANATOMY)


@torch.inference_mode()
def test_the_embedded_encoder_is_trained_and_reads_what_our_tokenizer_writes():
    """Its own tokenizer gives the ids of ours, and its weights are the file's, not drawn."""
    folder = minilm()
    text = "An encoder reads this sentence, word by word."
    model = pretrained.load(folder, "MiniLM")
    ids = pretrained.own_tokens(folder, model, "MiniLM", [text], 1, 8, "here")
    assert ids[0].tolist() == [101, *pieces(text, "bert")[:6], 102]
    assert (model.config.num_hidden_layers, model.config.hidden_size, model.config.hidden_act) == (6, 384, "gelu")
    stored = load_file(folder / "model.safetensors")
    state = model.state_dict()
    assert all(torch.equal(state[key], stored[key]) for key in state if key in stored)
    assert len(set(stored) - set(state)) <= 1  # position_ids, which are numbered anew


def line(caught):
    (only,) = str(caught.value).splitlines()
    return only


def refused(name, tokens=20):
    with pytest.raises(CheckpointError) as caught:
        check_checkpoint(str(name), tokens)
    with pytest.raises(CheckpointError):
        fetch(str(name), tokens)
    return line(caught)


@pytest.mark.parametrize("name", ["nobody/has-this", "no/such/folder", "two words", "long" * 80])
def test_a_name_that_is_neither_a_folder_nor_reachable(name, monkeypatch):
    monkeypatch.setattr(OFFLINE, True)
    assert refused(name).startswith(
        f"model {name!r}: no such folder, not in the hub's local copies, and the hub did no"
    )


@pytest.mark.parametrize(
    ("kind", "files", "words"),
    [
        ("bert", ["config.json", "model.safetensors", "vocab.txt"], None),
        (
            "gpt2",
            ["config.json", "model.safetensors", "vocab.txt"],
            "no surgery for the architecture 'gpt2'; allowed: albert, bert",
        ),
        (
            "bert",
            ["config.json", "pytorch_model.bin", "vocab.txt"],
            "has only pickled weights (pytorch_model.bin), which are not r",
        ),
        (None, ["README.md"], "no surgery for the architecture None"),
    ],
)
def test_of_a_model_on_the_hub_only_the_list_of_files_is_asked_for(kind, files, words, monkeypatch):
    answer = SimpleNamespace(config={"model_type": kind}, siblings=[SimpleNamespace(rfilename=file) for file in files])
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda api, name, timeout: answer)
    if words is None:
        check_checkpoint("somebody/model", 20)
    else:
        with pytest.raises(CheckpointError) as caught:
            check_checkpoint("somebody/model", 20)
        assert line(caught).startswith("model 'somebody/model'")
        assert words in line(caught)


def test_a_model_on_the_hub_is_fetched_without_its_code_and_pickles(bert, monkeypatch):
    asked = {}

    def snapshot(name, allow_patterns):
        asked[name] = allow_patterns
        return str(bert)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert fetch("somebody/model", 20) == bert
    assert asked == {"somebody/model": ["*.json", "*.txt", "*.model", "*.safetensors"]}


def test_an_architecture_without_surgery(tmp_path):
    config = AutoConfig.for_model("gpt2", n_embd=12, n_head=3, n_layer=1, vocab_size=20, n_positions=8)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    assert "no surgery for the architecture 'gpt2'; allowed: albert, bert, roberta, xlnet" in refused(tmp_path)


def test_weights_that_are_pickled_are_not_read(broken):
    (broken / "model.safetensors").rename(broken / "pytorch_model.bin")
    assert refused(broken).endswith(
        "has only pickled weights (pytorch_model.bin), which are not read; allowed: safetensors files"
    )
    (broken / "pytorch_model.bin").unlink()
    assert refused(broken).endswith("has no weights; allowed: safetensors files")


@pytest.mark.parametrize("keep", [0, 4, 1000])
def test_weights_that_are_cut_short(broken, keep):
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[:keep])
    assert "model.safetensors: truncated or not a safetensors file" in refused(broken)


def test_a_configuration_that_cannot_be_read(broken):
    (broken / "config.json").write_text("{")
    assert "config.json cannot be read" in refused(broken)
    (broken / "config.json").write_text("[]")
    assert "config.json must be a table" in refused(broken)
    (broken / "config.json").write_text('{"model_type": "bert"}')
    assert "config.json has no 'max_position_embeddings'" in refused(broken)
    (broken / "config.json").unlink()
    assert "config.json cannot be read" in refused(broken)


def test_too_few_positions(bert):
    assert refused(bert, tokens=41).endswith("has positions for 40 tokens, 41 asked for")


def test_a_weight_that_is_missing_is_not_drawn_at_random(broken):
    weights = load_file(broken / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError) as caught:
        pretrained.load(broken, "mine")
    assert "has no encoder.layer.1.output.dense.weight; allowed: a whole encoder" in line(caught)


def test_weights_of_another_shape(broken):
    keys = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(keys | {"intermediate_size": 24}))
    with pytest.raises(CheckpointError, match=r"^model 'mine': "):
        pretrained.load(broken, "mine")


def test_texts_that_are_too_short_for_its_own_tokenizer(bert):
    model = pretrained.load(bert, "mine")
    with pytest.raises(TextError, match=r"^here: has 1 passages of at least 6 tokens of mine, 2 needed$"):
        pretrained.own_tokens(bert, model, "mine", ["one two three four", "one two"], 2, 6, "here")
    model.config.vocab_size = 100
    with pytest.raises(
        CheckpointError, match=r"^model 'mine': its tokenizer gives token \d+, its embeddings end at 99$"
    ):
        pretrained.own_tokens(bert, model, "mine", ["one two three four"], 1, 6, "here")


def test_a_tokenizer_that_is_missing_or_broken(broken):
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError) as caught:
        pretrained.own_tokens(broken, None, "mine", ["one"], 1, 3, "here")
    assert line(caught).startswith("model 'mine': its tokenizer cannot be loaded")
    (broken / "tokenizer.json").unlink()
    assert "has no tokenizer; allowed: one of tokenizer.json, vocab.txt" in refused(broken)
