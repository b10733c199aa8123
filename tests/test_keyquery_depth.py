import math

import pytest
import torch
import yaml
from pydantic import ValidationError

from rankcollapse import published
from rankcollapse.agreement import bootstrap_interval
from rankcollapse.attention import centre, softmax
from rankcollapse.inits import orthogonal
from rankcollapse.keyquery import normal_weights
from rankcollapse.measurements import keyquery_depth
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import KeyqueryDepth
from rankcollapse.spectrum import stable_rank
from rankcollapse.theory.mind_the_gap import first_layer_constant

CPU = torch.device("cpu")


def small(**changes):
    sizes = {"tokens": (6, 12), "layers": 5, "runs": 12, "wide_tokens": (20, 80), "wide_runs": 8}
    return KeyqueryDepth(**(sizes | changes))


@pytest.fixture(scope="module")
def measured():
    return keyquery_depth.measure(small(), device=CPU, seed=0)


def test_axes_and_range(measured):
    excess = measured["stable_rank_excess"]
    assert excess.shape == (2, 2, 5, 12)
    assert measured["wide_excess"].shape == (2, 8)
    assert (excess[0] >= 0).all()
    assert ((excess[1] >= 0) | (excess[1] == -1)).all()
    assert (excess[:, 0] <= 5 + 1e-12).all()  # at most T - 1


def test_written_out_by_hand_from_another_basis(measured):
    # the same weights, rotated, and tokens rotated with them: Gaussian weights have no preferred direction
    rotation = orthogonal(12, generator(0, "test_keyquery_depth"))
    for kind, row in ((softmax, 0), (lambda logits: centre(softmax(logits)), 1)):
        x = rotation.expand(12, -1, -1)
        for layer in (1, 2):
            w = normal_weights(12, 12, generator(0, "keyquery_depth", 12, layer))
            q, k, v = (rotation.mT @ matrix @ rotation for matrix in w)
            x = kind(x @ q @ (x @ k).mT / math.sqrt(12)) @ x @ v
            # two layers: logits of order ten and their roundings, through an exponential
            torch.testing.assert_close(
                1 + measured["stable_rank_excess"][row, 1, layer - 1], stable_rank(x), rtol=1e-11, atol=0
            )


def test_annihilated_runs_are_counted_with_their_layer():
    # six tokens coincide soon: some runs are annihilated within eight layers, and stay so
    found = keyquery_depth.measure(small(tokens=(3, 6), layers=8, runs=20), device=CPU, seed=1)
    fixed, first = found["stable_rank_excess"][1], found["annihilated_layer"]
    assert 0 < (first <= 8).sum() < first.numel()
    layers = torch.arange(1, 9)[:, None]
    assert torch.equal(fixed == -1, layers >= first[:, None])
    # the layer before, all tokens are one to rounding
    for size, run in (first <= 8).nonzero().tolist():
        assert 0 <= fixed[size, first[size, run] - 2, run] < 1e-12


def test_the_released_computation_loses_at_least_as_many():
    # by T = 6 and layer 8 about a third of the float32 runs; exactly computed, tiny tokens are followed further
    found = keyquery_depth.measure(small(tokens=(6, 7), layers=8, runs=40), device=CPU, seed=2)
    ours, released = found["annihilated_layer"], found["released_annihilated_layer"]
    assert (released <= 8).sum() >= (ours <= 8).sum()
    assert 0 < (released <= 8).sum() < released.numel()


def test_first_layer_comes_near_the_derived_rate():
    found = keyquery_depth.measure(
        small(tokens=(2, 3), layers=1, wide_tokens=(20, 240), wide_runs=12), device=CPU, seed=0
    )
    # a run at T = 240 spreads by 15 % about the limit, the median of 12 by 5 %; finite T costs 4 %
    assert 240 * found["wide_excess"][1].median().item() == pytest.approx(first_layer_constant(1, 1), rel=0.2)


def test_a_subset_and_the_seed(measured):
    part = keyquery_depth.measure(small(tokens=(12, 13), layers=3), device=CPU, seed=0)["stable_rank_excess"]
    assert torch.equal(part[:, 0], measured["stable_rank_excess"][:, 1, :3])
    other = keyquery_depth.measure(small(), device=CPU, seed=1)["stable_rank_excess"]
    assert not torch.allclose(other, measured["stable_rank_excess"])


def test_first_layer_agrees_with_the_published_mean():
    ours = keyquery_depth.measure(small(tokens=(50, 60), layers=1, runs=24), device=CPU, seed=0)
    for size, runs in zip((50, 60), ours["stable_rank_excess"][0, :, 0].numpy(), strict=True):
        theirs = published.read("fig_X", {"layer": 1, "T": size})["stable_rank"].item()
        low, high = bootstrap_interval(1 + runs, 5, published.RESOLUTION["fig_X"], level=0.999)
        assert low <= theirs <= high


def test_non_finite_tokens_are_named(monkeypatch):
    ones = torch.ones(12, 6, 6, dtype=torch.float64)
    bad = {"original": ones, "fixed": math.nan * ones, "released": ones}
    monkeypatch.setattr(keyquery_depth, "layers", lambda *_: iter([bad]))
    with pytest.raises(FloatingPointError, match=r"keyquery_depth: fixed at T = 6, layer 1"):
        keyquery_depth.measure(small(), device=CPU, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": (12, 6)}, r"tokens: \(12, 6\) must rise"),
        ({"wide_tokens": (5, 5)}, r"wide_tokens: \(5, 5\) must rise"),
        ({"runs": 4}, "greater than or equal to 5"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValidationError, match=message):
        small(**changes)


def test_the_default_grid_holds_every_published_point():
    raw = yaml.safe_load((published.ROOT.parents[1] / "config/config.yaml").read_text(encoding="utf-8"))
    ours = raw["measurements"]["keyquery_depth"]
    theirs = published.read("fig_X")
    assert set(theirs["T"]) <= set(ours["tokens"])
    assert theirs["layer"].max() <= ours["layers"]
