"""Each judge against numbers made by hand: every verdict it can give, and the numbers in its reason."""

from pathlib import Path

import pytest

from rankcollapse.catalogue import load_catalogue
from rankcollapse.judges import judge_of
from rankcollapse.verdicts import CONDITION, FALSE, HOLDS, NOT_RUN, Ruling, Verdict, summary

CATALOGUE = load_catalogue(Path(__file__).parents[1])
KINDS = ["symmetric", "softmax", "causal", "lazy path"]
GAP = {"lengths": [75, 446], "leading_error": 1e-15, "bulk_radius": [0.04, 0.02], "off_diagonal_share": 0.3}
SPECTRA = {
    "ratios": [0.5, 2],
    "leading_error": 1e-15,
    "bulk_radius": [[0.1, 0.05]] * 2,
    "circular_distance": [0.02, 0.2],
}
CONFIGS = ["A", "A + LN", "A_perp", "Identity A"]
RANKS = {"configs": CONFIGS, "last_stable_rank": [1.0, 1.001, 2.0, 3.0], "recent_fall": [0, 0, 0.01, 0.01]}
RANKS |= {"fall_error": [0, 0, 0.1, 0.1]}
RESIDUALS = {"configurations": ["a", "b"], "kept_share": [0.2, 0.9], "late_share": [0.97, 0.99]}
OUTSIDE = {"widths": [2, 64], "tokens": 64, "outside": [0.2, 1.0], "outside_linear": [0.0, 0.0]}

CASES = [
    ("S01", {"hull_distance": 1e-10, "range_ratio": 1, "frobenius_ratio": 0.9, "value_ratio": 1.0}, HOLDS, "every row"),
    ("S01", {"hull_distance": 1e-10, "range_ratio": 1, "frobenius_ratio": 8, "value_ratio": 0.5}, CONDITION, "8 times"),
    (
        "S01",
        {"hull_distance": 0.1, "range_ratio": 1, "frobenius_ratio": 1, "value_ratio": 1},
        FALSE,
        "outside the hull",
    ),
    ("S01", {"hull_distance": 0, "range_ratio": 1.1, "frobenius_ratio": 1, "value_ratio": 1}, FALSE, "1.1 times"),
    ("S02", {"kinds": KINDS, "worst_ratio": [1, 1, 1, 1], "rate": [1, 1, 1, 1]}, HOLDS, "causal 1"),
    ("S02", {"kinds": KINDS, "worst_ratio": [1, 1, 1, 99], "rate": [1, 1, 1, 2]}, CONDITION, "lazy path 99"),
    ("S02", {"kinds": KINDS, "worst_ratio": [1, 3, 70, 99], "rate": [1, 1, 1, 2]}, FALSE, "softmax 3"),
    ("S03", {"per_row": 1e-16, "per_column": 1e-16, "without_r": 0}, HOLDS, "1 c^T"),
    ("S03", {"per_row": 1e-16, "per_column": 0.7, "without_r": 1}, FALSE, "0.7"),
    ("S04", {"uniform_slope": 1, "all_slope": 2, "row_slope": 2}, HOLDS, "norm(R)^2.00"),
    ("S04", {"uniform_slope": 1, "all_slope": 1, "row_slope": 2}, CONDITION, "norm(R)^1.00"),
    ("S04", {"uniform_slope": 1, "all_slope": 1, "row_slope": 1}, FALSE, "norm(R)^1.00"),
    ("S05", {"largest_ratio": 0.5}, HOLDS, "1.0000"),
    ("S05", {"largest_ratio": 0.51}, FALSE, "1.0200"),
    ("S06", {"order_low": 2.95, "order_high": 3, "gains_without_collapse": [], "masked_slope": 3}, HOLDS, "2.950"),
    ("S06", {"order_low": 2.95, "order_high": 3, "gains_without_collapse": [30.0], "masked_slope": 1}, CONDITION, "30"),
    ("S06", {"order_low": 2.5, "order_high": 3, "gains_without_collapse": [], "masked_slope": 3}, FALSE, "2.500"),
    ("S07", {"inits": ["a", "b"], "first_layers": [5, 7], "first_layers_by_gain": []}, HOLDS, "a 5, b 7"),
    ("S07", {"inits": ["a", "b"], "first_layers": [3, 6], "first_layers_by_gain": []}, CONDITION, "a 3"),
    ("S07", {"inits": ["a", "b"], "first_layers": [3, -1], "first_layers_by_gain": []}, FALSE, "b -1"),
    ("S08", {"log10_residual_last": float("-inf"), "log10_effective_rank_excess_last": float("-inf")}, HOLDS, "zero"),
    ("S08", {"log10_residual_last": -3e5, "log10_effective_rank_excess_last": -3e5}, FALSE, "10^-300000"),
    ("S11", RESIDUALS, CONDITION, "only with b:"),
    ("S11", RESIDUALS | {"kept_share": [0.6, 0.9]}, HOLDS, "a 0.6 (0.97)"),
    ("S11", RESIDUALS | {"late_share": [0.97, 0.9]}, FALSE, "b 0.9 (0.9)"),
    ("S12", {"activations": ["relu"], "tail_order_low": 1.0, "tail_order_high": 1.05}, HOLDS, "relu"),
    ("S13", RESIDUALS | {"cosine": [0.2, 0.9]}, CONDITION, "0.20 to 0.90"),
    ("S14", OUTSIDE | {"outside": [0.96, 1]}, HOLDS, "width 2: 0.96"),
    ("S14", OUTSIDE | {"outside_linear": [0, 1]}, CONDITION, "up to 1.00"),
    ("S14", OUTSIDE, CONDITION, "number of tokens, 64"),
    ("S14", OUTSIDE | {"outside": [0.2, 0.4]}, FALSE, "width 64: 0.40"),
    ("S12", {"activations": ["relu"], "tail_order_low": 2.99, "tail_order_high": 3.0}, FALSE, "doubly"),
    ("S12", {"activations": ["relu"], "tail_order_low": 1.0, "tail_order_high": 3.0}, CONDITION, "1.000 to 3.000"),
    ("M01", GAP, HOLDS, "0.020 at T = 446"),
    ("M01", GAP | {"bulk_radius": [0.6, 0.02]}, CONDITION, "0.600"),
    ("M01", GAP | {"off_diagonal_share": 0.01}, CONDITION, "nearly orthogonal"),
    ("M01", GAP | {"leading_error": 0.1}, FALSE, "next modulus"),
    ("M07", RANKS, HOLDS, "1.0010"),
    ("M07", RANKS | {"recent_fall": [0, 0, 0.3, 0.1]}, CONDITION, "A_perp (2.00)"),
    ("M07", RANKS | {"last_stable_rank": [1, 1.2, 2, 3]}, FALSE, "1.2000"),
    ("M07", RANKS | {"last_stable_rank": [1, 1, 1.2, 3]}, FALSE, "1.20"),
    ("M09", SPECTRA, HOLDS, "0.200 at 2"),
    ("M09", SPECTRA | {"circular_distance": [0.1, 0.2]}, CONDITION, "0.100 at 0.5"),
    ("M09", SPECTRA | {"bulk_radius": [[0.1, 0.2]] * 2}, FALSE, "does not widen"),
    ("M09", SPECTRA | {"bulk_radius": [[0.9, 0.8]] * 2}, FALSE, "0.900"),
]


