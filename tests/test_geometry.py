"""The hull test: a square by hand, certificates on either side, laws of convexity."""

import numpy as np
import pytest

import rankcollapse.geometry as geometry
from rankcollapse.geometry import hull_distance, hull_distances

SQUARE = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
SOLVED = 1e-8  # ten times the solver's tolerance, in units of a hull of size about one


@pytest.mark.parametrize(
    ("point", "distance"),
    [((1.0, 1.0), 0.0), ((2.0, 2.0), 0.0), ((2.0, 0.7), 0.0), ((5.0, 1.0), 3.0), ((-1.0, 4.0), 2.0)],
)
def test_a_square_by_hand(point: tuple[float, float], distance: float):
    found = hull_distance(np.array(point), SQUARE)
    assert found.distance == pytest.approx(distance, abs=SOLVED)
    assert found.separation <= found.distance + 1e-12  # the two bounds may cross by round-off only
    if distance:
        assert found.separation == pytest.approx(distance, abs=SOLVED)


@pytest.mark.parametrize(("count", "width"), [(3, 5), (12, 4), (20, 20)])
def test_averages_are_inside_and_reflected_vertices_outside(count: int, width: int):
    draw = np.random.Generator(np.random.PCG64(count))
    vertices = draw.normal(size=(count, width))
    averages = draw.dirichlet(np.ones(count), size=4) @ vertices
    assert (hull_distances(averages, vertices)[0] <= SOLVED).all()
    beyond = vertices.mean(0) + 3 * (vertices[:3] - vertices.mean(0))  # three times as far out: outside, if extreme
    farthest = np.linalg.norm(vertices - vertices.mean(0), axis=1).argmax()
    out = vertices.mean(0) + 1.5 * (vertices[farthest] - vertices.mean(0))  # beyond the ball that holds all vertices
    assert hull_distance(out, vertices).separation > 0.01
    assert hull_distances(beyond, vertices).shape == (2, 3)


def test_distance_scales_and_shifts_with_the_points():
    draw = np.random.Generator(np.random.PCG64(0))
    vertices, point = draw.normal(size=(6, 3)), np.full(3, 4.0)
    distance = hull_distance(point, vertices).distance
    for scale in (1e-9, 1e9):
        moved = hull_distance(scale * point + 7 * scale, scale * vertices + 7 * scale)
        assert moved.distance == pytest.approx(scale * distance, rel=1e-8)


def test_the_hull_of_one_repeated_point():
    same = np.ones((3, 2))
    assert hull_distance(np.ones(2), same).distance == 0
    assert hull_distance(np.array([1.0, 3.0]), same).distance == pytest.approx(2, abs=SOLVED)


def test_interior_points_take_over_when_the_simplex_method_gives_up(monkeypatch: pytest.MonkeyPatch):
    solve, methods = geometry.linprog, []

    def stubborn(*arguments: object, method: str, options: dict[str, float], **more: object) -> object:
        methods.append(method)
        pivots = 0 if method == "highs-ds" else options["maxiter"]
        return solve(*arguments, method=method, options=options | {"maxiter": pivots}, **more)

    monkeypatch.setattr(geometry, "linprog", stubborn)
    assert hull_distance(np.array([5.0, 1.0]), SQUARE).distance == pytest.approx(3, abs=1e-6)  # no vertex solution
    assert methods == ["highs-ds", "highs-ipm"]


def test_no_solution_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(geometry, "PIVOTS", 0)
    with pytest.raises(FloatingPointError, match="no solution"):
        hull_distance(np.array([5.0, 1.0]), SQUARE)


def test_errors():
    with pytest.raises(ValueError, match=r"\(3,\).*\(4, 2\)"):
        hull_distance(np.zeros(3), SQUARE)
    with pytest.raises(FloatingPointError, match="not finite"):
        hull_distance(np.array([np.nan, 0.0]), SQUARE)
