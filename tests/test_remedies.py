"""Remedies: blocks against plain torch modules, gradients against autograd, DeepNorm by hand, theory, invariances."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from rankcollapse.attention import softmax
from rankcollapse.attention_kinds import attention_kinds, window_bias
from rankcollapse.inits import iid
from rankcollapse.measurements.remedies_depth import NAME, SWEPT, measure
from rankcollapse.randomness import generator
from rankcollapse.remedied_blocks import Networks, Weights, block, logits, normalise
from rankcollapse.remedy import Remedy, deepnorm_scales, remedy
from rankcollapse.residual import mean_cosine
from rankcollapse.settings.remedies import RemediesDepth
from rankcollapse.theory.noci import kappa
from rankcollapse.theory.remedies import similarity

CPU = torch.device("cpu")
SMALL = RemediesDepth(
    tokens=6,
    width=16,
    mlp_ratio=2,
    blocks=5,
    runs=2,
    logit_std=1.0,
    remedies=("none", "pre-LN", "DeepNorm", "post-LN + QK-norm"),
    swept=("none", "pre-LN"),
    scales=(1.0, 10.0),
    kinds=("softmax", "centred", "differential", "relu", "sigmoid", "causal", "window"),
    kind_networks=("none", "pre-LN", "pre-LN + no skip"),
    window=1,
)


@pytest.fixture(scope="module")
def measured():
    return measure(SMALL, device=CPU, seed=3)


def drawn(width=16, hidden=32, tokens=6):
    g = generator(0, "test_remedies")
    return iid(tokens, width, g), Weights.draw(width, hidden, g, CPU)


def run(tokens, weights, *remedies, logit_std=1.0, attend=lambda first, second: softmax(first)):
    networks = Networks.of(remedies, logit_std, CPU)
    return block(tokens.expand(len(remedies), -1, -1), weights, networks, attend)


class Plain(nn.Module):
    """The block written with torch's own modules; every factor in the weights or written out."""

    def __init__(self, weights, norm, place, skip=1.0, branch=1.0, init=1.0, qk=None):
        super().__init__()
        width, self.place, self.skip, self.branch, self.qk = len(weights.queries), place, skip, branch, qk
        self.norms = nn.ModuleList(norm(width, eps=1e-5, elementwise_affine=False) for _ in range(2)).double()
        shapes = {f"W {name}": nn.Linear(*matrix.shape, bias=False) for name, matrix in weights._asdict().items()}
        self.maps = nn.ModuleDict(shapes).double()
        for name, matrix in weights._asdict().items():
            scale = 1 if name in ("queries", "keys") else init
            self.maps[f"W {name}"].weight.data = scale * matrix.mT.clone()

    def join(self, x, branch, norm):
        summed = self.skip * x + self.branch * branch
        return norm(summed) if self.place == "post" else summed

    def forward(self, x):
        first, second = self.norms
        seen = first(x) if self.place == "pre" else x
        q, k, v = (self.maps[f"W {name}"](seen) for name in ("queries", "keys", "values"))
        if self.qk:
            q, k = self.qk(q), self.qk(k)
        mixed = nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        x = self.join(x, self.maps["W output"](mixed), first)
        seen = second(x) if self.place == "pre" else x
        return self.join(x, self.maps["W outer"](torch.relu(self.maps["W inner"](seen))), second)


ALPHA, BETA = 2.0, 64**-0.25  # DeepNorm of 8 encoder layers: alpha = 16^(1/4) = 2, beta = 64^(-1/4)
PLAIN = {
    "none": {"norm": nn.LayerNorm, "place": "none"},
    "pre-LN": {"norm": nn.LayerNorm, "place": "pre"},
    "post-LN": {"norm": nn.LayerNorm, "place": "post"},
    "RMSNorm": {"norm": nn.RMSNorm, "place": "pre"},
    "pre-LN + QK-norm": {"norm": nn.LayerNorm, "place": "pre", "qk": nn.RMSNorm(16, 1e-5, False)},
    "DeepNorm": {"norm": nn.LayerNorm, "place": "post", "skip": ALPHA, "init": BETA},
    "DeepNorm without its init": {"norm": nn.LayerNorm, "place": "post", "skip": ALPHA},
    "1/sqrt(2L)": {"norm": nn.LayerNorm, "place": "none", "branch": 0.25},
}


def test_deepnorm_constants_by_hand():
    assert deepnorm_scales(8) == pytest.approx((ALPHA, BETA), abs=1e-15)
    assert deepnorm_scales(100) == pytest.approx((3.7606, 0.18803), abs=5e-5)  # 200^(1/4), 800^(-1/4)
    assert remedy("1/sqrt(2L)", 8).branch == 0.25
    assert remedy("DeepNorm", 8).branch == pytest.approx(64**-0.5, abs=1e-15)


@pytest.mark.parametrize("name", PLAIN)
def test_a_block_equals_plain_modules(name):
    tokens, weights = drawn()
    found = run(3 * tokens, weights, remedy(name, 8), remedy("none", 8))[0]
    torch.testing.assert_close(found, Plain(weights, **PLAIN[name])(3 * tokens), rtol=0, atol=1e-12)  # sums of 32


