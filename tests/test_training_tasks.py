"""The four training measurements at small size: what they return, and how a killed one goes on."""

from dataclasses import asdict, replace

import pytest
import torch
from pydantic import ValidationError

from rankcollapse import measuring, store
from rankcollapse.checkpoint import Checkpoint
from rankcollapse.measurements import circle_task, hull_task, memorization_task, sorting_task
from rankcollapse.settings.dong import CircleTask, HullTask, MemorizationTask, SortingTask
from rankcollapse.tasks import circle

CPU = torch.device("cpu")
TRAINING = {"heads": 2, "released_sets": 60, "epochs": 3, "released_epochs": 3, "batch": 30, "dropout": 0.1}
TRAINING |= {"learning_rates": (1e-5, 1e-2), "runs": 2, "width": 8}
PATHS = {"layers": 2, "test_sets": 20, "path_counts": (2, 4), "path_repeats": 3, "sets": 60}
SETTINGS = {
    sorting_task: SortingTask(**TRAINING, **PATHS, tokens=4, symbols=4),
    hull_task: HullTask(**TRAINING, **PATHS, tokens=5, weight_decay=1e-3, milestones=(2,), decay=0.9),
    memorization_task: MemorizationTask(**TRAINING, **PATHS, tokens=6, symbols=20, exponent=1.0),
    circle_task: CircleTask(**TRAINING, sets=100, steps=5),
}
LABELLING = (sorting_task, hull_task, memorization_task)


@pytest.mark.parametrize("module", LABELLING)
def test_a_labelling_task_returns_what_it_says(module):
    tensors = module.measure(SETTINGS[module], device=CPU, seed=0)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if not name.startswith("weights/")}
    extra = {sorting_task: ["by_position"], hull_task: [], memorization_task: ["ceiling", "by_symbol"]}[module]
    assert shapes == {
        **dict.fromkeys(("train_loss", "train_accuracy", "test_accuracy"), (2, 2, 3)),
        **dict.fromkeys(("accuracy", "accuracy_without_skips"), (2, 2)),
        **dict.fromkeys(("path_accuracy", "path_residual"), (2, 2, 2, 3, 3)),
        **dict.fromkeys(["majority", *extra], (2,)),
    }
    assert tensors["weights/qkv"].shape == (2, 2, 2, 8, 24)
    for name in shapes:
        if name != "train_loss":
            assert ((tensors[name] >= 0) & (tensors[name] <= 1)).all(), name
    assert torch.equal(tensors["accuracy"], tensors["test_accuracy"][..., -1])
    # A path of length 0 is the embedding, whatever is drawn and however often it is added
    zero = tensors["path_accuracy"][..., 0, :]
    assert (zero == zero[..., :1, :1]).all()


def test_a_run_does_not_depend_on_the_others():
    one, two = (sorting_task.measure(replace(SETTINGS[sorting_task], runs=runs), device=CPU, seed=0) for runs in (1, 2))
    for name in ("train_loss", "path_residual", "by_position"):
        # float32 sums in another order, before and after a few steps of Adam
        axis = 0 if one[name].dim() == 1 else 1
        torch.testing.assert_close(one[name].select(axis, 0), two[name].select(axis, 0), atol=1e-3, rtol=1e-3)


def test_the_ceiling_is_reached_by_nobody_and_lies_above_what_a_symbol_tells():
    tensors = memorization_task.measure(SETTINGS[memorization_task], device=CPU, seed=0)
    assert (tensors["accuracy"] <= tensors["ceiling"] + 1e-6).all()
    assert (tensors["by_symbol"] <= tensors["ceiling"]).all()
    assert (tensors["majority"] <= tensors["by_symbol"]).all()


def test_the_circle_task_returns_what_it_says():
    tensors = circle_task.measure(SETTINGS[circle_task], device=CPU, seed=0)
    assert tensors["loss"].shape == (4, 2, 2, 3)
    assert tensors["trajectory"].shape == (4, 2, 2, 6, 2, 2)
    assert tensors["variants"].tolist() == [[1, 1], [1, 0], [0, 1], [0, 0]]
    assert (tensors["trajectory"][..., 0, :, :] == circle(100).inputs[0]).all()
    loss = tensors["loss"]
    assert not torch.allclose(loss[0], loss[2])
    assert not torch.allclose(loss[0], loss[1])
    starts = tensors["weights/qkv"][:, 0]  # learning rate 1e-5: hardly away from where they began
    torch.testing.assert_close(starts[0], starts[3], atol=5e-4, rtol=0)


