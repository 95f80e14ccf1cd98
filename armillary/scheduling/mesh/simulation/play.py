"""A policy's placements, step by step: what is known, what is decided, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from armillary.scheduling.mesh.contiguous import contiguous
from armillary.scheduling.mesh.octree.mesh import Floats, Graph, Ints
from armillary.scheduling.mesh.octree.refinement import Change
from armillary.scheduling.mesh.placement.policy import Policy, State, loads
from armillary.scheduling.mesh.telemetry.clean import Telemetry
from armillary.scheduling.mesh.workload import MeshWork
from armillary.timing import Stopwatch

from .step import migrations, simulate_migration, simulate_step

#: (costs, placement, graph) to µs of a step, and (change, before, placement) to µs of a migration.
StepTime = Callable[[Floats, Ints, Graph], float]
MoveTime = Callable[[Change | None, Ints, Ints], float]


@dataclass
class Played:
    """Per counted step: µs with the migration before it, µs of that migration, and what the placement was like."""

    step_us: list[float] = field(default_factory=list)
    migration_us: list[float] = field(default_factory=list)
    imbalance: list[float] = field(default_factory=list)
    promise_error: list[float] = field(default_factory=list)
    locality: list[float] = field(default_factory=list)
    remote: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    #: ms of every placement that was made.
    place_ms: list[float] = field(default_factory=list)
    #: The last placement.
    placement: Ints | None = None

    def metrics(self) -> dict[str, float]:
        """Means over the steps."""
        return {
            "step_us": float(np.mean(self.step_us)),
            "migration_us": float(np.mean(self.migration_us)),
            "imbalance": float(np.mean(self.imbalance)),
            "promise_error": float(np.mean(self.promise_error)),
            "locality": float(np.mean(self.locality)),
            "remote_bytes": float(np.mean(self.remote)),
            "moved": float(np.mean(self.moved)),
            "place_ms": float(np.mean(self.place_ms)),
        }


def play(
    work: MeshWork, policy: Policy, *, hygiene: bool = True, step_time: StepTime | None = None, move_time: MoveTime | None = None
) -> Played:  # fmt: skip
    """Plays all steps of the work with one policy. The run begins with blocks placed as if all cost the same, as frameworks do.

    hygiene: whether the costs known are cleaned. step_time, move_time: how long steps and migrations take, simulated unless given.
    """
    machine, ranks = work.machine, work.ranks
    step_time = step_time or (lambda costs, placement, graph: simulate_step(costs, placement, graph, ranks, machine).end)
    move_time = move_time or (
        lambda change, before, placement: simulate_migration(
            *migrations(change, before, placement, work.block_bytes, work.parts), ranks, machine
        )
    )
    session = policy.session()
    telemetry = Telemetry(work.costs[0], hygiene)
    placement = contiguous(np.ones(len(work.costs[0])), ranks)
    done = Played()
    described = (0.0, 0.0)
    for step in range(work.steps):
        mesh, before_mesh = int(work.mesh_of[step + 1]), int(work.mesh_of[step])
        graph, costs = work.graphs[mesh], work.costs[step + 1]
        change = work.changes[before_mesh] if mesh != before_mesh else None
        if change is not None:
            telemetry.change(change)
        known = telemetry.known
        if work.shuffles:
            known = known[work.shuffles[step + 1]]
        state = State(known, ranks, graph, machine, step)
        before, migration_us = placement, 0.0
        moved = np.zeros(len(costs), bool)
        if session.due(step, change is not None):
            session.prepare(state)
            with Stopwatch() as watch:
                placement = session.place(state)
            done.place_ms.append(1e3 * watch.seconds)
            migration_us = move_time(change, before, placement)
            moved = moved_blocks(change, before, placement)
            described = (locality(placement, machine.per_node), remote_share(graph, placement, machine.per_node))
        step_us = step_time(costs, placement, graph)
        own, promised = loads(costs, placement, ranks), loads(known, placement, ranks)
        done.step_us.append(step_us + migration_us)
        done.migration_us.append(migration_us)
        done.imbalance.append(float(own.max() / own.mean()) if own.any() else 1.0)
        done.promise_error.append(abs(float(promised.max() / own.max()) - 1.0) if own.any() else 0.0)
        done.locality.append(described[0])
        done.remote.append(described[1])
        done.moved.append(float(moved.mean()))
        telemetry.measured(costs, moved)
        session.observe(state, costs, step_us)
    done.placement = placement
    return done


def moved_blocks(change: Change | None, before: Ints, placement: Ints) -> np.ndarray:
    """Which blocks, or parts of them, came from another rank."""
    if change is None:
        found: np.ndarray = before != placement
        return found
    away = before[change.source] != placement[change.target]
    return np.bincount(change.target, away, minlength=len(placement)) > 0


def locality(placement: Ints, per_node: int) -> float:
    """The mean over consecutive blocks of 0 (same rank), 1 (adjacent rank), 2 (same node) or 3 (elsewhere)."""
    if len(placement) < 2:
        return 0.0
    one, other = placement[:-1], placement[1:]
    apart = np.abs(one - other)
    return float(np.where(apart < 2, apart, np.where(one // per_node == other // per_node, 2, 3)).mean())


def remote_share(graph: Graph, placement: Ints, per_node: int) -> float:
    """The share of the bytes between blocks that leaves a node."""
    node = placement // per_node
    total = graph.size.sum()
    return float(graph.size[node[graph.source] != node[graph.target]].sum() / total) if total > 0 else 0.0
