"""The workflow as a user meets it: which jobs run when, and one line for what cannot run. Everything in a copy."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rankcollapse import store

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "workflow", "profiles", "config", "notebooks", "resources", "src", "environment.yml")
SMOKE = ["--configfile", "config/smoke.yaml"]
TENSORS = Path("results/smoke/tensors/markov_depth.safetensors")
pytestmark = pytest.mark.workflow


def copy(folder):
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    return folder


def command(*arguments):
    return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]


def environment(folder):
    return os.environ | {"PYTHONPATH": str(folder / "src")}


def smoke(folder, overlay):
    """Arguments for the smoke configuration with some settings changed."""
    path = folder / "overlay.yaml"
    path.write_text(yaml.safe_dump(overlay))
    return [*SMOKE, path.name]


def snakemake(folder, *arguments, overlay=None):
    arguments = [*arguments, *smoke(folder, overlay or {})]
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )


def jobs(folder, *arguments, overlay=None):
    """The jobs that a dry run would start, by rule."""
    done = snakemake(folder, "-n", *arguments, overlay=overlay)
    assert done.returncode == 0, done.stderr
    table = done.stderr.partition("Job stats:\n")[2] or done.stdout.partition("Job stats:\n")[2]
    rows = [line.split() for line in table.partition("\n\n")[0].splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit() and row[0] != "total"}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return copy(tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A copy in which one figure has been drawn at smoke size."""
    folder = copy(tmp_path_factory.mktemp("drawn"))
    done = snakemake(folder, "rebuttal_07")
    assert done.returncode == 0, done.stderr
    return folder


# ---------------------------------------------------------------- what runs


def test_everything_is_one_job_a_measurement_and_one_a_figure(fresh):
    catalogue = yaml.safe_load((ROOT / "config/figures.yaml").read_text())
    measurements = {name for figure in catalogue.values() for name in figure["measurements"]}
    expected = dict.fromkeys(catalogue, 1) | {"measure": len(measurements), "book": 1, "all": 1}
    assert jobs(fresh) == expected


def test_one_figure_needs_only_its_own_measurements(fresh):
    assert jobs(fresh, "rebuttal_07") == {"measure": 1, "rebuttal_07": 1}


def test_all_outputs_of_a_figure_are_in_their_places(drawn):
    results = drawn / "results/smoke"
    for suffix in ("pdf", "svg", "png"):
        assert (results / f"figures/rebuttal_07.{suffix}").stat().st_size > 1000
    header, first, *_ = (results / "tables/rebuttal_07.csv").read_text().splitlines()
    assert header == "series,run,config,depth,value"
    assert first.startswith('"ours, stable rank')
    assert (results / "notebooks/rebuttal_07.ipynb").is_file()
    verdict = yaml.safe_load((results / "verdicts/M07.json").read_text())
    assert verdict.keys() == {"id", "verdict", "reason", "criterion", "measured", "figure", "settings"}
    assert verdict["settings"]["markov_depth"]["width"] == 12


def test_nothing_changed_nothing_runs(drawn):
    assert jobs(drawn, "rebuttal_07") == {}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("notebooks/rebuttal_07.py", {"rebuttal_07": 1}),
        ("src/rankcollapse/plotting.py", {"rebuttal_07": 1}),
        ("src/rankcollapse/judges/rebuttal_07.py", {"rebuttal_07": 1}),
        ("resources/published/fig_VII.csv", {"rebuttal_07": 1}),
        ("src/rankcollapse/spectrum.py", {"measure": 1, "rebuttal_07": 1}),
        ("src/rankcollapse/settings/gap.py", {}),
        ("notebooks/rebuttal_09.py", {}),
        ("src/rankcollapse/encoders.py", {}),
        ("src/rankcollapse/judges/rebuttal_09.py", {}),
    ],
)
def test_a_change_runs_what_depends_on_it_and_no_more(drawn, changed, expected):
    path = drawn / changed
    before = path.stat()
    path.touch()
    try:
        assert jobs(drawn, "rebuttal_07") == expected
    finally:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_changed_setting_measures_only_its_own_measurement(drawn):
    own, other = ({"measurements": {name: {"runs": 4}}} for name in ("markov_depth", "gaussian_spectrum"))
    assert jobs(drawn, "rebuttal_07", overlay=own) == {"measure": 1, "rebuttal_07": 1}
    assert jobs(drawn, "rebuttal_07", overlay=other) == {}


def test_a_changed_criterion_judges_again(drawn):
    path = drawn / "config/claims.yaml"
    before, stamp = path.read_text(), path.stat()
    path.write_text(before.replace("kept: 1.5", "kept: 1.6"))
    try:
        assert jobs(drawn, "rebuttal_07") == {"rebuttal_07": 1}
    finally:
        path.write_text(before)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def test_measuring_again_gives_the_same_numbers(drawn):
    before = store.read(drawn / TENSORS)
    done = snakemake(drawn, "rebuttal_07", "--forcerun", "measure")
    assert done.returncode == 0, done.stderr
    after = store.read(drawn / TENSORS)
    assert all((before[name] == after[name]).all() for name in before.tensors)


def test_a_damaged_tensor_file_is_set_aside_and_measured_again(drawn):
    path = drawn / TENSORS
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    jobs(drawn, "rebuttal_07")
    assert path.read_bytes() == whole[:-100], "a dry run changes nothing"
    done = snakemake(drawn, "rebuttal_07")
    assert path.with_suffix(".damaged").read_bytes() == whole[:-100]
    assert done.returncode == 0
    assert "markov_depth.safetensors: truncated" in done.stderr
    assert "measured again" in done.stderr
    store.read(path)


