"""The import graph read from the source is the one Python really loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankcollapse.flow import LONGEST_FIRST, MEASUREMENTS, PACKAGE, priority
from rankcollapse.imports import package_imports

LOADED = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
files = [m.__file__ for n, m in sys.modules.items() if n.startswith("rankcollapse.") and getattr(m, "__file__", None)]
print(json.dumps([f for f in files]), "torch" in sys.modules, "numpy" in sys.modules)
"""


def loaded(module):
    done = subprocess.run([sys.executable, "-c", LOADED, module], capture_output=True, text=True, check=True)
    files, torch, numpy = done.stdout.rsplit(" ", 2)
    return {Path(file) for file in json.loads(files)}, torch == "True", numpy.strip() == "True"


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_measurement_depends_on_what_it_imports(name):
    real, _, _ = loaded(f"rankcollapse.measurements.{name}")
    assert set(package_imports(PACKAGE / "measurements" / f"{name}.py", PACKAGE)) == real


def test_the_workflow_starts_without_torch_or_numpy():
    assert loaded("rankcollapse.flow")[1:] == (False, False)


@pytest.mark.parametrize("module", ["page", "plotting", "published", "agreement", "judges.dong_step", "book"])
def test_notebooks_and_book_never_load_torch(module):
    assert not loaded(f"rankcollapse.{module}")[1]


def test_imports_are_followed_through_other_modules_and_only_in_the_package(tmp_path):
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("import os\nfrom toy import b\n")
    (package / "b.py").write_text("def late():\n    import toy.c as c\n    return c\n")
    (package / "c.py").write_text("from toy.a import b\n")
    (package / "unused.py").write_text("")
    entry = tmp_path / "notebook.py"
    entry.write_text("import json\nfrom toy.a import b\n")
    assert package_imports(entry, package) == [package / f"{name}.py" for name in "abc"]


def test_the_longest_measurements_start_first():
    ranked = sorted(MEASUREMENTS, key=priority, reverse=True)
    assert tuple(ranked[: len(LONGEST_FIRST)]) == LONGEST_FIRST
    assert {priority(name) for name in ranked[len(LONGEST_FIRST) :]} == {0}
