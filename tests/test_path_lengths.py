"""The measurement ``path_lengths`` at small size: its tensors, and what must hold between them."""

from dataclasses import asdict, replace

import pytest
import torch
from pydantic import ValidationError

from rankcollapse.measurements.path_lengths import measure
from rankcollapse.settings.dong import PathLengths

SMALL = PathLengths(
    tokens=12,
    width=24,
    heads=3,
    layers=4,
    inits=("bert", "xavier"),
    runs=2,
    models="config/models.yaml",
    architecture="tinybert-4l-312d",
    encoder_inits=2,
    text="resources/text/passages.txt",
    texts=2,
    chains=2,
    paths=7,
)
LAYERS = {"san_bert": 4, "san_xavier": 4, "random_encoder": 4, "trained_encoder": 6}


@pytest.fixture(scope="module")
def measured() -> dict[str, torch.Tensor]:
    return measure(SMALL, device=torch.device("cpu"), seed=0)


def test_every_tensor_has_the_axes_of_the_docstring(measured: dict[str, torch.Tensor]) -> None:
    wanted = {
        "product/random_encoder": (2, 4, 7),
        "product/random_encoder_float32": (4, 7),
        "product/trained_encoder": (1, 6, 7),
    }
    for name, layers in LAYERS.items():
        by_length = ("log_residual", "log_norm", "log_residual_uncentred", "share")
        wanted |= {f"{name}/{key}": (2, layers + 1) for key in by_length}
        wanted |= {f"{name}/cosines": (2, layers + 1, layers + 1), f"{name}/closure": (2,)}
        wanted |= {f"{name}/chain": (3, 2, 2, layers + 1), f"{name}/chain_order": (3, 2, 2, layers - 1)}
    assert {name: tuple(tensor.shape) for name, tensor in measured.items()} == wanted
    assert all(t.dtype == torch.float64 and bool(t.isfinite().all()) for t in measured.values())


def test_lengths_sum_to_the_network(measured: dict[str, torch.Tensor]) -> None:
    for name in LAYERS:
        # a few roundings a layer, summed over 24 to 384 channels
        assert measured[f"{name}/closure"].max() < 1e-13
        torch.testing.assert_close(
            measured[f"{name}/share"].sum(1), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-13
        )
        both = measured[f"{name}/log_residual"], measured[f"{name}/log_norm"]
        assert (both[0] <= both[1] + 1e-12).all()
        # four layers keep residuals far above rounding, so the plain numbers must agree to what it leaves of them
        left = (measured[f"{name}/log_residual"] - measured[f"{name}/log_norm"]).exp()
        off = (measured[f"{name}/log_residual_uncentred"] - both[0]).abs()
        assert (off < 1e-13 / left).all()


def test_frozen_products_fall_singly_and_round_off_stops_single_precision(measured: dict[str, torch.Tensor]) -> None:
    medians = measured["product/random_encoder"].median(-1).values
    steps = medians.diff(dim=-1)
    assert (steps < -1).all()
    assert (steps[:, -1] / steps[:, 0]).sub(1).abs().max() < 0.5  # singly exponential: equal steps
    double, single = measured["product/random_encoder"][0], measured["product/random_encoder_float32"]
    assert (single[0].log() - double[0]).abs().max() < 1e-4  # length 1, far above the rounding of 32-bit floats


def test_recomputed_chains_are_cubic(measured: dict[str, torch.Tensor]) -> None:
    for name in ("san_xavier", "trained_encoder"):
        assert (measured[f"{name}/chain_order"][1, ..., -1] - 3).abs().max() < 0.3  # 3 to 6 steps, few channels
        first = measured[f"{name}/chain"][:2, ..., :2]
        if name == "san_xavier":  # at the first step both use the network's own attention
            torch.testing.assert_close(first[0], first[1], rtol=0, atol=1e-10)


def test_equal_seeds_give_equal_tensors(measured: dict[str, torch.Tensor]) -> None:
    few = replace(SMALL, runs=1)
    again, other = (measure(few, device=torch.device("cpu"), seed=seed) for seed in (0, 1))
    assert torch.equal(again["san_bert/share"], measured["san_bert/share"][:1])
    assert torch.equal(again["product/trained_encoder"], measured["product/trained_encoder"])
    assert not torch.equal(again["san_bert/share"], other["san_bert/share"])


@pytest.mark.parametrize(
    ("change", "message"),
    [({"heads": 5}, "heads: 5 does not divide width 24"), ({"texts": 3}, "must be a multiple of encoder_inits = 2")],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PathLengths(**(asdict(SMALL) | change))
