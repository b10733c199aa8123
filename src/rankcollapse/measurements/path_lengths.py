"""Paths through attention with skips, by length: exact contributions, chains of attention, products of matrices.

Dong, Cordonnier & Loukas (2021), section 3 and the plot of chained paths in the released notebook. The mathematics
is in ``paths``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankcollapse import checkpoints, encoders, pretrained
from rankcollapse.architectures import check_architecture
from rankcollapse.finite import finite
from rankcollapse.inits import WEIGHT_INITS, shared_mean
from rankcollapse.paths import (
    along_path,
    log_product_distance,
    path_lengths,
    path_lengths_uncentred,
    rank_one_distance,
    residual_products,
    residual_shares,
)
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import decompose, local_order
from rankcollapse.scalefree import from_tokens
from rankcollapse.scalefree_attention import Attention, attention_matrix, plain_attention
from rankcollapse.scalefree_bert import blocks
from rankcollapse.settings.dong import PathLengths
from rankcollapse.tokens import passages, renumbered

NAME = "path_lengths"
Draws = Iterable[tuple[Any, Int[Tensor, "text token"]]]  # an encoder and its texts, one after the other
FIRST_ID = 10  # above the padding token, whose embedding is zero
CHAINS: dict[str, dict[str, bool]] = {
    "frozen": {"recompute": False},
    "recomputed": {"recompute": True},
    "recomputed + LN": {"recompute": True, "norm": True},
}


class Network(NamedTuple):
    """Tokens, and layers with their attention matrices frozen at what an ordinary forward pass has."""

    tokens: Float[Tensor, "tokens width"]
    layers: list[Attention]
    output: Float[Tensor, "tokens width"]  # X_L of attention + skip with these matrices


@torch.inference_mode()
def measure(settings: PathLengths, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure what the paths of each length contribute to the output of attention with skips.

    Networks: ``san_<init>`` for each of ``inits``: attention + skip with drawn weights and tokens that share a mean,
    attention matrices of its own forward pass; ``random_encoder`` and ``trained_encoder``: value and output weights of
    an encoder, matrices of its ordinary forward pass on a text (skips, MLP and LayerNorm included), X_0 = its embedding
    output. In all of them the paths are those of X_{l+1} = X_l + sum_h P_h X_l W_VO,h with the matrices fixed. Runs are
    draws of weights; for the trained encoder (6 layers, 12 heads, d = 384) they are texts. Float64; lengths k = 0..L.

    - ``<network>/log_residual`` [run, length]: ln ||R_{L,k}||_F; ``<network>/log_norm``: ln ||X_{L,k}||_F
    - ``<network>/log_residual_uncentred`` [run, length]: the first from plain numbers, rounding where it is too small
    - ``<network>/share`` [run, length]: <R_k, R>_F / ||R||_F^2, R = sum_k R_k; each row sums to 1
    - ``<network>/cosines`` [run, length, length]: <R_k, R_k'>_F / (||R_k|| ||R_k'||)
    - ``<network>/closure`` [run]: ||sum_k X_{L,k} - X_L||_F / ||X_L||_F against the layer-by-layer pass
    - ``<network>/chain`` [kind, run, chain, step 0..L]: ln ||R|| along one random head per layer, no skips; kind =
      frozen, recomputed (P from the chain's own tokens), recomputed with a LayerNorm without affine after each step
    - ``<network>/chain_order`` [kind, run, chain, step 1..L-1]: local order of convergence of it
    - ``product/random_encoder`` [draw, length 1..L, path]: ln of ||M - best rank one|| / ||M|| in ||.||_{1,inf}, M the
      product of the attention matrices of a random path: sorted random layers, a random head each, a text of the draw
    - ``product/random_encoder_float32`` [length 1..L, path]: the same ratio for draw 0, all in float32, may be 0
    - ``product/trained_encoder`` [1, length 1..6, path]: as the first, all texts

    Raises:
        TextError, ConfigError: text or architecture do not fit ``tokens``; the trained weights are not there.
        FloatingPointError: a number is not finite; names the tensor.
    """
    check_architecture(settings.models, settings.architecture, tokens=settings.tokens)
    texts = passages(settings.text, settings.texts, settings.tokens, "bert")
    networks: dict[str, list[dict[str, Tensor]]] = {}
    for init in settings.inits:
        draws = track(range(settings.runs), f"{NAME}: san {init}", settings.runs)
        networks[f"san_{init}"] = [
            _paths(_san(settings, init, seed, run, device), settings, seed, run) for run in draws
        ]
    found: dict[str, Tensor] = {}
    for name, encoders_drawn in _encoders(settings, texts, device, seed).items():
        networks[name], products = _encoder_paths(name, track(encoders_drawn, f"{NAME}: {name}"), settings, seed)
        found |= products
    for name, runs in networks.items():
        for key in runs[0]:
            found[f"{name}/{key}"] = torch.stack([run[key] for run in runs], 1 if key.startswith("chain") else 0)
    return finite(NAME, found)


