"""Limits, as T and d grow, of what the rebuttal to "Mind the Gap" (Nait Saada, Naderi & Tanner, ICML 2025) plots.

Symbols: T tokens, width d, gamma = T/d; A a row-stochastic attention matrix, lambda its eigenvalues, s^2 the variance
of a logit; the gap separates lambda_1 = 1 from the bulk, |lambda| of order T^{-1/2}. Dimensionless. No torch.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Complex, Float
from scipy import stats
from scipy.interpolate import PchipInterpolator
from scipy.optimize import root

NODES = 512  # of the quadrature over the input's covariance: the integrand is smooth and periodic, so this is exact
RADII = 400  # of the tabulated law


def bulk_radius(ratio: float, logit_variance: float) -> float:
    r"""Limit of sqrt(T) |lambda_2| for softmax attention of one random head on Gaussian tokens of unit length.

    Logits X W_Q W_K^T X^T / sqrt(d) with N(0, s) weights have variance s^2 but rank d only. Expanded in Hermite
    polynomials, sqrt(T)(A - 11^T/T) is the logits themselves, M / sqrt(T), plus terms of full rank that act like
    independent noise of variance nu = e^{s^2} - 1 - s^2. With b = s^2 (1 + gamma) + nu the eigenvalues end at

        r^2 = ( b + sqrt(b^2 - 4 nu gamma s^2) ) / 2,

    which is e^{s^2} - 1 at gamma -> 0, the radius of independent logits (Bordenave, Caputo & Chafai 2012), and grows
    like s^2 (1 + gamma). Derived here: the edge is where ``BulkModulus``'s equations first have a non-zero solution.
    The independence of the higher terms is an assumption; the error falls like T^{-1/2}, later for large gamma.

    Args:
        ratio: gamma = T/d; 0 is allowed and means independent logits.
        logit_variance: s^2.
    """
    noise = np.expm1(logit_variance) - logit_variance
    b = logit_variance * (1 + ratio) + noise
    return float(np.sqrt((b + np.sqrt(b**2 - 4 * noise * ratio * logit_variance)) / 2))


class BulkModulus(stats.rv_continuous):
    r"""Limiting law of sqrt(T) |lambda| in the bulk of ``bulk_radius``'s attention. Shapes: ratio, logit_variance.

    The matrix is K^{1/2} G_1 G_2 K^{1/2} + sqrt(nu) C with independent Gaussian G_1 (T x d), G_2 (d x T), C (T x T) and
    the tokens' covariance K = X X^T, whose eigenvalues k follow the Marchenko-Pastur law of ratio gamma. Written as
    one matrix of twice the size with independent entries, its self-consistent (Dyson) equations reduce to two numbers:

        p = < u / (r^2 + u^2) >,  m = < k u / (r^2 + u^2) >,  u = nu p + s^2 m k / (1 + gamma s^2 m^2),
        P(|lambda| sqrt(T) <= r) = < r^2 / (r^2 + u^2) >,   < > the mean over k.

    (Derived here. At gamma -> 0 it is the circular law's r^2 / (e^{s^2} - 1).) The circular law of any radius is
    ``scipy.stats.powerlaw(2, scale=radius)``.
    """

    def _argcheck(self, ratio: np.ndarray, logit_variance: np.ndarray) -> np.ndarray:
        return (ratio > 0) & (logit_variance > 0)

    def _get_support(self, ratio: np.ndarray, logit_variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        edge = np.vectorize(bulk_radius, otypes=[float])(ratio, logit_variance)
        return np.zeros_like(edge), edge

    def _cdf(self, r: np.ndarray, ratio: np.ndarray, logit_variance: np.ndarray) -> np.ndarray:
        value = np.vectorize(lambda x, g, s2: _tabulated(float(g), float(s2))(x), otypes=[float])
        return value(r, ratio, logit_variance)

    def _pdf(self, r: np.ndarray, ratio: np.ndarray, logit_variance: np.ndarray) -> np.ndarray:
        slope = np.vectorize(lambda x, g, s2: _tabulated(float(g), float(s2))(x, 1), otypes=[float])
        return slope(r, ratio, logit_variance)


bulk_modulus = BulkModulus(name="bulk_modulus", shapes="ratio, logit_variance")


@lru_cache
def _tabulated(ratio: float, logit_variance: float) -> PchipInterpolator:
    """Solve the equations of ``BulkModulus`` from the edge inwards and interpolate the distribution function.

    Unknowns are q = p^2 and kappa = s^2 (m/p) / (1 + gamma s^2 m^2), so u = p (nu + kappa k): unlike p and m they are
    regular at the edge, where q = 0 and kappa = r^2 - nu, and each radius starts from its outer neighbour's solution.
    """
    k, weight = _marchenko_pastur(ratio)
    noise = np.expm1(logit_variance) - logit_variance
    edge = bulk_radius(ratio, logit_variance)
    radii = edge * np.linspace(0, 1, RADII + 1)
    below = np.ones(RADII + 1)
    below[0] = 0.0
    solution = np.array([0.0, edge**2 - noise])
    for n in range(RADII - 1, 0, -1):
        square = radii[n] ** 2

        def equations(unknown: np.ndarray, square: float = square) -> list[float]:
            q, kappa = unknown
            u = noise + kappa * k  # in units of p
            resolvent = weight * u / (square + q * u**2)
            m = resolvent @ k  # in units of p
            return [resolvent.sum() - 1, kappa * (1 + ratio * logit_variance * q * m**2) - logit_variance * m]

        found = root(equations, solution, tol=1e-12)
        if not found.success:
            raise ArithmeticError(f"bulk_modulus({ratio}, {logit_variance}): no solution at radius {radii[n]}")
        solution = found.x
        u = noise + solution[1] * k
        below[n] = weight @ (square / (square + solution[0] * u**2))
    return PchipInterpolator(radii, below)


def _marchenko_pastur(ratio: float) -> tuple[Float[np.ndarray, "nodes"], Float[np.ndarray, "nodes"]]:
    """Nodes and weights for means over the eigenvalues of X X^T, X in R^{T x d} with N(0, 1/d) entries, T/d = ratio.

    The bulk is k = 1 + gamma + 2 sqrt(gamma) cos(theta) with weight (2/pi) sin^2(theta) / k; for gamma > 1 the share
    1 - 1/gamma of the eigenvalues is 0.
    """
    theta = np.pi * (np.arange(NODES) + 0.5) / NODES
    k = 1 + ratio + 2 * np.sqrt(ratio) * np.cos(theta)
    weight = 2 * np.sin(theta) ** 2 / k / NODES
    if ratio > 1:
        k, weight = np.append(k, 0.0), np.append(weight, 1 - 1 / ratio)
    return k, weight


def product_stable_rank(tokens: int, factors: int) -> float:
    """Large-T limit of the stable rank of S = X X^T where X is a product of n square independent random matrices.

    Their squared singular values follow the Fuss-Catalan law of order n, with second moment n + 1 and right end
    (n + 1)^{n + 1} / n^n (units of the mean), so sr = T (n + 1) / [(n + 1)^{n + 1} / n^n]^2, about T / (e^2 n).

    A value matrix is one factor a layer (n = L) and a centred attention matrix another (n = 2L for A - 11^T/T without
    skip or normalisation): centred attention decays too, and faster than no attention. Derived here; of use
    while sr is well above 1, its least value.
    """
    n = factors
    return float(tokens * np.exp(np.log(n + 1) - 2 * ((n + 1) * np.log(n + 1) - n * np.log(n))))


def first_layer_constant(ratio: float, logit_variance: float) -> float:
    r"""Limit of T (sr - 1) after one layer of attention alone on orthonormal tokens with values N(0, 1).

    X_1 = A X_0 W_V = 1 v^T + F. The common part has ||1 v^T||^2 = T ||v||^2 -> d: that is s_1^2. The rest is F = (A -
    11^T/T) W with W = X_0 W_V Gaussian, and sqrt(T)(A - 11^T/T) is a Gaussian product of variance s^2 and rank d plus
    independent noise of variance e^{s^2} - 1 - s^2 (``bulk_radius``). By free probability, with c = e^{s^2} - 1, the
    normalised trace of (F F^T)^2 is (d/T)^2 (2 c^2 + gamma s^4 + gamma c^2): fourth cumulants of R-diagonal elements
    add, gamma s^4 for the product and 0 for the noise, and W W^T/d has moments 1 and 1 + gamma. Then sr - 1, the sum of
    s_i^4 over i > 1 divided by s_1^4, is T such traces over d^2:

        T (sr - 1) -> (2 + gamma) (e^{s^2} - 1)^2 + gamma s^4.

    Derived here, under ``bulk_radius``'s assumption. At gamma = s^2 = 1: 9.86. The exponent of T is -1 for any variance
    of the logits that stays bounded; the constant grows like e^{2 s^2}.

    Args:
        ratio: gamma = T/d, at most 1.
        logit_variance: s^2.
    """
    return float((2 + ratio) * np.expm1(logit_variance) ** 2 + ratio * logit_variance**2)


def mixing_ratio(
    second_modulus: Float[np.ndarray, "..."], value_gain: float, *, skip: bool
) -> Float[np.ndarray, "..."]:
    r"""How much of its gap a block has lost: 0 when it keeps nothing but the consensus of the tokens, 1 without a gap.

    For Y = [X +] A X W with entries of W independent of variance g/d, averaging over W gives the covariance

        E[Y Y^T] = delta X X^T + g A X X^T A^T,  delta = 1 with skip, else 0,

    a linear map with eigenvalues delta + g lambda_i lambda_j. The two largest, for (1, 1) and (1, 2), have the ratio
    (delta + g |lambda_2|) / (delta + g) or less. Without skip that is |lambda_2|; values N(0, 1) have g = d and leave
    a skip no weight; values N(0, 1/d) have g = 1 and a skip halves the gap. LayerNorm scales the tokens, not A, so it
    enters through the |lambda_2| of the layers above only. (Derived here.)

    Args:
        second_modulus: |lambda_2| of A.
        value_gain: g.
        skip: whether there is a skip connection.
    """
    return (skip + value_gain * second_modulus) / (skip + value_gain)


def circular_distance(bulk: Complex[np.ndarray, "others"]) -> float:
    """Kolmogorov-Smirnov distance of |lambda| to the circular law of the same second moment: of shape, not of size.

    The circular law of radius R has P(|lambda| <= r) = (r/R)^2 and second moment R^2/2. A few hundredths are an effect
    of finite T: compare with independent logits at the same T.
    """
    moduli = np.abs(bulk)
    circular = stats.powerlaw(2, scale=np.sqrt(2 * np.mean(moduli**2)))
    return float(stats.ks_1samp(moduli, circular.cdf, method="asymp").statistic)


def as_plotted(
    eigenvalues: Complex[np.ndarray, "*batch tokens"], logit_variance: float
) -> Complex[np.ndarray, "*batch tokens"]:
    """Return spectra the way rebuttal figure IX shows them: the bulk divided by sqrt(e^{s^2} - 1), the outlier not.

    The published points fit this and not the eigenvalues of A; nothing there says so. The outlier is the eigenvalue of
    largest modulus and is returned first.
    """
    order = np.argsort(-np.abs(eigenvalues), axis=-1, kind="stable")
    values = np.take_along_axis(eigenvalues, order, axis=-1)
    values[..., 1:] /= np.sqrt(np.expm1(logit_variance))
    return values
