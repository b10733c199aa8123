"""A trained vision transformer by name or folder: safetensors only, never remote code."""

from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.image_processing_base import ImageProcessingMixin

from rankcollapse.checkpoints import check_checkpoint, check_kind
from rankcollapse.pictures import normalised, patches
from rankcollapse.validation import ConfigError

HALF = (0.5, 0.5, 0.5)


def load_vision(name: str) -> PreTrainedModel:
    """Return the trained model in evaluation mode and float32.

    Raises ``ConfigError``, one line: neither a local folder nor to be had from the hub; not a ViT; no safetensors.
    """
    check_checkpoint(name)
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0][:100]
        raise ConfigError(f"checkpoint {name!r}: neither a local folder nor reachable on the hub ({reason})") from None
    check_kind(name, config.model_type)
    try:
        model, loaded = AutoModel.from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
        )
    except OSError:
        raise ConfigError(f"checkpoint {name!r}: no safetensors to be had; allowed: safetensors, no pickles") from None
    # The pooler comes after the last layer and is not used; any other weight that is missing would be a random one.
    if missing := sorted(key for key in loaded["missing_keys"] if not key.startswith("pooler.")):
        raise ConfigError(f"checkpoint {name!r}: lacks {len(missing)} weights, {missing[0]} among them")
    return model.eval()


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
