"""The figures and the claims they judge, as written in ``config/figures.yaml`` and ``config/claims.yaml``."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rankcollapse.settings.types import settings
from rankcollapse.validation import ConfigError, allowed, read_yaml, validate


@settings
class Figure:
    """One figure: what it shows, what it reads, what it judges."""

    title: str
    paper: str  # the paper and the figure's number there
    shows: str  # one line, for the table in the README and the book's contents
    caption: str  # Markdown, with mathematics between dollars
    measurements: tuple[str, ...]  # the tensors it reads; none where it shows a table of resources/published alone
    published: tuple[str, ...]  # the files of resources/published it is laid over
    claims: tuple[str, ...]  # the claims it judges
    published_if_there: tuple[
        str, ...
    ] = ()  # files of resources/published it is laid over once someone puts them there


@settings
class Claim:
    """One claim of the two documents, in our words, and the criterion that decides it."""

    source: str  # document and section
    statement: str
    judged_by: str  # what is measured to decide it
    criterion: str = ""  # when it holds, holds with a condition, is false; {names} stand for the limits
    limits: dict[str, float] = Field(default_factory=dict)  # the numbers of the criterion, fixed before the run

    @property
    def rule(self) -> str:
        """The criterion with its limits written in."""
        return self.criterion.format(**{name: f"{value:g}" for name, value in self.limits.items()})


@settings
class Catalogue:
    """All figures and all claims."""

    figures: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Figure]
    claims: dict[str, Claim]

    def judge_of(self, claim: str) -> str | None:
        """Return the id of the figure that judges a claim, or None."""
        return next((name for name, figure in self.figures.items() if claim in figure.claims), None)


def load_catalogue(root: Path = Path()) -> Catalogue:
    """Read both files below ``root`` and check them against each other; ``ConfigError`` names what does not fit."""
    raw = {name: read_yaml(root / "config" / f"{name}.yaml") for name in ("figures", "claims")}
    catalogue = validate(Catalogue, raw, "config")
    for name, stated in catalogue.claims.items():
        try:
            stated.rule  # noqa: B018, to see whether its limits are all there
        except (KeyError, IndexError, ValueError) as error:
            raise ConfigError(f"config/claims.yaml: {name}: criterion names {error}; allowed: its limits") from None
    judged: dict[str, str] = {}
    for name, figure in catalogue.figures.items():
        for claim in figure.claims:
            if claim not in catalogue.claims:
                raise ConfigError(f"config/figures.yaml: {name}: claim {claim!r}: {allowed(claim, catalogue.claims)}")
            if claim in judged:
                raise ConfigError(f"config/figures.yaml: {name}: claim {claim} is already judged by {judged[claim]}")
            judged[claim] = name
    return catalogue