def test_networks_side_by_side_do_not_touch():
    tokens, weights = drawn()
    remedies = [remedy(name, 8) for name in PLAIN]
    alone = torch.cat([run(tokens, weights, one) for one in remedies])
    torch.testing.assert_close(run(tokens, weights, *remedies), alone, rtol=0, atol=1e-12)


def test_the_gradient_ratio_is_autograd_s_of_the_plain_model(measured):
    names = {"none": PLAIN["none"], "pre-LN": PLAIN["pre-LN"], "post-LN + QK-norm": PLAIN["post-LN"]}
    names["post-LN + QK-norm"] = names["post-LN + QK-norm"] | {"qk": nn.RMSNorm(16, 1e-5, False)}
    for name, how in names.items():
        for draw in range(SMALL.runs):
            layers = [
                Plain(Weights.draw(16, 32, generator(3, NAME, "weights", draw, layer), CPU), **how)
                for layer in range(5)
            ]
            probe = torch.randn(6, 16, generator=generator(3, NAME, "probe", draw), dtype=torch.float64) / 96**0.5
            (nn.Sequential(*layers)(iid(6, 16, generator(3, NAME, "tokens", draw))) * probe).sum().backward()
            wanted = [layers[at].maps["W values"].weight.grad.norm().log10() for at in (0, -1)]
            found = measured["remedies/log10_gradients"][SMALL.remedies.index(name), draw]
            # gradients of saturated softmax lose digits; eight of them are left
            torch.testing.assert_close(found, torch.stack(wanted), rtol=0, atol=1e-8)


def test_norms_by_hand():
    row = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(normalise(row, 1.0), torch.tensor([[-1.0, 1.0]]).double(), rtol=0, atol=1e-5)  # eps / 2
    torch.testing.assert_close(normalise(row), row / 5**0.5, rtol=0, atol=1e-5)


def test_query_norm_cancels_the_scale_of_the_queries_and_bounds_the_logits():
    tokens, weights = drawn()
    normed = Remedy(query_norm=True, gain=3.0)
    networks = Networks.of([normed, replace(normed, query_scale=100.0)], 1.0, CPU)
    one, other = logits(50 * tokens.expand(2, -1, -1), weights.queries, weights.keys, networks)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)  # eps 1e-5 beside a mean square of 2500
    assert one.abs().max() <= 3 * 16**0.5


def test_a_norm_before_the_branches_forgets_the_scale():
    tokens, weights = drawn()
    moved = [
        run(scale * tokens, weights, remedy("pre-LN", 8))[0] - scale * tokens for scale in (10, 1000)
    ]  # the attention branch is the same; the MLP sees tokens to which it has been added
    attention = remedy("pre-LN + attention alone", 8)
    same = [run(scale * tokens, weights, attention)[0] - scale * tokens for scale in (10, 1000)]
    torch.testing.assert_close(*same, rtol=0, atol=1e-6)  # eps 1e-5 beside 100
    assert (moved[0] - moved[1]).abs().max() < 1


def test_tokens_may_be_permuted():
    tokens, weights = drawn()
    order, remedies = torch.tensor([3, 1, 0, 5, 4, 2]), [remedy(name, 8) for name in PLAIN]
    torch.testing.assert_close(
        run(tokens[order], weights, *remedies), run(tokens, weights, *remedies)[:, order], rtol=0, atol=1e-12
    )


def test_kinds_of_attention_by_hand():
    flat = torch.zeros(3, 3, dtype=torch.float64)
    kinds = attention_kinds(3, 1, CPU)
    expected = {
        "softmax": 1 / 3,
        "centred": 0.0,
        "differential": 0.8 / 3,  # lambda = 0.2 in layer 1
        "relu": 0.0,
        "sigmoid": 1 / (1 + 3),  # 1 / (1 + e^{ln 3})
    }
    for name, value in expected.items():
        torch.testing.assert_close(kinds[name](flat, flat, 1), torch.full_like(flat, value), rtol=0, atol=1e-15)
    torch.testing.assert_close(kinds["causal"](flat, flat, 1)[1], torch.tensor([0.5, 0.5, 0]).double())
    torch.testing.assert_close(kinds["window"](flat, flat, 1)[0], torch.tensor([0.5, 0.5, 0]).double())
    assert window_bias(4, 2).isinf().sum() == 2


def test_the_kernel_by_hand():
    assert kappa(0) == pytest.approx(1 / np.pi, abs=1e-15)
    assert kappa(1) == 1
    assert kappa(-1) == pytest.approx(0, abs=1e-15)
    small = 1e-4  # the next order is e^{5/2} = 1e-10
    assert 1 - kappa(1 - small) == pytest.approx(small - 2**1.5 / (3 * np.pi) * small**1.5, abs=1e-9)


