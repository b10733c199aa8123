"""Many cells at once against one cell written with torch.nn, and the observables against values made by hand."""

import math

import pytest
import torch
from torch import nn

from rankcollapse.grid_training import (
    NEVER,
    OVERFLOWED,
    Optimiser,
    Parameters,
    accuracies,
    initial,
    losses,
    predict,
    shared,
    train,
)
from rankcollapse.inits import gaussian
from rankcollapse.phase_signal import OVERFLOW, observe, signal
from rankcollapse.randomness import generator
from rankcollapse.skip_attention import attend, cells

CPU = torch.device("cpu")
N, V, D, L = 5, 6, 12, 3
RATE, MOMENTA, WARMUP = 2e-2, (0.9, 0.98), 2
POINTS = torch.tensor([[0.0, 0.3], [2.0, 1.0], [3.0, 4.0]], dtype=torch.float64)


class PlainCell(nn.Module):
    """The same network with torch.nn's own modules; a block is written as the equation has it."""

    def __init__(self, one: Parameters, skip: float, beta: float, qk_norm: bool) -> None:
        super().__init__()
        self.skip, self.sigma = skip, beta * math.log(N) ** 0.5
        self.token, self.position = nn.Embedding(V, D), nn.Embedding(N, D)
        self.token.weight.data, self.position.weight.data = one.token[0].clone(), one.position[0].clone()
        self.maps = nn.ModuleList()
        for weights in one.layers[:, 0]:
            for part in weights.chunk(3, -1):
                self.maps.append(nn.Linear(D, D, bias=False, dtype=weights.dtype))
                self.maps[-1].weight.data = part.T.clone()
        self.readout = nn.Linear(D, V, bias=False, dtype=one.readout.dtype)
        self.readout.weight.data = one.readout[0].T.clone()
        self.norm = nn.LayerNorm(D, elementwise_affine=False)
        self.rms = nn.RMSNorm(D, elementwise_affine=False) if qk_norm else nn.Identity()

    def forward(self, x):
        tokens = self.norm(self.token(x) + self.position(torch.arange(N)))
        for layer in range(L):
            query, key, value = self.maps[3 * layer : 3 * layer + 3]
            logits = self.sigma * self.rms(query(tokens)) @ self.rms(key(tokens)).mT / D**0.5
            tokens = self.norm(self.skip * tokens + logits.softmax(-1) @ value(tokens))
        return self.readout(tokens)


def doubled(parameters):
    return Parameters(*(tensor.double() for tensor in parameters))


def weights_of(plain):
    """Return the plain cell's tensors in the order and shape of ``Parameters``."""
    blocks = [
        torch.cat([linear.weight.T for linear in plain.maps[3 * layer : 3 * layer + 3]], -1) for layer in range(L)
    ]
    return plain.token.weight, plain.position.weight, torch.stack(blocks), plain.readout.weight.T


def batches(count):
    random = generator(0, "test_skip_attention", "data")
    return [torch.randint(V, (7, N), generator=random) for _ in range(count)]


