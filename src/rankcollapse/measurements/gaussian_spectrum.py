"""Eigenvalues of one random attention head on Gaussian tokens of unit length (rebuttal figure IX)."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import softmax
from rankcollapse.markov import gaussian_logits
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.gap import GaussianSpectrum
from rankcollapse.spectrum import eigenvalues


def measure(settings: GaussianSpectrum, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    r"""Return the spectra of A = softmax(X W_Q W_K^T X^T / sqrt(d)), W_Q and W_K in R^{d x d} with N(0, 1) entries.

    X in R^{T x d} has Gaussian rows scaled to unit length, so each logit has variance 1; d = T / gamma, rounded. As a
    control gamma = 0 is added, the limit of infinite width: independent N(0, 1) logits, whose bulk is circular.

    Returns:
        For every number of tokens T and ratio gamma (and 0), as written by ``format(gamma, "g")``:
        ``gamma_<gamma>_tokens_<T>/re`` and ``.../im``: ``[run, T]``, the eigenvalues of A as defined (not as the
            figure draws them), by descending modulus: index 0 is the outlier 1, the others are the bulk.

    Raises:
        FloatingPointError: A has a NaN or an infinite entry; names gamma and T.
    """
    grid = [(ratio, tokens) for tokens in settings.tokens for ratio in (0.0, *settings.ratios)]
    spectra: dict[str, Tensor] = {}
    for ratio, tokens in track(grid, "gaussian_spectrum: gamma, T", len(grid)):
        randoms = [generator(seed, "gaussian_spectrum", ratio, tokens, run) for run in range(settings.runs)]
        if ratio == 0:
            logits = [gaussian_logits(tokens, 1, random, 0.0, 1.0)[0].to(device) for random in randoms]
        else:
            width = settings.width(ratio, tokens)
            logits = [unit_token_logits(tokens, width, random, device) for random in randoms]
        try:
            values = eigenvalues(softmax(torch.stack(logits))).cpu()
        except FloatingPointError as error:
            raise FloatingPointError(f"gaussian_spectrum: gamma = {ratio:g}, T = {tokens}: {error}") from error
        key = f"gamma_{ratio:g}_tokens_{tokens}"
        spectra[f"{key}/re"], spectra[f"{key}/im"] = values.real.contiguous(), values.imag.contiguous()
    return spectra


def unit_token_logits(
    tokens: int, width: int, random: torch.Generator, device: torch.device
) -> Float[Tensor, "tokens tokens"]:
    """Logits X W_Q W_K^T X^T / sqrt(d) without ever forming the d x d weights, which would cost 8 d^2 bytes each.

    With the thin QR decomposition X^T = Q R the logits are R^T (Q^T W_Q) (Q^T W_K)^T R / sqrt(d). Q has orthonormal
    columns and is independent of the weights, so Q^T W is a min(T, d) x d matrix of independent N(0, 1) entries: it is
    drawn as such.
    """
    normal = torch.randn(tokens, width, generator=random, dtype=torch.float64)
    rows = (normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)).to(device)
    factor = torch.linalg.qr(rows.mT, mode="r").R
    weights = torch.randn(2, len(factor), width, generator=random, dtype=torch.float64).to(device)
    queries, keys = factor.mT @ weights
    return queries @ keys.mT / width**0.5
