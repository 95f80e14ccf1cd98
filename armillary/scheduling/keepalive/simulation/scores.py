"""Figures over several λ: what share of the published pair of reductions is reached, and how far the front is from the oracle's."""

from __future__ import annotations

from collections.abc import Sequence

#: Published reductions of cold starts and of idle carbon, both against static-60.
COLD_REDUCTION, CARBON_REDUCTION = 0.5169, 0.7708
LAMBDAS = tuple(k / 10 for k in range(1, 10))
#: (cold starts, grams of idle carbon)
Point = tuple[float, float]


def joint_share(points: Sequence[Point], reference: Point) -> float:
    """max over points of min(cold reduction/51.69 %, carbon reduction/77.08 %); 1 reaches both published figures at one λ.

    The reference counts as one cold start if it has none.
    """
    return max(
        min((1 - cold / max(reference[0], 1.0)) / COLD_REDUCTION, (1 - carbon / max(reference[1], 1e-12)) / CARBON_REDUCTION)
        for cold, carbon in points
    )


def hypervolume(points: Sequence[Point], corner: Point) -> float:
    """The area that is dominated by the points and lies within the corner."""
    area, height = 0.0, corner[1]
    for cold, carbon in sorted(points):
        if cold < corner[0] and carbon < height:
            area += (corner[0] - cold) * (height - carbon)
            height = carbon
    return area


def pareto_gap(points: Sequence[Point], best: Sequence[Point], corner: Point) -> float:
    """The share of the best front's hypervolume that the points do not reach."""
    whole = hypervolume(best, corner)
    return 1 - hypervolume(points, corner) / whole if whole > 0 else 0.0