def test_one_block_of_the_theory_by_hand():
    q, rho = similarity(Remedy(), 1, 4)  # m = 1/4; then q = 2 * 5/4, p = 1/4 + 5/4 kappa(1/5)
    assert q[1] == pytest.approx(2.5, abs=1e-15)
    assert rho[1] == pytest.approx((0.25 + 1.25 * kappa(0.2)) / 2.5, abs=1e-15)
    q, rho = similarity(Remedy(placement="post", mlp=False), 1, 4)
    assert (q[1], rho[1]) == pytest.approx((1, 0.2), abs=1e-15)


def test_the_laws_far_on():
    depth = 20_000
    q, rho = similarity(remedy("pre-LN + attention alone", 1), depth, 32)
    assert q[-1] / depth == pytest.approx(1, abs=2e-3)  # ln(l) / l and (n + 1) / l
    assert np.log2((1 - rho[-1]) / (1 - rho[depth // 2])) == pytest.approx(-1, abs=2e-3)
    q, rho = similarity(remedy("pre-LN", 1), depth, 32)
    assert q[-1] / depth == pytest.approx(2, abs=0.03)  # 1 - cos is .006 there, and its mean over layers twice that
    # e = (A l^(1/4) - c)^(-2): e^(-1/2) + c grows by 2^(1/4) when the depth doubles, up to 1 - q/(2 l) = 1 %
    shifted = (1 - rho[[depth // 2, depth]]) ** -0.5 + 2**1.5 / (3 * np.pi)
    assert shifted[1] / shifted[0] == pytest.approx(2**0.25, rel=0.01)
    q, _ = similarity(remedy("1/sqrt(2L)", 50), 50, 32)
    assert 1 <= q.min() <= q.max() <= np.e


def test_theory_against_simulation():
    blocks, width, tokens, repeats = 6, 512, 16, 6
    remedies = [remedy(name, blocks) for name in ("pre-LN", "post-LN", "DeepNorm without its init", "1/sqrt(2L)")]
    moments, cosines = torch.zeros(2, len(remedies), dtype=torch.float64)
    for repeat in range(repeats):
        g = generator(0, "theory", repeat)
        now = iid(tokens, width, g).expand(len(remedies), -1, -1)
        networks = Networks.of(remedies, 0.01, CPU)  # nearly no logits: uniform attention, which the theory assumes
        for _ in range(blocks):
            now = block(now, Weights.draw(width, width, g, CPU), networks, lambda first, second: softmax(first))
        moments += now.square().mean((-2, -1)) / repeats
        cosines += mean_cosine(now) / repeats
    # Each of the two branches of a block multiplies the mean token's energy by 1 +- (2/d)^(1/2) or so; rho moves by at
    # most a quarter of the change of its logarithm. Three standard errors of the mean over runs.
    error = 3 * (2 * 2 * blocks / width / repeats) ** 0.5
    for one, moment, cosine in zip(remedies, moments.tolist(), cosines.tolist(), strict=True):
        q, rho = similarity(one, blocks, tokens)
        assert moment == pytest.approx(q[-1], rel=error)
        assert cosine == pytest.approx(rho[-1], abs=error / 4)


def test_the_measurement_s_axes(measured):
    layers = SMALL.blocks + 1
    assert measured["remedies/cosine"].shape == (4, 2, layers)
    assert measured["swept/entropy"].shape == (2, len(SWEPT), 2, 2, layers - 1)
    assert measured["kinds/rank_excess"].shape == (7, 3, 2, layers)
    for section in ("remedies", "swept", "kinds"):
        assert measured[f"{section}/overflow"].max() == 0
    entropy = measured["remedies/entropy"]
    assert ((entropy >= 0) & (entropy <= 1 + 1e-12)).all()
    # the sections share tokens and weights
    for name in ("cosine", "log10_moment"):
        torch.testing.assert_close(measured[f"remedies/{name}"][:2], measured[f"kinds/{name}"][0, :2])
        torch.testing.assert_close(measured[f"remedies/{name}"][:2], measured[f"swept/{name}"][:, 0, 0])


def test_overflow_is_named_by_its_layer():
    # Without a norm ReLU attention triples the exponent of the second moment in every block.
    deep = replace(SMALL, blocks=24, runs=1, kinds=("relu",), kind_networks=("none", "pre-LN"), logit_std=30.0)
    found = measure(deep, device=CPU, seed=0)
    first = found["kinds/overflow"][0, 0, 0].item()
    assert 0 < first < 24
    assert found["kinds/overflow"][0, 1, 0] == 0
    for name in ("log10_moment", "cosine", "rank_excess"):
        values = found[f"kinds/{name}"][0, 0, 0]
        assert values[:first].isfinite().all()
        assert (values[first:] == torch.inf).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"remedies": ("none", "magic")}, "magic"),
        ({"swept": ("QK-norm",)}, "without QK-norm"),
        ({"scales": (2.0, 3.0)}, "from 1"),
        ({"window": 6}, "less than tokens"),
        ({"blocks": 500}, "200"),
    ],
)
def test_settings_that_make_no_sense(change, words):
    with pytest.raises(ValidationError, match=words):
        replace(SMALL, **change)


def test_an_unknown_remedy_is_named():
    with pytest.raises(ValueError, match="post-LM"):
        remedy("post-LM", 4)
