"""What decides the claims of ``gap_depth``: the gap in deeper layers, and what modules do about collapse."""

from collections.abc import Sequence

from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, Ruling

PUBLISHED = "unit"  # the scale of the weights in the published figures, N(0, 1)


def m12(
    *,
    weights: Sequence[str],
    modules: Sequence[str],
    alone: Sequence[Sequence[float]],
    with_module: Sequence[Sequence[Sequence[float]]],
    mixing_ratio: Sequence[Sequence[Sequence[float]]],
    kept: float,
    gone: float,
) -> Ruling:
    """Modules address collapse only by removing the gap.

    Medians: ``alone[weights][layer]`` and ``with_module[weights][module][layer]`` of sr - 1, and the mixing ratio.
    """
    addressed = [
        (scale, module, layer + 1, with_module[i][j][layer], mixing_ratio[i][j][layer])
        for i, scale in enumerate(weights)
        for j, module in enumerate(modules)
        for layer in range(len(alone[i]))
        if with_module[i][j][layer] > kept >= alone[i][layer]
    ]
    without = [case for case in addressed if case[-1] < gone]
    most = {scale: max(max(row) for row in with_module[i]) for i, scale in enumerate(weights)}
    found = "largest median sr - 1 with a module: " + ", ".join(f"{most[scale]:.2g} ({scale})" for scale in weights)
    if without:
        scale, module, layer, excess, ratio = max(without, key=lambda case: case[3])
        layers = ", ".join(str(case[2]) for case in without if case[:2] == (scale, module))
        return Ruling(
            FALSE,
            f"{found}; with {scale} weights {module.removeprefix('A + ')} addresses collapse in layers {layers} "
            f"(sr - 1 = {excess:.2g} in layer {layer}), but has not removed the gap (mixing ratio {ratio:.2f})",
        )
    if any(case[0] == PUBLISHED for case in addressed):
        return Ruling(HOLDS, f"{found}; {len(addressed)} cases keep it up, and all of them have lost the gap")
    return Ruling(CONDITION, f"{found}: with the published weights none keeps it above {kept:g}")


def m20(
    *,
    weights: Sequence[str],
    layers: Sequence[int],
    modules: Sequence[str],
    second_modulus: Sequence[Sequence[float]],
    spectrum_tokens: int,
    largest: int,
    excess: Sequence[Sequence[Sequence[float]]],
    radius: float,
    near: float,
) -> Ruling:
    """The gap in deeper layers, and collapse in width with modules.

    Medians: ``second_modulus[weights][layer]`` of attention alone and ``excess[weights][module][layer]`` of sr - 1 at
    the largest T; ``layers[0]`` is the first layer.
    """
    fails = {}
    for i, scale in enumerate(weights):
        closed = [
            f"abs(lambda_2) = {value:.2f} in layer {layer}"
            for layer, value in zip(layers, second_modulus[i], strict=True)
            if layer > 1 and value >= radius
        ]
        prevented = [
            f"sr - 1 = {excess[i][j][k]:.2g} in layer {layer} with {module.removeprefix('A + ')}"
            for j, module in enumerate(modules)
            for k, layer in enumerate(layers)
            if excess[i][j][k] >= near
        ]
        fails[scale] = closed + prevented
    details = "; ".join(f"{scale} weights: {_list(broken)}" for scale, broken in fails.items())
    found = f"medians that break it (abs(lambda_2) at T = {spectrum_tokens}, sr at {largest}), {details}"
    if PUBLISHED in fails and not fails[PUBLISHED]:
        return Ruling(HOLDS, found)
    true_of = [scale for scale, broken in fails.items() if not broken]
    return Ruling(CONDITION, f"true with {', '.join(true_of)} weights; {found}") if true_of else Ruling(FALSE, found)


def _list(broken: Sequence[str]) -> str:
    return ", ".join(broken[:3]) + (f" and {len(broken) - 3} more" if len(broken) > 3 else "") if broken else "none"