def test_the_skip_across_steps_adds_the_last_output_to_the_input():
    shape = circle_task.Architecture(8, 2, 1, 2, 2, "points", mixed=False)
    weights = {name: weight[None] for name, weight in shape.draw(torch.Generator().manual_seed(0)).items()}
    start = circle(100).inputs[0]
    with_skip, without = (
        circle_task.follow(shape, weights, start, 2, torch.ones(1, 1, 1, 1), across * torch.ones(1, 1, 1, 1))
        for across in (1.0, 0.0)
    )
    forward = circle_task.forward
    first = forward(shape, weights, start[None, None])[0, 0]
    torch.testing.assert_close(with_skip[0, 1], first)
    torch.testing.assert_close(with_skip[0, 2], forward(shape, weights, (first + start)[None, None])[0, 0])
    torch.testing.assert_close(without[0, 2], forward(shape, weights, first[None, None])[0, 0])


def test_the_batch_before_is_row_by_row():
    inputs = torch.arange(14.0).view(7, 1, 2)
    assert circle_task.before(inputs, 3)[:, 0, 0].tolist() == [0, 0, 0, 0, 2, 4, 6]


@pytest.mark.parametrize(
    ("module", "change", "message"),
    [
        (sorting_task, {"heads": 3}, "heads: 3 does not divide width 8"),
        (memorization_task, {"test_sets": 61}, "test_sets: 61; at most sets = 60"),
        (hull_task, {"tokens": 2}, "greater than or equal to 3"),
        (circle_task, {"dropout": 1.0}, "less than 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(module, change, message):
    with pytest.raises(ValidationError, match=message):
        type(SETTINGS[module])(**(asdict(SETTINGS[module]) | change))


# ---------------------------------------------------------------- as the workflow runs it


def run(folder, **changed):
    settings = asdict(SETTINGS[hull_task]) | {"epochs": 4} | changed
    output, log = folder / "tensors/hull_task.safetensors", folder / "logs/hull_task.log"
    measuring.run("hull_task", settings, seed=3, device="cpu", threads=1, output=output, log=log)
    return store.read(output).tensors, log.read_text()


def killed(folder, monkeypatch):
    """Run until the third epoch, writing a checkpoint after each."""
    monkeypatch.setattr(Checkpoint, "__init__", _eager(Checkpoint.__init__))

    def track(items, description, total=None):
        for item in items:
            if item == 2:
                raise KeyboardInterrupt
            yield item

    with monkeypatch.context() as patch:
        patch.setattr(measuring.progress, "on_terminal_and_in", lambda log: track)
        with pytest.raises(KeyboardInterrupt):
            run(folder)
    path = folder / "checkpoints/hull_task.safetensors"
    assert path.is_file()
    return path


def _eager(init):
    return lambda self, path, origin, say: init(self, path, origin, say, interval=0)


def test_a_killed_measurement_goes_on_with_the_same_bits_and_cleans_up(tmp_path, monkeypatch):
    whole, log = run(tmp_path / "whole")
    assert "taken up again" not in log
    path = killed(tmp_path / "killed", monkeypatch)
    again, log = run(tmp_path / "killed")
    assert f"{path}: taken up again" in log
    assert again.keys() == whole.keys()
    assert all((again[name] == whole[name]).all() for name in whole)
    assert not path.exists()


@pytest.mark.parametrize("reason", ["settings", "versions or code", "truncated"])
def test_a_checkpoint_that_does_not_fit_is_not_used(tmp_path, monkeypatch, reason):
    path = killed(tmp_path, monkeypatch)
    changed = {}
    if reason == "settings":
        changed = {"dropout": 0.2}
    elif reason == "truncated":
        path.write_bytes(path.read_bytes()[:-40])
    else:
        monkeypatch.setattr(measuring.flow, "measurement_code", lambda name: [__file__])
    _, log = run(tmp_path, **changed)
    (line,) = [line for line in log.splitlines() if "training starts anew" in line]
    assert {"truncated": "truncated or not"}.get(reason, f"of other {reason};") in line