@pytest.mark.parametrize(("claim", "measured", "verdict", "words"), CASES)
def test_a_judge_decides_by_its_criterion(claim, measured, verdict, words):
    ruling = judge_of(CATALOGUE.judge_of(claim), claim)(**measured, **CATALOGUE.claims[claim].limits)
    assert ruling.verdict == verdict
    assert words in ruling.reason


def test_every_judge_is_tested_here_or_in_another_file():
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__))
    judged = {claim for figure in CATALOGUE.figures.values() for claim in figure.claims}
    for claim in judged - {case[0] for case in CASES}:
        assert f"{claim.lower()}(" in tests or f'"{claim}"' in tests, claim


def test_a_ruling_is_one_of_four():
    with pytest.raises(ValueError, match="'maybe'; allowed: holds, holds with a condition, false as written, not run"):
        Ruling("maybe", "")


def test_a_verdict_is_read_as_written(tmp_path):
    verdict = Verdict("S01", HOLDS, "because", "if so", {"x": [1.5, 2]}, "dong_step", {"m": {"seed": 1}})
    verdict.save(tmp_path / "verdicts/S01.json")
    assert Verdict.load(tmp_path / "verdicts/S01.json") == verdict


def test_the_summary_fits_the_terminal():
    long = Verdict("S01", CONDITION, "word " * 60, "", {}, None, {})
    short = Verdict("M20", NOT_RUN, "no figure", "", {}, None, {})
    first, second = summary([long, short], width=80).splitlines()
    assert len(first) == 80
    assert first.endswith("…")
    assert second == f"M20  {NOT_RUN:{len(CONDITION)}}  no figure"
