"""Is a token in the convex hull of others: a linear programme with certificates for either answer."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import OptimizeResult, linprog

TOLERANCE = 1e-9  # of the solver, in units of the hull's size; at the tightest, 1e-10, the simplex method may cycle
PIVOTS = 50  # simplex steps allowed per row or column; a few are enough unless it cycles


class HullDistance(NamedTuple):
    """Bounds on the distance (largest coordinate difference) of a point to a hull, in the units of the points.

    separation <= true distance <= distance; both are recomputed from the solver's certificates, not read off it.
    """

    distance: float  # of the point to a weighted average actually found
    separation: float  # gap of a hyperplane that has all vertices on one side; 0 or below shows nothing


def hull_distance(point: Float[ndarray, " width"], vertices: Float[ndarray, "vertices width"]) -> HullDistance:
    """Distance of y to conv{x_1, ..., x_n} in the maximum norm,

        min_w  max_k |sum_i w_i x_ik - y_k|   with w_i >= 0, sum_i w_i = 1,

    as a linear programme in (w, t). Its dual is a direction a with ||a||_1 = 1 and value a.y - max_i a.x_i: when that
    is positive, no weighted average of the vertices is y.

    Raises:
        ValueError: the point and the vertices differ in width.
        FloatingPointError: a NaN or inf among the coordinates, or no solution found.
    """
    if point.shape != vertices.shape[1:]:
        raise ValueError(f"hull_distance: point {point.shape} and vertices {vertices.shape} differ in width")
    if not (np.isfinite(point).all() and np.isfinite(vertices).all()):
        raise FloatingPointError("hull_distance: a coordinate is not finite")
    # Solve in units of the hull's size, so that the solver's absolute tolerances mean the same for every input.
    middle = vertices.mean(axis=0)
    scale = np.abs(vertices - middle).max() or 1.0
    x, y = (vertices - middle) / scale, (point - middle) / scale
    count, width = x.shape
    minus_t = -np.ones((width, 1))
    programme = _solve(
        c=np.r_[np.zeros(count), 1.0],
        A_ub=np.block([[x.T, minus_t], [-x.T, minus_t]]),
        b_ub=np.r_[y, -y],
        A_eq=np.r_[np.ones(count), 0.0][None],
        b_eq=[1.0],
    )
    weights = np.clip(programme.x[:-1], 0, None)
    distance = np.abs(weights @ x / weights.sum() - y).max()
    above, below = np.split(programme.ineqlin.marginals, 2)  # minus the multipliers of the two sets of inequalities
    direction = above - below
    separation = (direction @ y - (x @ direction).max()) / (np.abs(direction).sum() or 1.0)
    return HullDistance(float(distance * scale), float(separation * scale))


def _solve(
    c: Float[ndarray, " columns"], A_ub: Float[ndarray, "rows columns"], b_ub: Float[ndarray, " rows"], **equal: object
) -> OptimizeResult:
    """Minimise over non-negative variables by dual simplex, whose vertices are exact, else by interior points."""
    tolerances = {f"{side}_feasibility_tolerance": TOLERANCE for side in ("primal", "dual")}
    options = tolerances | {"maxiter": PIVOTS * sum(A_ub.shape)}
    for method in ("highs-ds", "highs-ipm"):
        found = linprog(c, A_ub, b_ub, **equal, bounds=(0, None), method=method, options=options)
        if found.status == 0:
            return found
    raise FloatingPointError(f"hull_distance: no solution for {A_ub.shape} inequalities: {found.message}")


def hull_distances(
    points: Float[ndarray, "points width"], vertices: Float[ndarray, "vertices width"]
) -> Float[ndarray, "bounds points"]:
    """Return the two rows (distance, separation) of ``hull_distance`` for each of several points."""
    return np.array([hull_distance(point, vertices) for point in points]).reshape(len(points), 2).T
