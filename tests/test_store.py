"""The store refuses what is not whole and unaltered, by name."""

import dataclasses

import numpy as np
import pytest

from rankcollapse import store

PROVENANCE = store.Provenance(
    measurement="example",
    settings={"runs": 2},
    seed=1,
    device="cpu",
    threads=1,
    versions={"numpy": np.__version__},
    commit="abc",
    started="2026-01-01T00:00:00+00:00",
    wall_seconds=0.5,
)
TENSORS = {"b": np.arange(6.0).reshape(2, 3), "a": np.array([1, 2]), "infinite": np.array([-np.inf])}


@pytest.fixture
def path(tmp_path):
    store.write(tmp_path / "tensors" / "x.safetensors", TENSORS, PROVENANCE)
    return tmp_path / "tensors" / "x.safetensors"


def test_what_is_written_is_read(path):
    measurement = store.read(path)
    assert measurement.provenance == PROVENANCE == store.read_provenance(path)
    assert measurement.tensors.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        assert measurement[name].dtype == array.dtype
        np.testing.assert_array_equal(measurement[name], array)


def test_nothing_but_the_file_is_left(path):
    assert list(path.parent.iterdir()) == [path]


def test_hash_depends_on_every_part(tmp_path):
    other = {
        "value": ({**TENSORS, "a": np.array([1, 3])}, PROVENANCE),
        "name": ({"c": TENSORS["b"], "a": TENSORS["a"], "infinite": TENSORS["infinite"]}, PROVENANCE),
        "shape": ({**TENSORS, "b": TENSORS["b"].T.copy()}, PROVENANCE),
        "type": ({**TENSORS, "a": TENSORS["a"].astype(np.int32)}, PROVENANCE),
        "provenance": (TENSORS, dataclasses.replace(PROVENANCE, seed=2)),
        "same": (dict(reversed(TENSORS.items())), PROVENANCE),
    }
    hashes = {name: store.write(tmp_path / name, *content) for name, content in other.items()}
    reference = store.write(tmp_path / "reference", TENSORS, PROVENANCE)
    assert hashes.pop("same") == reference
    assert len({reference, *hashes.values()}) == len(hashes) + 1


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_truncated_file_is_refused_by_name(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(store.StoreError, match=r"x\.safetensors: truncated"):
        store.read(path)


def test_altered_tensor_is_refused_by_name(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(store.StoreError, match=r"x\.safetensors: altered"):
        store.read(path)


def test_altered_provenance_is_refused(path):
    content = path.read_bytes()
    assert content.count(b'\\"seed\\": 1') == 1
    path.write_bytes(content.replace(b'\\"seed\\": 1', b'\\"seed\\": 2'))
    with pytest.raises(store.StoreError, match="altered"):
        store.read(path)


def test_other_layout_is_refused(path):
    path.write_bytes(path.read_bytes().replace(b'"layout":"1"', b'"layout":"9"'))
    with pytest.raises(store.StoreError, match="layout '9'"):
        store.read(path)


def test_missing_file_and_missing_tensor(path, tmp_path):
    with pytest.raises(store.StoreError, match=r"none\.safetensors: no such file"):
        store.read(tmp_path / "none.safetensors")
    with pytest.raises(store.StoreError, match="no tensor 'c'; it has a, b, infinite"):
        store.read(path)["c"]


def test_a_nan_is_refused_and_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(store.StoreError, match=r"tensor 'a' has NaN at \[1\]"):
        store.write(path, {"a": np.array([0.0, np.nan])}, PROVENANCE)
    assert path.read_bytes() == before


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full_disk(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(store, "save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        store.write(tmp_path / "x.safetensors", TENSORS, PROVENANCE)
    assert list(tmp_path.iterdir()) == []
