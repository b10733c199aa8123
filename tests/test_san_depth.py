"""The measurement ``san_depth`` at small size: what it returns, and that the theory's laws can be read from it."""

from dataclasses import asdict, replace

import pytest
import torch
from pydantic import ValidationError

from rankcollapse.measurements.san_depth import UNIT_ROUNDOFF, _at, measure, second_eigenvalue
from rankcollapse.settings.dong import SanDepth

SMALL = SanDepth(
    tokens=16,
    width=48,
    heads=4,
    layers=7,
    runs=2,
    side_runs=2,
    inits=("xavier", "bert"),
    inputs=("mean", "iid"),
    gains=(0.1, 1.0, 1000.0),
    ladder_top=0,
    ladder_bottom=-8,
    contrast_layers=40,
    alibi_slope=1.0,
    frozen_logit_stds=(0.5, 1.0),
    mlp_layers=7,
    mlp_ratio=2,
    activations=("relu", "gelu"),
    skip_layers=60,
    skip_inits=("xavier",),
)


@pytest.fixture(scope="module")
def measured() -> dict[str, torch.Tensor]:
    return measure(SMALL, device=torch.device("cpu"), seed=0)


def test_every_tensor_has_the_axes_of_the_docstring(measured: dict[str, torch.Tensor]) -> None:
    by_layer, ladder = (2, 2, 2, 8), (4, 2, 2, 9)
    assert {name: tuple(tensor.shape) for name, tensor in measured.items()} == {
        **dict.fromkeys(
            (
                "depth/log_norm",
                "depth/log10_relative",
                "depth/log10_relative_composite",
                "depth/log10_stable_rank_excess",
                "depth/log10_effective_rank_excess",
                "depth/relative_float32",
                "depth/relative_float64",
            ),
            by_layer,
        ),
        "depth/order": (2, 2, 2, 6),
        "depth/log10_logit_quadratic": (2, 2, 2, 7),
        "depth/log10_logit_spread": (2, 2, 2, 7),
        "gain/log10_relative": (2, 2, 3, 2, 8),
        "gain/first_below": (2, 2, 3, 2),
        "ladder/norm": (9,),
        "ladder/log_norm_out": ladder,
        "ladder/slope": (4, 2, 2, 8),
        "ladder/deviation": (2, 2, 2, 9),
        "ladder/deviation_softmax": (2, 2, 2, 9),
        "contrast/log_norm": (5, 2, 41),
        "contrast/lambda2": (5, 2),
        "contrast/predicted_lambda2": (2,),
        "mlp/log_norm": (2, 2, 2, 2, 8),
        "mlp/log10_relative": (2, 2, 2, 2, 8),
        "mlp/order": (2, 2, 2, 2, 6),
        "skip/log_norm": (1, 2, 61),
        "skip/log10_relative": (1, 2, 61),
        "skip/value_gain": (1, 2),
    }
    assert all(t.is_contiguous() and t.device.type == "cpu" and bool(t.isfinite().all()) for t in measured.values())


def test_a_plain_pass_agrees_until_round_off_and_then_stops_falling(measured: dict[str, torch.Tensor]) -> None:
    exact = 10 ** measured["depth/log10_relative"]
    for name, unit in (("depth/relative_float32", 2.0**-24), ("depth/relative_float64", 2.0**-53)):
        plain = measured[name]
        seen = exact > 1e3 * unit
        assert seen[..., :2].all()
        # Rounding adds a few units to relF: below 2 % of a residual a thousand units large
        assert ((plain - exact).abs()[seen] < 20 * unit).all()
        assert (plain[..., -1] < 100 * unit).all()
    assert (exact[..., -1] < 1e-300).all()  # where the plain passes stay at 1e-7 and 1e-16


def test_the_residual_falls_with_order_three(measured: dict[str, torch.Tensor]) -> None:
    # At 48 channels the constant of one layer scatters by a few tenths in ln, against steps of hundreds at layer 5
    assert (measured["depth/order"][..., -2:] - 3).abs().max() < 0.02
    assert (measured["mlp/order"][..., -1] - 3).abs().max() < 0.05


def test_ranks_exceed_one_by_a_finite_logarithm(measured: dict[str, torch.Tensor]) -> None:
    relative = measured["depth/log10_relative"][..., -1]
    stable = measured["depth/log10_stable_rank_excess"][..., -1]
    effective = measured["depth/log10_effective_rank_excess"][..., -1]
    # sr - 1 = sum of the small σ² over σ_1²: between relF² / 2 and relF², less what lies along the mean token
    assert ((stable - 2 * relative).abs() < 1).all()
    assert ((effective > relative) & (effective < relative + 5)).all()  # H = relF x ln(1 / relF) x at most sqrt(n)


def test_only_the_quadratic_part_of_the_logits_shrinks_quadratically(measured: dict[str, torch.Tensor]) -> None:
    log10_norm = (measured["depth/log_norm"] / torch.log(torch.tensor(10.0)))[..., :-1]
    for name, power in (("log10_logit_quadratic", 2), ("log10_logit_spread", 1)):
        ratio = measured[f"depth/{name}"].diff(dim=-1) / log10_norm.diff(dim=-1)
        # The last step spans some hundred decades, in which weights differ by a factor of a few
        assert (ratio[..., -1] - power).abs().max() < 0.02