def _encoder_paths(
    name: str, draws: Draws, settings: PathLengths, seed: int
) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """The paths of every run of an encoder, and the products of its attention matrices along random paths."""
    runs: list[dict[str, Tensor]] = []
    products, found = [], {}
    for draw, (encoder, ids) in enumerate(draws):
        attention = torch.stack(encoders.attention_weights(encoder, ids))  # layer, text, head, token, token
        tokens = encoder.embeddings(input_ids=ids)
        for text in range(len(ids) if name == "trained_encoder" else 1):
            network = _frozen(tokens[text], [block.attention for block in blocks(encoder)], attention[:, text])
            runs.append(_paths(network, settings, seed, name, len(runs)))
        products.append(torch.stack([log_product_distance(p) for p in _random_paths(attention, settings, seed, draw)]))
        if name == "random_encoder" and draw == 0:
            paths = _random_paths(attention.float(), settings, seed, draw)
            single = [rank_one_distance(_multiplied(matrices)).double() for matrices in paths]
            found[f"product/{name}_float32"] = torch.stack(single)
        del encoder, network  # before the next one is drawn
    return runs, found | {f"product/{name}": torch.stack(products)}


def _paths(network: Network, settings: PathLengths, seed: int, *key: object) -> dict[str, Tensor]:
    lengths = path_lengths(network.tokens, network.layers)
    uncentred = decompose(path_lengths_uncentred(network.tokens, network.layers))[1]
    total = lengths.tokens.sum(0)
    g = generator(seed, NAME, "chains", *key)
    heads = [
        [int(torch.randint(layer.heads, (), generator=g)) for layer in network.layers] for _ in range(settings.chains)
    ]
    chain = torch.stack(
        [torch.stack([_chain(network, path, **kind) for path in heads]) for kind in CHAINS.values()]
    )  # kind, chain, step
    return {
        "log_residual": lengths.log_norm,
        "log_norm": torch.linalg.norm(lengths.tokens, dim=(-2, -1)).log(),
        "log_residual_uncentred": torch.linalg.norm(uncentred, dim=(-2, -1)).log(),
        "share": residual_shares(lengths),
        "cosines": residual_products(lengths),
        "closure": torch.linalg.norm(total - network.output) / torch.linalg.norm(network.output),
        "chain": chain,
        "chain_order": local_order(chain),
    }


def _chain(network: Network, heads: list[int], **kind: bool) -> Float[Tensor, "steps"]:
    start = from_tokens(network.tokens)
    steps = along_path(start, network.layers, heads, **kind)
    return torch.stack([start.log_norm, *(step.log_norm for step in steps)])


def _san(settings: PathLengths, init: str, seed: int, run: int, device: torch.device) -> Network:
    """Attention + skip at random initialisation, its attention matrices taken from its own forward pass."""
    width, layers = settings.width, []
    tokens = shared_mean(settings.tokens, width, generator(seed, NAME, "tokens", run)).to(device)
    output = tokens
    for depth in range(settings.layers):
        g = generator(seed, NAME, "weights", init, run, depth)
        query, key, value, out = (WEIGHT_INITS[init](width, width, g).to(device) for _ in range(4))
        layer = Attention(query, key, value, out, settings.heads)
        layers.append(replace(layer, frozen=attention_matrix(output, layer)))
        output = output + plain_attention(output, layer)
    return Network(tokens, layers, output)


def _frozen(tokens: Tensor, layers: list[Attention], attention: Float[Tensor, "layers heads tokens tokens"]) -> Network:
    """Attention + skip with the attention matrices of another forward pass."""
    # Rows of a softmax sum to 1 within rounding; the identities need P 1 = 1 itself
    frozen = [
        replace(layer, frozen=matrices / matrices.sum(-1, keepdim=True))
        for layer, matrices in zip(layers, attention, strict=True)
    ]
    output = tokens
    for layer in frozen:
        output = output + plain_attention(output, layer)
    return Network(tokens, frozen, output)


def _encoders(settings: PathLengths, texts: list[list[int]], device: torch.device, seed: int) -> dict[str, Draws]:
    """The two encoders in float64, each draw with its texts: made one at a time, since BERT takes 0.7 GB."""

    def random() -> Iterator[tuple[Any, Tensor]]:
        ids = torch.tensor(renumbered(texts, FIRST_ID)).view(settings.encoder_inits, -1, settings.tokens)
        config = encoders.architecture(settings.models, settings.architecture, settings.layers)
        config.vocab_size = int(ids.max()) + 1  # rows of tokens that do not occur are not drawn
        for draw in range(settings.encoder_inits):
            rng = generator(seed, NAME, "encoder", draw)
            yield encoders.random_encoder(config, rng).double().to(device), ids[draw].to(device)

    def trained() -> Iterator[tuple[Any, Tensor]]:
        yield pretrained.load(checkpoints.minilm(), "MiniLM").double().to(device), torch.tensor(texts, device=device)

    return {"random_encoder": random(), "trained_encoder": trained()}


def _random_paths(
    attention: Float[Tensor, "layers texts heads tokens tokens"], settings: PathLengths, seed: int, *key: object
) -> Iterator[Float[Tensor, "length paths tokens tokens"]]:
    """Attention matrices along random paths of length 1..L: sorted layers, none twice, a head for each, one text."""
    layers, texts, heads = attention.shape[:3]
    for length in range(1, layers + 1):
        g = generator(seed, NAME, "paths", *key, length)
        order = torch.stack([torch.randperm(layers, generator=g)[:length].sort().values for _ in range(settings.paths)])
        text = torch.randint(texts, (settings.paths, 1), generator=g)
        head = torch.randint(heads, (settings.paths, length), generator=g)
        yield attention[order.T, text.T, head.T]


def _multiplied(matrices: Float[Tensor, "length paths tokens tokens"]) -> Float[Tensor, "paths tokens tokens"]:
    product = matrices[0]
    for matrix in matrices[1:]:
        product = matrix @ product
    return product
