"""What a measurement does with its tensors last: refuse what is not finite, hand over the rest."""

from collections.abc import Mapping

from torch import Tensor


def finite(measurement: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU and contiguous.

    Raises:
        FloatingPointError: one has a NaN or inf; names the measurement, the tensor and the index of the first.
    """
    for name, tensor in tensors.items():
        wrong = (~tensor.isfinite()).nonzero()
        if len(wrong):
            raise FloatingPointError(f"{measurement}: {name} is not finite at index {wrong[0].tolist()}")
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
