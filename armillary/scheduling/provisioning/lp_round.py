"""LP rounding: solve the relaxation, open each instance with the probability that the relaxation gives it, and repair.

The relaxation of a large problem has millions of variables, so each user is restricted to its nearest nodes there. The best of many
roundings counts. Probabilities are multiplied by 1, 1.5, 2 and 3 in turn, because a relaxation spreads an instance over several nodes.

Randomized rounding: a technique for provably good algorithms and algorithmic proofs, Combinatorica 1987.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import NotForThisCase, Technique, parameter

from .planning.state import State
from .problem.ilp import integer_program
from .problem.plan import Plan
from .problem.problem import Problem

FACTORS = (1.0, 1.5, 2.0, 3.0)
MOST_FLOWS = 100_000


@dataclass(frozen=True)
class LpRound(Technique):
    """Rounds the LP relaxation at random."""

    draws: int = parameter(48, "roundings that are drawn", range=(1, 100_000))
    flows: int = parameter(16_000, "variables beyond which users are restricted to their nearest nodes, three at least", range=(100, 10**7))

    def solve(self, problem: Problem) -> Plan:
        """The plan for a problem."""
        share = self.relaxed(problem)
        best: State | None = None
        for draw in range(self.draws):
            chosen = self.rng.random(share.shape) < FACTORS[draw % len(FACTORS)] * share
            for m in problem.used.tolist():
                if not chosen[m].any():
                    chosen[m, int(share[m].argmax())] = True
            state = State(problem, _within_storage(chosen, share, problem))
            state.settle()
            if best is None or (len(state.troubled), state.objective) < (len(best.troubled), best.objective):
                best = state
        assert best is not None
        return best.plan()

    def relaxed(self, problem: Problem) -> np.ndarray:
        """The share (M × K) of each instance that the relaxation opens; 1 of each service everywhere if HiGHS finds no solution."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        users, nodes, services = problem.shape
        near = np.argsort(problem.access, 1, kind="stable")
        wide = nodes
        while wide > 3 and users * wide + int((problem.length - 1).sum()) * wide * wide > self.flows:
            wide -= 1
        count = users * wide + int((problem.length - 1).sum()) * wide * wide
        if count > MOST_FLOWS:
            raise NotForThisCase(f"the relaxation has {count:,} flows, and HiGHS takes minutes beyond {MOST_FLOWS:,}")
        program = integer_program(problem, None if wide == nodes else near[:, :wide])
        found = milp(
            program.cost, constraints=LinearConstraint(program.matrix, program.low, program.high), bounds=Bounds(0, program.upper)
        )  # fmt: skip
        if found.x is None:
            return np.ones((services, nodes))
        return np.clip(found.x[: program.whole].reshape(services, nodes), 0.0, 1.0)


def _within_storage(placed: np.ndarray, share: np.ndarray, problem: Problem) -> np.ndarray:
    """The placement without the instances that overfill a node; those with the smallest share go."""
    out = placed.copy()
    for k in range(len(problem.nodes)):
        mine = np.flatnonzero(out[:, k])
        mine = mine[np.argsort(-share[mine, k], kind="stable")]
        out[mine[np.cumsum(problem.space[mine]) > problem.storage[k]], k] = False
    return out
