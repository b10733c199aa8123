"""Running one measurement: provenance, log, device, and what is refused."""

import pytest
import torch

from rankcollapse import device, failures, measuring, progress, store
from rankcollapse.validation import ConfigError

SETTINGS = {"ratios": [0.5], "tokens": [8], "runs": 2}


def run(folder, threads=1, **changed):
    output, log = folder / "tensors/gaussian_spectrum.safetensors", folder / "logs/gaussian_spectrum.log"
    arguments = {"seed": 3, "device": "cpu", "threads": threads, "output": output, "log": log}
    provenance = measuring.run("gaussian_spectrum", SETTINGS | changed, **arguments)
    return provenance, store.read(output), log.read_text()


def test_a_measurement_is_filed_with_its_provenance(tmp_path):
    provenance, filed, log = run(tmp_path)
    assert filed.provenance == provenance
    assert (provenance.settings, provenance.seed, provenance.threads) == (SETTINGS, 3, 1)
    assert provenance.versions["torch"] == torch.__version__
    assert provenance.device.startswith("cpu (")
    assert f"{len(filed.tensors)} tensors" in log


def test_threads_do_not_change_the_numbers_of_a_small_measurement(tmp_path):
    one, two = (run(tmp_path / str(threads), threads)[1] for threads in (1, 2))
    torch.set_num_threads(1)
    assert all((one[name] == two[name]).all() for name in one.tensors)


def test_wrong_settings_are_refused_by_key(tmp_path):
    with pytest.raises(ConfigError, match=r"measurements\.gaussian_spectrum: runs = 1"):
        run(tmp_path, runs=1)


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.pick("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.pick("auto") == torch.device("cuda")


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device.pick("cuda:0") == torch.device("cuda:0")
    with pytest.raises(ConfigError, match=r"device = 'cuda:1': not on this machine"):
        device.pick("cuda:1")


def test_progress_goes_to_terminal_and_log(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    log = tmp_path / "x.log"
    assert list(progress.on_terminal_and_in(log)(range(3), "counting", 3)) == [0, 1, 2]
    assert "counting: 100%" in capsys.readouterr().err
    assert "counting: 100%" in log.read_text()
    assert "\r" not in log.read_text()


def test_a_failure_is_one_line_a_traceback_in_the_log_and_a_note(tmp_path):
    log = tmp_path / "logs/x.log"
    with pytest.raises(SystemExit) as caught, failures.noted("gap", tmp_path, log):
        raise FloatingPointError("NaN at gamma = 2")
    line = f"gap failed: FloatingPointError: NaN at gamma = 2 (log: {log})"
    assert str(caught.value) == line
    assert "Traceback" in log.read_text()
    assert (tmp_path / "logs/failures/gap.txt").read_text() == line + "\n"
