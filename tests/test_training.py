"""Training in a batch: against torch's own modules and optimiser, laws, and going on after an interruption."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rankcollapse import checkpoint as checkpoints
from rankcollapse import store
from rankcollapse.checkpoint import Checkpoint
from rankcollapse.randomness import generator
from rankcollapse.tasks import Labelled, circle, hull, memorization, sorting
from rankcollapse.trainable import Architecture, blocks, embed, forward, masks
from rankcollapse.training import CLASSES, POINTS, Regime, Training, accuracy, mean_cross_entropy, summed_squares

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
SHAPES = {
    "sorting": Architecture(8, 2, 2, 5, 5, "symbols", 4),
    "hull": Architecture(9, 3, 2, 2, 2, "points"),
    "memorization": Architecture(8, 2, 2, 2, 7, "symbols"),
    "circle": Architecture(8, 2, 1, 2, 2, "points", mixed=False),
}
RATES = (1e-3, 1e-2)


@pytest.fixture(scope="module")
def benchmark():
    """The reference: a network of torch.nn modules, which the benchmark compares with."""
    spec = importlib.util.spec_from_file_location("benchmark_training", ROOT / "benchmarks/training.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def double():
    """Float64 everywhere: Adam divides by the gradient's size, so float32 noise in a zero gradient would show."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def data(task, run=0, sets=7):
    random = generator(0, "test_training", task, run)
    found = {
        "sorting": lambda: sorting(sets, 4, 5, random),
        "hull": lambda: hull(sets, 4, random),
        "memorization": lambda: memorization(sets, 4, 7, 1.0, random),
        "circle": lambda: circle(2 * sets + 2),
    }[task]()
    return Labelled(*(part.to(torch.get_default_dtype()) if part.is_floating_point() else part for part in found))


def training(task, epochs=3, runs=(0, 1), **changed):
    stacked = Labelled(*(torch.stack(part) for part in zip(*[data(task, run) for run in runs], strict=True)))
    regime = Regime(RATES, runs, epochs, 3, **changed)
    return Training(SHAPES[task], regime, stacked, POINTS if task == "circle" else CLASSES, f"test {task}", 0, CPU)