@pytest.mark.parametrize("qk_norm", [False, True])
def test_every_cell_trains_as_a_cell_alone(qk_norm):
    """Forward, backward and three steps of torch.optim.Adam; float64, so only the order of sums differs."""
    one = doubled(initial(N, V, D, L, generator(0, "test_skip_attention")))
    grid, all_cells = cells(POINTS, N, qk_norm=qk_norm), shared(one, 3, CPU)
    optimiser = Optimiser(all_cells, RATE, MOMENTA, WARMUP)
    plain = [PlainCell(one, *point, qk_norm) for point in POINTS.tolist()]
    adams = [torch.optim.Adam(cell.parameters(), lr=RATE, betas=MOMENTA) for cell in plain]
    for step, x in enumerate(batches(3)):
        logits = predict(all_cells, x, grid)
        loss = losses(logits, x)
        for index, (cell, adam) in enumerate(zip(plain, adams, strict=True)):
            out = cell(x)
            expected = nn.functional.cross_entropy(out.flatten(0, 1), x.roll(1, -1).flatten())
            torch.testing.assert_close(logits[index], out, rtol=0, atol=1e-10)
            torch.testing.assert_close(loss[index], expected, rtol=0, atol=1e-11)
            adam.param_groups[0]["lr"] = RATE * min(1, (step + 1) / WARMUP)
            adam.zero_grad()
            expected.backward()
            adam.step()
        optimiser.step(loss)
        for index, cell in enumerate(plain):
            for ours, theirs in zip(all_cells.of_cell(index), weights_of(cell), strict=True):
                # Adam divides by |g| + 1e-8: a gradient off by 1e-16 moves a weight by up to 1e-8 of the rate.
                torch.testing.assert_close(ours.squeeze(-3), theirs, rtol=0, atol=1e-9)


def test_the_previous_token_is_the_target():
    x = torch.tensor([[2, 0, 1]])
    sure = torch.nn.functional.one_hot(torch.tensor([[[1, 2, 0]]]), 3) * 50.0
    assert accuracies(sure, x).item() == 1
    assert losses(sure, x).item() == pytest.approx(0, abs=1e-20)
    assert losses(torch.zeros_like(sure), x).item() == pytest.approx(math.log(3))


def test_a_factor_before_the_norm_cancels():
    """QK-norm makes the logits blind to the size of W_Q and W_K; only sigma, after it, sets their scale."""
    random = generator(0, "test_skip_attention", "factor")
    tokens, weights = gaussian(N, D, random).expand(1, 1, N, D), gaussian(D, 3 * D, random)
    grown = torch.cat([1e3 * weights[:, :D], 1e3 * weights[:, D : 2 * D], weights[:, 2 * D :]], -1)
    grid = cells(POINTS[:1], N, qk_norm=True)
    small, large = attend(tokens, weights, grid)[1], attend(tokens, grown, grid)[1]
    torch.testing.assert_close(small, large, rtol=0, atol=1e-12)


def trained(broken=()):
    """Train three cells for five steps; the logits of the broken ones are beyond float32."""
    parameters, data = shared(initial(N, V, D, L, generator(0, "test_skip_attention")), 3, CPU), batches(5)
    with torch.no_grad():
        parameters.readout[list(broken)] *= 1e38
    optimiser = Optimiser(parameters, RATE, MOMENTA, WARMUP)
    return train(parameters, cells(POINTS.float(), N), optimiser, data, data[0], [2, 5])


def test_a_cell_that_overflows_is_marked_and_the_others_go_on():
    found, healthy = trained(broken=[1]), trained()
    assert (healthy.overflow_step == NEVER).all()
    assert found.overflow_step.tolist() == [NEVER, 0, NEVER]
    for mine, theirs in zip(found[:3], healthy[:3], strict=True):
        assert (mine[1] == OVERFLOWED).all()
        assert torch.equal(mine[[0, 2]], theirs[[0, 2]])


def test_an_overflow_in_a_step_is_seen_after_it():
    """Infinite weights after the first step: losses are finite before it and never again."""
    one = initial(N, V, D, L, generator(0, "test_skip_attention"))
    parameters, data = shared(one, 3, CPU), batches(4)
    optimiser = Optimiser(parameters, 1e38, MOMENTA, 1)
    found = train(parameters, cells(POINTS.float(), N), optimiser, data, data[0], [1, 4])
    assert found.overflow_step.tolist() == [1, 1, 1]
    assert (found.training_loss[:, 0] > 0).all()
    assert (found.training_loss[:, 1:] == OVERFLOWED).all()
    assert (found.accuracy == OVERFLOWED).all()


# ---------------------------------------------------------------- the signal


