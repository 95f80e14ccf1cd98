"""What every stage costs on every tier, for one number of nodes: the cells that the analytic makespan adds up.

The cells come from a published table, or from stage statistics and a storage profile (our design): time is bytes over bandwidth at the
concurrency of the stage, tasks beyond the cores of a node run in waves, and a copy runs at its cheapest concurrency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.workflow.stages.statistics import Flow, Stage, Statistics
from armillary.scheduling.workflow.stages.workflow import Floats, Ints
from armillary.scheduling.workflow.storage.profile import WORKERS, Profile
from armillary.scheduling.workflow.storage.tiers import COPY, Machine


@dataclass(frozen=True)
class Costs:
    """Seconds, by stage and tier. All arrays begin with [stage]."""

    nodes: int
    #: Reading all inputs and writing all outputs on a tier: [stage, tier].
    read: Floats
    write: Floats
    compute: Floats
    #: Copying into a local tier before the stage: [stage, tier].
    stage_in: Floats
    #: Copying a stage's outputs from its tier to a tier of its successors: [stage, from, to].
    stage_out: Floats
    #: Copying outputs that nobody reads from a tier to the shared one: [stage, tier].
    flush: Floats
    #: Tasks per node.
    tasks_per_node: Ints

    def scaled(self, factor: float) -> Costs:
        """All costs times a factor."""
        return Costs(
            self.nodes, self.read * factor, self.write * factor, self.compute * factor, self.stage_in * factor, self.stage_out * factor,
            self.flush * factor, self.tasks_per_node,
        )  # fmt: skip


def costs_of(statistics: Statistics, machine: Machine, nodes: int, profile: Profile | None = None) -> Costs:
    """The cells of a workflow on `nodes` nodes of a machine."""
    if not 1 <= nodes <= machine.nodes:
        raise InputError(f"found {nodes} nodes; expected 1 to {machine.nodes}, which {machine.name} has", where="nodes")
    for stage in statistics.stages:
        if stage.cores > machine.cores:
            found = f'stage "{stage.name}" needs {stage.cores} cores per task'
            raise InputError(f"{found}; expected at most {machine.cores}, which a node of {machine.name} has", where=statistics.name)
    return _Prices(statistics, machine, nodes, profile or Profile.of(machine)).costs()


class _Prices:
    def __init__(self, statistics: Statistics, machine: Machine, nodes: int, profile: Profile) -> None:
        self.statistics, self.machine, self.nodes, self.profile = statistics, machine, nodes, profile

    def costs(self) -> Costs:
        stages, tiers = self.statistics.stages, range(len(self.machine.tiers))
        shared = self.machine.shared
        S, T = len(stages), len(tiers)
        made = Costs(
            self.nodes, np.zeros((S, T)), np.zeros((S, T)), np.zeros(S), np.zeros((S, T)), np.zeros((S, T, T)), np.zeros((S, T)),
            np.array([tasks_per_node(stage.tasks, self.nodes) for stage in stages], np.int64),
        )  # fmt: skip
        for s, stage in enumerate(stages):
            _, waves = self._concurrency(stage)
            made.compute[s] = max(stage.longest_s, waves * stage.compute_s)
            read = sum(flow.read for flow in stage.reads.values()) + (stage.initial.read if stage.initial else 0.0)
            # Every successor's data is a part of the output; the stage is done when the largest part and the unread rest are written.
            written = max(stage.writes.values(), default=0.0) + stage.final
            handed = self._handed(s)
            for t in tiers:
                made.read[s, t] = self._io(stage, t, read, write=False)
                made.write[s, t] = self._io(stage, t, written, write=True)
                if t == shared:
                    for to in tiers:
                        made.stage_out[s, t, to] = 0.0 if to == shared else self._copy(shared, to, handed[1], handed[2])
                    continue
                if stage.initial is not None:
                    made.stage_in[s, t] = self._copy(shared, t, self._needed(stage.initial, stage.tasks), self._active(stage.tasks))
                mine = self._active(stage.tasks)
                made.flush[s, t] = self._copy(t, shared, stage.final * stage.tasks / mine, mine)
                for to in tiers:
                    if to == shared:
                        made.stage_out[s, t, to] = self._copy(t, shared, handed[0] / mine, mine)
                    else:
                        moved = handed[3] if to == t else handed[1]
                        made.stage_out[s, t, to] = self._copy(t, to, moved, handed[2])
        return made

    def _active(self, tasks: int) -> int:
        return max(1, min(self.nodes, tasks))

    def _concurrency(self, stage: Stage) -> tuple[int, int]:
        """Tasks that run at the same time on a node, and how many times."""
        slots = max(1, self.machine.cores // stage.cores)
        per_node = tasks_per_node(stage.tasks, self.nodes)
        return min(slots, per_node), -(-per_node // slots)

    def _io(self, stage: Stage, t: int, size: float, write: bool) -> float:
        if size <= 0:
            return 0.0
        together, waves = self._concurrency(stage)
        tier = self.machine.tiers[t]
        rate = self.profile.bandwidth(tier.name, "write" if write else "read", stage.transfer, stage.random, together)
        rate = min(rate, tier.aggregate(write) / self._active(stage.tasks))
        return waves * size * together / rate

    def _needed(self, flow: Flow, tasks: int) -> float:
        """Bytes that each node needs of a flow if tasks that share files run on one node."""
        return max(flow.read, flow.distinct / self._active(tasks))

    def _handed(self, s: int) -> tuple[float, float, int, float]:
        """The outputs of a stage that others read: all bytes, bytes per reading node, reading nodes, bytes from other nodes."""
        stages = self.statistics.stages
        readers = [other for other in stages if s in other.reads]
        if not readers:
            return 0.0, 0.0, 1, 0.0
        total = max(other.reads[s].distinct for other in readers)
        own = total / self._active(stages[s].tasks)
        needed = max(self._needed(other.reads[s], other.tasks) for other in readers)
        return total, needed, max(self._active(other.tasks) for other in readers), max(0.0, needed - own)

    def _copy(self, source: int, target: int, size: float, active: int) -> float:
        """Seconds to move `size` bytes on each of `active` nodes, at the best concurrency."""
        if size <= 0:
            return 0.0
        read, write = self.machine.tiers[source], self.machine.tiers[target]
        best = 0.0
        for streams in WORKERS:
            rate = min(
                self.profile.bandwidth(read.name, "read", COPY, False, streams), read.aggregate(False) / active,
                self.profile.bandwidth(write.name, "write", COPY, False, streams), write.aggregate(True) / active,
            )  # fmt: skip
            if self.nodes > 1 and not read.shared and not write.shared:
                rate = min(rate, self.machine.nic_rate)
            best = max(best, rate)
        return size / best


def tasks_per_node(tasks: int, nodes: int) -> int:
    """max(1, ceil(tasks / nodes))."""
    return max(1, -(-tasks // nodes))
