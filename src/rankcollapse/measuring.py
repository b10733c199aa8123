"""Runs one measurement and files its tensors with their provenance: the body of the workflow's ``measure`` rule."""

import hashlib
import importlib
import inspect
import json
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor

from rankcollapse import device as devices
from rankcollapse import flow, progress, store
from rankcollapse.checkpoint import Checkpoint
from rankcollapse.config import Measurements
from rankcollapse.places import Places
from rankcollapse.validation import validate

PACKAGES = ("rankcollapse", "torch", "numpy", "scipy", "transformers", "tokenizers")


def run(
    name: str, raw: Mapping[str, Any], *, seed: int, device: str, threads: int, output: Path, log: Path
) -> store.Provenance:
    """Measure ``name`` with the given settings and write its tensors to ``output``; return the provenance.

    The number of threads is the configuration's, whatever ``--cores`` says: it decides the order of sums. A measurement
    that takes a checkpoint gets one, below ``checkpoints`` in the results folder, deleted when the tensors are there.
    Raises ``ConfigError`` for settings or a device that cannot be used and ``StoreError`` for a NaN.
    """
    torch.set_num_threads(threads)
    settings = validate(get_type_hints(Measurements)[name], raw, f"config: measurements.{name}")
    where = devices.pick(device)
    module = importlib.import_module(f"rankcollapse.measurements.{name}")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{name} on {devices.describe(where)}, seed {seed}: {dict(raw)}\n", encoding="utf-8")
    started, clock = datetime.now(UTC), time.perf_counter()
    track = progress.on_terminal_and_in(log)
    provenance = store.Provenance(
        measurement=name,
        settings=dict(raw),
        seed=seed,
        device=devices.describe(where),
        threads=threads,
        versions={"python": platform.python_version()} | {package: version(package) for package in PACKAGES},
        commit=commit(),
        started=started.isoformat(timespec="seconds"),
        wall_seconds=0.0,
    )
    checkpoint = _checkpoint(provenance, Places(output.parents[1]).checkpoint(name), log)
    keeps_state = "checkpoint" in inspect.signature(module.measure).parameters
    extra = {"checkpoint": checkpoint} if keeps_state else {}
    tensors: dict[str, Tensor] = module.measure(settings, device=where, seed=seed, track=track, **extra)
    provenance = replace(provenance, wall_seconds=round(time.perf_counter() - clock, 2))
    store.write(output, {key: tensor.cpu().numpy() for key, tensor in tensors.items()}, provenance)
    checkpoint.remove()
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{len(tensors)} tensors in {provenance.wall_seconds} s -> {output}\n")
    return provenance


def _checkpoint(provenance: store.Provenance, path: Path, log: Path) -> Checkpoint:
    """Return the place for a training's state, good only for the same settings, seed, device, versions and code."""
    code = hashlib.sha256()
    for file in flow.measurement_code(provenance.measurement):
        code.update(Path(file).read_bytes())
    versions = provenance.versions | {"code": code.hexdigest()}

    def say(line: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    settings = json.loads(json.dumps(provenance.settings))  # as a file gives them back: tuples are lists
    origin = replace(provenance, settings=settings, versions=versions, commit="", started="")
    return Checkpoint(path, origin, say)


def commit() -> str:
    """Return the commit of the working tree, with ``-dirty`` when it has changes, or ``unknown`` outside git."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
