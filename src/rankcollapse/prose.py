"""English prose to read: a file of passages, or the help texts that come with every Python."""

import re
from pydoc_data.topics import topics

from rankcollapse.settings.types import PYDOC
from rankcollapse.tokens import Family, cut, split_passages


def prose(source: str) -> list[str]:
    """Return the texts of ``source``: those of Python's help when it is ``PYDOC``, else the passages of that file.

    Raises ``TextError`` naming a file that cannot be read.
    """
    return help_texts() if source == PYDOC else split_passages(source)


def help_texts() -> list[str]:
    """Return the help texts on Python's topics, by name of topic, their prose alone and each on one line.

    Headings, grammar and examples are left out: paragraphs that are indented, that start with a mark or that have a
    line without a letter. Another version of Python words some of them differently, so their hash is worth keeping.
    """
    return [_prose(topics[name]) for name in sorted(topics)]


def check_prose(source: str, count: int, length: int, family: Family) -> None:
    """Raise ``TextError`` unless ``source`` has ``count`` texts of ``length`` tokens, special tokens included."""
    cut(prose(source), count, length, family, source)


def _prose(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text.strip())
    kept = [part for part in paragraphs if re.match(r"[\w\"'(]", part) and not re.search(r"^[^\w\n]+$", part, re.M)]
    return " ".join(" ".join(kept).split())
