"""A genetic algorithm over placements: 60 of them, for 200 generations.

A child takes each service's row from one of two parents, which tournaments of three choose, and flips a few instances. Fitness is the
objective with everybody on the fastest path, plus twice the shares of cores, storage and deadlines that are exceeded. The first generation
holds joint greedy's placement. At the end the fittest are routed within capacities and repaired as all others are.

Adaptation in natural and artificial systems, University of Michigan Press 1975.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique, parameter
from armillary.kernels import loop

from .joint_greedy import best_greedy
from .planning.state import State
from .problem.plan import Plan
from .problem.problem import Problem
from .routing.layered import free_paths, load_path

#: How many of the last generation are routed within capacities.
_FINALISTS = 5


@dataclass(frozen=True)
class Genetic(Technique):
    """Breeds placements."""

    population: int = parameter(60, "placements per generation", range=(4, 10_000))
    generations: int = parameter(200, "generations", range=(1, 100_000))
    flips: float = parameter(1.0, "instances that a child flips, on average", range=(0.0, 1e3))

    def solve(self, problem: Problem) -> Plan:
        """The plan for a problem."""
        rng = self.rng
        _, nodes, services = problem.shape
        seed = best_greedy(problem)
        shape = (self.population, services, nodes)
        people = rng.random(shape) < seed.has.mean()
        people[0] = seed.has
        _fitted(people, rng.random(shape), problem.space, problem.storage, problem.used)
        fitness = self.fitness(problem, people)
        for _ in range(self.generations):
            cups = rng.integers(self.population, size=(self.population, 2, 3))
            children = _bred(people, fitness, cups, rng.random(shape[:2]) < 0.5, rng.random(shape) < self.flips / (services * nodes))
            _fitted(children[1:], rng.random((self.population - 1, *shape[1:])), problem.space, problem.storage, problem.used)
            people, fitness = children, self.fitness(problem, children)
        best = seed
        for i in np.argsort(fitness, kind="stable")[:_FINALISTS]:
            state = State(problem, people[i])
            state.settle()
            if (len(state.troubled), state.objective) < (len(best.troubled), best.objective):
                best = state
        return best.plan()

    def fitness(self, problem: Problem, people: np.ndarray) -> np.ndarray:
        """The objective of each placement (P × M × K) with penalties; lower is fitter."""
        cost_0, latency_0 = problem.scale
        cost, travel, over, late = _played(
            people, problem.price, problem.chain_start, problem.chain, problem.access, problem.mb, problem.distance, problem.need,
            problem.room, problem.weight, problem.deadline - problem.processing, int(problem.length.max()),
        )  # fmt: skip
        worth = problem.alpha * cost / cost_0 + (1 - problem.alpha) * travel / latency_0
        found: np.ndarray = worth + 2 * over / problem.need.sum() + 2 * late
        return found


@loop
def _bred(people, fitness, cups, first, flips):  # type: ignore[no-untyped-def]
    """The next generation: the fittest, and children of the winners of two tournaments each."""
    count, services, nodes = people.shape
    out = np.empty_like(people)
    out[0] = people[np.argmin(fitness)]
    for i in range(1, count):
        parents = np.empty(2, np.int64)
        for side in range(2):
            parents[side] = cups[i, side, 0]
            for j in range(1, 3):
                if fitness[cups[i, side, j]] < fitness[parents[side]]:
                    parents[side] = cups[i, side, j]
        for m in range(services):
            parent = parents[0] if first[i, m] else parents[1]
            for k in range(nodes):
                out[i, m, k] = people[parent, m, k] != flips[i, m, k]
    return out


@loop
def _fitted(people, order, space, storage, used):  # type: ignore[no-untyped-def]
    """Drops instances from overfull nodes in a random order, and gives each service without an instance one on the emptiest node."""
    count, services, nodes = people.shape
    for i in range(count):
        left = storage.copy()
        for m in range(services):
            for k in range(nodes):
                if people[i, m, k]:
                    left[k] -= space[m]
        for k in range(nodes):
            while left[k] < 0.0:
                last = -1
                for m in range(services):
                    if people[i, m, k] and (last < 0 or order[i, m, k] > order[i, last, k]):
                        last = m
                if last < 0:
                    break
                people[i, last, k] = False
                left[k] += space[last]
        for m in used:
            if not people[i, m].any():
                k = int(np.argmax(left))
                people[i, m, k] = True
                left[k] -= space[m]


@loop
def _played(people, price, chain_start, chain, access, mb, distance, need, room, weight, slack, longest):  # type: ignore[no-untyped-def]
    """For each placement: its price, the mean travel on the fastest paths, overfull cores, and the share of requests that is late."""
    count, services, nodes = people.shape
    users = len(mb)
    cost, total, over, late = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count)
    everybody, path, travel = np.arange(users), np.full((users, longest), -1), np.empty(users)
    held, number = np.empty((services, nodes), np.int64), np.empty(services, np.int64)
    for i in range(count):
        for m in range(services):
            number[m] = 0
            for k in range(nodes):
                if people[i, m, k]:
                    held[m, number[m]] = k
                    number[m] += 1
            cost[i] += price[m] * number[m]
        free_paths(everybody, chain_start, chain, access, mb, distance, held, number, path, travel)
        spare = room.copy()
        for u in range(users):
            load_path(u, chain_start, need, path[u], spare, -1.0)
            total[i] += weight[u] * min(travel[u], 1e9)
            late[i] += weight[u] if travel[u] > slack[u] else 0.0
        for k in range(nodes):
            over[i] += max(0.0, -spare[k])
    return cost, total, over, late
