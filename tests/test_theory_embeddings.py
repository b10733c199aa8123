import numpy as np
import pytest

from rankcollapse.theory.embeddings import shared_row_excess


def test_by_hand():
    assert shared_row_excess(np.array(400), 400) == pytest.approx(4 / 400 + 4 / 400, rel=1e-12)
    assert shared_row_excess(np.array([10, 20]), 5, cosine=0.5) == pytest.approx([0.3, 0.25], rel=1e-12)


@pytest.mark.parametrize(("tokens", "width", "cosine"), [(400, 300, 1 / 3), (300, 600, 1 / 3), (400, 300, 0.5)])
def test_against_drawn_tokens(tokens, width, cosine):
    random = np.random.default_rng(0)
    excess = []
    for _ in range(8):
        shared, own = random.normal(size=width), random.normal(size=(tokens, width))
        x = np.sqrt(cosine) * shared + np.sqrt(1 - cosine) * own
        squares = np.linalg.svd(x / np.linalg.norm(x, axis=1)[:, None], compute_uv=False) ** 2
        excess.append((squares[1:] ** 2).sum() / squares[0] ** 2)
    # The first eigenvalue also holds some of the rest, twice over in its square: 2 (1 - c)/c (1/T + 1/d), at most 2.5 %
    # here; and |u|^2 = d (1 +- sqrt(2/d)) moves c by 8 %, its mean over 8 draws by 3 %, sr - 1 by 5 %.
    assert np.mean(excess) == pytest.approx(float(shared_row_excess(np.array(tokens), width, cosine)), rel=0.12)
