import re

import pytest

from rankcollapse.prose import check_prose, help_texts, prose
from rankcollapse.tokens import TextError, cut, pieces


def test_the_help_of_python_has_32_texts_of_128_tokens_that_differ():
    texts = cut(help_texts(), 32, 128, "bert", "pydoc")
    assert len({tuple(text) for text in texts}) == 32
    assert {len(text) for text in texts} == {128}
    assert {text[0] for text in texts} == {101}  # [CLS]
    assert {text[-1] for text in texts} == {102}  # [SEP]


def test_help_texts_are_prose_without_headings_grammar_and_examples():
    for text in help_texts():
        assert "::=" not in text
        assert ">>>" not in text
        assert not re.search(r"\*{5}|={5}|\n|  ", text)


def test_one_text_cleaned_by_hand(monkeypatch):
    raw = 'The "x" statement\n***********\n\nFirst line,\nsecond line.\n\n   x ::= "y"\n\n'
    raw += '"z" is kept.\n\n* item\n\n[note]\n'
    monkeypatch.setattr("rankcollapse.prose.topics", {"x": raw})
    assert help_texts() == ['First line, second line. "z" is kept.']


def test_a_file_of_passages_is_read_instead(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("one two three\n\nfour five six seven\n")
    assert prose(str(file)) == ["one two three", "four five six seven"]
    assert len(pieces(prose(str(file))[1], "bert")) == 4
    check_prose(str(file), 1, 6, "bert")
    with pytest.raises(TextError, match=r"mine\.txt: has 1 passages of at least 6 bert tokens, 2 needed$"):
        check_prose(str(file), 2, 6, "bert")
    with pytest.raises(TextError, match=r"^pydoc: has \d+ passages of at least 400 bert tokens, 90 needed$"):
        check_prose("pydoc", 90, 400, "bert")
