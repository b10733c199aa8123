import pytest
import torch

from rankcollapse import lanczos
from rankcollapse.lanczos import PROVEN, SMALLEST, lanczos_estimate, largest_eigenvalue
from rankcollapse.randomness import generator


def normal(*shape, key="x"):
    return torch.randn(*shape, generator=generator(0, "test_lanczos", key), dtype=torch.float64)


def with_spectrum(*eigenvalues):
    """A symmetric matrix of given eigenvalues, the last filled up with zeros, in a random basis."""
    values = torch.zeros(80, dtype=torch.float64)
    values[: len(eigenvalues)] = torch.tensor(eigenvalues, dtype=torch.float64)
    rotation = torch.linalg.qr(normal(80, 80, key="rotation")).Q
    return (rotation * values) @ rotation.mT


def gram(*shape):
    x = normal(*shape)
    return x @ x.mT


CASES = {
    "one": with_spectrum(3.0),
    "degenerate": with_spectrum(*[2.0] * 5, 1.0),
    "nearly degenerate": with_spectrum(1 + 1e-9, 1.0, 0.5),  # closer than Lanczos tells apart, further than the proof
    "dense edge": with_spectrum(*(1 - torch.linspace(0, 1, 80) ** 2).tolist()),
    "identity": torch.eye(80, dtype=torch.float64),
    "random": gram(80, 80),
    "small": gram(SMALLEST - 1, 70),
    "collapsed": torch.ones(70, 70, dtype=torch.float64),
    "two blocks": torch.block_diag(torch.ones(60, 60), torch.ones(59, 59)).double(),
}


@pytest.mark.parametrize("name", CASES)
def test_is_the_largest_of_all(name):
    # proven to 1e-12; eigvalsh itself is right to a few 1e-15
    expected = torch.linalg.eigvalsh(CASES[name])[-1].item()
    assert largest_eigenvalue(CASES[name]).item() == pytest.approx(expected, rel=PROVEN)


def test_is_the_same_in_a_batch_of_any_shape():
    batch = torch.stack([gram(80, 80), CASES["identity"], 0 * CASES["identity"]])
    expected = torch.stack([largest_eigenvalue(matrix) for matrix in batch])
    torch.testing.assert_close(largest_eigenvalue(batch), expected, rtol=PROVEN, atol=0)
    torch.testing.assert_close(largest_eigenvalue(batch[:, None]), expected[:, None], rtol=PROVEN, atol=0)


def test_estimates_from_below_and_is_exact_without_a_proof(monkeypatch):
    matrix = CASES["dense edge"][None]
    monkeypatch.setattr(lanczos, "CHECKED_AFTER", (4,))
    exact = torch.linalg.eigvalsh(matrix)[:, -1]
    estimate, residual = lanczos_estimate(matrix)
    assert (estimate < (1 - 1e-3) * exact).all()  # four steps are far from enough
    assert (exact - estimate <= residual).all()
    torch.testing.assert_close(largest_eigenvalue(matrix), exact, rtol=1e-14, atol=0)  # the same computation


def test_the_cholesky_proof_refuses_what_is_too_small():
    matrix, top = CASES["random"][None], torch.linalg.eigvalsh(CASES["random"])[-1:]
    assert lanczos._bounded_by_cholesky(matrix, top).all()
    assert not lanczos._bounded_by_cholesky(matrix, top * (1 - 2 * PROVEN)).any()


@pytest.mark.parametrize(("second", "residual", "proven"), [(0.5, 1e-8, True), (0.5, 1e-5, False), (1.0, 1e-8, False)])
def test_the_proof_by_norms(second, residual, proven):
    matrix = with_spectrum(1.0, second)[None]
    found = lanczos._bounded_by_norms(matrix, torch.ones(1).double(), torch.tensor([residual]).double())
    assert found.item() is proven


def test_other_precisions_are_kept():
    matrix = CASES["random"]
    found = largest_eigenvalue(matrix.float())
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(largest_eigenvalue(matrix).item(), rel=1e-5)  # float32: 6e-8, 80 rows
