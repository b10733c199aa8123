"""What one attention matrix does to the tokens: hulls, spreads, fixed P, shifts, the zero-logit limit, the cubic step.

Everything is fuzzed over shapes. Where random inputs cannot decide a statement, there is a constructed case too, whose
value is known in closed form. The mathematics is in ``contraction`` (one step), ``markov`` (fixed P) and ``geometry``.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from rankcollapse.attention import POSITION_BIASES, softmax, softmax_deviation, token_logits
from rankcollapse.contraction import (
    HeadLogits,
    Heads,
    centred,
    cubic_ratio,
    extreme_tokens,
    frobenius,
    gain_product,
    growing_attention,
    growing_tokens,
    growth_bound,
    head_logits,
    identity_head,
    leading_residual,
    mixed,
    pair_tokens,
)
from rankcollapse.finite import finite
from rankcollapse.geometry import hull_distances
from rankcollapse.inits import WEIGHT_INITS
from rankcollapse.markov import (
    deflate,
    dobrushin,
    lazy_path,
    log_norms,
    random_markov,
    reversible_markov,
    stationary,
    subdominant_modulus,
    symmetric_markov,
)
from rankcollapse.progress import Track, silent
from rankcollapse.randomness import generator
from rankcollapse.settings.dong import AttentionStep

NAME = "attention_step"
SPREADS: dict[str, Callable[[Tensor], Tensor]] = {
    "diameter": lambda x: torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").amax((-2, -1)),
    "range": lambda x: (x.amax(-2) - x.amin(-2)).amax(-1),
    "frobenius": lambda x: frobenius(centred(x)),
}
HULLS = ("attention", "attention_values", "attention_values_own")
MARKOV_KINDS = ("symmetric", "reversible", "softmax", "causal", "path")
REFERENCES = ("mean", "stationary")
GROWING_OFFSET, GROWING_GAIN = 1e-3, 50.0  # the limit 0 and inf of the construction, within 1e-6 and e^{-50}


def measure(settings: AttentionStep, *, device: torch.device, seed: int, track: Track = silent) -> dict[str, Tensor]:
    """Measure everything about a single attention step.

    X is Gaussian, N(0, 1). S01 and S03 have one head of width d with W_Q, W_K, W_V, W_O ~ N(0, 1/d) and W_Q times the
    gain; S05 has ``settings.heads`` heads drawn by a named init. All is float64. Axes and the order of their labels:

    - shape, init: ``settings.shapes``, ``settings.inits``; run: 0 ... ``settings.runs`` - 1
    - gain: ``settings.logit_gains``, the standard deviation of the logits
    - mean: ``settings.mean_sizes``, the standard deviation of the mean token's coordinates
    - hull: attention (rows of P X to the hull of X), attention_values (rows of P X W_V W_O to the hull of X),
      attention_values_own (rows of P X W_V W_O to the hull of X W_V W_O)
    - spread: diameter (largest Euclidean distance), range (largest max - min of a coordinate), frobenius (||R||_F)
    - kind: symmetric, reversible, softmax (random matrices), causal (uniform), path (lazy) - see ``markov``
    - reference: mean (Y_l = R_l, M = Pi P), stationary (Y_l = X_l - 1 pi^T X_0, M = P - 1 pi^T)
    - bias: full, causal, alibi; norm: ``cubic/norm``; scale: ``uniform/scale``; layer: 0 ... ``settings.markov_layers``

    The keys are documented where they are made: S01 ``_hulls``, ``_spreads``, ``_growth``; S02 ``_fixed``; S03
    ``_shifts``; S04 ``_zero_logits``, ``_cubic``; S05 ``_cubic``, ``_constructed``, ``_search``.

    Raises:
        FloatingPointError: a NaN or inf in a result; the message has its key and the index of the grid point. Residual
            norms so large that the leading order underflows to 0 are one cause.
    """
    inputs = _Inputs(settings, device, seed)
    found: dict[str, Tensor] = {}
    for part in (_hulls, _spreads, _growth, _fixed, _shifts, _zero_logits, _cubic, _constructed, _search):
        found |= part(inputs, track)
    return finite(NAME, found)


class _Inputs:
    """Draws by name, moved to the device; every part that asks for the same name gets the same numbers."""

    def __init__(self, settings: AttentionStep, device: torch.device, seed: int) -> None:
        self.settings, self.device, self.seed = settings, device, seed

    def generator(self, *key: object) -> torch.Generator:
        return generator(self.seed, NAME, *key)

    def normal(self, *size: int, key: object) -> Tensor:
        return torch.randn(*size, generator=self.generator(key, *size), dtype=torch.float64).to(self.device)

    def heads(self, width: int, count: int, init: str = "normal1d", gain: float = 1.0) -> Heads:
        """Draw d x d weights by a named init for each run and cut them into heads; W_Q times the gain."""
        drawn = {name: self._weights(init, width, name) for name in Heads._fields}
        query, key, value = (
            drawn[name].unflatten(-1, (count, -1)).movedim(-2, -3) for name in ("query", "key", "value")
        )
        return Heads(gain * query, key, value, drawn["output"].unflatten(-2, (count, -1)))

    def _weights(self, init: str, width: int, name: str) -> Tensor:
        generator = self.generator(name, init, width)
        return torch.stack([WEIGHT_INITS[init](width, width, generator) for _ in range(self.settings.runs)]).to(
            self.device
        )

    def tokens(self, shape: tuple[int, int]) -> Tensor:
        return self.normal(self.settings.runs, *shape, key="tokens")

    def residual(self, shape: tuple[int, int]) -> Tensor:
        """Draw R with ||R||_F = 1."""
        direction = centred(self.tokens(shape))
        return direction / frobenius(direction)[:, None, None]

    def attention(self, shape: tuple[int, int], gain: float) -> tuple[Tensor, Tensor, Tensor]:
        """X, its attention matrix, and W_V W_O; one head of full width."""
        x, one = self.tokens(shape), self.heads(shape[1], 1, gain=gain)
        return x, softmax(token_logits(x, one.query, one.key))[:, 0], (one.value @ one.output)[:, 0]


def _grid(
    settings: AttentionStep, values: Callable[[tuple[int, int], float], Tensor], track: Track, what: str
) -> Tensor:
    """Stack values(shape, gain) along [shape, gain]."""
    return torch.stack(
        [
            torch.stack([values(shape, gain) for gain in settings.logit_gains])
            for shape in track(settings.shapes, what, len(settings.shapes))
        ]
    )


def _hulls(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S01: distances of rows to hulls, over the diameter of the hull's vertices; sample = run and row.

    - ``hull/distance`` [hull, shape, gain, sample]: upper bound on the distance of a row to the hull
    - ``hull/separation`` [hull, shape, gain, sample]: lower bound, positive only where a hyperplane separates them
    """

    def bounds(shape: tuple[int, int], gain: float) -> Tensor:
        x, attention, value = inputs.attention(shape, gain)
        mean = attention @ x
        rows = slice(inputs.settings.hull_rows)
        cases = zip(HULLS, (mean, mean @ value, mean @ value), (x, x, x @ value), strict=True)
        return torch.stack([_hull_case(points[:, rows], vertices) for _, points, vertices in cases])

    both = _grid(inputs.settings, bounds, track, "hulls").movedim(2, 0)  # hull, shape, gain, bound, sample
    return {"hull/distance": both[:, :, :, 0], "hull/separation": both[:, :, :, 1]}


