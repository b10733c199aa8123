"""What a user may set: one frozen dataclass per measurement, checked before any job starts.

No mathematics and no torch here: the workflow reads this module at every start, and a measurement's rule
depends on the values (its ``params``), not on this file.
"""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

Size = Annotated[int, Field(gt=0)]
Sizes = Annotated[tuple[Size, ...], Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Positives = Annotated[tuple[Positive, ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]

settings = dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
