import numpy as np
import pytest
import torch
from pydantic import ValidationError

from rankcollapse import agreement, published
from rankcollapse.gradients import Variant
from rankcollapse.measurements import gradient_norms, logit_gradient_norms
from rankcollapse.settings.gap import GradientNorms, LogitGradientNorms

CONFIGS = (
    "A(X)",
    "A(X) + LN",
    "A(X) + skip",
    "A(X) + skip + LN",
    "A(X)_perp",
    "A(X)_perp + LN",
    "A(X)_perp + skip",
    "A(X)_perp + skip + LN",
)
CPU = torch.device("cpu")


def small(**changes):
    return GradientNorms(**({"configs": CONFIGS, "sizes": ((6, 4), (9, 3))} | changes))


@pytest.fixture(scope="module")
def measured():
    return gradient_norms.measure(small(), device=CPU, seed=0)


def test_axes(measured):
    names = [f"{name}{part}" for name in ("as_defined", "as_plotted") for part in ("", "/frozen")]
    assert set(measured) == {f"{name}/{size}" for name in names for size in (6, 9)}
    assert all(values.shape == (8, 4 if key.endswith("/6") else 3) for key, values in measured.items())
    assert all(values.dtype == torch.float64 and values.is_contiguous() for values in measured.values())


def test_numbers_do_not_depend_on_how_runs_are_batched(measured, monkeypatch):
    monkeypatch.setattr(gradient_norms, "ENTRIES_AT_ONCE", 1)
    alone = gradient_norms.measure(small(), device=CPU, seed=0)
    for key, values in alone.items():
        torch.testing.assert_close(values, measured[key], rtol=1e-10, atol=1e-10)  # order of sums only


def test_more_sizes_runs_and_fewer_configs_have_the_same_numbers(measured):
    part = gradient_norms.measure(small(configs=CONFIGS[5:2:-1], sizes=((9, 2), (5, 2))), device=CPU, seed=0)
    torch.testing.assert_close(part["as_defined/9"], measured["as_defined/9"][[5, 4, 3], :2], rtol=1e-10, atol=1e-10)


def test_tokens_are_orthonormal_and_weights_standard():
    start, heads = gradient_norms.draw(0, 60, range(2), CPU)
    torch.testing.assert_close(start @ start.mT, torch.eye(60, dtype=torch.float64).expand(2, 60, 60))
    entries = torch.stack([torch.stack(head) for head in heads])
    assert abs(entries.std() - 1) < 0.02  # 43200 entries: 1/sqrt(86400) = .0034
    assert not torch.equal(start[0], start[1])


def test_labels_name_their_blocks():
    assert gradient_norms.variant_of("A(X)") == Variant()
    assert gradient_norms.variant_of("A(X)_perp + skip + LN") == Variant(centred=True, skip=True, norm=True)


def test_plotted_skip_is_doubled():
    start, heads = gradient_norms.draw(0, 6, range(2), CPU)
    variant = Variant(skip=True)
    first = gradient_norms.linearise(start, heads[0], variant)
    second = gradient_norms.linearise(start, heads[1], variant)
    plain = gradient_norms.transposed_gradient(first, second)
    assert torch.equal(gradient_norms.gradients(variant, start, heads)["as_plotted"], 4 * plain)


def test_the_plotted_recipe_agrees_with_the_published_means_at_twenty_tokens():
    runs = gradient_norms.measure(small(sizes=((20, 30), (5, 2))), device=CPU, seed=0)["as_plotted/20"].numpy()
    curves = [published.curve("fig_VIII", "T", "log_grad", {"config": config}) for config in CONFIGS]
    theirs = np.array([curve.loc[20, "mean"] for curve in curves])
    # 8 values of |z| with 29 degrees of freedom: one above 4 in about 300 tries
    assert (np.abs(agreement.z_score(theirs, runs.T, 5)) < 4).all()


def test_queries_and_keys_share_the_draws(measured):
    settings = LogitGradientNorms(configs=CONFIGS[:2], sizes=((6, 2), (5, 2)))
    logits = logit_gradient_norms.measure(settings, device=CPU, seed=0)
    assert {key: tuple(values.shape) for key, values in logits.items()} == {
        f"{name}/{size}": (2, 2) for name in ("queries", "keys") for size in (6, 5)
    }
    start, heads = gradient_norms.one_run(0, 6, 1, CPU)
    first = gradient_norms.linearise(start, heads[0])
    second = gradient_norms.linearise(first.output, heads[1])
    assert logits["queries/6"][0, 1] == logit_gradient_norms.logit_gradients(first, second)[0].log()
    assert measured["as_defined/6"][0, 1] == pytest.approx(
        gradient_norms.value_gradient(first, second).log().item(), abs=1e-10
    )


def test_non_finite_norms_are_named():
    with pytest.raises(FloatingPointError, match=r"gradient_norms: as_defined of A\(X\) \+ LN at T = 6 is not finite"):
        gradient_norms.require_finite("gradient_norms: as_defined", CONFIGS[:2], 6, torch.tensor([[1.0], [-torch.inf]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": ((6, 4), (6, 3))}, "sizes: 6, 6; each at most once"),
        ({"configs": ("A(X)", "A(X)")}, "configs: A\\(X\\), A\\(X\\); each at most once"),
        ({"sizes": ((6, 1), (9, 3))}, "greater than or equal to 2"),
        ({"sizes": ((6, 4),)}, "at least 2 items"),
        ({"configs": ("A",)}, "Input should be 'A\\(X\\)'"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValidationError, match=message):
        small(**changes)
