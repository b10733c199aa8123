"""Everything a user can write wrongly ends in one line that names the key, the value and what is allowed."""

import copy
import inspect
import re
from pathlib import Path

import pytest
import yaml

from rankcollapse import flow
from rankcollapse.catalogue import Catalogue, Figure, load_catalogue
from rankcollapse.config import check_config, input_files, plain
from rankcollapse.judges import judge_of
from rankcollapse.places import Places, check_writable
from rankcollapse.validation import ConfigError, read_yaml, validate

ROOT = Path(__file__).parents[1]


def merged(*names):
    """Merge as snakemake does: mappings key by key, all else replaced."""
    result = {}
    for name in names:
        _update(result, yaml.safe_load((ROOT / "config" / name).read_text()))
    return result


def _update(base, overlay):
    for key, value in overlay.items():
        if isinstance(value, dict):
            _update(base.setdefault(key, {}), value)
        else:
            base[key] = value


def changed(key, value):
    config = copy.deepcopy(merged("config.yaml"))
    *path, last = key.split(".")
    place = config
    for part in path:
        place = place[part]
    place[last] = value
    return config


@pytest.mark.parametrize("names", [("config.yaml",), ("config.yaml", "smoke.yaml"), ("config.yaml", "tasks-full.yaml")])
def test_shipped_configurations_are_valid(names):
    config = check_config(merged(*names))
    assert all((ROOT / path).is_file() for path in input_files(config.measurements.roberta_attention))


def test_published_sizes_are_the_default():
    config = check_config(merged("config.yaml")).measurements
    assert (config.markov_depth.tokens, config.markov_depth.width) == (150, 150)
    assert config.gaussian_spectrum.ratios == (0.1, 0.5, 2, 10)
    assert config.gaussian_spectrum.tokens == (200, 400, 800)
    assert config.roberta_attention.lengths == (75, 282, 446)
    san = config.san_depth
    assert (san.tokens, san.width, san.heads, san.layers, len(san.inits)) == (128, 768, 12, 12, 4)
    assert (config.encoder_depth.texts, config.encoder_depth.tokens, config.encoder_depth.layers) == (32, 128, 12)


def test_the_full_training_tasks_are_what_was_released():
    config = check_config(merged("config.yaml", "tasks-full.yaml"))
    assert config.results == "results/tasks-full"
    tasks = [getattr(config.measurements, f"{name}_task") for name in ("sorting", "hull", "memorization", "circle")]
    assert all((task.sets, task.epochs) == (task.released_sets, task.released_epochs) for task in tasks)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("seed", -1, ["seed = -1", "greater than or equal to 0"]),
        ("seed", True, ["seed = true", "valid integer"]),
        ("sed", 1, ["sed = 1", "unknown key"]),
        ("device", "gpu", ['device = "gpu"', "cuda"]),
        ("threads", 0, ["threads = 0", "greater than 0"]),
        ("measurements.markov_depth.width", -150, ["measurements.markov_depth.width = -150", "greater than 0"]),
        ("measurements.markov_depth.width", "150", ['measurements.markov_depth.width = "150"', "valid integer"]),
        ("measurements.markov_depth.width", 1.5, ["measurements.markov_depth.width = 1.5", "valid integer"]),
        ("measurements.training_grid.rate", "2e-3", ['rate = "2e-3"', "a text in YAML", "2.0e-03"]),
        ("results", "", ['results = ""', "empty"]),
        ("results", "r{x}", ['results = "r{x}"', "pattern"]),
        ("models", ["a/b", "a/b/"], ["a/b, a/b/", "an entry twice"]),
        ("measurements.remedies_depth.remedies", ["none", "none + none"], ["'none + none'", "each sum once"]),
        ("measurements.remedies_depth.remedies", ["pre-LN + post-LN"], ["'pre-LN + post-LN'", "one place of a norm"]),
        ("measurements.skips_depth.width", 1, ["skips_depth.width = 1", "greater than or equal to 2"]),
        ("measurements.markov_depth.widht", 150, ["measurements.markov_depth.widht = 150", "unknown key"]),
        ("measurements.gaussian_spectrum.ratios", [], ["measurements.gaussian_spectrum.ratios = []", "1 or more"]),
        (
            "measurements.gaussian_spectrum.ratios",
            [float("nan")],
            ["measurements.gaussian_spectrum.ratios.0 = NaN", "finite"],
        ),
        ("measurements.gaussian_spectrum.ratios", [0.1, 900], ["measurements.gaussian_spectrum", "900", "200"]),
        ("measurements.markov_depth.configs", ["B"], ["measurements.markov_depth.configs.0", '"B"', "A_perp"]),
        ("measurements", None, ["measurements = null", "object"]),
    ],
)
def test_bad_settings_name_key_value_and_what_is_allowed(key, value, words):
    with pytest.raises(ConfigError) as caught:
        check_config(changed(key, value))
    (line,) = str(caught.value).splitlines()
    assert line.startswith("config: ")
    for word in words:
        assert word in line


