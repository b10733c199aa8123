"""Reading YAML against typed dataclasses, and refusing it in one line per mistake."""

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

T = TypeVar("T")


class ConfigError(ValueError):
    """A setting, catalogue entry or claim that cannot be used; each line of the message names one mistake."""


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; ``ConfigError`` names the file when it is missing or malformed."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None


def validate(expected: type[T], raw: Any, where: str) -> T:
    """Return ``raw`` as ``expected``; ``ConfigError`` has one line for each wrong key, its value, what is allowed."""
    # Strict JSON mode: a list may become a tuple, but "5", 5.0 or yes never become the integer 5.
    try:
        return TypeAdapter(expected).validate_json(json.dumps(raw, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError("\n".join(_line(item, where) for item in _innermost(error.errors()))) from None


def allowed(name: str, names: Iterable[str]) -> str:
    """Say which names are allowed, and which of them ``name`` was probably meant to be."""
    names = list(names)
    close = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}allowed: {', '.join(names)}"


def _innermost(items: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out what only follows from a mistake further in, such as a list that is empty without its wrong item."""
    outer = {item["loc"][:depth] for item in items for depth in range(len(item["loc"]))}
    return [item for item in items if item["loc"] not in outer]


def _is_number(value: Any) -> bool:
    """Tell whether a text is a number that YAML did not read as one, such as 1e-3, which wants 1.0e-3 there."""
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def _line(item: ErrorDetails, where: str) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "the whole file"
    value = json.dumps(item["input"], default=str)
    value = value if len(value) <= 60 else value[:57] + "..."
    match item["type"]:
        case "unexpected_keyword_argument":
            return f"{where}: {key} = {value}: unknown key; allowed: the keys in the file as it was shipped"
        case "missing":
            return f"{where}: {key}: missing; allowed: a value as in the file as it was shipped"
        case "too_short":
            return f"{where}: {key} = {value}: too few entries; allowed: {item['ctx']['min_length']} or more"
        case "string_too_short":
            return f"{where}: {key} = {value}: empty; allowed: a text"
        case "float_type" if _is_number(item["input"]):
            return f"{where}: {key} = {value}: a text in YAML; allowed: a number, such as {float(item['input']):.1e}"
        case "value_error":
            return f"{where}: {key}: {item['ctx']['error']}"
        case _:
            return f"{where}: {key} = {value}: {item['msg'].replace('Input should', 'must', 1)}"
