from pathlib import Path

import numpy as np
import pytest

from rankcollapse.catalogue import load_catalogue
from rankcollapse.published import RESOLUTION, ROOT, PublishedError, curve, eigenvalues, is_there, read


def test_every_resolution_belongs_to_a_file():
    optional = {
        Path(name).stem
        for figure in load_catalogue(ROOT.parents[1]).figures.values()
        for name in figure.published_if_there
    }
    assert {file.stem for file in ROOT.glob("*.csv")} | optional >= set(RESOLUTION)


def test_a_file_is_there_or_not(tmp_path):
    (tmp_path / "mine.csv").write_text("x\n1\n")
    assert (is_there("mine", tmp_path), is_there("fig_VII", tmp_path), is_there("fig_VII")) == (True, False, True)


def test_files_do_not_depend_on_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(read("fig_VII")) == 493


def test_where_keeps_the_rows_asked_for():
    rows = read("fig_VII", {"config": "A + skip", "run": 3, "depth": 2})
    assert len(rows) == 1
    assert rows.equals(read("fig_VII", {"config": "A + skip", "run": "3", "depth": 2}))
    assert rows.index.tolist() == [0]


def test_curve_is_the_mean_of_its_runs():
    for config in read("fig_VII")["config"].unique():
        table = curve("fig_VII", "depth", "stable_rank", {"config": config})
        runs = table[[str(k) for k in range(5)]]
        complete = runs.notna().all(axis=1)
        assert complete.sum() == table["mean"].notna().sum()  # a mean is drawn where every run is
        np.testing.assert_allclose(runs.mean(axis=1)[complete], table["mean"][complete], atol=RESOLUTION["fig_VII"])


def test_curves_that_stop_early_have_holes():
    table = curve("fig_VII", "depth", "stable_rank", {"config": "A + skip"})
    assert table.index.tolist() == list(range(1, 8))
    assert table.loc[7].notna().sum() == 1


@pytest.mark.parametrize("tokens", [75, 282, 446])
def test_spectrum_of_roberta_has_the_outlier_first(tokens):
    values = eigenvalues("fig_I_d_eigenvalues", {"T": tokens})
    assert len(values) == tokens
    # the error is stated to one digit, 7e-7: up to half a unit of it more
    assert values[0] == pytest.approx(1, abs=RESOLUTION["fig_I_d_eigenvalues"] + 0.5e-7)
    assert (np.diff(np.abs(values)) <= 0).all()


def test_spectra_of_figure_nine_are_whole_but_for_two_points():
    sizes = {
        (g, t): len(eigenvalues("fig_IX_eigenvalues", {"gamma": g, "T": t}))
        for g in (0.1, 0.5, 2, 10)
        for t in (200, 400, 800)
    }
    assert {point: t - n for point, n in sizes.items() for t in [point[1]] if t != n} == {(10, 200): 2}


def test_other_files_read_the_same_way():
    assert read("heatmaps", {"figure": "I", "panel": "b"})["T"].tolist() == [282]
    layers = read("dong_bert", {"weights": "initialization", "variant": "SAN"})["layer"]
    assert layers.tolist() == list(range(13))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read("fig_0"), "published fig_0: no such file in .*; there are: .*fig_VII"),
        (lambda: read("fig_VII", {"colour": "red"}), "no column 'colour'; there are: config, run, depth, stable_rank"),
        (lambda: read("fig_VII", {"config": "B"}), "no row with config = 'B'; there are: A, A "),
        (lambda: read("fig_VII", {"depth": 11}), "no row with depth = 11; there are: 1, 2, 3"),
        (lambda: curve("fig_VII", "depth", "stable_rank", {"run": "mean"}), "more than one stable_rank for a depth"),
        (lambda: curve("fig_I_d_eigenvalues", "T", "re", {}), "no column 'run'; there are: T, re, im, axis"),
    ],
)
def test_mistakes_are_answered_in_one_line(call, message):
    with pytest.raises(PublishedError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(PublishedError, match="there are: none"):
        read("fig_VII", root=tmp_path)
