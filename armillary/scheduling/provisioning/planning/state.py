"""A plan while it is being changed: what is placed, how everybody travels, and what is left of every node.

A change names instances to drop and to add. Only the requests whose chain contains one of these services are looked at again: those that
lose their instance, and those that would travel faster. The change is then played out under all capacities and deadlines, and undone if
it breaks one, or if the objective does not fall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.scheduling.provisioning.problem.plan import Plan
from armillary.scheduling.provisioning.problem.problem import Problem
from armillary.scheduling.provisioning.routing.layered import costs_by_node, free_paths, load_path, opening_path, reroute, travel_of

#: The least fall of the objective that counts.
LEAST_GAIN = 1e-9
Instance = tuple[int, int]
#: Milliseconds that stand for a user who is not served, in gains.
UNSERVED = 1e9
#: Times that instances are opened for users in trouble.
REPAIRS = 4
#: Rounds of pricing by which requests are routed anew within capacities.
ROUNDS = 5


class State:
    """A placement with the current path of every user; all its parts agree at any time outside a method."""

    def __init__(self, problem: Problem, placed: np.ndarray | None = None, scale: tuple[float, float] | None = None) -> None:
        p = self.problem = problem
        users, nodes, services = p.shape
        cost_0, latency_0 = p.scale if scale is None else scale
        #: What one unit of price and one millisecond of mean latency add to the objective.
        self.per_price, self.per_ms = p.alpha / cost_0, (1 - p.alpha) / latency_0
        #: `held[m, :count[m]]` are the nodes that hold service m, in ascending order; `has` says the same as a table.
        self.held, self.count = np.zeros((services, nodes), np.int64), np.zeros(services, np.int64)
        self.has = np.zeros((services, nodes), np.bool_)
        self.space_left = p.storage.astype(np.float64).copy()
        self.spare = p.room.copy()
        self.path = np.full((users, int(p.length.max())), -1, np.int64)
        self.travel = np.full(users, np.inf)
        #: The most travel that each user's deadline allows; a hair more than the difference, because of rounding.
        self.slack = (p.deadline - p.processing) * (1 + 1e-9) + 1e-9
        self.no_price = np.zeros(nodes)
        if placed is not None:
            for m, k in zip(*np.nonzero(placed)):
                self.put(int(m), int(k))

    @classmethod
    def like(cls, other: State, problem: Problem | None = None) -> State:
        """A copy, which divides by the problem's own scale if one is given."""
        twin = cls(other.problem if problem is None else problem, scale=(1.0, 1.0) if problem is None else None)
        if problem is None:
            twin.per_price, twin.per_ms = other.per_price, other.per_ms
        twin.adopt(other)
        return twin

    # What it is worth

    @property
    def cost(self) -> float:
        """The price of all instances."""
        return float((self.problem.price * self.count).sum())

    @property
    def travel_ms(self) -> float:
        """Mean milliseconds of travel; infinite while somebody is not served."""
        return float((self.problem.weight * self.travel).sum())

    @property
    def objective(self) -> float:
        """The objective without the processing times, which no plan can change; infinite while somebody is not served."""
        travel = self.travel_ms
        return self.per_price * self.cost + self.per_ms * travel if np.isfinite(travel) else np.inf

    @property
    def troubled(self) -> np.ndarray:
        """Users that are not served or late."""
        return np.flatnonzero(self.travel > self.slack)

    @property
    def ms(self) -> np.ndarray:
        """Travel with a finite number for users that are not served, so that gains can be computed."""
        return np.minimum(self.travel, UNSERVED)

    def fits(self, m: int, k: int) -> bool:
        """Whether node k has storage left for service m and does not hold it yet."""
        return not self.has[m, k] and bool(self.problem.space[m] <= self.space_left[k])

    def by_node(self, m: int) -> np.ndarray:
        """Travel (users of m × nodes) if service m were at each node alone, all other services being where they are."""
        p = self.problem
        return costs_by_node(
            p.users_of[m], p.place_of[m], p.chain_start, p.chain, p.access, p.mb, p.distance, self.held, self.count
        )  # fmt: skip

    # Changing it

    def put(self, m: int, k: int) -> None:
        """Places service m on node k without routing anybody over it."""
        n = int(self.count[m])
        at = int(np.searchsorted(self.held[m, :n], k))
        self.held[m, at + 1 : n + 1] = self.held[m, at:n].copy()
        self.held[m, at] = k
        self.count[m] = n + 1
        self.has[m, k] = True
        self.space_left[k] -= self.problem.space[m]

    def _take(self, m: int, k: int) -> None:
        n = int(self.count[m])
        at = int(np.searchsorted(self.held[m, :n], k))
        self.held[m, at : n - 1] = self.held[m, at + 1 : n].copy()
        self.count[m] = n - 1
        self.has[m, k] = False
        self.space_left[k] += self.problem.space[m]

    def on(self, m: int, k: int) -> np.ndarray:
        """The users whose path uses service m on node k."""
        users = self.problem.users_of[m]
        return users[self.path[users, self.problem.place_of[m]] == k]

    def change(
        self, drop: Sequence[Instance] = (), add: Sequence[Instance] = (), *, tables: Mapping[int, np.ndarray] | None = None,
        least: float = LEAST_GAIN,
    ) -> float:  # fmt: skip
        """Drops and adds instances, re-routes whom that touches, and returns by how much the objective fell.

        Undone, with 0 as the answer, if a deadline, capacity or storage would break, or if it fell by less than `least` while nobody in
        trouble was helped. `tables` may hold
        `by_node` of the services that are added, if no other service of their chains has changed since.
        """
        stored = self.space_left.copy()
        stranded = np.unique(np.concatenate([self.on(m, k) for m, k in drop])) if drop else np.empty(0, np.int64)
        for m, k in drop:
            self._take(m, k)
        if any(not self.fits(m, k) for m, k in add):
            self._undo_placement(drop, (), stored)
            return 0.0
        for m, k in add:
            self.put(m, k)
        touched = self._by_load(np.union1d(stranded, self._tempted(add, tables or {})) if add else stranded)
        old_path, old_travel, old_spare = self.path[touched].copy(), self.travel[touched].copy(), self.spare.copy()
        failed_before = int((old_travel > self.slack[touched]).sum())
        failed = self._reroute(touched)
        saved = self.problem.weight[touched] * (np.minimum(old_travel, UNSERVED) - np.minimum(self.travel[touched], UNSERVED))
        spent = sum(self.problem.price[m] for m, _ in add) - sum(self.problem.price[m] for m, _ in drop)
        gain = float(self.per_ms * saved.sum() - self.per_price * spent)
        if failed > failed_before or (failed == failed_before and not gain > least):
            self.path[touched], self.travel[touched], self.spare[:] = old_path, old_travel, old_spare
            self._undo_placement(drop, add, stored)
            return 0.0
        return max(gain, least)

    def change_and_route(self, drop: Sequence[Instance] = (), add: Sequence[Instance] = (), *, least: float = LEAST_GAIN) -> float:
        """Like `change`, but everybody is routed anew, which finds room that the paths of others take; undone in the same way."""
        stored, before, failed_before = self.space_left.copy(), self._worth(), len(self.troubled)
        for m, k in drop:
            self._take(m, k)
        if any(not self.fits(m, k) for m, k in add):
            self._undo_placement(drop, (), stored)
            return 0.0
        for m, k in add:
            self.put(m, k)
        old_path, old_travel, old_spare = self.path.copy(), self.travel.copy(), self.spare.copy()
        self.route()
        gain, failed = before - self._worth(), len(self.troubled)
        if failed > failed_before or (failed == failed_before and not gain > least):
            self.path[:], self.travel[:], self.spare[:] = old_path, old_travel, old_spare
            self._undo_placement(drop, add, stored)
            return 0.0
        return max(gain, least)

    def _worth(self) -> float:
        return self.per_price * self.cost + self.per_ms * float((self.problem.weight * self.ms).sum())

    def _undo_placement(self, drop: Sequence[Instance], add: Sequence[Instance], stored: np.ndarray) -> None:
        for m, k in add:
            self._take(m, k)
        for m, k in drop:
            self.put(m, k)
        # Sums that are added and subtracted again differ in the last bit.
        self.space_left[:] = stored

    def _tempted(self, add: Iterable[Instance], tables: Mapping[int, np.ndarray]) -> np.ndarray:
        """The users who would travel faster over one of the new instances."""
        found = [np.empty(0, np.int64)]
        for m, k in add:
            users = self.problem.users_of[m]
            table = tables[m] if m in tables else self.by_node(m)
            found.append(users[table[:, k] < self.travel[users] - 1e-12])
        return np.concatenate(found)

    def _by_load(self, users: np.ndarray) -> np.ndarray:
        """Users by decreasing load, because large ones are harder to fit."""
        return users[np.argsort(-self.problem.rate[users], kind="stable")]

    def _reroute(self, users: np.ndarray, price: np.ndarray | None = None) -> int:
        p = self.problem
        return int(
            reroute(
                users, p.chain_start, p.chain, p.access, p.mb, p.distance, self.held, self.count, p.need, self.spare, self.slack,
                self.no_price if price is None else price, self.path, self.travel,
            )
        )  # fmt: skip

    # Routing

    def route(self, rounds: int = ROUNDS) -> None:
        """Routes everybody anew: the fastest paths if they fit, else within capacities, with prices on full nodes for some rounds.

        The prices rise where the fastest paths overfill a node. The best round counts, measured by users in trouble, then by travel.
        """
        p = self.problem
        everybody = np.arange(len(p.users))
        free_paths(everybody, p.chain_start, p.chain, p.access, p.mb, p.distance, self.held, self.count, self.path, self.travel)
        self.spare[:] = p.room
        for u in everybody[self.path[:, 0] >= 0]:
            load_path(u, p.chain_start, p.need, self.path[u], self.spare, -1.0)
        if (self.spare >= 0).all():
            return
        order = self._by_load(everybody)
        reached = np.isfinite(self.travel)
        typical = float((p.weight[reached] * self.travel[reached]).sum()) + float(p.distance[np.isfinite(p.distance)].max())
        price = np.zeros(len(p.nodes))
        best: tuple[Any, ...] | None = None
        for _ in range(max(1, rounds)):
            over = np.maximum(0.0, -self._unlimited(price)) / p.room
            self.path[:], self.spare[:] = -1, p.room
            self._reroute(order, price)
            served = np.isfinite(self.travel)
            found = (len(self.troubled), float((p.weight[served] * self.travel[served]).sum()))
            if best is None or found < best[0]:
                best = (found, self.path.copy(), self.travel.copy(), self.spare.copy())
            price = price + typical * over / p.room
        assert best is not None
        self.path[:], self.travel[:], self.spare[:] = best[1:]

    def _unlimited(self, price: np.ndarray) -> np.ndarray:
        """What would be left of the nodes if everybody took the cheapest path at these prices."""
        p = self.problem
        path, travel, spare = np.full_like(self.path, -1), np.empty_like(self.travel), np.full(len(p.nodes), np.inf)
        reroute(
            np.arange(len(p.users)), p.chain_start, p.chain, p.access, p.mb, p.distance, self.held, self.count, p.need, spare,
            np.full(len(p.users), np.inf), price, path, travel,
        )  # fmt: skip
        left = p.room.copy()
        for u in np.flatnonzero(path[:, 0] >= 0):
            load_path(u, p.chain_start, p.need, path[u], left, -1.0)
        return left

    def repair(self) -> np.ndarray:
        """Opens instances until everybody is served in time, as far as storage and cores allow; returns the users still in trouble.

        If opening does not help everybody, all are routed anew over what is open now, which moves spare cores to where they are needed.
        """
        for _ in range(REPAIRS):
            if not len(self.troubled) or not len(self._opened()):
                break
            kept = State.like(self)
            self.route()
            if len(self.troubled) > len(kept.troubled):
                self.adopt(kept)
        return self.troubled

    def adopt(self, other: State) -> None:
        """Takes over the placement and the paths of another state of the same problem."""
        for name in ("held", "count", "has", "space_left", "spare", "path", "travel"):
            getattr(self, name)[...] = getattr(other, name)

    def _opened(self) -> np.ndarray:
        """Opens instances for the users in trouble, one user after the other; returns those who still are.

        Each user in trouble gets the path that adds least to the objective, the price of the instances it opens included; if that path is
        late, the fastest one. Instances that nobody uses are dropped first, because they only take storage.
        """
        p = self.problem
        if len(self.troubled):
            self.drop_unused()
        nodes = len(p.nodes)
        longest = self.path.shape[1]
        cost, best, blocked = np.empty((longest, nodes)), np.empty((longest, nodes), np.int64), np.zeros((longest, nodes), np.bool_)
        row = np.empty(longest, np.int64)
        for u in self._by_load(self.troubled).tolist():
            if self.travel[u] <= self.slack[u]:
                continue
            load_path(u, p.chain_start, p.need, self.path[u], self.spare, 1.0)
            for free in (False, True):
                per_ms = self.per_ms * p.weight[u]
                opening = np.zeros(len(p.services)) if free or per_ms == 0 else self.per_price * p.price / per_ms
                row[:] = -1
                found = opening_path(
                    u, p.chain_start, p.chain, p.access, p.mb, p.distance, self.has, p.need, self.spare, self.space_left, p.space, opening,
                    row, cost, best, blocked,
                )  # fmt: skip
                if found <= self.slack[u]:
                    break
            # A late path is better than none.
            if np.isfinite(found) and (found <= self.slack[u] or not np.isfinite(self.travel[u])):
                for place in range(int(p.length[u])):
                    m = int(p.chain[p.chain_start[u] + place])
                    if not self.has[m, row[place]]:
                        self.put(m, int(row[place]))
                self.path[u], self.travel[u] = row, found
            if self.path[u, 0] >= 0:
                load_path(u, p.chain_start, p.need, self.path[u], self.spare, -1.0)
        return self.troubled

    def settle(self) -> None:
        """Routes everybody, opens what is missing, and drops the instances that nobody uses: how every baseline's placement ends.

        A placement that cannot be repaired gives way to one instance of each service, which leaves most room for repairs.
        """
        self.route()
        if len(self.repair()):
            from armillary.scheduling.provisioning.joint_greedy import one_each

            plain = State.like(self)
            plain.clear()
            one_each(plain)
            plain.route()
            if len(plain.repair()) < len(self.troubled):
                self.adopt(plain)
        self.drop_unused()

    def resume(self, users: np.ndarray, paths: np.ndarray) -> None:
        """Puts users back on paths whose instances are all there; everybody else is not served yet."""
        p = self.problem
        self.path[:], self.travel[:], self.spare[:] = -1, np.inf, p.room
        for u, row in zip(users.tolist(), paths):
            self.path[u, : len(row)] = row
            self.travel[u] = travel_of(u, p.chain_start, p.access, p.mb, p.distance, self.path[u])
            load_path(u, p.chain_start, p.need, self.path[u], self.spare, -1.0)

    def clear(self) -> None:
        """Drops every instance and every path."""
        self.count[:], self.has[:], self.path[:], self.travel[:] = 0, False, -1, np.inf
        self.space_left[:], self.spare[:] = self.problem.storage, self.problem.room

    def drop_unused(self) -> None:
        """Drops the instances that nobody uses, but the last one of each service."""
        for m in range(len(self.problem.services)):
            for k in self.held[m, : self.count[m]].tolist():
                if (self.count[m] > 1 or not len(self.problem.users_of[m])) and not len(self.on(m, k)):
                    self._take(m, k)

    def plan(self, borrowed: tuple[tuple[int, int, int], ...] = ()) -> Plan:
        """The state as a plan."""
        found = Plan.of_paths(self.problem, self.has.copy(), self.path.copy())
        return Plan(found.problem, found.placed, found.user, found.share, found.path, borrowed)
