"""The book: prose from notebooks, tables that survive odd text, every claim with a verdict."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from rankcollapse import book
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN


def notebook(path, *cells):
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


def test_prose_is_what_comes_before_the_code_and_what_follows(tmp_path):
    path = notebook(
        tmp_path / "n.ipynb",
        new_markdown_cell("# Title\n\n## What is asked\n\nA question."),
        new_code_cell("x = 1"),
        new_markdown_cell("A remark on a panel."),
        new_markdown_cell("## What follows\n\nAn answer."),
    )
    asked, follows = book._prose(path)
    assert asked == "## What is asked\n\nA question."
    assert follows == "## What follows\n\nAn answer."


def test_a_notebook_without_conclusion_is_refused(tmp_path):
    path = notebook(tmp_path / "n.ipynb", new_markdown_cell("# Title"))
    with pytest.raises(book.BookError, match=r"n\.ipynb: no Markdown cell that starts with '## What follows'"):
        book._prose(path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (0.123456, "0.1235"),
        (True, "True"),
        (None, ""),
        ("bert", "bert"),
        ([1, 0.5], "[1, 0.5]"),
        (list(range(9)), "[0, 1, 2, 3, 4, 5, …]"),
        ([[1.0, 2.0]], "[[1, 2]]"),
        (-321590.2, "-3.216e+05"),
    ],
)
def test_numbers_are_short(value, text):
    assert book._number(value) == text


def test_a_cell_stays_one_cell():
    assert book._cell("a | b\nc") == r"a \| b c"


@pytest.mark.parametrize(
    ("verdict", "kind"), [(HOLDS, "holds"), (CONDITION, "holds-condition"), (FALSE, "false"), (NOT_RUN, "not")]
)
def test_verdicts_are_coloured_in_html_and_typst(verdict, kind, tmp_path):
    for to, expected in (
        ("html5", f'<span class="verdict {kind}">{verdict}</span>'),
        ("typst", f'#verdict("{kind}")['),
    ):
        output = tmp_path / to
        book._pandoc(f"x {book._badge(verdict)} y", to, output)
        text = " ".join(output.read_text().split())
        assert expected in text
        assert verdict in text


def test_norms_are_paired_bars(tmp_path):
    book._pandoc(r"$\|R\|_F \le \|X\|$", "typst", tmp_path / "x")
    assert "parallel" not in (tmp_path / "x").read_text()


def test_a_pdf_whose_tags_typst_cannot_close_is_made_without(tmp_path, monkeypatch):
    tried = []

    def refuse_tags(source, *, output, root, pdf_tags=True):
        tried.append(pdf_tags)
        if pdf_tags:
            raise RuntimeError("internal error: tags weren't properly closed")

    monkeypatch.setattr(book.typst, "compile", refuse_tags)
    book._typeset(tmp_path / "a.typ", tmp_path / "a.pdf", tmp_path)
    assert tried == [True, False]


def test_every_symbol_pandoc_writes_is_one_typst_knows(tmp_path):
    symbols = (
        r"\otimes \oplus \ominus \odot \perp \top \infty \partial \sum \|x\| \le \propto \mapsto \mathbb E \mathbf 1"
    )
    book._pdf(f"---\ntitle: t\n---\n\n${symbols}$\n", tmp_path / "book.pdf", tmp_path, "a label")
    assert (tmp_path / "book.pdf").read_bytes().startswith(b"%PDF")


def test_a_tool_that_refuses_is_named(tmp_path):
    with pytest.raises(book.BookError, match="typst"):
        book._pdf("![x](none){}\n\n```{=typst}\n#no-such-function()\n```\n", tmp_path / "book.pdf", tmp_path, "a label")


def test_a_label_is_text_whatever_it_holds(tmp_path):
    label = 'a | b # *c* $x$ "hi" @ref {brace} <script> \\'
    book._html("---\ntitle: t\n---\n\ntext\n", tmp_path / "index.html", label)
    assert "a | b # *c* $x$" in (tmp_path / "index.html").read_text()
    assert "<script> " not in (tmp_path / "index.html").read_text()
    book._pdf("---\ntitle: t\n---\n\ntext\n", tmp_path / "book.pdf", tmp_path, label)
    assert (tmp_path / "book.pdf").stat().st_size > 1000
