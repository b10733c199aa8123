"""What decides the claim of ``source_list``: whether the exposition's sources are as it states them."""

from collections.abc import Sequence

from rankcollapse.verdicts import FALSE, HOLDS, Ruling


def s25(*, checked: int, wrong: Sequence[str], allowed: float) -> Ruling:
    """The source list and the attributions are right."""
    found = f"{checked - len(wrong)} of {checked} entries are as stated"
    if len(wrong) <= allowed:
        return Ruling(HOLDS, found)
    return Ruling(FALSE, f"{found}; not: {'; '.join(dict.fromkeys(wrong))}")
