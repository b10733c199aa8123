"""How much of the hidden states is residual, layer by layer, in trained encoders, and with which order it vanishes.

Dong, Cordonnier & Loukas (2021), the plots of encoders whole and without skip or MLP: the pretrained half. A trained
BERT of six layers comes with a package; other checkpoints are measured where the user names them.
"""

import hashlib
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from rankcollapse import checkpoints, encoders, pretrained
from rankcollapse.progress import Track, silent
from rankcollapse.prose import prose
from rankcollapse.randomness import generator
from rankcollapse.residual import local_order, relative_residual_composite
from rankcollapse.scalefree_bert import Block, blocks, follow
from rankcollapse.settings.dong import TrainedEncoders
from rankcollapse.tokens import cut

NAME = "trained_encoders"
LN10 = math.log(10)


@torch.inference_mode()
def measure(settings: TrainedEncoders, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Return the relative residual of the hidden states by layer, of plain passes and below machine precision.

    Layer 0 is the embedding output, L the number of blocks. Weights ``trained`` are those of the embedded encoder,
    ``random`` draws of the same architecture; draw i reads texts i k .. (i+1) k - 1, k = texts / inits. The order of
    variants is that of the settings.

    - ``trained/relative_residual`` [variant, text, layer 0..L], ``random/relative_residual`` [variant, init, text,
      layer 0..L]: float32, rel_{1,inf} = ‖X - 1 xᵀ‖_{1,inf} / ‖X‖_{1,inf} of the library's own float32 pass, as in
      the paper, so values near 2e-7 are the rounding floor.
    - Scale-free, float64, ``trained/...`` [variant, text, layer 0..c L] and ``random/...`` [variant, init, layer
      0..c L] on the first text of each draw: ``log10_relative_composite``, log10 of rel_{1,inf}, and
      ``log10_relative``, log10 of ‖R‖_F / ‖X‖_F. Behind layer L the stack is passed through again, c = ``cycles``
      times in all. ``order``, of layers 1..c L - 1: the local order of convergence of ‖R_l‖_F.
    - ``model_<i>/relative_residual`` [variant, text, layer 0..its own L]: float32, checkpoint i of ``models``, on the
      first texts that are long enough in its own tokens.
    - ``text/ids`` [text, position]: int64, the tokens read; ``text/sha256`` [32]: uint8, the hash of these numbers
      as little-endian 64-bit integers.

    Raises:
        TextError: too few texts fill ``tokens`` tokens.
        CheckpointError: a checkpoint that cannot be had or read, or has no room for ``tokens`` tokens.
        FloatingPointError: a residual is not finite; names weights and variant.
    """
    texts = prose(settings.text)
    ids = torch.tensor(cut(texts, settings.texts, settings.tokens, "bert", settings.text))
    trained = first_layers(pretrained.load(checkpoints.minilm(), "MiniLM"), settings.layers).to(device)
    tables = _embedded(trained, ids, settings, track)
    tables |= _drawn(trained, ids.view(settings.inits, -1, settings.tokens), settings, seed, track)
    for place, name in enumerate(track(settings.models, f"{NAME}: checkpoints", len(settings.models))):
        tables[f"model_{place}/relative_residual"] = _asked_for(name, texts, settings, device)
    return tables | {"text/ids": ids, "text/sha256": _sha256(ids)}


def first_layers(encoder: PreTrainedModel, layers: int) -> PreTrainedModel:
    """Return a BERT, cut to its first ``layers`` blocks."""
    encoder.encoder.layer = nn.ModuleList(encoder.encoder.layer[:layers])
    encoder.config.num_hidden_layers = layers
    return encoder


def plain(
    encoder: PreTrainedModel, ids: Int[Tensor, "text token"], variants: tuple[str, ...], what: str
) -> Float[Tensor, "variant text layers"]:
    """Return rel_{1,inf} of every variant of ``encoder`` by layer, from plain passes."""
    found = []
    for variant in variants:
        states = encoders.hidden_states(encoders.variant(encoder, variant), ids.to(encoder.device))
        residual = torch.stack([relative_residual_composite(layer) for layer in states], dim=-1)
        if not residual.isfinite().all():
            raise FloatingPointError(f"{NAME}: {what}, {variant}: a residual is not finite")
        found.append(residual.cpu())
    return torch.stack(found)


def below_precision(
    embedded: Float[Tensor, "token width"], stack: list[Block], settings: TrainedEncoders, what: str
) -> dict[str, Float[Tensor, "variant layers"]]:
    """Return log10 of the relative residual in both norms, and the local order, of one text followed scale-free."""
    rows: dict[str, list[Tensor]] = {"log10_relative_composite": [], "log10_relative": [], "order": []}
    for variant in settings.variants:
        states = follow(embedded, stack, encoders.VARIANTS[variant], settings.cycles)
        log_norm = torch.stack([state.log_norm for state in states])
        if not log_norm.isfinite().all():
            raise FloatingPointError(f"{NAME}: {what}, {variant}: all tokens are equal, or not finite")
        rows["log10_relative_composite"].append(torch.stack([state.log_relative_composite for state in states]) / LN10)
        rows["log10_relative"].append(torch.stack([state.log_relative for state in states]) / LN10)
        rows["order"].append(local_order(log_norm))
    return {key: torch.stack(values).cpu() for key, values in rows.items()}


def _embedded(trained: PreTrainedModel, ids: Tensor, settings: TrainedEncoders, track: Track) -> dict[str, Tensor]:
    residual = plain(trained, ids, settings.variants, "MiniLM")
    embedded, stack = _in_float64(trained, ids)
    followed = [
        below_precision(text, stack, settings, f"MiniLM, text {place}")
        for place, text in enumerate(track(embedded, f"{NAME}: texts followed below machine precision", len(ids)))
    ]
    return {"trained/relative_residual": residual} | _named("trained", followed)


def _drawn(
    trained: PreTrainedModel, shares: Int[Tensor, "init text token"], settings: TrainedEncoders, seed: int, track: Track
) -> dict[str, Tensor]:
    residual, followed = [], []
    for init, share in enumerate(track(shares, f"{NAME}: draws of the same architecture", len(shares))):
        drawn = encoders.random_encoder(trained.config, generator(seed, NAME, init)).to(trained.device)
        residual.append(plain(drawn, share, settings.variants, f"init {init}"))
        embedded, stack = _in_float64(drawn, share[:1])
        followed.append(below_precision(embedded[0], stack, settings, f"init {init}"))
    return {"random/relative_residual": torch.stack(residual, dim=1)} | _named("random", followed)


def _in_float64(encoder: PreTrainedModel, ids: Int[Tensor, "text token"]) -> tuple[Tensor, list[Block]]:
    """Return a BERT's embedding output and blocks in float64, which turns ``encoder`` itself into float64."""
    encoder.double()
    return encoder.embeddings(input_ids=ids.to(encoder.device)), blocks(encoder)


def _asked_for(name: str, texts: list[str], settings: TrainedEncoders, device: torch.device) -> Tensor:
    folder = checkpoints.fetch(name, settings.tokens)
    encoder = pretrained.load(folder, name).to(device)
    ids = pretrained.own_tokens(folder, encoder, name, texts, settings.texts, settings.tokens, settings.text)
    return plain(encoder, ids, settings.variants, name)


def _named(prefix: str, tables: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{prefix}/{key}": torch.stack([table[key] for table in tables], dim=1) for key in tables[0]}


def _sha256(ids: Int[Tensor, "text token"]) -> Tensor:
    return torch.tensor(list(hashlib.sha256(ids.numpy().astype("<i8").tobytes()).digest()), dtype=torch.uint8)