def _hull_case(points: Float[Tensor, "runs rows width"], vertices: Float[Tensor, "runs tokens width"]) -> Tensor:
    """Bounds [bound, run and row] on the distance of the points to each run's hull, over its diameter."""
    diameter = SPREADS["diameter"](vertices).cpu()
    runs = zip(points.cpu().numpy(), vertices.cpu().numpy(), diameter, strict=True)
    return torch.cat([torch.from_numpy(hull_distances(y, x)) / size for y, x, size in runs], dim=-1)


def _spreads(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S01: spreads after one step over those before.

    - ``spread/ratio`` [map, spread, shape, gain, run]: spread after over spread before; map = P, then P and W_V W_O
    - ``spread/coordinate_ratio`` [shape, gain, run]: the same for the one coordinate whose range shrinks least under P
    - ``spread/dobrushin`` [shape, gain, run]: tau(P), which bounds the diameter's ratio and every coordinate's
    - ``spread/value_norm`` [shape, run]: ||W_V W_O||_2
    """
    settings = inputs.settings

    def ratios(shape: tuple[int, int], gain: float) -> Tensor:
        x, attention, value = inputs.attention(shape, gain)
        mean = attention @ x
        return torch.stack(
            [torch.stack([size(y) / size(x) for size in SPREADS.values()]) for y in (mean, mean @ value)]
        )

    def coordinate(shape: tuple[int, int], gain: float) -> Tensor:
        x, attention, _ = inputs.attention(shape, gain)
        before, after = (y.amax(-2) - y.amin(-2) for y in (x, attention @ x))
        return (after / before).amax(-1)

    def contraction(shape: tuple[int, int], gain: float) -> Tensor:
        return dobrushin(inputs.attention(shape, gain)[1])

    values = [inputs.attention(shape, 1.0)[2] for shape in settings.shapes]
    return {
        "spread/ratio": _grid(settings, ratios, track, "spreads").movedim((2, 3), (0, 1)),
        "spread/coordinate_ratio": _grid(settings, coordinate, track, "coordinates"),
        "spread/dobrushin": _grid(settings, contraction, track, "Dobrushin coefficients"),
        "spread/value_norm": torch.stack([torch.linalg.matrix_norm(w, ord=2) for w in values]),
    }


def _growth(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S01: tokens whose residual grows under P alone.

    - ``growth/ratio``, ``growth/bound`` [shape]: ||R'||_F / ||R||_F of ``growing_tokens`` under P alone, and its bound
    - ``growth/tokens`` [3, 1], ``growth/attention`` [gain, 3, 3], ``growth/example_ratio`` [gain]: the same for three
      tokens in one dimension, W_QK = gain
    """

    def ratio(attention: Tensor, x: Tensor) -> Tensor:
        return frobenius(centred(attention @ x)) / frobenius(centred(x))

    counts = [tokens for tokens, _ in inputs.settings.shapes]
    x = [growing_tokens(tokens, GROWING_OFFSET) for tokens in counts]
    three = torch.tensor([[-3.0], [-1.0], [1.0]], dtype=torch.float64)
    gains = torch.tensor(inputs.settings.logit_gains, dtype=torch.float64)[:, None, None]
    attention = softmax(gains * (three @ three.mT))
    return {
        "growth/ratio": torch.stack([ratio(growing_attention(each, GROWING_GAIN), each) for each in x]),
        "growth/bound": torch.tensor([growth_bound(tokens) for tokens in counts], dtype=torch.float64),
        "growth/tokens": three,
        "growth/attention": attention,
        "growth/example_ratio": ratio(attention, three),
    }


def _markov(inputs: _Inputs) -> dict[str, Tensor]:
    """Draw the fixed matrices [run, tokens, tokens] of each kind."""
    settings = inputs.settings
    tokens, runs, variance = settings.markov_tokens, settings.runs, settings.logit_variance
    uniform_causal = softmax(POSITION_BIASES["causal"](tokens, 1))
    drawn = {
        "symmetric": symmetric_markov(tokens, runs, inputs.generator("symmetric"), variance),
        "reversible": reversible_markov(tokens, runs, inputs.generator("reversible"), variance),
        "softmax": random_markov(tokens, runs, inputs.generator("softmax"), 0.0, variance),
        "causal": uniform_causal.expand(runs, -1, -1),
        "path": lazy_path(tokens).expand(runs, -1, -1),
    }
    return {kind: drawn[kind].to(inputs.device) for kind in MARKOV_KINDS}


def _fixed(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S02, fixed P: logarithms of ||M^l Y_0|| / (|lambda_2|^l ||Y_0||), which constant 1 keeps at or below 0.

    - ``fixed/log_ratio`` [kind, reference, run, layer]: from Gaussian X_0; ``fixed/log_worst``: from the worst X_0
    - ``fixed/subdominant`` [kind, run]: |lambda_2|
    - ``fixed/rate`` [kind, reference, run]: factor per layer, fitted to ln ||Y_l|| over the second half of the layers
    - ``fixed/nilpotent`` [3, 3], ``fixed/nilpotent_norms`` [layer 0 ... 3]: a positive P with lambda_2 = 0, and ||R_l||
    - ``fixed/path_log_ratio``, ``fixed/path_expected`` [layer 0 ... 20]: lazy path of three tokens, measured by its
      stationary reference from (0, 1, 0), and ln sqrt(1 + l^2)
    """
    layers, tokens = inputs.settings.markov_layers, inputs.settings.markov_tokens
    start = inputs.normal(inputs.settings.runs, tokens, tokens, key="fixed")
    columns: dict[str, list[Tensor]] = {"log_ratio": [], "log_worst": [], "subdominant": [], "rate": []}
    for markov in track(_markov(inputs).values(), "fixed transition matrices", len(MARKOV_KINDS)):
        subdominant = subdominant_modulus(markov)
        columns["subdominant"].append(subdominant)
        each = [_decay(markov, subdominant, start, reference, layers) for reference in REFERENCES]
        for name, values in zip(("log_ratio", "log_worst", "rate"), zip(*each, strict=True), strict=True):
            columns[name].append(torch.stack(values))
    return {f"fixed/{name}": torch.stack(values) for name, values in columns.items()} | _fixed_examples()


def _decay(
    markov: Tensor, subdominant: Tensor, start: Tensor, reference: str, layers: int
) -> tuple[Tensor, Tensor, Tensor]:
    """ln(||Y_l|| / (lambda^l ||Y_0||)) from the given and from the worst start [run, layer]; fitted rate [run]."""
    weights = stationary(markov) if reference == "stationary" else markov.mean(-2)
    normal = weights if reference == "stationary" else torch.ones_like(weights)  # Y_0 is orthogonal to it
    unit = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
    projector = torch.eye(markov.shape[-1], dtype=markov.dtype, device=markov.device) - unit[:, :, None] * unit[:, None]
    step = deflate(markov, weights) / subdominant[:, None, None]
    ratio = log_norms(step, projector @ start, layers)
    power, worst = projector, []
    for _ in range(layers + 1):
        worst.append(torch.linalg.matrix_norm(power, ord=2).log())
        power = step @ power
    half = torch.arange(layers // 2, layers + 1, dtype=torch.float64, device=markov.device)
    half -= half.mean()
    slope = ratio[:, layers // 2 :] @ half / half.square().sum() + subdominant.log()
    return ratio - ratio[:, :1], torch.stack(worst, -1), slope.exp()


def _fixed_examples() -> dict[str, Tensor]:
    chain = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
    nilpotent = 0.9 * chain + 0.1 / 3  # adding 11^T/n changes no eigenvalue but that of 1: the others stay 0
    norms, r = [], torch.tensor([[1.0], [-1.0], [0.0]], dtype=torch.float64) / 2**0.5
    for _ in range(4):
        norms.append(frobenius(r))
        r = centred(nilpotent @ r)
    layers = 20
    start = torch.tensor([[0.0], [1.0], [0.0]], dtype=torch.float64)  # pi = e_1, so this is X_0 - 1 pi^T X_0 itself
    layer = torch.arange(layers + 1, dtype=torch.float64)
    return {
        "fixed/nilpotent": nilpotent,
        "fixed/nilpotent_norms": torch.stack(norms),
        "fixed/path_log_ratio": log_norms(2 * lazy_path(3), start, layers),
        "fixed/path_expected": torch.log1p(layer.square()) / 2,
    }


def _shifts(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S03, shifts of the logits: largest absolute differences of an entry.

    - ``shift/difference`` [added, shape, gain, run]: softmax(M + added) to softmax(M); added = c 1^T (a constant per
      row), 1 c^T (per column), c ~ N(0, 1)
    - ``shift/formula`` [formula, shape, gain, mean, run]: P to softmax(E + 1 r^T), P to softmax(E)
    - ``shift/largest_logit`` [shape, gain, mean, run]: the largest |logit| of P, the scale of its round-off
    - ``shift/example`` [added, 2, 2]: softmax of c 1^T and of 1 c^T, c = (0, ln 3)
    """
    settings = inputs.settings

    def largest(difference: Tensor) -> Tensor:
        return difference.abs().amax((-2, -1))

    def added(shape: tuple[int, int], gain: float) -> Tensor:
        x, one = inputs.tokens(shape), inputs.heads(shape[1], 1, gain=gain)
        logits = token_logits(x, one.query, one.key)[:, 0]
        c = inputs.normal(settings.runs, shape[0], key="shift")
        shifts = (c[:, :, None], c[:, None, :])
        return torch.stack([largest(softmax(logits + shift) - softmax(logits)) for shift in shifts])

    def formula(shape: tuple[int, int], gain: float) -> Tensor:
        one = inputs.heads(shape[1], 1, gain=gain)
        residual, mean = centred(inputs.tokens(shape)), inputs.normal(settings.runs, shape[1], key="mean")
        columns = []
        for size in settings.mean_sizes:
            x = residual + size * mean[:, None]
            logits = token_logits(x, one.query, one.key)
            pairwise, key = head_logits(residual, size * mean, one)
            formulas = (softmax(pairwise + key[:, :, None]), softmax(pairwise))
            differences = [largest(softmax(logits) - each)[:, 0] for each in formulas]
            columns.append(torch.stack([*differences, logits.abs().amax((-3, -2, -1))]))
        return torch.stack(columns, 1)

    c = torch.tensor([0.0, math.log(3)], dtype=torch.float64)
    found = _grid(settings, formula, track, "formulas").movedim(2, 0)  # value, shape, gain, mean, run
    return {
        "shift/difference": _grid(settings, added, track, "shifts").movedim(2, 0),
        "shift/formula": found[:2],
        "shift/largest_logit": found[2],
        "shift/example": torch.stack([softmax(c[:, None].expand(2, 2)), softmax(c.expand(2, 2))]),
    }


def _powers_of_ten(decades: tuple[float, float], points: int, device: torch.device) -> Tensor:
    return torch.logspace(*decades, points, dtype=torch.float64, device=device)


def _zero_logits(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S04, the zero-logit limit.

    - ``uniform/scale`` [scale]: s; ``uniform/deviation`` [shape, scale, run]: ||softmax(s M) - 11^T/n||_F, M ~ N(0, 1)
    - ``uniform/leading`` [shape, run]: its limit over s, ||M - its row means||_F / n
    """
    settings = inputs.settings
    scale = _powers_of_ten(settings.scale_decades, settings.scale_points, inputs.device)
    deviation, leading = [], []
    for tokens, _ in track(settings.shapes, "zero-logit limit", len(settings.shapes)):
        logits = inputs.normal(settings.runs, tokens, tokens, key="logits")
        none = torch.zeros_like(logits[:, 0])
        deviation.append(torch.stack([frobenius(softmax_deviation(s * logits, none)) for s in scale]))
        leading.append(frobenius(logits - logits.mean(-1, keepdim=True)) / tokens)
    return {
        "uniform/scale": scale,
        "uniform/deviation": torch.stack(deviation),
        "uniform/leading": torch.stack(leading),
    }


def _cubic(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S04 and S05, the cubic step by norm of the residual.

    - ``uniform/by_residual`` [mean, shape, init, norm, run]: root mean square over heads of ||P_h - 11^T/n||_F
    - ``cubic/norm`` [norm]: ||R||_F
    - ``cubic/next_norm`` [bias, mean, shape, init, norm, run]: ||R'||_F
    - ``cubic/ratio`` [the same]: ||R'||_F / (sum_h ||W_QK,h||_2 ||W_VO,h||_2 ||R||_F^3 / sqrt(d_k)), never above 1/2
      for bias = full
    - ``cubic/leading_error`` [expansion, mean, shape, init, norm, run]: ||R' - leading||_F / ||leading||_F, the leading
      order about p = softmax(r), about p = 1/n
    """
    settings = inputs.settings
    norms = _powers_of_ten(settings.residual_decades, settings.residual_points, inputs.device)
    columns, gains = [], []
    cases = [(shape, init) for shape in settings.shapes for init in settings.inits]
    for shape, init in track(cases, "cubic step", len(cases)):
        heads = inputs.heads(shape[1], settings.heads, init)
        direction, mean = inputs.residual(shape), inputs.normal(settings.runs, shape[1], key="mean")
        biases = [bias(shape[0], settings.heads).to(inputs.device) for bias in POSITION_BIASES.values()]
        gains.append(gain_product(heads))
        sizes = [
            torch.stack([_step(norm * direction, size * mean, heads, biases) for norm in norms])
            for size in settings.mean_sizes
        ]
        columns.append(torch.stack(sizes))
    grid = len(settings.shapes), len(settings.inits)
    found = torch.stack(columns).unflatten(0, grid)  # shape, init, mean, norm, value, run
    found = found.permute(4, 2, 0, 1, 3, 5)  # value, mean, shape, init, norm, run
    scale = torch.stack(gains).unflatten(0, grid)[..., None, :] * norms[:, None] ** 3  # shape, init, norm, run
    after, errors, uniform = found.split((len(POSITION_BIASES), 2, 1))
    return {
        "cubic/norm": norms,
        "cubic/next_norm": after,
        "cubic/ratio": after / scale,
        "cubic/leading_error": errors,
        "uniform/by_residual": uniform[0],
    }


def _step(residual: Tensor, mean: Tensor, heads: Heads, biases: list[Tensor]) -> Float[Tensor, "values runs"]:
    """||R'|| by bias, the errors of the two expansions, and ||P - 11^T/n||, stacked."""
    logits = head_logits(residual, mean, heads)
    free = mixed(softmax_deviation(*logits), residual, heads)
    biased = [mixed(softmax(_summed(logits) + bias), residual, heads) for bias in biases[1:]]
    p = torch.softmax(logits.key, -1)
    expansions = [leading_residual(residual, logits, heads, w) for w in (p, torch.full_like(p, 1 / p.shape[-1]))]
    errors = [frobenius(free - leading) / frobenius(leading) for leading in expansions]
    uniform = frobenius(softmax_deviation(_summed(logits), torch.zeros_like(logits.key))).square().mean(-1).sqrt()
    return torch.stack([*(frobenius(r) for r in (free, *biased)), *errors, uniform])


def _summed(logits: HeadLogits) -> Tensor:
    return logits.pairwise + logits.key.unsqueeze(-2)


def _constructed(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S05, tokens constructed to reach the bound.

    - ``cubic/logit`` [norm]: u; ``cubic/pair``, ``cubic/extremes`` [shape, norm]: the ratio of ``pair_tokens`` and of
      ``extreme_tokens``
    """
    settings = inputs.settings
    logit = _powers_of_ten(settings.residual_decades, settings.residual_points, torch.device("cpu"))
    families = {"pair": (pair_tokens, identity_head(2)), "extremes": (extreme_tokens, identity_head(1))}
    return {"cubic/logit": logit} | {
        f"cubic/{name}": torch.stack(
            [torch.stack([cubic_ratio(*make(n, float(u)), heads) for u in logit]) for n, _ in settings.shapes]
        )
        for name, (make, heads) in families.items()
    }


def _search(inputs: _Inputs, track: Track) -> dict[str, Tensor]:
    """S05, tokens found by ascent.

    - ``cubic/search`` [search_tokens, run]: the largest ratio met by gradient ascent over R, x and W_QK, d = 3
    """
    settings = inputs.settings
    found = [_ascend(inputs, n) for n in track(settings.search_tokens, "ascent", len(settings.search_tokens))]
    return {"cubic/search": torch.stack(found)}


def _ascend(inputs: _Inputs, tokens: int, width: int = 3) -> Tensor:
    """Largest cubic ratio each run meets; W_VO = I, the best a value map of norm 1 can do."""
    settings = inputs.settings
    sizes = ((tokens, width), (width,), (width, width))
    free = [inputs.normal(settings.runs, *size, key="search").requires_grad_() for size in sizes]
    identity = torch.eye(width, dtype=torch.float64, device=inputs.device).expand(settings.runs, 1, width, width)
    optimiser = torch.optim.Adam(free, lr=0.05)
    best = torch.zeros(settings.runs, dtype=torch.float64, device=inputs.device)
    for _ in range(settings.search_steps):
        tokens_free, mean, query = free
        ratio = cubic_ratio(centred(tokens_free), mean, Heads(query[:, None], identity, identity, identity))
        best = torch.maximum(best, ratio.detach())
        optimiser.zero_grad()
        (-ratio.log().sum()).backward()
        optimiser.step()
    return best
