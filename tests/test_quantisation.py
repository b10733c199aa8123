import pytest
import torch

from rankcollapse.quantisation import LEVELS, SCALES, absmax_int8, entry_range, rounding_error
from rankcollapse.randomness import generator


def normal(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=generator(0, "test_quantisation", *size), dtype=torch.float64)


def test_by_hand():
    x = torch.tensor([[127.0, 0.4, -63.6], [1.0, 0.004, 0.0]], dtype=torch.float64)
    assert absmax_int8(x, "tensor").tolist() == [[127, 0, -64], [1, 0, 0]]
    # second row: steps of 1/127 = .00787, and .004 is .508 of one
    assert absmax_int8(x, "token")[1].tolist() == pytest.approx([1, 1 / 127, 0], abs=1e-15)
    size = (127**2 + 0.4**2 + 63.6**2 + 1 + 0.004**2) ** 0.5
    lost = (0.4**2 + 0.4**2 + 0.004**2) ** 0.5
    assert rounding_error(x, "tensor").item() == pytest.approx(lost / size, rel=1e-12)
    assert entry_range(x).item() == pytest.approx(127 / (size / 6**0.5), rel=1e-12)


@pytest.mark.parametrize("per", SCALES)
def test_agrees_with_torch(per):
    x = normal(6, 50).float()
    largest = x.abs().amax(-1) if per == "token" else x.abs().max().expand(6)
    zero = torch.zeros(6, dtype=torch.int32)
    theirs = torch.fake_quantize_per_channel_affine(x, largest / LEVELS, zero, 0, -LEVELS, LEVELS)
    # float32: a few units in the last place of entries up to 4
    torch.testing.assert_close(absmax_int8(x, per), theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("per", SCALES)
def test_error_has_no_scale_and_follows_the_range(per):
    x = normal(3, 64, 64)
    torch.testing.assert_close(rounding_error(1e6 * x, per), rounding_error(x, per), atol=0, rtol=1e-6)
    expected = entry_range(x) / (LEVELS * 12**0.5)  # uniform rounding errors; 4096 of them: 1 per cent of spread
    if per == "tensor":
        torch.testing.assert_close(rounding_error(x, per), expected, atol=0, rtol=0.05)
    assert (rounding_error(x, "token") <= rounding_error(x, "tensor")).all()


def test_quantised_tokens_are_left_alone_and_zero_is_zero():
    x = absmax_int8(normal(5, 9), "tensor")
    torch.testing.assert_close(absmax_int8(x, "tensor"), x, atol=1e-14, rtol=0)
    nothing = torch.zeros(2, 3, 4, dtype=torch.float64)
    for per in SCALES:
        assert rounding_error(nothing, per).tolist() == [0, 0]
    assert entry_range(nothing).tolist() == [0, 0]
