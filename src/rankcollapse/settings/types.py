"""The kinds of values that settings are made of."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

Size = Annotated[int, Field(gt=0)]
Sizes = Annotated[tuple[Size, ...], Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Positives = Annotated[tuple[Positive, ...], Field(min_length=1)]
NotNegatives = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]
File = Annotated[str, Field(min_length=1), "a file that must be there before any job starts"]

settings = dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
