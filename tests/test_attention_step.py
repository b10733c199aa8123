"""The measurement: its axes, its constructed cases, and the laws every draw must obey."""

import dataclasses
import math

import pytest
import torch

from rankcollapse.measurements.attention_step import measure
from rankcollapse.settings.dong import AttentionStep

SETTINGS = AttentionStep(
    shapes=((3, 4), (8, 8)),
    runs=2,
    heads=2,
    inits=("xavier", "bert"),
    logit_gains=(1.0, 16.0),
    mean_sizes=(0.0, 1.0),
    hull_rows=1,
    markov_tokens=6,
    markov_layers=40,
    logit_variance=1.0,
    scale_decades=(-6, 0),
    scale_points=7,
    residual_decades=(-4, 1),
    residual_points=6,
    search_tokens=(2, 3),
    search_steps=40,
)
SMALL = dataclasses.replace(SETTINGS, shapes=((3, 4),), runs=1, inits=("xavier",), search_steps=1)
EXACT = 1e-12  # round-off, a few thousand eps
SHAPES = {
    "hull/distance": (3, 2, 2, 2),
    "hull/separation": (3, 2, 2, 2),
    "spread/ratio": (2, 3, 2, 2, 2),
    "spread/coordinate_ratio": (2, 2, 2),
    "spread/dobrushin": (2, 2, 2),
    "spread/value_norm": (2, 2),
    "growth/ratio": (2,),
    "growth/bound": (2,),
    "growth/tokens": (3, 1),
    "growth/attention": (2, 3, 3),
    "growth/example_ratio": (2,),
    "fixed/log_ratio": (5, 2, 2, 41),
    "fixed/log_worst": (5, 2, 2, 41),
    "fixed/subdominant": (5, 2),
    "fixed/rate": (5, 2, 2),
    "fixed/nilpotent": (3, 3),
    "fixed/nilpotent_norms": (4,),
    "fixed/path_log_ratio": (21,),
    "fixed/path_expected": (21,),
    "shift/difference": (2, 2, 2, 2),
    "shift/formula": (2, 2, 2, 2, 2),
    "shift/largest_logit": (2, 2, 2, 2),
    "shift/example": (2, 2, 2),
    "uniform/scale": (7,),
    "uniform/deviation": (2, 7, 2),
    "uniform/leading": (2, 2),
    "uniform/by_residual": (2, 2, 2, 6, 2),
    "cubic/norm": (6,),
    "cubic/next_norm": (3, 2, 2, 2, 6, 2),
    "cubic/ratio": (3, 2, 2, 2, 6, 2),
    "cubic/leading_error": (2, 2, 2, 2, 6, 2),
    "cubic/logit": (6,),
    "cubic/pair": (2, 6),
    "cubic/extremes": (2, 6),
    "cubic/search": (2, 2),
}


@pytest.fixture(scope="module")
def found() -> dict[str, torch.Tensor]:
    return measure(SETTINGS, device=torch.device("cpu"), seed=0)


def test_axes(found):
    assert {name: tuple(values.shape) for name, values in found.items()} == SHAPES
    assert all(values.dtype == torch.float64 and values.is_contiguous() for values in found.values())


def test_averages_stay_inside_and_values_lead_outside(found):
    attention, values, own = found["hull/distance"]
    assert attention.max() < 1e-8  # the solver's tolerance of 1e-9, over a diameter of several
    assert own.max() < 1e-8
    assert (found["hull/separation"][1] > 0.01).any()
    assert (values >= found["hull/separation"][1] - EXACT).all()


def test_spreads_obey_dobrushin_and_the_growth_bound(found):
    diameter, coordinate_range, residual = found["spread/ratio"][0]
    for ratio in (diameter, coordinate_range, found["spread/coordinate_ratio"]):
        assert (ratio <= found["spread/dobrushin"] * (1 + EXACT)).all()
    assert (residual <= found["growth/bound"][:, None, None] * (1 + EXACT)).all()
    # W_V W_O scales every distance by at most its norm.
    assert (found["spread/ratio"][1, 0] <= diameter * found["spread/value_norm"][:, None] * (1 + EXACT)).all()


def test_three_tokens_spread_by_hand(found):
    # W_QK = 1: logits of token -3 are (9, 3, -3), of -1 (3, 1, -1), of 1 (-3, -1, 1).
    rows = [[math.exp(x * y) for y in (-3, -1, 1)] for x in (-3, -1, 1)]
    after = [sum(w * y for w, y in zip(row, (-3, -1, 1), strict=True)) / sum(row) for row in rows]
    squares = sum((y - sum(after) / 3) ** 2 for y in after)
    assert found["growth/example_ratio"][0].item() == pytest.approx((squares / 8) ** 0.5, rel=EXACT)
    assert found["growth/example_ratio"][0] > 1.02
    assert found["growth/ratio"] == pytest.approx(found["growth/bound"], rel=1e-5)  # offset 1e-3, squared, times n / 2


