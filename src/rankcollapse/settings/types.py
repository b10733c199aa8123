"""The kinds of values that settings are made of."""

import os
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

Size = Annotated[int, Field(gt=0)]
Width = Annotated[int, Field(ge=2)]  # channels: of one channel LayerNorm makes 0, and there is no direction
Sizes = Annotated[tuple[Size, ...], Field(min_length=1)]
Depths = Annotated[tuple[Annotated[int, Field(gt=0, le=10_000)], ...], Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Positives = Annotated[tuple[Positive, ...], Field(min_length=1)]
NotNegatives = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]
File = Annotated[str, Field(min_length=1), "a file that must be there before any job starts"]
Prose = Annotated[str, Field(min_length=1), "a file of passages, or PYDOC: the help texts that come with Python"]
PYDOC = "pydoc"


def _names(value: Any) -> Any:
    """Take one name, or several between commas, as names: what a command line gives."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list | tuple | None):
        raise ValueError(f"{value}; allowed: a name, names between commas, or a list of names")
    names = tuple(value or ())
    if len({os.path.normpath(str(name)) for name in names}) < len(names):
        raise ValueError(f"{', '.join(map(str, names))}: an entry twice; allowed: each once")
    return names


Checkpoints = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_names),
    "trained encoders: folders, or names on the hub",
]

settings = dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
