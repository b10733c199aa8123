"""The cache between measuring and drawing: safetensors files that say where they come from.

A file is written to a temporary name and renamed, so it is there whole or not at all. Reading checks a hash over
names, shapes, types, bytes and provenance, so a truncated or altered file is refused by name.
Torch-free: arrays go in and come out as numpy.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

LAYOUT = "1"


class StoreError(RuntimeError):
    """A tensor file that must not be read; the message names the file and the reason."""


@dataclass(frozen=True)
class Provenance:
    """Where a file of tensors comes from."""

    measurement: str
    settings: dict[str, Any]
    seed: int
    device: str  # as torch names it, with the hardware's own name
    threads: int
    versions: dict[str, str]
    commit: str  # of the working tree, "-dirty" when it had changes
    started: str  # ISO 8601, UTC
    wall_seconds: float


@dataclass(frozen=True)
class Measurement:
    """The tensors of one measurement and their provenance."""

    tensors: dict[str, np.ndarray]
    provenance: Provenance
    hash: str

    def __getitem__(self, name: str) -> np.ndarray:
        """Return one tensor; ``StoreError`` lists the names there are."""
        if name not in self.tensors:
            raise StoreError(f"{self.provenance.measurement} has no tensor {name!r}; it has {', '.join(self.tensors)}")
        return self.tensors[name]


def write(path: Path, tensors: Mapping[str, np.ndarray], provenance: Provenance) -> str:
    """Write tensors and provenance to ``path``, whole or not at all; return the content hash.

    Raises ``StoreError`` for a tensor with NaN, naming it: a hole is an explicit value of the measurement's own
    (see its docstring), never a NaN that slipped through.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(tensors.items())}
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and np.isnan(array).any():
            raise StoreError(f"{path}: tensor {name!r} has NaN at {np.argwhere(np.isnan(array))[0].tolist()}")
    origin = json.dumps(asdict(provenance), sort_keys=True)
    digest = _hash(arrays, origin)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(arrays, temporary, metadata={"layout": LAYOUT, "provenance": origin, "hash": digest})
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return digest


def read(path: Path) -> Measurement:
    """Return the measurement in a file; ``StoreError`` names a file that is missing, truncated, altered or foreign."""
    if not path.is_file():
        raise StoreError(f"{path}: no such file; run snakemake to measure it")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, OSError, TypeError) as error:
        raise StoreError(f"{path}: truncated or not a safetensors file ({error})") from None
    if metadata.get("layout") != LAYOUT:
        raise StoreError(f"{path}: layout {metadata.get('layout')!r}, but this version reads layout {LAYOUT!r}")
    origin = metadata.get("provenance", "")
    if _hash(arrays, origin) != metadata.get("hash"):
        raise StoreError(f"{path}: altered since it was written (its content hash does not match)")
    try:
        return Measurement(arrays, Provenance(**json.loads(origin)), metadata["hash"])
    except (TypeError, ValueError) as error:
        raise StoreError(f"{path}: its provenance is not of this version ({error})") from None


def read_provenance(path: Path) -> Provenance:
    """Return only where a file comes from, without its tensors; ``StoreError`` as for ``read``."""
    try:
        with safe_open(path, framework="numpy") as file:
            return Provenance(**json.loads((file.metadata() or {})["provenance"]))
    except (SafetensorError, OSError, KeyError) as error:
        raise StoreError(f"{path}: missing, truncated or without provenance ({error})") from None


def _hash(arrays: Mapping[str, np.ndarray], origin: str) -> str:
    digest = hashlib.sha256(origin.encode())
    for name, array in arrays.items():
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()
