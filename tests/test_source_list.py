"""The checked list of sources: its marks follow from its own columns, and its judge from the marks."""

import pytest

from rankcollapse import published
from rankcollapse.judges import judge_of
from rankcollapse.verdicts import FALSE, HOLDS

TABLE = published.read("exposition_sources")


def test_every_entry_says_where_it_was_checked():
    assert (TABLE.drop(columns="right").map(str.strip) != "").all(axis=None)
    assert set(TABLE["right"]) == {"yes", "no"}
    assert not TABLE.duplicated(["part", "reference", "field", "stated"]).any()


def test_a_field_is_right_exactly_when_it_is_as_the_record_has_it():
    listed = TABLE[TABLE["part"] == "source list"]
    assert ((listed["stated"] == listed["found"]) == (listed["right"] == "yes")).all()


def test_an_attribution_is_right_exactly_when_it_is_as_stated():
    said = TABLE[TABLE["part"] == "attribution"]
    assert ((said["found"] == "as stated") == (said["right"] == "yes")).all()


@pytest.mark.parametrize(("wrong", "verdict", "said"), [([], HOLDS, "4 of 4"), (["a, title"], FALSE, "not: a, title")])
def test_judge(wrong, verdict, said):
    ruling = judge_of("source_list", "S25")(checked=4, wrong=wrong, allowed=0)
    assert ruling.verdict == verdict
    assert said in ruling.reason
