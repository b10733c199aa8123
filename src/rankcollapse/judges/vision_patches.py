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
    cases = list(zip(configurations, start, end, strict=True))
    if trained:
        cases.append(("the trained checkpoint", trained[0], trained[-1]))
    becoming = [case for case in cases if case[2] >= alike and case[2] > case[1]]
    others = [case for case in cases if case not in becoming]
    firsts = [first for _, first, _ in cases]
    about = f"mean cosine of two patches after the last layer ({layers} at initialisation), from {min(firsts):.2f}"
    about += f" to {max(firsts):.2f} after the embedding" + (
        "" if trained else f"; trained weights: {NOT_RUN}, none here"
    )
    if not others:
        return Ruling(HOLDS, f"{_told(becoming)}: {about}")
    if becoming:
        return Ruling(CONDITION, f"only with {_told(becoming)} - not with {_told(others)}: {about}")
    return Ruling(FALSE, f"not with {_told(others)}: {about}")


def _told(cases: Sequence[tuple[str, float, float]]) -> str:
    return "; ".join(f"{name} {last:.2f}" for name, _, last in cases)
