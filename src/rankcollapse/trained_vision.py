"""The patch tokens of a trained vision transformer, by layer."""

from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from transformers import PreTrainedModel

from rankcollapse.checkpoints import fetch, normalisation
from rankcollapse.pictures import normalised, patches
from rankcollapse.pretrained import load


def load_vision(name: str) -> PreTrainedModel:
    """Return the trained model in evaluation mode and float32; raises ``CheckpointError`` as ``fetch`` and ``load``."""
    return load(fetch(name, None), name)


@torch.no_grad()
def hidden_patches(
    model: PreTrainedModel, pixels: UInt8[Tensor, "pictures size size 3"], device: torch.device
) -> list[Float[Tensor, "pictures patches width"]]:
    """Return the patch tokens after the embedding and after each block, before the last LayerNorm.

    Pictures are resized to the model's own size and normalised as its preprocessor says; to [-1, 1] if it has none.
    """
    mean, std = normalisation(model.name_or_path, Path(model.name_or_path))
    pictures, size = normalised(pixels, mean, std).float(), model.config.image_size
    if pictures.shape[-1] != size:
        pictures = torch.nn.functional.interpolate(pictures, (size, size), mode="bicubic", antialias=True)
    count = patches(pictures[:1], model.config.patch_size).shape[1]
    output = model.to(device)(pictures.to(device), output_hidden_states=True)
    return [layer[:, -count:] for layer in output.hidden_states]
