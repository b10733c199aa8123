"""The patch tokens of a trained vision transformer, by layer."""

from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from transformers import PreTrainedModel
from transformers.image_processing_base import ImageProcessingMixin

from rankcollapse.checkpoints import fetch
from rankcollapse.pictures import normalised, patches
from rankcollapse.pretrained import load

HALF = (0.5, 0.5, 0.5)


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
    mean, std = _normalisation(model.name_or_path)
    pictures, size = normalised(pixels, mean, std).float(), model.config.image_size
    if pictures.shape[-1] != size:
        pictures = torch.nn.functional.interpolate(pictures, (size, size), mode="bicubic", antialias=True)
    count = patches(pictures[:1], model.config.patch_size).shape[1]
    output = model.to(device)(pictures.to(device), output_hidden_states=True)
    return [layer[:, -count:] for layer in output.hidden_states]


def _normalisation(name: str) -> tuple[Any, Any]:
    try:
        known, _ = ImageProcessingMixin.get_image_processor_dict(name)
    except (OSError, ValueError):
        return HALF, HALF
    return known.get("image_mean", HALF), known.get("image_std", HALF)