def test_the_gain_moves_the_first_layer_below_round_off(measured: dict[str, torch.Tensor]) -> None:
    first, relative = measured["gain/first_below"], measured["gain/log10_relative"]
    assert first.dtype == torch.int64
    # Gain 1 is the same network. 1e-12: a larger batch sums in another order, and seven layers triple that
    torch.testing.assert_close(relative[:, :, 1], measured["depth/log10_relative"], rtol=1e-12, atol=1e-12)
    assert (first[:, :, 0] <= first[:, :, 1]).all()
    assert torch.equal(first == -1, (10**relative >= UNIT_ROUNDOFF).all(-1))
    assert (first[0, :, 2] == -1).any()  # xavier with W_QK a thousand times larger may not get there in seven layers
    for index in (first > 0).nonzero().tolist():
        layer, curve = int(first[tuple(index)]), 10 ** relative[tuple(index)]
        assert curve[layer] < UNIT_ROUNDOFF <= curve[layer - 1]


def test_one_layer_has_order_three_or_one_and_the_leading_term(measured: dict[str, torch.Tensor]) -> None:
    small = measured["ladder/norm"] < 0.02
    slope = measured["ladder/slope"][..., small[:-1]]
    assert (slope[:2] - 3).abs().max() < 0.01
    assert (slope[2:] - 1).abs().max() < 0.01
    decades = measured["ladder/deviation"][..., 1:4].log10().diff(dim=-1)  # norms 0.1, 0.01, 0.001
    assert (decades[0] + 1).abs().max() < 0.05  # r != 0: one decade a decade, the next order is 0.1 of it or less
    assert (decades[1] + 2).abs().max() < 0.05  # r = 0: two
    assert (measured["ladder/deviation_softmax"][..., 1:3].log10().diff(dim=-1) + 2).abs().max() < 0.05


def test_masks_and_frozen_attention_collapse_at_their_second_eigenvalue(measured: dict[str, torch.Tensor]) -> None:
    log_norm, lambda2 = measured["contrast/log_norm"], measured["contrast/lambda2"]
    rate = ((log_norm[..., -1] - log_norm[..., -11]) / 10).exp()
    assert (rate[1] - 0.5).abs().max() < 0.005  # causal: 1, 1/2, 1/3, ..., so (2/3)^30 is left of the next
    assert lambda2[1].tolist() == pytest.approx([0.5, 0.5], abs=1e-12)
    assert (rate[2] / lambda2[2] - 1).abs().max() < 0.02  # ALiBi: real, but the next eigenvalue is close
    # Frozen: a complex pair beats against the norm, by a factor of a few over ten layers at most
    assert ((rate[3:] / lambda2[3:]).log().abs() < 0.1).all()
    assert (log_norm[0, :, -1] < -1e10).all()  # full attention: 3^40


def test_second_eigenvalue_by_hand() -> None:
    stochastic = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64)
    assert second_eigenvalue(stochastic).item() == pytest.approx(0.5, abs=1e-15)


def test_a_skip_keeps_the_residual_but_not_its_share(measured: dict[str, torch.Tensor]) -> None:
    log_norm, relative = measured["skip/log_norm"], measured["skip/log10_relative"]
    assert (log_norm[..., -1] - log_norm[..., 0]).abs().max() < 1
    rate = 10 ** ((relative[..., 60] - relative[..., 20]) / 40)
    predicted = (1 + measured["skip/value_gain"]) ** -0.5
    # ‖x + W x‖² / ‖x‖² is 2 with variance 4/d (the cross term) + 4/d (‖W x‖², two matrices): 0.10 in ln ‖x‖ a layer at
    # 48 channels, 0.016 in the mean of 40; four of them
    assert (rate / predicted).log().abs().max() < 0.065


def test_equal_seeds_give_equal_tensors(measured: dict[str, torch.Tensor]) -> None:
    few = replace(SMALL, runs=1, side_runs=1, contrast_layers=2, skip_layers=2)
    first, second = (measure(few, device=torch.device("cpu"), seed=seed) for seed in (0, 1))
    assert torch.equal(first["depth/log_norm"], measured["depth/log_norm"][:, :, :1])  # a run does not depend on others
    assert not torch.equal(first["depth/log_norm"], second["depth/log_norm"])


def test_a_floating_point_error_names_its_grid_point() -> None:
    with pytest.raises(FloatingPointError, match="san_depth, init bert, layer 3: zero"), _at(init="bert", layer=3):
        raise FloatingPointError("zero")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 5}, "heads: 5 does not divide width 48"),
        ({"ladder_bottom": 0}, "ladder_bottom: 0 is not below"),
        ({"inits": ("zero",)}, "xavier"),
        ({"gains": (-1.0,)}, "greater than 0"),
        ({"layers": 1}, "greater than or equal to 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SanDepth(**(asdict(SMALL) | change))