def test_a_missing_tensor_file_is_measured_again(drawn):
    (drawn / TENSORS).unlink()
    assert snakemake(drawn, "rebuttal_07").returncode == 0
    store.read(drawn / TENSORS)


def test_a_missing_picture_is_drawn_again(drawn):
    (drawn / "results/smoke/figures/rebuttal_07.svg").unlink()
    assert jobs(drawn, "rebuttal_07") == {"rebuttal_07": 1}
    assert jobs(drawn)["rebuttal_07"] == 1
    assert snakemake(drawn, "rebuttal_07").returncode == 0


def test_the_tensors_of_another_measurement_are_set_aside(drawn):
    path = drawn / TENSORS
    other = store.read(path)
    store.write(path, other.tensors, dataclasses.replace(other.provenance, measurement="san_depth"))
    done = snakemake(drawn, "rebuttal_07")
    assert done.returncode == 0
    assert "holds the tensors of san_depth" in done.stderr


def test_a_killed_run_is_taken_up_again(tmp_path):
    folder = copy(tmp_path)
    longer = {"measurements": {"markov_depth": {"tokens": 100, "width": 100, "depth": 12, "runs": 40}}}
    process = subprocess.Popen(
        command(str(TENSORS), *smoke(folder, longer)),
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    log = folder / "results/smoke/logs/measure/markov_depth.log"
    while not log.exists() and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (folder / TENSORS).exists()
    snakemake(folder, "--unlock")
    done = snakemake(folder, str(TENSORS))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (folder / TENSORS).parent.iterdir()] == [TENSORS.name]
    store.read(folder / TENSORS)


# ---------------------------------------------------------------- what cannot run


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        ({"seed": -1}, ["config: seed = -1", "greater than or equal to 0"]),
        ({"sede": 1}, ["config: sede = 1", "unknown key"]),
        ({"device": "gpu"}, ['config: device = "gpu"', "cuda"]),
        ({"results": "/dev/null/x"}, ["config: results = '/dev/null/x'", "not a folder"]),
        ({"measurements": {"markov_depth": {"width": "many"}}}, ['markov_depth.width = "many"', "integer"]),
        ({"measurements": {"markov_depth": {"width": -1}}}, ["markov_depth.width = -1", "greater than 0"]),
        ({"measurements": {"gaussian_spectrum": {"tokens": [32, 16]}}}, ["gaussian_spectrum.tokens", "not rising"]),
        ({"measurements": {"roberta_attention": {"lengths": [12, 12]}}}, ["roberta_attention.lengths", "twice"]),
        ({"measurements": {"gaussian_spectrum": {"ratios": [0.5, 0.5000001]}}}, ["gaussian_spectrum.ratios", "twice"]),
        ({"measurements": {"markov_depth": {"configs": ["A"]}}}, ["markov_depth.configs", "without"]),
        ({"measurements": {"gaussian_spectrum": {"ratios": [17]}}}, ["gamma = 17", "at most 16"]),
        ({"measurements": {"roberta_attention": {"text": "no.txt"}}}, ["roberta_attention names 'no.txt'", "no such"]),
        ({"measurements": {"roberta_attention": {"lengths": [512], "text": "short.txt"}}}, ["short.txt", "512 needed"]),
        ({"measurements": {"roberta_attention": {"lengths": [5000]}}}, ["roberta-base", "512 tokens", "5000"]),
        ({"measurements": {"encoder_depth": {"texts": 400}}}, ["resources/text/passages.txt", "400 needed"]),
    ],
)
def test_a_bad_setting_is_one_line_and_starts_nothing(fresh, overlay, words):
    (fresh / "short.txt").write_text("A text of a few words.")
    _one_line(snakemake(fresh, overlay=overlay), words)
    assert not (fresh / "results/smoke").exists()


def test_an_unknown_figure_is_one_line_with_the_known_ones(fresh):
    _one_line(snakemake(fresh, "rebuttal_7"), ["target 'rebuttal_7'", "did you mean rebuttal_07?", "rebuttal_09"])


def _one_line(done, words):
    assert done.returncode != 0
    wrong = [line for line in done.stderr.splitlines() if line and not line.startswith(("Using", "Config file"))]
    assert len(wrong) == 1, done.stderr
    for word in words:
        assert word in wrong[0]


def test_a_failing_notebook_names_figure_cell_and_log_last(drawn):
    path = drawn / "notebooks/rebuttal_07.py"
    before, stamp = path.read_text(), path.stat()
    path.write_text(before + "\n# %%\nraise ValueError('no such thing')\n")
    try:
        done = snakemake(drawn, "rebuttal_07")
    finally:
        path.write_text(before)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert done.returncode != 0
    last = [line for line in done.stderr.splitlines() if line.startswith("rebuttal_07 failed")][-1]
    for word in ("notebooks/rebuttal_07.py, cell", "no such thing", "results/smoke/logs/draw/rebuttal_07.log"):
        assert word in last
    assert done.stderr.rindex(last) > done.stderr.index("Exiting because a job execution failed")
    assert (drawn / "results/smoke/logs/draw/rebuttal_07.ipynb").is_file()


def test_linting_and_formatting_are_clean():
    done = subprocess.run(command("--lint"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
