import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rankcollapse.measurements import keyquery_modules
from rankcollapse.settings.gap import KeyqueryModules
from rankcollapse.spectrum import stable_rank

CPU = torch.device("cpu")
CONFIGS = ("A", "A + LN", "A + skip", "A + skip + LN", "A_perp", "A_perp + skip")


def small(**changes):
    sizes = {"configs": CONFIGS, "weights": ("unit", "xavier", "scaled"), "tokens": (6, 12), "layers": 4, "runs": 4}
    return KeyqueryModules(**(sizes | {"spectrum_tokens": 12, "spectrum_layers": (1, 3)} | changes))


@pytest.fixture(scope="module")
def measured():
    return keyquery_modules.measure(small(), device=CPU, seed=0)


def test_axes_and_ranges(measured):
    assert measured["stable_rank_excess"].shape == (3, 6, 2, 4, 4)
    assert measured["eigenvalues_re"].shape == measured["eigenvalues_im"].shape == (3, 2, 4, 12)
    for name in keyquery_modules.OBSERVED:
        assert measured[name].shape == (3, 6, 4, 4)
        low, high = (-1, 1) if name == "cosine" else (0, 1)
        assert (measured[name] >= low).all()
        assert (measured[name] <= high + 1e-12).all()  # rounding of sums of 12 numbers and of eigenvalues


def test_first_layer_reads_the_same_orthonormal_tokens(measured):
    first = {name: measured[name][:, :, 0] for name in keyquery_modules.OBSERVED}
    np.testing.assert_allclose(first["cosine"], 0, atol=1e-14)
    for values in first.values():  # same attention whatever the modules; the values do not enter it
        torch.testing.assert_close(values, values[:, :1].expand_as(values), rtol=0, atol=0)
        assert torch.equal(values[1], values[2])


def test_whole_spectra_are_those_of_attention_alone(measured):
    moduli = torch.complex(measured["eigenvalues_re"], measured["eigenvalues_im"]).abs()
    # eigenvalue 1 of a row-stochastic matrix: a few roundings of 12 rows
    np.testing.assert_allclose(moduli[..., 0], 1, atol=1e-12)
    assert torch.equal(moduli[..., 1], measured["second_modulus"][:, 0][:, [0, 2]])


def test_without_logits_a_skip_halves_what_is_not_consensus():
    # "scaled" weights: logits of size 1/T, so A is 11^T/T up to that; the consensus gains sqrt(2) a layer, the rest
    # nothing, and sr - 1 = (T - 1) / 2^(2l). Runs differ as a 12 x 12 W_V does, hence a factor
    found = keyquery_modules.measure(small(runs=40), device=CPU, seed=0)["stable_rank_excess"]
    middle = found[2, 2, 1].median(-1).values
    expected = torch.tensor([11 / 4**layer for layer in range(1, 5)], dtype=torch.float64)
    assert (middle / expected).log().abs().max() < math.log(3)


def test_configurations_written_out(measured):
    _, first = list(keyquery_modules.layers(small(), 12, CPU, 0))[:2]
    before, attention, after = first["xavier", "A + skip + LN"]
    assert torch.allclose(attention.sum(-1), torch.ones(4, 12).double())
    expected = measured["stable_rank_excess"][1, 3, 1, 1]
    torch.testing.assert_close(stable_rank(after) - 1, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(after.mean(-1), 0, atol=1e-14)  # LayerNorm
    _, _, removed = first["xavier", "A_perp + skip"]
    assert not torch.allclose(removed, before)


def test_a_subset_has_the_same_numbers(measured):
    part = keyquery_modules.measure(small(configs=("A + skip", "A"), weights=("scaled",)), device=CPU, seed=0)
    for name in ("stable_rank_excess", *keyquery_modules.OBSERVED):
        assert torch.equal(part[name][0], measured[name][2, [2, 0]])


def test_non_finite_tokens_are_named(monkeypatch):
    bad = {("unit", "A"): (None, None, torch.full((4, 6, 6), math.nan))}
    monkeypatch.setattr(keyquery_modules, "layers", lambda *_: iter([bad]))
    with pytest.raises(FloatingPointError, match=r"keyquery_modules: unit weights, A at T = 6, layer 1"):
        keyquery_modules.measure(small(), device=CPU, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"configs": ("A + LN",)}, "configs: 'A' is missing"),
        ({"configs": ("A", "A")}, "each at most once"),
        ({"weights": ("unit", "unit")}, "each at most once"),
        ({"spectrum_tokens": 7}, r"spectrum_tokens: 7 is not one of tokens \(6, 12\)"),
        ({"spectrum_layers": (1, 5)}, "spectrum_layers: 5 is beyond layers = 4"),
        ({"tokens": (12, 6)}, r"tokens: \(12, 6\) must rise"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValidationError, match=message):
        small(**changes)
