"""The documents say what the project does: figures, versions, places."""

import re
from importlib.metadata import version
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from rankcollapse.catalogue import load_catalogue

ROOT = Path(__file__).parents[1]


def toml():
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    return {_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def _name(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_readme_lists_the_catalogue():
    table = re.search(r"<!-- figures -->\n(.*)<!-- /figures -->", (ROOT / "README.md").read_text(), re.S)[1]
    figures = load_catalogue(ROOT).figures
    assert table.strip().splitlines()[2:] == [f"| `{name}` | {figure.shows} |" for name, figure in figures.items()]


def test_every_path_the_readme_names_is_there():
    text = (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / path).exists(), path


def test_every_direct_dependency_is_pinned_exactly():
    project = toml()["project"]
    direct = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for requirement in map(Requirement, direct):
        specifiers = list(pinned()[_name(requirement.name)].specifier)
        assert [specifier.operator for specifier in specifiers] == ["=="], requirement


def test_conda_gets_the_same_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    packages = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert {str(Requirement(entry)) for entry in packages} == {str(requirement) for requirement in pinned().values()}
    python = next(entry for entry in environment["dependencies"] if str(entry).startswith("python "))
    assert SpecifierSet(python.removeprefix("python ")) == SpecifierSet(toml()["project"]["requires-python"])


def test_what_is_installed_is_what_is_pinned():
    for name in ("torch", "snakemake", "numpy", "transformers", "matplotlib"):
        assert pinned()[name].specifier.contains(version(name)), name


def test_continuous_integration_runs_the_users_command():
    assert "make test" in (ROOT / ".ci/run").read_text()
    assert ".ci/run" in (ROOT / ".github/workflows/ci.yml").read_text()
