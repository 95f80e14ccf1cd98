"""Joint greedy: buy the instance that lowers the objective most, until none does.

It starts with one instance of each service, which goes where the requests travel least given the services placed before it. Then every
service and every node are compared by what one more instance would save in latency, less its price, with all requests routed anew.

The greedy rule is that of facility location: Location of bank accounts to optimize float, Management Science 1977.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique

from .planning.estimates import TRIES, estimated, services_that_share
from .planning.state import State
from .problem.plan import Plan
from .problem.problem import Problem

#: Times that the greedy plan is made to find the scale by which its own objective divides.
_SCALINGS = 2


@dataclass(frozen=True)
class JointGreedy(Technique):
    """Adds the instance with the greatest marginal gain until there is none."""

    def solve(self, problem: Problem) -> Plan:
        """The plan for a problem."""
        return best_greedy(problem).plan()


def best_greedy(problem: Problem) -> State:
    """The better of two greedy states: the reference, and one that weighs prices and latency by the reference's scale.

    Greedy purchases are not monotone, so that the plan with slightly wrong weights is sometimes the better one.
    """
    own, other = greedy(problem), State.like(problem.reference[0], problem)
    return other if (len(other.troubled), other.objective) < (len(own.troubled), own.objective) else own


def greedy(problem: Problem, scale: tuple[float, float] | None = None) -> State:
    """Joint greedy's plan as a state; `scale` replaces the problem's cost₀ and latency₀."""
    state = State(problem, scale=scale)
    one_each(state)
    state.route()
    state.repair()
    grow(state)
    return state


def one_each(state: State) -> None:
    """Places one instance of each service, by decreasing demand, where requests travel least among the services placed so far."""
    p = state.problem
    demand = np.array([float((p.weight * p.mb)[users].sum()) for users in p.users_of])
    placed: dict[int, int] = {}
    for m in sorted(p.used.tolist(), key=lambda m: -demand[m]):
        users, places = p.users_of[m], p.place_of[m]
        total = np.zeros(len(p.nodes))
        for u, place in zip(users.tolist(), places.tolist()):
            first = int(p.chain_start[u])
            chain = p.chain[first : int(p.chain_start[u + 1])].tolist()
            before = next((placed[s] for s in reversed(chain[:place]) if s in placed), -1)
            after = next((placed[s] for s in chain[place + 1 :] if s in placed), -1)
            total += p.weight[u] * (p.access[u] if before < 0 else p.mb[u] * p.distance[before])
            if after >= 0:
                total += p.weight[u] * p.mb[u] * p.distance[after]
        # A node that cannot carry one visit of the largest user is of no use.
        heaviest = max(float(p.need[p.chain_start[u] + place]) for u, place in zip(users.tolist(), places.tolist()))
        able = [k for k in range(len(p.nodes)) if state.fits(m, k) and heaviest <= p.room[k]]
        able = able or [k for k in range(len(p.nodes)) if state.fits(m, k)]
        if able:
            best = min(able, key=lambda k: (total[k], k))
            placed[m] = best
            state.put(m, best)


def grow(state: State) -> None:
    """Adds the instance with the greatest gain until no instance has one.

    What each service would gain is estimated, and then tried on the best few nodes with every capacity. An estimate is renewed when its
    service comes to the top of the list, and all of them are renewed before the end.
    """
    p = state.problem
    sharing = services_that_share(p)
    gains = {m: estimated(state, m, state.by_node(m)) for m in p.used.tolist()}
    stale: set[int] = set()
    while True:
        m = max(gains, key=lambda m: (max(gains[m].values(), default=0.0), -m))
        if not gains[m]:
            if not stale:
                return
            gains.update({m: estimated(state, m, state.by_node(m)) for m in sorted(stale)})
            stale.clear()
            continue
        runner_up = max((max(found.values(), default=0.0) for other, found in gains.items() if other != m), default=0.0)
        table = state.by_node(m)
        gains[m] = estimated(state, m, table)
        stale.discard(m)
        for k in sorted(gains[m], key=lambda k: (-gains[m][k], k))[:TRIES]:
            if gains[m][k] < runner_up:
                break
            if state.change(add=[(m, k)], tables={m: table}):
                stale |= sharing[m]
                break
            del gains[m][k]
        else:
            gains[m] = {}


def reference(problem: Problem) -> tuple[State, tuple[float, float]]:
    """Joint greedy's state at α = 0.5, with its cost and mean latency.

    The plan itself depends on the scale, so it is made again with its own cost and latency once more.
    The first scale is that of one instance of each service.
    """
    twin = Problem(**{name: getattr(problem, name) for name in Problem.__dataclass_fields__} | {"alpha": 0.5})
    for name in ("access", "users_of", "place_of", "need", "length"):
        twin.__dict__[name] = getattr(problem, name)
    processing = float((problem.weight * problem.processing).sum())
    scale = first_scale(problem)
    for _ in range(_SCALINGS):
        state = greedy(twin, scale)
        served = np.isfinite(state.travel)
        travel = float((problem.weight[served] * state.travel[served]).sum() / max(problem.weight[served].sum(), 1e-300))
        scale = (max(state.cost, 1e-9), processing + travel)
    return state, scale


def first_scale(problem: Problem) -> tuple[float, float]:
    """The price of one instance of each service, and the mean latency if everybody were answered as fast as possible."""
    return max(float(problem.price[problem.used].sum()), 1e-9), float((problem.weight * problem.fastest).sum())
