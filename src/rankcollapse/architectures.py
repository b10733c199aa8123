"""The architectures written down in a YAML file, checked without torch before any job starts."""

from pathlib import Path
from typing import Any

from rankcollapse.validation import ConfigError, allowed, read_yaml


def read_architecture(path: str | Path, name: str) -> dict[str, Any]:
    """Return the keys of one architecture: its ``model_type`` and the arguments of that type's configuration class.

    Raises ``ConfigError`` naming the file when it cannot be read, and the architectures it has when ``name`` is none.
    """
    known = read_yaml(Path(path))
    if not isinstance(known, dict) or not all(isinstance(keys, dict) for keys in known.values()):
        raise ConfigError(f"{path}: must be a table of architectures by name")
    if name not in known:
        raise ConfigError(f"{path}: no architecture {name!r}; {allowed(name, known)}")
    return known[name]


def positions(keys: dict[str, Any]) -> int | None:
    """Return how many tokens an architecture has positions for; None: any number, as XLNet's are relative.

    RoBERTa counts its positions from one behind the padding token's.
    """
    match keys["model_type"]:
        case "xlnet":
            return None
        case "gpt2":
            return keys["n_positions"]
        case "roberta":
            return keys["max_position_embeddings"] - keys["pad_token_id"] - 1
        case _:
            return keys["max_position_embeddings"]


def check_architecture(path: str | Path, name: str, *, tokens: int, heads: int = 1) -> None:
    """Raise ``ConfigError`` unless architecture ``name`` takes ``tokens`` tokens and has ``heads`` heads or more."""
    keys = read_architecture(path, name)
    most = positions(keys)
    if most is not None and tokens > most:
        raise ConfigError(f"{path}: {name} has positions for {most} tokens, {tokens} asked for")
    has = keys["num_attention_heads"] if "num_attention_heads" in keys else keys["n_head"]
    if heads > has:
        raise ConfigError(f"{path}: {name} has {has} heads, head {heads - 1} (counted from 0) asked for")
