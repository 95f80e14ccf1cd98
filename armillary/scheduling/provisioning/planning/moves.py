"""The serial moves of a local search: drop, shift to a neighbour, swap two services, and add.

All other services fixed, one service is a facility location problem over the table of `State.by_node`, so every move of the service has an
estimate at once. The estimates leave capacities aside. A move that promises something is played out in the state, which undoes it if a
deadline or capacity breaks or the objective does not fall. The first move that holds is kept, the most promising one first. A service
whose moves all failed is not looked at again until a service that shares a request with it has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np

from .estimates import TRIES, estimated, services_that_share
from .state import LEAST_GAIN, ROUNDS, Instance, State

#: Paths that a search may look for when it routes everybody anew; a count rather than a time, so that plans do not depend on the machine.
PATHS = 2_000_000
#: (estimated gain, instances to drop, instances to add)
Move = tuple[float, tuple[Instance, ...], tuple[Instance, ...]]


def search(state: State, accepted: Callable[[float], None] | None = None, services: Collection[int] | None = None) -> int:
    """Improves a state until a full sweep over all services finds no gain; returns how many moves were kept.

    `accepted` is called with the objective after each move that is kept. `services` are the ones whose moves are tried, all by default.
    """
    p = state.problem
    sharing = services_that_share(p)
    look = {m: True for m in p.used.tolist() if services is None or m in services}
    kept, budget = 0, [PATHS]
    while True:
        swept = 0
        for m in look:
            while look[m]:
                changed = _improved(state, m, budget)
                if not changed:
                    look[m] = False
                    break
                swept += 1
                for service in changed:
                    for other in sharing[service] & look.keys():
                        look[other] = True
                if accepted is not None:
                    accepted(state.objective)
        kept += swept
        if not swept:
            return kept
        # The last sweep looks at everybody once more, because storage and cores that were freed touch services that share no request.
        look = dict.fromkeys(look, True)


def losses(state: State, m: int, table: np.ndarray) -> np.ndarray:
    """Mean milliseconds of travel that dropping each of a service's instances would add, in the order of `held`; capacities aside."""
    p = state.problem
    users, nodes = p.users_of[m], state.held[m, : state.count[m]]
    if len(nodes) < 2:
        return np.full(len(nodes), np.inf)
    served = state.path[users, 0] >= 0
    users, places = users[served], p.place_of[m][served]
    at = np.searchsorted(nodes, state.path[users, places])
    costs = table[np.ix_(served, nodes)]
    costs[np.arange(len(users)), at] = np.inf
    more = p.weight[users] * np.maximum(0.0, costs.min(1) - state.ms[users])
    return np.bincount(at, more, len(nodes))


def moves(state: State, m: int, table: np.ndarray) -> Iterator[Move]:
    """All moves of one service that promise a gain; swaps only where a neighbour's storage forbids a shift."""
    p = state.problem
    users, nodes = p.users_of[m], state.held[m, : state.count[m]].copy()
    saves = state.per_price * p.price[m]
    for k, loss in zip(nodes.tolist(), losses(state, m, table).tolist()):
        yield saves - state.per_ms * loss, ((m, k),), ()
    travel, weight = state.ms[users], p.weight[users]
    on = state.path[users, p.place_of[m]]
    rest = table[:, nodes].copy()
    for i, k in enumerate(nodes.tolist()):
        near = [j for j in p.neighbours[k].tolist() if not state.has[m, j]]
        if not near:
            continue
        mine = on == k
        others = np.delete(rest, i, 1).min(1) if len(nodes) > 1 else np.full(len(users), np.inf)
        # Whoever uses the instance goes to the better of the shifted one and the others; everybody else may gain.
        after = np.where(mine[:, None], np.minimum(others[:, None], table[:, near]), np.minimum(travel[:, None], table[:, near]))
        gains = state.per_ms * (weight[:, None] * (travel[:, None] - after)).sum(0)
        for j, gain in zip(near, gains.tolist()):
            if p.space[m] <= state.space_left[j]:
                yield gain, ((m, k),), ((m, j),)
            elif gain > LEAST_GAIN:
                for other in np.flatnonzero(state.has[:, j] & ~state.has[:, k]).tolist():
                    left = state.space_left
                    if p.space[other] <= left[k] + p.space[m] and p.space[m] <= left[j] + p.space[other]:
                        yield gain, ((m, k), (other, j)), ((m, j), (other, k))
    for k, gain in estimated(state, m, table).items():
        yield gain, (), ((m, k),)


def _improved(state: State, m: int, budget: list[int]) -> set[int]:
    """Keeps the first move of a service that holds and returns the services that it changed; empty if there is none.

    Where no move holds for those whom it touches, the most promising ones are tried once more with everybody routed anew.
    """
    table = state.by_node(m)
    found = sorted((move for move in moves(state, m, table) if move[0] > LEAST_GAIN), key=lambda move: (-move[0], move[1:]))
    for _, drop, add in found[: 4 * TRIES]:
        # With two services in the move, the table of the first is out of date.
        if state.change(drop, add, tables={m: table} if len(drop) < 2 else None):
            return {service for service, _ in (*drop, *add)}
    for _, drop, add in found[:TRIES]:
        if budget[0] <= 0:
            break
        budget[0] -= 2 * ROUNDS * len(state.problem.users)
        if state.change_and_route(drop, add):
            return set(state.problem.used.tolist())
    return set()
