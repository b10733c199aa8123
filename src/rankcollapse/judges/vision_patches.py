"""What decides the claim of ``vision_patches``: whether patches become alike."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN, Ruling


def s22(
    *,
    configurations: Sequence[str],
    start: Sequence[float],
    end: Sequence[float],
    layers: int,
    trained: Sequence[float],
    alike: float,
) -> Ruling:
    """In deep vision transformers the patches become alike.

    Mean patch cosine after the embedding and after the last layer, by configuration at random initialisation; of a
    trained checkpoint by layer, or nothing where there was none.
    """
    names, spans = list(configurations), list(zip(start, end, strict=True))
    if trained:
        names, spans = [*names, "the trained checkpoint"], [*spans, (trained[0], trained[-1])]
    becoming = [name for name, (first, last) in zip(names, spans, strict=True) if last >= alike and last > first]
    found = f"mean cosine of two patches after the embedding and after the last layer ({layers} at initialisation): "
    found += ", ".join(f"{name} {first:.2f} to {last:.2f}" for name, (first, last) in zip(names, spans, strict=True))
    if not trained:
        found += f"; no trained weights were available: {NOT_RUN} for those"
    if len(becoming) == len(names):
        return Ruling(HOLDS, found)
    if becoming:
        where = "" if becoming == names[-1:] and trained else " at initialisation"
        return Ruling(CONDITION, f"only with {', '.join(becoming)}{where}; {found}")
    return Ruling(FALSE, found)
