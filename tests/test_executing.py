"""Notebooks run in this very interpreter, move into place when whole, and are kept when they fail."""

import json
import sys

import pytest

from rankcollapse import executing

SOURCE = """# %% [markdown]
# # A title

# %% tags=["parameters"]
figure = "none"

# %%
import sys
print(figure, sys.executable)
"""


def run(tmp_path, source):
    (tmp_path / "toy.py").write_text(source)
    output, log = tmp_path / "out" / "toy.ipynb", tmp_path / "logs" / "toy.log"
    executing.run(tmp_path / "toy.py", output, log, {"figure": "toy"})
    return output


def test_a_notebook_gets_its_parameters_and_this_interpreter(tmp_path):
    cells = json.loads(run(tmp_path, SOURCE).read_text())["cells"]
    text = "".join(cells[-1]["outputs"][0]["text"])
    assert text == f"toy {sys.executable}\n"
    assert list((tmp_path / "logs").iterdir()) == [tmp_path / "logs" / "toy.log"]


def test_a_failed_notebook_is_kept_and_its_cell_named(tmp_path):
    with pytest.raises(executing.NotebookError) as caught:
        run(tmp_path, SOURCE + "\n# %%\nraise ValueError('no data')\n")
    line = str(caught.value)
    assert "toy.py, cell 4: ValueError: no data" in line
    assert "\n" not in line
    assert not (tmp_path / "out" / "toy.ipynb").exists()
    assert "no data" in (tmp_path / "logs" / "toy.ipynb").read_text()
    assert "no data" in (tmp_path / "logs" / "toy.log").read_text()
