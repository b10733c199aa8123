"""Which device a measurement runs on, and what to write down about it."""

import platform

import torch

from rankcollapse.validation import ConfigError


def pick(name: str) -> torch.device:
    """Return the device asked for; ``auto`` is CUDA when there is one, else the CPU (MPS only when asked for).

    Raises ``ConfigError`` when the device asked for is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    there = {"cpu": True, "cuda": torch.cuda.device_count() > (device.index or 0)}
    there["mps"] = torch.backends.mps.is_available()
    if not there[device.type]:
        raise ConfigError(f"config: device = {name!r}: not on this machine; allowed: auto, cpu, or a device it has")
    return device


def describe(device: torch.device) -> str:
    """Return the device with the hardware's own name."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({_processor()})"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123, not a real file
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
