"""When a quantity given layer by layer has fallen by a factor. No torch: notebooks use it."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray


def layers_to_fall(log10: Float[ndarray, "*batch layers"], decades: float) -> Float[ndarray, "*batch"]:
    """Return after how many layers log10 is first ``decades`` below its start, straight between layers.

    The first entry is layer 0. One more than the last layer where it never is: not within this depth.
    """
    below = log10 <= log10[..., :1] - decades
    after = np.where(below.any(-1), below.argmax(-1), 1)
    start, end = (np.take_along_axis(log10, index[..., None], -1)[..., 0] for index in (after - 1, after))
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = after - 1 + (start - log10[..., 0] + decades) / (start - end)
    return np.where(below.any(-1), inside, float(log10.shape[-1]))
