"""First-layer causal attention of a GPT-2 at random initialisation (Nait Saada, Naderi & Tanner 2025, figure IV)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from rankcollapse import encoders, spectrum
from rankcollapse.architectures import check_architecture
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.encoders import Gpt2Attention
from rankcollapse.tokens import first_positions, longest_pattern, shortened, token_ids


@torch.inference_mode()
def measure(settings: Gpt2Attention, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Return the attention matrix of one head of layer 1, its eigenvalues and its diagonal, and its gaps by length.

    Each run draws all weights anew; its sources and lengths share them. A source says which tokens are equal, all that
    matters at random initialisation: as in our prose (``text``) or as in the published text (``published``). Only as
    many embedding rows are drawn as there are tokens: rows are independent.

    - ``attention/<source>`` [query, key]: float32, of run 0 at T = ``settings.length``.
    - ``eigenvalues_re/<source>``, ``eigenvalues_im/<source>`` [run, T]: float64, by descending modulus, from a solver
      for general matrices, which is not told that the matrix is triangular.
    - ``diagonal/<source>`` [run, T]: float64, the diagonal in descending order.
    - ``second_eigenvalue``, ``singular_ratio`` [length, run]: float64, lambda_2 (read off the diagonal) and s_2 / s_1
      on our prose, for T in ``settings.lengths``.

    Raises:
        TextError: the text or the published pattern is too short.
        ConfigError: no such architecture, or one with too few positions or heads.
        RuntimeError: an attention weight is not finite, or one above the diagonal is not zero.
    """
    longest = max(settings.length, *settings.lengths)
    check_architecture(settings.models, settings.architecture, tokens=longest, heads=settings.head + 1)
    config = encoders.architecture(settings.models, settings.architecture, layers=1)
    config.n_inner = 1  # the MLP behind the attention: drawn after all that is looked at, and not worth its time
    config.vocab_size = longest
    grid = (len(settings.lengths), settings.runs)
    cells = [(source, settings.length) for source in settings.sources] + [("text", size) for size in settings.lengths]
    texts = {cell: torch.tensor([pattern(settings, *cell)], device=device) for cell in cells}
    found = {key: torch.empty(grid, dtype=torch.float64) for key in ("second_eigenvalue", "singular_ratio")}
    for run in track(range(settings.runs), "gpt2_attention: runs", settings.runs):
        encoder = encoders.random_encoder(config, generator(seed, "gpt2_attention", run)).to(device)
        for source in settings.sources:
            attention = _head(encoder, texts[source, settings.length], settings)
            if run == 0:
                found[f"attention/{source}"] = attention.float().cpu()
            for key, values in _spectrum(attention).items():
                empty = torch.empty(settings.runs, settings.length, dtype=torch.float64)
                found.setdefault(f"{key}/{source}", empty)[run] = values.cpu()
        for row, length in enumerate(settings.lengths):
            attention = _head(encoder, texts["text", length], settings)
            squares = torch.linalg.eigvalsh(attention @ attention.mT)  # of the singular values, ascending
            # Triangular: the eigenvalues are the diagonal, whose first entry is 1.
            found["second_eigenvalue"][row, run] = attention.diagonal()[1:].max().item()
            found["singular_ratio"][row, run] = (squares[-2] / squares[-1]).sqrt().item()
    return found


def pattern(settings: Gpt2Attention, source: str, length: int) -> list[int]:
    """Return, for each of ``length`` positions, the first position that holds the same token; GPT-2 frames nothing."""
    if source == "text":
        return first_positions(token_ids(settings.text, length, "gpt2"))
    framed = shortened(longest_pattern(settings.repeats), length + 2)
    return [position - 1 for position in framed[1:-1]]  # without the start and the end token


def _head(encoder: PreTrainedModel, ids: Int[Tensor, "1 token"], settings: Gpt2Attention) -> Float[Tensor, "query key"]:
    """Return the chosen head of layer 1 in float64; raises when a token attends to a later one."""
    attention = encoders.attention_weights(encoder, ids)[0][0, settings.head].double()
    if attention.triu(1).any():
        raise RuntimeError(f"gpt2_attention: T = {len(attention)}: attention to later tokens; a causal model expected")
    return attention


def _spectrum(attention: Float[Tensor, "query key"]) -> dict[str, Float[Tensor, " token"]]:
    """Return the eigenvalues and the diagonal by the key they are filed under."""
    values = spectrum.eigenvalues(attention)
    return {
        "eigenvalues_re": values.real,
        "eigenvalues_im": values.imag,
        "diagonal": attention.diagonal().sort(descending=True).values,
    }