def test_equal_momenta_are_no_axis_with_an_entry_twice():
    assert check_config(changed("measurements.training_grid.momenta", [0.9, 0.9])).measurements


def test_a_missing_key_is_named():
    config = merged("config.yaml")
    del config["measurements"]["markov_depth"]["runs"]
    with pytest.raises(ConfigError, match=r"^config: measurements\.markov_depth\.runs: missing"):
        check_config(config)


def test_two_mistakes_are_two_lines():
    config = changed("seed", -1) | {"threads": "two"}
    with pytest.raises(ConfigError) as caught:
        check_config(config)
    assert len(str(caught.value).splitlines()) == 2


def test_plain_settings_are_sorted_and_json(tmp_path):
    settings = plain(check_config(merged("config.yaml")).measurements.gaussian_spectrum)
    assert list(settings) == sorted(settings)
    assert settings["tokens"] == [200, 400, 800]


def test_yaml_errors_name_the_file(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1,")
    with pytest.raises(ConfigError, match=r"bad\.yaml: not valid YAML"):
        read_yaml(tmp_path / "bad.yaml")


def test_results_must_be_a_folder_that_can_be_made(tmp_path):
    check_writable(tmp_path / "new" / "results")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"results = .*file/results.* is not a folder"):
        check_writable(tmp_path / "file" / "results")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that even root cannot write to")
def test_results_must_be_writable():
    with pytest.raises(ConfigError, match=r"results = '/proc/results': no permission to write"):
        check_writable(Path("/proc/results"))


# ---------------------------------------------------------------- the catalogue


def test_every_figure_has_a_notebook_and_every_notebook_a_figure():
    assert {path.stem for path in (ROOT / "notebooks").glob("*.py")} == set(load_catalogue(ROOT).figures)


def test_published_files_of_the_catalogue_exist():
    for figure in load_catalogue(ROOT).figures.values():
        assert all((ROOT / "resources/published" / name).is_file() for name in figure.published)


def test_an_optional_published_file_is_read_as_soon_as_it_is_there(tmp_path, monkeypatch):
    figure = Figure(**FIGURE | {"published": ["a.csv"], "published_if_there": ["b.csv", "c.csv"]})
    (tmp_path / "resources/published").mkdir(parents=True)
    (tmp_path / "resources/published/b.csv").write_text("")
    monkeypatch.chdir(tmp_path)
    assert [path.name for path in flow.published_files(figure)] == ["a.csv", "b.csv"]


def test_all_claims_are_there_and_judged_ones_have_criterion_and_judge():
    catalogue = load_catalogue(ROOT)
    assert list(catalogue.claims) == [f"S{n:02}" for n in range(1, 26)] + [f"M{n:02}" for n in range(1, 21)]
    for name, figure in catalogue.figures.items():
        for claim in figure.claims:
            assert catalogue.claims[claim].criterion
            limits = catalogue.claims[claim].limits
            assert limits.keys() <= inspect.signature(judge_of(name, claim)).parameters.keys()


def test_criteria_write_their_limits_in():
    for claim in load_catalogue(ROOT).claims.values():
        assert "{" not in claim.rule


def _write(root, figures, claims):
    (root / "config").mkdir()
    (root / "config/figures.yaml").write_text(yaml.safe_dump(figures))
    (root / "config/claims.yaml").write_text(yaml.safe_dump(claims))


FIGURE = {
    "title": "t",
    "paper": "p",
    "shows": "s",
    "caption": "c",
    "measurements": ["m"],
    "published": [],
    "claims": [],
}
CLAIM = {"source": "s", "statement": "t", "judged_by": "j"}


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"a": FIGURE | {"claims": ["S2"]}}, "a: claim 'S2': allowed: S1"),
        ({"a": FIGURE | {"claims": ["S1"]}, "b": FIGURE | {"claims": ["S1"]}}, "b: claim S1 is already judged by a"),
        ({"a": {key: value for key, value in FIGURE.items() if key != "title"}}, "figures.a.title: missing"),
        ({"A 1": FIGURE}, "should match pattern"),
    ],
)
def test_a_catalogue_that_does_not_fit_is_refused(tmp_path, figures, words):
    _write(tmp_path, figures, {"S1": CLAIM})
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_catalogue(tmp_path)


def test_judge_of_names_the_figure():
    raw = {"figures": {"a": FIGURE | {"claims": ["S1"]}}, "claims": {"S1": CLAIM, "S2": CLAIM}}
    catalogue = validate(Catalogue, raw, "test")
    assert (catalogue.judge_of("S1"), catalogue.judge_of("S2")) == ("a", None)


def test_outputs_have_fixed_places():
    places = Places(Path("results"))
    assert [str(path) for path in places.of_figure("rebuttal_07", ("M07",))] == [
        "results/figures/rebuttal_07.pdf",
        "results/figures/rebuttal_07.svg",
        "results/figures/rebuttal_07.png",
        "results/tables/rebuttal_07.csv",
        "results/tables/agreement/rebuttal_07.csv",
        "results/notebooks/rebuttal_07.ipynb",
        "results/verdicts/M07.json",
    ]
