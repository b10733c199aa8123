"""How much of the hidden states is residual, layer by layer, in encoders at random initialisation.

Dong, Cordonnier & Loukas (2021), the plots of BERT, ALBERT and XLNet whole and without skip or MLP: the
initialisation half.
"""

from itertools import product

import torch
from torch import Tensor

from rankcollapse import encoders
from rankcollapse.architectures import check_architecture
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.residual import relative_residual_composite
from rankcollapse.settings.dong import EncoderDepth
from rankcollapse.tokens import first_positions, passages, renumbered

FIRST_ID = 10  # above every architecture's padding token, whose embedding is zero


@torch.inference_mode()
def measure(settings: EncoderDepth, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Return rel_{1,inf} = ||X - 1 x^T||_{1,inf} / ||X||_{1,inf} of the hidden states by layer.

    Init i of an architecture reads texts i k .. (i+1) k - 1, k = texts / inits; the four variants of an init share its
    weights and texts. Everything is float32, as in the paper, so values near 2e-7 are the rounding floor. Tokens are
    uncased WordPiece for every architecture: at random initialisation only which tokens are equal counts.

    - ``relative_residual`` [architecture, variant, init, text, layer]: float32, layers 0 (embedding output) .. L.
    - ``token_repeats`` [init, text, position]: int64, first position in its text that holds the same token.

    Orders of architecture and variant are those of the settings.

    Raises:
        TextError: the text has too few passages that fill ``tokens`` tokens.
        ConfigError: an architecture is not in the file of architectures, or has no room for ``tokens`` tokens.
        FloatingPointError: a residual is not finite; names the architecture, variant and init.
    """
    for name in settings.architectures:
        check_architecture(settings.models, name, tokens=settings.tokens)
    texts = passages(settings.text, settings.texts, settings.tokens, "bert")
    share = settings.texts // settings.inits
    shape = (settings.inits, share, settings.tokens)
    ids = torch.tensor(renumbered(texts, FIRST_ID)).view(shape)
    found = torch.empty(len(settings.architectures), len(settings.variants), settings.inits, share, settings.layers + 1)
    pairs = list(product(enumerate(settings.architectures), range(settings.inits)))
    for (place, name), init in track(pairs, "encoder_depth: architectures and inits", len(pairs)):
        config = encoders.architecture(settings.models, name, settings.layers)
        encoder = encoders.random_encoder(config, generator(seed, "encoder_depth", name, init)).to(device)
        for row, variant in enumerate(settings.variants):
            states = encoders.hidden_states(encoders.variant(encoder, variant), ids[init].to(device))
            residual = torch.stack([relative_residual_composite(layer) for layer in states], dim=-1)
            if not residual.isfinite().all():
                raise FloatingPointError(f"encoder_depth: {name}, {variant}, init {init}: a residual is not finite")
            found[place, row, init] = residual.cpu()
        del encoder  # before the next one is drawn: an encoder takes half a gigabyte
    return {
        "relative_residual": found,
        "token_repeats": torch.tensor([first_positions(text) for text in texts]).view(shape),
    }
