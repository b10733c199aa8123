"""A local folder with a trained vision transformer, checked without torch before any job starts."""

import json
from pathlib import Path

from rankcollapse.validation import ConfigError

MODEL_TYPES = ("vit", "deit", "dinov2")  # their patch tokens come last, along rows


def check_checkpoint(name: str) -> None:
    """Raise ``ConfigError``, one line, for a local folder that holds no ViT or only pickled weights.

    A name that is no local folder is one of the hub's, and only loading it can tell more.
    """
    folder = Path(name)
    if not folder.is_dir():
        return
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"checkpoint {name!r}: no config.json with a model_type; allowed: a saved ViT") from None
    check_kind(name, kind)
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"checkpoint {name!r}: no *.safetensors; allowed: safetensors, no pickled weights")


def check_kind(name: str, kind: str) -> None:
    """Raise ``ConfigError`` unless ``kind`` is a vision transformer that can be measured."""
    if kind not in MODEL_TYPES:
        raise ConfigError(f"checkpoint {name!r}: is a {kind}, not a ViT; allowed: {', '.join(MODEL_TYPES)}")
