import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats

from rankcollapse.measurements import gaussian_spectrum
from rankcollapse.measurements.gaussian_spectrum import unit_token_logits
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import GaussianSpectrum
from rankcollapse.theory.mind_the_gap import bulk_modulus, circular_distance

CPU = torch.device("cpu")
SMALL = GaussianSpectrum(ratios=(0.5, 4.0), tokens=(24, 120), runs=3)


@pytest.fixture(scope="module")
def spectra():
    return gaussian_spectrum.measure(SMALL, device=CPU, seed=0)


def values(spectra, ratio, tokens):
    key = f"gamma_{ratio}_tokens_{tokens}"
    return spectra[f"{key}/re"].numpy() + 1j * spectra[f"{key}/im"].numpy()


def test_keys_and_axes(spectra):
    assert set(spectra) == {
        f"gamma_{ratio}_tokens_{tokens}/{part}"
        for ratio in ("0", "0.5", "4")
        for tokens in (24, 120)
        for part in ("re", "im")
    }
    for key, tensor in spectra.items():
        assert tensor.shape == (3, int(key.split("_")[-1].split("/")[0]))
        assert tensor.dtype == torch.float64
        assert tensor.is_contiguous()


@pytest.mark.parametrize("ratio", ["0", "0.5", "4"])
@pytest.mark.parametrize("tokens", [24, 120])
def test_outlier_is_one_and_the_bulk_inside(spectra, ratio, tokens):
    found = values(spectra, ratio, tokens)
    np.testing.assert_allclose(found[:, 0], 1, atol=1e-12)  # T rounding errors of 1e-16 in the row sums, and margin
    assert (np.abs(found[:, 1:]) < 0.9).all()
    np.testing.assert_allclose(found.sum(-1).imag, 0, atol=1e-12)  # conjugate pairs


def test_realisations_differ_and_repeat(spectra):
    again = gaussian_spectrum.measure(SMALL, device=CPU, seed=0)
    assert all(torch.equal(again[key], spectra[key]) for key in spectra)
    found = values(spectra, "0.5", 24)
    assert not np.allclose(found[0], found[1])


def test_reduced_weights_have_the_law_of_the_full_ones():
    """||M M^T||_F^2 and tr(M^2) drawn both ways, with more tokens than width and fewer: same distribution."""
    for tokens, width in ((3, 8), (8, 3)):
        random = generator(0, "direct", tokens)
        direct, reduced = [], []
        for _ in range(600):
            x = torch.randn(tokens, width, generator=random, dtype=torch.float64)
            x = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            q, k = (torch.randn(width, width, generator=random, dtype=torch.float64) for _ in range(2))
            direct.append(x @ q @ k.T @ x.T / width**0.5)
            reduced.append(unit_token_logits(tokens, width, random, CPU))
        for statistic in (
            lambda m: (m @ m.mT).square().sum((-2, -1)),
            lambda m: (m @ m).diagonal(dim1=1, dim2=2).sum(-1),
        ):
            p = stats.ks_2samp(statistic(torch.stack(direct)), statistic(torch.stack(reduced))).pvalue
            assert p > 1e-3  # four comparisons: passed by mistake in 4 of 1000 seeds, and the seed is fixed


def test_logits_have_unit_variance_and_the_rank_of_the_width():
    logits = torch.stack([unit_token_logits(40, 10, generator(0, run), CPU) for run in range(50)])
    # the mean of M_ij^2 over one run spreads by .25 (few shared weights): .1 is three errors of the mean of 50 runs
    assert logits.square().mean().item() == pytest.approx(1, abs=0.1)
    assert (torch.linalg.matrix_rank(logits) == 10).all()


def test_bulk_tends_to_its_law_and_away_from_the_circle():
    settings = GaussianSpectrum(ratios=(2.0,), tokens=(100, 400), runs=3)
    spectra = gaussian_spectrum.measure(settings, device=CPU, seed=0)
    distance = {
        tokens: stats.ks_1samp(
            np.abs(values(spectra, "2", tokens)[:, 1:]).ravel() * tokens**0.5, bulk_modulus(2.0, 1.0).cdf
        ).statistic
        for tokens in (100, 400)
    }
    # finite-size effect of order T^{-1/2}: half at four times the tokens, with a quarter to spare
    assert distance[400] < 0.75 * distance[100]
    assert distance[400] < 0.15
    shapes = {
        ratio: np.mean([circular_distance(run[1:]) for run in values(spectra, ratio, 400)]) for ratio in ("0", "2")
    }
    assert shapes["0"] < 0.08 < 0.15 < shapes["2"]  # .04 and .23 with more runs, each spread by .01


def test_width_below_one_is_refused_naming_both():
    with pytest.raises(ValidationError, match="gamma = 30 and T = 24: width T/gamma < 1"):
        GaussianSpectrum(ratios=(30.0,), tokens=(48, 24), runs=2)
    assert GaussianSpectrum(ratios=(24.0,), tokens=(24,), runs=2).width(24.0, 24) == 1