def test_uniform_and_one_hot_attention_by_hand():
    uniform, same, identity = torch.full((4, 4), 0.25), torch.eye(4)[[0, 0, 0, 0]], torch.eye(4)
    found = observe(torch.stack([uniform, same, identity]).double()[:, None])
    torch.testing.assert_close(found.entropy, torch.tensor([1.0, 0, 0]).double())
    torch.testing.assert_close(found.participation, torch.tensor([0.25, 1, 1]).double())
    torch.testing.assert_close(found.overlap, torch.tensor([0.25, 1, 0]).double())
    assert found.sharp.tolist() == [0, 1, 1]


def test_gradients_are_those_of_finite_differences():
    random = generator(0, "test_skip_attention", "signal")
    tokens, probe = gaussian(N, D, random).expand(3, 1, N, D), gaussian(N, D, random)
    weights = [gaussian(D, 3 * D, random, D**-0.5) for _ in range(L)]
    grid = cells(POINTS, N)
    found = signal(tokens, weights, grid, probe, 1)
    direction, step = gaussian(N, D, random), 1e-6

    def loss(start, last):
        for matrix in [*weights[:-1], last]:
            start, _ = attend(start, matrix, grid)
        return (start * probe).sum((1, 2, 3))

    leaf = tokens.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf, weights[-1]).sum(), leaf)
    torch.testing.assert_close(found["gradient"][:, 0], gradient.flatten(1).norm(dim=1), rtol=1e-12, atol=0)
    along = (loss(tokens + step * direction, weights[-1]) - loss(tokens - step * direction, weights[-1])) / (2 * step)
    # error of the central difference, step^2 times third derivatives of order 10^2
    torch.testing.assert_close((gradient[:, 0] * direction).sum((1, 2)), along, rtol=1e-6, atol=1e-8)


def test_equal_tokens_have_no_query_gradient():
    """If all tokens are equal every logit's gradient is zero, whatever sigma; that of the values is not."""
    random = generator(0, "test_skip_attention", "equal")
    tokens = gaussian(1, D, random).expand(3, 1, N, D)
    weights = [gaussian(D, 3 * D, random, D**-0.5) for _ in range(L)]
    found = signal(tokens, weights, cells(POINTS, N), gaussian(N, D, random), L)
    assert (found["query_value_ratio"] < 1e-13).all()  # rounding of differences of equal numbers
    torch.testing.assert_close(found["cosine"], torch.ones(3, L + 1).double(), rtol=0, atol=1e-12)


def test_no_skip_strength_is_the_identity_at_its_limit():
    random = generator(0, "test_skip_attention", "identity")
    tokens = torch.nn.functional.layer_norm(gaussian(N, D, random), (D,)).expand(1, 1, N, D)
    probe = torch.nn.functional.layer_norm(gaussian(N, D, random), (D,))
    probe = probe - (probe * tokens[0, 0]).mean(-1, keepdim=True) * tokens[0, 0]  # along the sphere, where LN is flat
    weights = [gaussian(D, 3 * D, random, D**-0.5) for _ in range(L)]
    found = signal(tokens, weights, cells(torch.tensor([[1e7, 0.3]]).double(), N), probe[None], 1)
    # branches of size 1e-7; LayerNorm of alpha X has epsilon 1e-5 / alpha^2
    torch.testing.assert_close(found["gradient"][0, 0], probe.norm(), rtol=1e-5, atol=0)


def test_a_gradient_that_overflows_is_marked():
    random = generator(0, "test_skip_attention", "overflow")
    tokens, probe = gaussian(N, D, random).expand(3, 1, N, D).float(), 1e38 * gaussian(N, D, random).float()
    weights = [gaussian(D, 3 * D, random, D**-0.5).float() for _ in range(L)]
    found = signal(tokens, weights, cells(POINTS.float(), N), probe, 1)
    assert (found["gradient"] == OVERFLOW).all()
    assert found["cosine"].isfinite().all()
