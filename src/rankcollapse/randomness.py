"""Explicit random generators: every draw has a name, so no draw depends on the order of another."""

import hashlib

import torch


def generator(seed: int, *key: object) -> torch.Generator:
    """Return a CPU generator seeded from the run's seed and the name of the draw.

    ``key`` names what is drawn (measurement, grid point, run, ...). Two different keys give independent
    streams; the same key gives the same numbers on every machine, device and number of cores. Draw on the
    CPU and move the result: then a GPU sees the same data.
    """
    name = "/".join(str(part) for part in (seed, *key))
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "little", signed=True))
