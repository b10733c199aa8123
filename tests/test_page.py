"""A notebook's page: tables with every number, agreement, verdicts, pictures; and what it refuses."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import yaml

from rankcollapse import store
from rankcollapse.agreement import Agreement
from rankcollapse.page import Page
from rankcollapse.places import PICTURES
from rankcollapse.store import StoreError

FIGURE = {"title": "t", "paper": "p", "shows": "s", "caption": "c", "measurements": ["m"], "published": []}
LIMITS = {"small": 0.01, "order": 0.1}
MEASURED = {
    "order_low": np.float64(2.95),
    "order_high": 3.0,
    "gains_without_collapse": np.array([30.0]),
    "masked_slope": 1,
}


@pytest.fixture
def page(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/figures.yaml").write_text(yaml.safe_dump({"dong_depth": FIGURE | {"claims": ["S06"]}}))
    claim = {"source": "s", "statement": "t", "judged_by": "j", "criterion": "within {order} of 3", "limits": LIMITS}
    (tmp_path / "config/claims.yaml").write_text(yaml.safe_dump({"S06": claim}))
    origin = store.Provenance("m", {"runs": 2}, 7, "cpu", 1, {}, "abc", "now", 0.1)
    store.write(tmp_path / "results/tensors/m.safetensors", {"x": np.arange(3.0)}, origin)
    return Page("dong_depth", tmp_path / "results", tmp_path)


def drawn():
    return plt.figure(figsize=(1, 1))


def test_a_page_has_its_measurements(page):
    np.testing.assert_array_equal(page["m"]["x"], [0, 1, 2])


def test_recorded_numbers_are_tidy(page, tmp_path):
    page.record("ours", np.array([[1, 2, 3], [4, 5, 6]]), run=range(2), layer=[0, 1, 2], init="bert")
    page.record("one", 0.5)
    page.judge("S06", **MEASURED)
    page.save(drawn())
    table = pd.read_csv(tmp_path / "results/tables/dong_depth.csv")
    assert list(table) == ["series", "run", "layer", "init", "value"]
    assert table.loc[(table["run"] == 1) & (table["layer"] == 2), "value"].item() == 6
    assert set(table.loc[table["series"] == "ours", "init"]) == {"bert"}
    assert table.loc[table["series"] == "one", "value"].item() == 0.5


def test_panels_that_nothing_was_drawn_into_are_left_out(page):
    picture = drawn()
    used, unused, written = picture.subplots(1, 3)
    used.plot([0, 1], [0, 1])
    written.text(0, 0, "words only")
    page.judge("S06", **MEASURED)
    page.save(picture)
    assert picture.axes == [used, written]
    assert unused.figure is None


def test_labels_that_do_not_fit_are_refused(page):
    with pytest.raises(ValueError, match=r"series 'ours': shape \(2,\) does not fit the labels of layer"):
        page.record("ours", [1, 2], layer=[0, 1, 2])


def test_agreement_is_in_both_tables(page, tmp_path):
    agreement = Agreement("KS", 0.04, 0.06, True, "KS 0.040 ≤ 0.060")
    assert page.agree("T = 75", agreement) is agreement
    page.judge("S06", **MEASURED)
    page.save(drawn())
    row = pd.read_csv(tmp_path / "results/tables/agreement/dong_depth.csv").iloc[0].to_dict()
    assert row == {"figure": "dong_depth", "panel": "T = 75", "statistic": "KS"} | {
        "value": 0.04,
        "tolerance": 0.06,
        "agrees": True,
    }
    table = pd.read_csv(tmp_path / "results/tables/dong_depth.csv")
    assert table.loc[table["series"] == "agreement: T = 75: KS", "value"].item() == 0.04


def test_a_verdict_keeps_what_decided_it(page, tmp_path):
    page.judge("S06", **MEASURED)
    page.save(drawn())
    verdict = json.loads((tmp_path / "results/verdicts/S06.json").read_text())
    assert verdict["criterion"] == "within 0.1 of 3"
    assert verdict["measured"] == {"order_low": 2.95, "order_high": 3.0} | {
        "gains_without_collapse": [30.0],
        "masked_slope": 1,
    }
    assert verdict["settings"] == {"m": {"runs": 2, "seed": 7}}


def test_pictures_come_in_every_format_and_without_a_date(page, tmp_path):
    def pictures():
        page.judge("S06", **MEASURED)
        page.save(drawn())
        return [page.places.picture("dong_depth", suffix).read_bytes() for suffix in PICTURES]

    assert pictures() == pictures()


def test_a_claim_left_unjudged_is_refused(page):
    with pytest.raises(ValueError, match=r"dong_depth must judge \['S06'\]"):
        page.save(drawn())


def test_a_foreign_claim_is_refused(page):
    with pytest.raises(ValueError, match="does not judge S99"):
        page.judge("S99")


def test_a_missing_measurement_is_named(page, tmp_path):
    (tmp_path / "results/tensors/m.safetensors").unlink()
    with pytest.raises(StoreError, match=r"m\.safetensors: no such file"):
        Page("dong_depth", tmp_path / "results", tmp_path)


def test_a_number_that_is_not_one_is_named(page):
    with pytest.raises(ValueError, match="S06: order_low = NaN is not finite"):
        page.judge("S06", **MEASURED | {"order_low": np.nan})