def test_constant_one_holds_for_symmetric_matrices_only(found):
    symmetric, reversible, _, _, path = found["fixed/log_worst"]
    assert symmetric.abs().max() < 1e-9  # an equality; 40 layers times the eigenvalue's round-off
    assert reversible.max() > 1e-3
    assert path.max() > 1
    assert (found["fixed/log_ratio"] <= found["fixed/log_worst"] + 1e-9).all()


def test_rate_is_the_subdominant_eigenvalue_where_it_is_simple(found):
    ratio = found["fixed/rate"] / found["fixed/subdominant"][:, None]
    assert (ratio[[0, 1, 3]] - 1).abs().max() < 0.02  # real eigenvalues; 20 layers of a gap that random draws leave
    assert ratio[4].min() > 1.05  # a Jordan block of size 5: l^4 on top of 2^-l over 40 layers


def test_nilpotent_example_by_hand(found):
    markov = found["fixed/nilpotent"]
    assert (markov > 0).all()
    assert markov.sum(-1).tolist() == pytest.approx([1, 1, 1], abs=EXACT)
    assert found["fixed/nilpotent_norms"].tolist() == pytest.approx([1, 0.9 * (4 / 3) ** 0.5, 0, 0], abs=EXACT)


def test_path_example_is_the_closed_form(found):
    torch.testing.assert_close(found["fixed/path_log_ratio"], found["fixed/path_expected"], atol=EXACT, rtol=0)


def test_shifts(found):
    per_row, per_column = found["shift/difference"]
    assert per_row.max() < EXACT
    assert per_column.min() > 1e-3
    assert found["shift/example"][0].flatten().tolist() == pytest.approx([0.5] * 4, abs=EXACT)
    assert found["shift/example"][1].flatten().tolist() == pytest.approx([0.25, 0.75] * 2, abs=EXACT)
    complete, dropped = found["shift/formula"]
    assert (complete < EXACT * (1 + found["shift/largest_logit"])).all()
    assert dropped[:, :, 0].max() < 1e-10  # no mean token: nothing is dropped
    assert dropped[:, :, 1].max() > 0.1


def test_zero_logit_limit(found):
    slope = found["uniform/deviation"].log().diff(dim=1) / math.log(10)
    assert slope[:, :3] == pytest.approx(
        torch.ones(2, 3, 2).numpy(), abs=1e-3
    )  # corrections of relative size s <= 1e-3
    smallest = found["uniform/deviation"][:, 0] / found["uniform/scale"][0]
    torch.testing.assert_close(smallest, found["uniform/leading"], atol=0, rtol=1e-4)  # relative correction of order s


def slope(values: torch.Tensor) -> torch.Tensor:
    return values.log10().diff(dim=-2)  # the norms are one decade apart


def test_attention_becomes_uniform_quadratically_only_without_a_mean(found):
    without, with_mean = slope(found["uniform/by_residual"])[..., 0, :]
    assert (without - 2).abs().max() < 0.01
    assert (with_mean - 1).abs().max() < 0.01


def test_one_step_is_cubic_and_linear_with_a_position_bias(found):
    full, causal, alibi = slope(found["cubic/next_norm"])[..., 0, :]
    assert (full - 3).abs().max() < 0.01
    assert (causal - 1).abs().max() < 0.01
    assert (alibi - 1).abs().max() < 0.01


def test_cubic_bound(found):
    for name in ("cubic/pair", "cubic/extremes", "cubic/search"):
        assert found[name].max() <= 0.5 * (1 + 1e-10), name
    assert found["cubic/ratio"][0].max() <= 0.5 * (1 + 1e-10)
    assert found["cubic/ratio"][1:].max() > 0.5  # a position bias breaks it
    assert found["cubic/pair"][:, 0] == pytest.approx(torch.full((2,), 0.5).numpy(), rel=1e-5)  # it cannot be lowered
    assert found["cubic/search"][1].max() > 1 / 3  # ascent from Gaussian tokens passes 1/n at n = 3


def test_same_seed_same_numbers_on_any_number_of_threads(found):
    threads = torch.get_num_threads()
    torch.set_num_threads(3 - min(threads, 2))
    try:
        again = measure(SETTINGS, device=torch.device("cpu"), seed=0)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[name], again[name]) for name in found)


def test_another_seed_draws_other_numbers():
    first, second = (measure(SMALL, device=torch.device("cpu"), seed=seed) for seed in (0, 1))
    assert not torch.equal(first["spread/ratio"], second["spread/ratio"])


def test_underflow_is_named():
    huge = dataclasses.replace(SMALL, mean_sizes=(1e6,), residual_decades=(4, 6), residual_points=2)
    with pytest.raises(FloatingPointError, match=r"cubic/leading_error is not finite at index \[0, 0, "):
        measure(huge, device=torch.device("cpu"), seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shapes": ((3, 5),)}, r"\(3, 5\).*divisible by heads = 2"),
        ({"shapes": ((1, 4),)}, r"\(1, 4\) needs at least 2 tokens"),
        ({"residual_decades": (2.0, 1.0)}, "residual_decades.*must rise"),
        ({"mean_sizes": (-1.0,)}, "greater than or equal to 0"),
    ],
)
def test_settings_refuse(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SETTINGS, **change)
