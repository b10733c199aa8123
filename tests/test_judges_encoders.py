"""The judges of the encoder figures on numbers made up to fall on each side of every limit."""

import pytest

from rankcollapse.catalogue import load_catalogue
from rankcollapse.judges import judge_of
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS

M02 = {
    "lengths": [75, 282],
    "off_diagonal_share": [0.01, 0.02],
    "stable_rank_share": [0.9, 0.6],
    "leading_error": 1e-7,
    "bulk_radius": [0.1, 0.05],
}
M03 = {
    "length": 437,
    "leading_error": 1e-7,
    "bulk_radius": 0.02,
    "embedded": 0.1,
    "attended": 0.04,
    "embedded_unshared": 40.0,
    "attended_unshared": 38.0,
}
M04 = {
    "lengths": [70, 980],
    "diagonal_error": 0.0,
    "largest_imaginary": 0.0,
    "second_eigenvalue": [0.5, 0.2],
    "second_exponent": 0.35,
    "singular_ratio": [0.6, 0.3],
}
M05 = {
    "layers": [1, 12],
    "longest": 446,
    "original": [0.02, 0.003],
    "centred": [0.03, 0.02],
    "centred_low": [[0.01, 0.02], [0.01, 0.02]],
    "fixed_low": [[0.01, 0.02], [0.01, 0.02]],
    "original_exponent": [0.6, 0.6],
    "centred_exponent": [0.5, 0.4],
}
M06 = {"layer": 12, "original": 0.004, "centred": 0.05, "no_attention": 0.02, "fixed": 0.4, "centred_low": 0.01}
M18 = {
    "layer": 12,
    "width": 2.0,
    "depth": 100.0,
    "depth_of_first_layer": 20.0,
    "centred_width": 1.2,
    "centred_depth": 5.0,
    "scaled_depth": 1e-20,
}
NEGATIVE = [[-0.01, -0.02], [-0.01, -0.02]]
CASES = [
    ("M02", M02, {}, HOLDS),
    ("M02", M02, {"stable_rank_share": [0.9, 0.01]}, CONDITION),
    ("M02", M02, {"off_diagonal_share": [0.01, 0.3]}, FALSE),
    ("M02", M02, {"bulk_radius": [0.1, 0.6]}, FALSE),
    ("M03", M03, {}, HOLDS),
    ("M03", M03, {"attended": 0.09, "attended_unshared": 10.0}, CONDITION),
    ("M03", M03, {"attended": 0.09}, FALSE),
    ("M03", M03, {"bulk_radius": 0.7}, FALSE),
    ("M04", M04, {}, HOLDS),
    ("M04", M04, {"singular_ratio": [0.6, 0.7]}, CONDITION),
    ("M04", M04, {"second_exponent": 0.0}, FALSE),
    ("M04", M04, {"diagonal_error": 1e-3}, FALSE),
    ("M05", M05, {}, HOLDS),
    ("M05", M05, {"centred_exponent": [0.5, 0.7]}, CONDITION),
    ("M05", M05, {"centred_low": NEGATIVE}, CONDITION),
    ("M05", M05, {"centred_low": NEGATIVE, "fixed_low": NEGATIVE}, FALSE),
    ("M06", M06, {}, HOLDS),
    ("M06", M06, {"centred": 0.02}, CONDITION),
    ("M06", M06, {"centred_low": -0.01}, FALSE),
    ("M06", M06, {"centred": 0.02, "fixed": 0.03}, FALSE),
    ("M18", M18, {}, HOLDS),
    ("M18", M18, {"depth_of_first_layer": 1.5}, CONDITION),
    ("M18", M18, {"width": 5.0}, FALSE),
    ("M18", M18, {"depth": 5.0}, FALSE),
]


@pytest.mark.parametrize(("claim", "numbers", "changes", "verdict"), CASES)
def test_verdicts(claim, numbers, changes, verdict):
    catalogue = load_catalogue()
    ruling = judge_of(catalogue.judge_of(claim), claim)(**numbers | changes, **catalogue.claims[claim].limits)
    assert ruling.verdict == verdict
    assert "nan" not in ruling.reason
