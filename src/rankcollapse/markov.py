"""Row-stochastic (Markov) matrices as stand-ins for attention, and how fast a fixed one mixes the tokens.

P in R^{T x T} with P 1 = 1, P >= 0; lambda_2 its subdominant eigenvalue; pi its stationary distribution, pi^T P = pi^T;
Pi = I - 11^T/T. Applied layer after layer, X_l = P^l X_0.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import centre, softmax

BALANCING_STEPS = 200  # fixed: the scaling of a positive matrix converges geometrically, in a few tens of steps here
SMALLEST_NORM = 1e-300  # below it a normalised vector would be made of denormal numbers


def gaussian_logits(
    tokens: int, runs: int, generator: torch.Generator, logit_mean: float, logit_variance: float
) -> Float[Tensor, "runs tokens tokens"]:
    """Independent N(mean, variance) logits, float64, on the CPU.

    Raises:
        ValueError: a negative variance.
    """
    if logit_variance < 0:
        raise ValueError(f"gaussian_logits: logit_variance is {logit_variance}, must be >= 0")
    normal = torch.randn(runs, tokens, tokens, generator=generator, dtype=torch.float64)
    return logit_mean + logit_variance**0.5 * normal


def random_markov(
    tokens: int, runs: int, generator: torch.Generator, logit_mean: float, logit_variance: float
) -> Float[Tensor, "runs tokens tokens"]:
    """P_ij = e^{z_ij} / sum_k e^{z_ik}, z_ij independent N(mean, variance); float64, on the CPU.

    The mean cancels between numerator and denominator. It is an argument because the model is stated by the law of
    e^z, and N(-ln2/2, ln2) is the one that makes its mean and variance 1.
    """
    return softmax(gaussian_logits(tokens, runs, generator, logit_mean, logit_variance))


def reversible_markov(
    tokens: int, runs: int, generator: torch.Generator, logit_variance: float
) -> Float[Tensor, "runs tokens tokens"]:
    """Row softmax of symmetric Gaussian logits (variance off the diagonal, twice it on the diagonal).

    The weights e^z are symmetric, so the chain is reversible: pi_i P_ij = pi_j P_ji, with pi the normalised row sums.
    """
    z = gaussian_logits(tokens, runs, generator, 0.0, logit_variance)
    return softmax((z + z.mT) / 2**0.5)


def symmetric_markov(
    tokens: int, runs: int, generator: torch.Generator, logit_variance: float
) -> Float[Tensor, "runs tokens tokens"]:
    """Symmetric, doubly stochastic P = diag(u) S diag(u), S = exp of the symmetric logits of ``reversible_markov``.

    u is found by u <- sqrt(u / (S u)) (Knight, Ruiz & Ucar 2014), the symmetric form of Sinkhorn's iteration.
    """
    z = gaussian_logits(tokens, runs, generator, 0.0, logit_variance)
    weights = torch.exp((z + z.mT) / 2**0.5)
    u = torch.ones(runs, tokens, 1, dtype=torch.float64)
    for _ in range(BALANCING_STEPS):
        u = torch.sqrt(u / (weights @ u))
    return u * weights * u.mT


def lazy_path(tokens: int) -> Float[Tensor, "tokens tokens"]:
    """P_11 = 1; P_ii = P_i,i-1 = 1/2 for i > 1: each token averages itself with the one before.

    Its only eigenvalues are 1 and 1/2, the latter one Jordan block of size T - 1: as far from normal as can be.
    """
    path = (torch.eye(tokens, dtype=torch.float64) + torch.eye(tokens, dtype=torch.float64).roll(-1, -1)) / 2
    path[0] = torch.eye(tokens, dtype=torch.float64)[0]
    return path


def subdominant_modulus(markov: Float[Tensor, "*batch tokens tokens"]) -> Float[Tensor, "*batch"]:
    """|lambda_2|, the largest modulus among the eigenvalues other than one eigenvalue 1 (that of the vector 1).

    It is the spectral radius of P - 11^T/T. A triangular P is read off its diagonal instead: where eigenvalues
    coincide, an eigensolver's error is not eps but a root of it.
    """
    if torch.equal(markov, markov.tril()):
        return markov.diagonal(dim1=-2, dim2=-1)[..., 1:].amax(-1)
    return torch.linalg.eigvals(centre(markov)).abs().amax(-1)


def stationary(markov: Float[Tensor, "*batch tokens tokens"]) -> Float[Tensor, "*batch tokens"]:
    """pi with pi^T P = pi^T, pi^T 1 = 1, from the regular system pi^T (I - P + 11^T) = 1^T.

    Raises:
        torch.linalg.LinAlgError: pi is not unique (more than one closed class of states).
    """
    tokens = markov.shape[-1]
    system = torch.eye(tokens, dtype=markov.dtype, device=markov.device) - markov + 1
    return torch.linalg.solve(system.mT, torch.ones_like(markov[..., 0]))


def dobrushin(markov: Float[Tensor, "*batch tokens tokens"]) -> Float[Tensor, "*batch"]:
    """tau(P) = max_{i,k} sum_j |P_ij - P_kj| / 2, the contraction of every diameter: diam(P X) <= tau(P) diam(X).

    For any norm: rows i and k of P X are averages that share all but tau of their weight (Dobrushin 1956).
    """
    return torch.cdist(markov, markov, p=1).amax((-2, -1)) / 2


def deflate(
    markov: Float[Tensor, "*batch tokens tokens"], weights: Float[Tensor, "*batch tokens"]
) -> Float[Tensor, "*batch tokens tokens"]:
    """P - 1 w^T: the map of what is left of X after its consensus 1 x^T.

    With w = pi it maps X_l - 1 pi^T X_0 to the next layer's. With w = P^T 1 / T it is Pi P and maps the residual R.
    """
    return markov - weights.unsqueeze(-2)


def log_norms(
    step: Float[Tensor, "*batch tokens tokens"], start: Float[Tensor, "*batch tokens width"], layers: int
) -> Float[Tensor, "*batch layers_and_start"]:
    """ln ||M^l Y_0||_F for l = 0..layers, normalised at every step so that no depth underflows; -inf once it is 0."""
    logs, y = [torch.linalg.matrix_norm(start).log()], start
    for _ in range(layers):
        size = torch.linalg.matrix_norm(y)[..., None, None].clamp_min(SMALLEST_NORM)
        y = step @ (y / size)
        logs.append(logs[-1] + torch.linalg.matrix_norm(y).log())
    return torch.stack(logs, -1)
