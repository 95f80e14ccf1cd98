"""optimal: the cheapest standing placement when all rates are known, found by an integer program for small networks.

Each possible copy is a binary variable, and each pair of receiver and content is served from the cheapest copy on its path or from the
origin. It sees the future, so it is a bound and no strategy.

Huangfu, Hall: Parallelizing the dual revised simplex method. Mathematical Programming Computation, 2018 (HiGHS).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from armillary.arena import NotForThisCase

from .pricing.billing import Report
from .simulation.replay import NOWHERE, on_path, tables
from .simulation.strategy import Strategy
from .workload import Network

#: The most possible copies (contents × nodes × tiers) for which the integer program is solved.
_LARGEST = 2000


@dataclass(frozen=True)
class Optimal(Strategy):
    """The cheapest standing placement, found by HiGHS (2018)."""

    oracle: ClassVar[bool] = True

    def simulate(self, network: Network) -> Report:
        """Places the copies once, then runs the requests."""
        n, tiers = network.capacity.shape
        if n * tiers * len(network.catalogue) > _LARGEST:
            raise NotForThisCase(f"takes networks with at most {_LARGEST} contents times nodes times tiers")
        return on_path(network, NOWHERE, placed=best_placement(network))


def best_placement(network: Network) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(contents, nodes, tiers) of the copies that make holding, moving, serving and lateness cheapest at the requests' own rates."""
    links, _ = tables(network)
    c, r, prices, each = network.catalogue, network.requests, network.prices, network.prices.per_byte()
    n, tiers = network.capacity.shape
    seconds = float(r.time[-1] - r.time[0]) if len(r) > 1 else 1.0
    asked = np.zeros((n, len(c)))
    np.add.at(asked, (r.receiver, r.content), 1 / max(seconds, 1e-9))
    hop = prices.hop_energy * prices.joule
    copies = {
        (content, v, t): i
        for i, (content, v, t) in enumerate((content, v, t) for content in range(len(c)) for v in range(n) for t in range(tiers))
    }
    cost = [float(each.hold[t] * c.size[content]) for content, v, t in copies]
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []

    def row(entries: list[tuple[int, float]], least: float, most: float) -> None:
        for column, value in entries:
            rows.append(len(low))
            columns.append(column)
            values.append(value)
        low.append(least)
        high.append(most)

    for v in range(n):
        for t in range(tiers):
            row([(copies[content, v, t], float(c.size[content])) for content in range(len(c))], 0, float(network.capacity[v, t]))
        for content in range(len(c)):
            row([(copies[content, v, t], 1.0) for t in range(tiers)], 0, 1)
    for receiver, content in zip(*np.nonzero(asked)):
        size, service = float(c.size[content]), int(c.service[content])
        at, goal = int(receiver), n + int(c.origin[content])
        moved, far, wide = 0.0, 0.0, np.inf
        choices: list[tuple[int, float]] = []

        def served(latency: float, serve: float, moved: float, of: int = service) -> float:
            late = prices.classes[of].penalty if latency > prices.classes[of].deadline else 0.0
            return moved + serve + late

        while at != goal:
            for t in range(tiers):
                latency = far + each.latency[t] + size / min(wide, each.bandwidth[t])
                choice = len(cost)
                cost.append(asked[receiver, content] * served(latency, float(each.serve[t]) * size, moved))
                row([(choice, 1.0), (copies[int(content), at, t], -1.0)], -np.inf, 0)
                choices.append((choice, 1.0))
            after = int(links.toward[at, goal])
            moved += size * (float(links.price[at, after]) + hop)
            far += 2 * float(links.latency[at, after])
            wide = min(wide, float(links.bandwidth[at, after]))
            at = after
        choice = len(cost)
        cost.append(asked[receiver, content] * served(far + size / wide, 0.0, moved))
        row([*choices, (choice, 1.0)], 1, 1)
    matrix = coo_array((values, (rows, columns)), shape=(len(low), len(cost))).tocsr()
    whole = np.zeros(len(cost), np.int64)
    whole[: len(copies)] = 1
    # Without scaling, differences of nanodollars would be within the solver's tolerance.
    weights = np.array(cost) / max(max(cost), 1e-300)
    found: Any = milp(
        weights, constraints=LinearConstraint(matrix, low, high), integrality=whole, bounds=Bounds(0, 1), options={"mip_rel_gap": 0}
    )
    made = [key for key, i in copies.items() if found.x[i] > 0.5]
    contents, nodes, on = (np.array(column, np.int64) for column in zip(*made)) if made else (np.empty(0, np.int64),) * 3
    return contents, nodes, on
