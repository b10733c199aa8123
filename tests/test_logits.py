import pytest
import torch
from scipy import stats

from rankcollapse.attention import token_logits
from rankcollapse.inits import gaussian, orthogonal
from rankcollapse.logits import orthonormal_logits
from rankcollapse.randomness import generator

CPU = torch.device("cpu")


def test_law_is_that_of_logits_of_orthonormal_tokens():
    """tr(M^2) and ||M M^T||_F^2, drawn as the head computes them and directly: same distribution."""
    tokens, width = 4, 8
    random = generator(0, "orthonormal")
    whole, direct = [], []
    for _ in range(600):
        x = orthogonal(width, random)[:tokens]
        query, key = (gaussian(width, width, random)[None] for _ in range(2))
        whole.append(token_logits(x, query, key)[0])
        direct.append(orthonormal_logits(tokens, tokens / width, random, CPU))
    for statistic in (
        lambda m: (m @ m).diagonal(dim1=1, dim2=2).sum(-1),
        lambda m: (m @ m.mT).square().sum((-2, -1)),
    ):
        p = stats.ks_2samp(statistic(torch.stack(whole)), statistic(torch.stack(direct))).pvalue
        assert p > 1e-3  # two comparisons: passed by mistake in 2 of 1000 seeds, and the seed is fixed


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_unit_variance(ratio):
    m = torch.stack([orthonormal_logits(40, ratio, generator(1, run), CPU) for run in range(20)])
    # 32000 entries; at gamma = 1 they share 40-wide weights, which leaves about 1 + 2 gamma per cent of spread
    assert m.square().mean().item() == pytest.approx(1, abs=0.06)
    assert m.mean().item() == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("ratio", [-0.1, 1.1])
def test_more_tokens_than_dimensions_are_refused(ratio):
    with pytest.raises(ValueError, match=r"allowed: 0 to 1"):
        orthonormal_logits(4, ratio, generator(0), CPU)
