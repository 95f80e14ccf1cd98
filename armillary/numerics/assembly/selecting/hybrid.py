"""A hybrid: elements at nodes of high valence by one strategy, the rest by another, where that is predicted to gain a tenth.

High valence spoils what is best elsewhere: colours multiply, rows are uneven. Elements at nodes with more than eight times the mean valence
are set apart; both sets have the same pattern, and their values are added. Our design, beyond the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from ..assembling.strategy import STRATEGIES, Prepared, Problem, Strategy, strategy, structure
from ..assembling.symbolic import Symbolic, restricted
from .features import Features, features
from .network import Network

#: Valence over the mean from which a node is a hub, and what must be gained.
HUB, GAIN = 8.0, 0.1


@dataclass(frozen=True)
class Hybrid(Strategy):
    """`at_hubs` for elements at nodes of high valence, `elsewhere` for the others."""

    name = "hybrid"
    deterministic = False

    at_hubs: str = parameter("scatter-atomic", "the strategy for elements at nodes of high valence", choices=tuple(STRATEGIES))
    elsewhere: str = parameter("row-gather", "the strategy for the other elements", choices=tuple(STRATEGIES))

    def prepare(self, problem: Problem, symbolic: Symbolic | None = None) -> Prepared:
        found = structure(problem, symbolic)
        hubs = at_hubs(problem)
        sets = [np.flatnonzero(hubs), np.flatnonzero(~hubs)]
        parts: list[tuple[np.ndarray, Prepared]] = []
        for chosen, name in zip(sets, (self.at_hubs, self.elsewhere)):
            if len(chosen):
                part = problem.part(chosen)
                own = strategy("scatter-atomic" if name == "coo-sort" else name)
                parts.append((chosen, own.prepare(part, restricted(found, part.work.cells, chosen))))

        def numeric(coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            total = None
            for chosen, prepared in parts:
                own = coefficients if coefficients.shape[1] == 1 else np.ascontiguousarray(coefficients[:, chosen])
                values = prepared.numeric(own)[0]
                total = values if total is None else np.add(total, values, out=total)
            assert total is not None
            return total, found.indices, found.indptr

        return Prepared(numeric, {"elements at hubs": len(sets[0])})


def at_hubs(problem: Problem) -> np.ndarray:
    """Says which elements have a node of high valence, as bool[elements]."""
    valence = np.bincount(problem.work.cells.ravel(), minlength=problem.nodes)
    hub = valence > HUB * valence[valence > 0].mean()
    return hub[problem.work.cells].any(axis=1)


def split(problem: Problem, found: Features, network: Network, alone: float, reuse: int) -> tuple[Hybrid, float] | None:
    """Returns the hybrid predicted fastest and its gain over `alone` seconds, or None where that is below a tenth or there are no hubs."""
    if found["valence most"] < np.log1p(HUB * np.expm1(found["valence mean"])):
        return None
    hubs = at_hubs(problem)
    share = hubs.mean()
    if not 0.0 < share < 0.9:
        return None
    names, total = [], 0.0
    for chosen in (hubs, ~hubs):
        numeric, setup = network.seconds(features(problem.part(np.flatnonzero(chosen))))
        seconds = numeric + (setup / reuse if reuse else 0.0)
        # Triplets know no common pattern.
        seconds[list(STRATEGIES).index("coo-sort")] = np.inf
        names.append(list(STRATEGIES)[int(np.argmin(seconds))])
        total += float(seconds.min())
    total += np.expm1(found["matrix bytes"]) * 3 / 1e10
    gain = 1 - total / alone
    return (Hybrid(names[0], names[1]), gain) if gain > GAIN and names[0] != names[1] else None