@pytest.mark.parametrize("task", SHAPES)
def test_every_model_trains_as_one_of_torchs_own_modules(task, benchmark, double):
    ours = training(task, weight_decay=1e-3, milestones=(2,), decay=0.5)
    ours._begin({})
    networks = [benchmark.Plain(SHAPES[task], 0.0).load(ours.models.weights, model) for model in range(4)]
    trained = ours.run()
    loss_of = summed_squares if task == "circle" else mean_cross_entropy
    for model, network in enumerate(networks):
        rate, run = divmod(model, 2)
        adam = torch.optim.Adam(network.parameters(), lr=RATES[rate], weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.MultiStepLR(adam, [2], 0.5)
        inputs, labels = data(task, run)
        for _ in range(3):
            for some, wanted in zip(inputs.split(3), labels.split(3), strict=True):
                adam.zero_grad()
                loss_of(network(some)[None], wanted[None]).sum().backward()
                adam.step()
            schedule.step()
        own = {name: weight[model, None] for name, weight in trained.weights.items()}
        # 9 steps amplify round-off by Adam's division; 1e-9 is some 1e6 eps
        torch.testing.assert_close(forward(SHAPES[task], own, inputs[None])[0], network(inputs), atol=1e-9, rtol=1e-9)


def test_each_model_is_trained_as_if_it_were_alone():
    """Two rates and two runs together give what one rate and one run give alone, up to float32 sums in other orders."""
    together = training("sorting", dropout=0.2).run()
    for run in (0, 1):
        alone = training("sorting", runs=(run,), dropout=0.2).run()
        for name, weight in alone.weights.items():
            if name != "qkv_bias":  # a key's bias has no gradient but noise, which Adam makes steps of
                torch.testing.assert_close(weight, together.weights[name][run::2], atol=2e-5, rtol=1e-4)
    equal = training("sorting", runs=(1, 1), dropout=0.2).run()
    assert all(torch.equal(weight[0], weight[1]) for weight in equal.weights.values())


def test_weights_start_as_released():
    shape = Architecture(200, 2, 3, 10, 10, "symbols", 8)
    drawn = shape.draw(generator(0, "test_training", "draw"))
    assert {name: tuple(weight.shape) for name, weight in drawn.items()} == shape.shapes()
    queries, keys, values = drawn["qkv"].unflatten(2, (2, 3, 100)).unbind(3)
    limit = 200**-0.5
    for uniform in (values, drawn["output"]):  # kaiming_uniform with a = sqrt 5: U(±1/sqrt(d))
        assert 0.999 * limit < uniform.abs().max() <= limit
        assert uniform.std() == pytest.approx(limit / 3**0.5, rel=0.01)  # 120000 entries: 0.2 %
    for normal in (queries, keys, drawn["mix"]):
        assert normal.std() == pytest.approx(0.02, rel=0.02)  # 40000 entries: 0.35 %
    assert not any(drawn[name].any() for name in drawn if name.endswith(("bias", "shift")))
    assert all((drawn[name] == 1).all() for name in drawn if name.endswith("gain"))


def test_dropout_masks_keep_their_share_and_their_mean():
    shape = Architecture(40, 2, 1, 2, 2, "points")
    random = {run: generator(0, "test_training", "masks", run) for run in (0, 1)}
    drop = masks(shape, (50, 10), 0.1, random, (0, 1))
    states, attention, again, last = (
        drop(torch.ones(4, *size)) for size in [(50, 10, 40), (50, 2, 10, 10), (50, 10, 40), (50, 10, 40)]
    )
    for mask in (states, attention, again, last):
        assert mask.unique().tolist() == pytest.approx([0, 1 / 0.9])
        # 10000 to 20000 entries a run: standard error 0.003 of the share
        assert (mask[:2] == 0).float().mean() == pytest.approx(0.1, abs=0.015)
        assert torch.equal(mask[:2], mask[2:])  # both learning rates
        assert not torch.equal(mask[0], mask[1])
    assert not torch.equal(states, again)


@pytest.mark.parametrize("task", ["hull", "memorization"])
def test_sets_have_no_order_without_position_embeddings(task):
    shape, order = SHAPES[task], torch.tensor([2, 0, 3, 1])
    weights = {name: weight[None] for name, weight in shape.draw(generator(0, "test_training")).items()}
    inputs = data(task).inputs[None]
    permuted = forward(shape, weights, inputs[:, :, order])
    torch.testing.assert_close(permuted, forward(shape, weights, inputs)[:, :, order], atol=1e-6, rtol=0)  # float32


def test_without_skip_a_block_is_attention_alone():
    shape = SHAPES["circle"]
    weights = {name: weight[None].repeat(2, *[1] * weight.dim()) for name, weight in shape.draw(generator(1)).items()}
    inputs = data("circle").inputs.expand(2, -1, -1, -1)
    skip = torch.tensor([1.0, 0.0])[:, None, None, None]
    mixed = forward(shape, weights, inputs, skip=skip)
    torch.testing.assert_close(mixed[0], forward(shape, weights, inputs)[0])
    # With no logits attention is uniform, so without skip both tokens become the same
    blocks(weights)[0].qkv.unflatten(-1, (2, 3, -1))[..., :2, :] = 0
    assert forward(shape, weights, inputs, skip=skip)[1].diff(dim=1).abs().max() < 1e-6
    assert forward(shape, weights, inputs, skip=skip)[0].diff(dim=1).abs().max() > 1e-3
    assert embed(shape, weights, inputs).shape == (2, 7, 2, 8)


def test_losses_and_accuracy_by_hand():
    outputs = torch.tensor([[[[0.0, 0.0], [1.0, 0.0]]]])
    assert mean_cross_entropy(outputs, torch.tensor([[[0, 1]]])).item() == pytest.approx((0.693147 + 1.313262) / 2)
    assert accuracy(outputs, torch.tensor([[[0, 1]]])).tolist() == [0.5]
    assert summed_squares(outputs, torch.ones(1, 1, 2, 2)).tolist() == [3.0]


def test_a_loss_that_is_not_finite_names_rate_run_and_epoch():
    broken = training("hull")
    broken.everyone[0][3, 0, 0, 0] = torch.inf
    with pytest.raises(FloatingPointError, match=r"test hull: loss nan in epoch 1 of run 1 with learning rate 0\.01"):
        broken.run()


# ---------------------------------------------------------------- interruptions

ORIGIN = store.Provenance("test", {"epochs": 6}, 0, "cpu", 1, {"torch": "x", "code": "y"}, "", "", 0.0)


def interrupted(task, after, checkpoint, **changed):
    """Train until ``after`` epochs are done, then be killed."""

    def track(items, description, total=None):
        for item in items:
            if item == after:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        training(task, epochs=6, **changed).run(track=track, checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("task", "changed"),
    [
        ("hull", {"dropout": 0.1, "weight_decay": 1e-3, "milestones": (2, 4), "decay": 0.9}),
        ("memorization", {"dropout": 0.1, "shuffled": True}),
    ],
)
def test_a_training_that_is_taken_up_again_ends_with_the_same_bits(tmp_path, task, changed):
    lines = []
    checkpoint = Checkpoint(tmp_path / "x.safetensors", ORIGIN, lines.append, interval=0)
    whole = training(task, epochs=6, **changed).run()
    interrupted(task, 4, checkpoint, **changed)
    seen = []

    def track(items, description, total=None):
        seen.append(total)
        return items

    again = training(task, epochs=6, **changed).run(track=track, checkpoint=checkpoint)
    assert seen == [2]
    assert lines == [f"{checkpoint.path}: taken up again"]
    for found, wanted in ((again.weights, whole.weights), (again.curves, whole.curves)):
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_checkpoint_of_another_origin_is_ignored_with_a_line(tmp_path):
    path, lines = tmp_path / "x.safetensors", []
    interrupted("hull", 2, Checkpoint(path, ORIGIN, interval=0))
    others = {"settings": {"epochs": 7}, "seed": 1, "device": "cuda", "threads": 2, "versions": {"code": "z"}}
    for name, value in others.items():
        checkpoint = Checkpoint(path, replace(ORIGIN, **{name: value}), lines.append)
        assert checkpoint.load() == {}
        shown = "versions or code" if name == "versions" else name
        assert lines.pop() == f"{path}: of other {shown}; ignored, training starts anew"
    assert Checkpoint(path, ORIGIN).load()


def test_a_truncated_checkpoint_is_set_aside_with_a_line(tmp_path):
    path, lines = tmp_path / "x.safetensors", []
    checkpoint = Checkpoint(path, ORIGIN, lines.append, interval=0)
    interrupted("hull", 2, checkpoint)
    path.write_bytes(path.read_bytes()[:-50])
    assert checkpoint.load() == {}
    assert path.with_suffix(".damaged").is_file()
    assert not path.exists()
    (line,) = lines
    assert "truncated" in line
    assert "training starts anew" in line
    assert checkpoint.load() == {}
    assert len(lines) == 1


def test_nothing_is_written_before_the_interval_is_over_nor_after_the_last_epoch(tmp_path):
    path = tmp_path / "x.safetensors"
    interrupted("hull", 4, Checkpoint(path, ORIGIN, interval=1e9))
    assert not path.exists()
    training("hull", epochs=1).run(checkpoint=Checkpoint(path, ORIGIN, interval=0))
    assert not path.exists()
    assert checkpoints.INTERVAL > 0
