"""Binds the figure book: one Markdown source from catalogue, tables and verdicts; pandoc and typst do the rest."""

import json
import re
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from textwrap import shorten
from typing import Any

import jinja2
import nbformat
import pandas as pd
import pypandoc
import typst

from rankcollapse.catalogue import Catalogue, Claim, Figure, load_catalogue
from rankcollapse.places import Places
from rankcollapse.store import Provenance, read_provenance
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN, Verdict

FOLLOWS = "## What follows"
PUBLISHED = "published sizes"  # the label of the run that the notebooks' text speaks of
REASON = 240  # characters of a reason in the table of all claims; the figure's page has all of it
RENAMED = re.compile(r"\b(times|plus|minus|dot)\.circle\b")  # pandoc's names for symbols that typst calls x.o
TEMPLATES = Path(__file__).parent / "templates"


class BookError(RuntimeError):
    """A book that cannot be bound; the message says which tool refused what."""


@dataclass(frozen=True)
class Chapter:
    """What the page of one figure is made from."""

    id: str
    figure: Figure
    asked: str  # the notebook's prose before its first picture
    follows: str  # and after it
    agreement: list[dict[str, Any]]
    verdicts: list[Verdict]
    origins: list[Provenance]


def bind(results: Path, *, label: str, log: Path, root: Path = Path()) -> None:
    """Write ``figure-book.md``, ``index.html`` and ``figure-book.pdf`` into the results' book folder.

    Raises ``BookError`` when pandoc or typst refuse the source.
    """
    places, catalogue = Places(results), load_catalogue(root)
    chapters = [_chapter(name, figure, places) for name, figure in catalogue.figures.items()]
    verdicts = {name: _verdict(name, claim, catalogue, chapters) for name, claim in catalogue.claims.items()}
    agreement = [row for chapter in chapters for row in chapter.agreement]
    pd.DataFrame(agreement).to_csv(places.agreements(), index=False)
    source = _render(
        chapters=chapters,
        claims=catalogue.claims,
        verdicts=verdicts,
        agreement=agreement,
        label=label,
        published=PUBLISHED,
    )
    places.book("").mkdir(parents=True, exist_ok=True)
    places.book("figure-book.md").write_text(source, encoding="utf-8")
    _html(source, places.book("index.html"), label)
    _pdf(source, places.book("figure-book.pdf"), results, label)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{len(chapters)} figures, {len(verdicts)} claims -> {places.book('')}\n", encoding="utf-8")


def _chapter(name: str, figure: Figure, places: Places) -> Chapter:
    asked, follows = _prose(places.notebook(name))
    table = pd.read_csv(places.agreement(name))
    return Chapter(
        id=name,
        figure=figure,
        asked=asked,
        follows=follows,
        agreement=table.to_dict("records"),
        verdicts=[Verdict.load(places.verdict(claim)) for claim in figure.claims],
        origins=[read_provenance(places.tensors(measurement)) for measurement in figure.measurements],
    )


def _prose(notebook: Path) -> tuple[str, str]:
    """Return a notebook's Markdown before its first code, and under "What follows"; the title is the catalogue's.

    Raises ``BookError`` when the notebook has no such section.
    """
    cells = nbformat.read(notebook, as_version=4).cells
    before = [cell.source for cell in takewhile(lambda cell: cell.cell_type == "markdown", cells)]
    after = [cell.source for cell in cells if cell.source.startswith(FOLLOWS)]
    if not after:
        raise BookError(f"{notebook}: no Markdown cell that starts with {FOLLOWS!r}")
    return re.sub(r"\A# .*\n", "", "\n\n".join(before)).strip(), after[0]


def _verdict(name: str, claim: Claim, catalogue: Catalogue, chapters: list[Chapter]) -> Verdict:
    """Return the verdict its figure gave, or "not run" for a claim that no figure of the catalogue judges."""
    given = (verdict for chapter in chapters for verdict in chapter.verdicts if verdict.id == name)
    none = Verdict(name, NOT_RUN, "no figure of the catalogue judges it", claim.rule, {}, None, {})
    return next(given, none)


def _render(**context: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        comment_start_string="{##",  # Markdown writes {#id}
        comment_end_string="##}",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": _number,
        "cell": _cell,
        "short": partial(shorten, width=REASON, placeholder=" …"),
        "badge": _badge,
        "measured": _measured,
        "json": json.dumps,
    }
    counts = {
        kind: sum(v.verdict == kind for v in context["verdicts"].values())
        for kind in (HOLDS, CONDITION, FALSE, NOT_RUN)
    }
    return environment.get_template("book.md.j2").render(counts=counts, **context)


def _number(value: Any, digits: int = 4) -> str:
    """Write a number with four significant digits, lists up to six entries, everything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float | list):
        return "" if value is None else str(value)
    if isinstance(value, list):
        shown = ", ".join(_number(item, digits) for item in value[:6])
        return f"[{shown}{', …' if len(value) > 6 else ''}]"
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"


def _measured(measured: dict[str, Any]) -> str:
    return "; ".join(f"`{name}` = {_number(value)}" for name, value in measured.items())


def _cell(text: str) -> str:
    """Make text fit for a cell of a pipe table."""
    return " ".join(str(text).split()).replace("|", r"\|")


def _badge(verdict: str) -> str:
    return f"[{verdict}]{{.verdict .{verdict.split()[0]}{'-condition' if verdict == CONDITION else ''}}}"


def _pandoc(source: str, to: str, output: Path, *arguments: str) -> None:
    filters = [f"--lua-filter={TEMPLATES / 'book.lua'}"]
    try:
        pypandoc.convert_text(
            source,
            to,
            format="markdown-superscript-subscript-citations",
            outputfile=str(output),
            extra_args=["--standalone", *filters, *arguments],
        )
    except RuntimeError as error:
        raise BookError(f"{output}: pandoc: {' '.join(str(error).split())}") from None


def _html(source: str, output: Path, label: str) -> None:
    arguments = (
        f"--template={TEMPLATES / 'book.html'}",
        "--toc",
        "--toc-depth=1",
        "--mathml",
        "--default-image-extension=svg",
    )
    _pandoc(source, "html5", output, f"--metadata=subtitle:{label}", *arguments)


def _pdf(source: str, output: Path, results: Path, label: str) -> None:
    typ = output.with_suffix(".typ")
    _pandoc(
        source,
        "typst",
        typ,
        f"--metadata=subtitle:{label}",
        f"--template={TEMPLATES / 'book.typ'}",
        "--toc",
        "--default-image-extension=pdf",
    )
    typ.write_text(RENAMED.sub(r"\1.o", typ.read_text(encoding="utf-8")), encoding="utf-8")
    try:
        _typeset(typ, output, results)
    except RuntimeError as error:
        raise BookError(f"{output}: typst: {getattr(error, 'diagnostic', error)}") from None


def _typeset(typ: Path, output: Path, results: Path) -> None:
    """Make the PDF with tags for accessibility, or without where typst 0.15 cannot close them at a page break.

    Whether it can depends on where the pages happen to break (typst issue 8776), not on the source.
    """
    try:
        typst.compile(str(typ), output=str(output), root=str(results))
    except RuntimeError as error:
        if "internal error: tags" not in str(getattr(error, "diagnostic", error)):
            raise
        typst.compile(str(typ), output=str(output), root=str(results), pdf_tags=False)
