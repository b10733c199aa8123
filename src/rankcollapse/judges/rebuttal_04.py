"""What decides the claims of ``rebuttal_04``: a random GPT-2."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling


def m04(
    *,
    lengths: Sequence[int],
    diagonal_error: float,
    largest_imaginary: float,
    second_eigenvalue: Sequence[float],
    second_exponent: float,
    singular_ratio: Sequence[float],
    roundoff: float,
    exponent: float,
) -> Ruling:
    """Eigenvalues on the diagonal, real, and a gap that emerges with T."""
    spectrum = (
        f"eigenvalues equal the diagonal to {diagonal_error:.1g}, imaginary parts at most {largest_imaginary:.1g}"
    )
    found = (
        f"{spectrum}; from T = {lengths[0]} to {lengths[-1]} the second goes from {second_eigenvalue[0]:.3f} to "
        f"{second_eigenvalue[-1]:.3f} and s_2/s_1 from {singular_ratio[0]:.3f} to {singular_ratio[-1]:.3f}"
    )
    if max(diagonal_error, largest_imaginary) > roundoff:
        return Ruling(FALSE, found)
    if second_exponent < exponent:
        return Ruling(FALSE, f"{found}: no gap emerges as T grows, that of the singular values closes")
    closes = singular_ratio[-1] >= singular_ratio[0]
    return Ruling(CONDITION if closes else HOLDS, found)
