"""Two real pictures that come with an installed package, and square crops of them as patches."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Generator, Tensor

from rankcollapse.tokens import Part, installed

PICTURES = {
    "temple": Part(
        "sklearn",
        "datasets/images/china.jpg",
        "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29",
        "scikit-learn",
    ),
    "flower": Part(
        "sklearn",
        "datasets/images/flower.jpg",
        "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638",
        "scikit-learn",
    ),
}
SMALLEST = 0.6  # side of a crop, in shorter sides of the picture


def crop(name: str, size: int, rng: Generator) -> UInt8[Tensor, "size size 3"]:
    """Return a square of a picture at a random place, resized to ``size`` pixels (bicubic).

    Its side is uniform between SMALLEST and 1 shorter sides of the picture, its place uniform among those possible.
    Raises ``TextError`` when the file is missing or is not the original.
    """
    with Image.open(installed(PICTURES[name])) as file:
        whole = file.convert("RGB")
    share, right, down = torch.rand(3, generator=rng, dtype=torch.float64).tolist()
    side = round(min(whole.size) * (SMALLEST + (1 - SMALLEST) * share))
    left, top = round((whole.width - side) * right), round((whole.height - side) * down)
    box = (left, top, left + side, top + side)
    return torch.from_numpy(np.array(whole.resize((size, size), Image.Resampling.BICUBIC, box=box)))


def normalised(
    pixels: UInt8[Tensor, "*batch size size 3"],
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.5, 0.5, 0.5),
) -> Float[Tensor, "*batch 3 size size"]:
    """Return (pixel / 255 - mean) / std with the colours first: by default from -1 to 1, as ViT is given them."""
    scaled = (pixels.double() / 255 - torch.tensor(mean, dtype=torch.float64)) / torch.tensor(std, dtype=torch.float64)
    return scaled.movedim(-1, -3)


def patches(
    pictures: Float[Tensor, "*batch colours size size"], patch: int
) -> Float[Tensor, "*batch patches colours*patch*patch"]:
    """Return the patches along rows, each as one vector, colour by colour: what a convolution of that stride sees."""
    cut = pictures.unfold(-2, patch, patch).unfold(-2, patch, patch)  # [colour, row, column, patch, patch]
    return cut.movedim(-5, -3).flatten(-3).flatten(-3, -2)
