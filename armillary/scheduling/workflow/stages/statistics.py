"""What each stage moves and computes, and how that grows with the scale of the workflow.

A stage's statistics are all that the analytic model sees: tasks, seconds and bytes per task, and for each pair of stages the bytes that one
reads of the other. `ScalingRules` project them to another scale with power laws, tasks ∝ scale^a and bytes per task ∝ scale^b, whose
exponents are fitted by least squares in log space if two scales or more were observed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from armillary.errors import InputError

from .workflow import TRANSFER, Workflow


@dataclass(frozen=True)
class Flow:
    """The data that tasks of one stage read of another stage, or of the initial data: bytes per reading task, and distinct bytes."""

    read: float
    distinct: float


@dataclass(frozen=True)
class Stage:
    """One stage: its level, tasks, cores and seconds per task, and the bytes of its flows."""

    name: str
    order: int
    tasks: int
    cores: int = 1
    compute_s: float = 0.0
    longest_s: float = 0.0
    transfer: float = float(TRANSFER)
    random: bool = False
    #: The initial data that it reads, if any.
    initial: Flow | None = None
    #: Its predecessors by number, with the data that it reads of them; those without data are left out.
    reads: Mapping[int, Flow] = field(default_factory=dict)
    #: Bytes that a task writes for each successor by number, and bytes per task that nobody reads.
    writes: Mapping[int, float] = field(default_factory=dict)
    final: float = 0.0


@dataclass(frozen=True)
class Statistics:
    """The stages of a workflow, by level."""

    name: str
    stages: tuple[Stage, ...]

    @property
    def orders(self) -> int:
        """The number of levels."""
        return max((stage.order for stage in self.stages), default=-1) + 1

    @staticmethod
    def of(workflow: Workflow) -> Statistics:
        """The statistics of a workflow."""
        count = len(workflow.stages)
        stage_of_file = np.where(workflow.producer >= 0, workflow.stage[workflow.producer], -1)
        reader_stage = workflow.stage[workflow.reader]
        source = stage_of_file[workflow.read]
        flows: list[dict[int, Flow]] = [{} for _ in range(count)]
        writes: list[dict[int, float]] = [{} for _ in range(count)]
        # Within a stage nothing is read of the stage itself, because levels differ.
        for s, p in sorted(set(zip(reader_stage.tolist(), source.tolist()))):
            files = workflow.read[(reader_stage == s) & (source == p)]
            distinct = float(workflow.size[np.unique(files)].sum())
            flows[s][p] = Flow(float(workflow.size[files].sum()) / int(workflow.counts[s]), distinct)
            if p >= 0:
                writes[p][s] = distinct / int(workflow.counts[p])
        unread = np.flatnonzero(~workflow.is_read & (workflow.producer >= 0))
        final = np.bincount(stage_of_file[unread], workflow.size[unread], count)
        stages = []
        for s, name in enumerate(workflow.stages):
            mine = workflow.stage == s
            tasks = int(workflow.counts[s])
            stages.append(Stage(
                name, int(workflow.order[s]), tasks, int(workflow.cores[mine].max()), float(workflow.compute_s[mine].sum()) / tasks,
                float(workflow.compute_s[mine].max()), float(workflow.transfer[s]), bool(workflow.random[s]), flows[s].pop(-1, None),
                flows[s], writes[s], float(final[s]) / tasks,
            ))  # fmt: skip
        return Statistics(workflow.name, tuple(stages))


@dataclass(frozen=True)
class ScalingRules:
    """Exponents by stage: `tasks` for the number of tasks, `bytes` for bytes per task. One exponent holds for all flows of a stage."""

    scale: float
    tasks: Mapping[str, float]
    bytes: Mapping[str, float]

    def project(self, observed: Statistics, scale: float) -> Statistics:
        """Statistics at another scale; distinct bytes grow as those that all tasks of the stage read or write together."""
        if not 0 < scale < math.inf:
            raise InputError(f"found {scale!r}; expected a number above 0", where="scale")
        ratio = scale / self.scale
        more = {s.name: max(1, round(s.tasks * ratio ** self.tasks.get(s.name, 1.0))) / s.tasks for s in observed.stages}
        wider = {s.name: ratio ** self.bytes.get(s.name, 0.0) for s in observed.stages}
        stages = []
        for stage in observed.stages:
            b, a = wider[stage.name], more[stage.name]
            reads = {p: Flow(f.read * b, max(f.read * b, f.distinct * a * b)) for p, f in stage.reads.items()}
            initial = stage.initial and Flow(stage.initial.read * b, max(stage.initial.read * b, stage.initial.distinct * a * b))
            writes = {s: w * b for s, w in stage.writes.items()}
            tasks = round(stage.tasks * a)
            stages.append(replace(stage, tasks=tasks, reads=reads, initial=initial, writes=writes, final=stage.final * b))
        return Statistics(observed.name, tuple(stages))


def fit_scaling(observed: Sequence[tuple[float, Statistics]]) -> ScalingRules:
    """Rules from the same workflow at several scales; with a single one, tasks grow with the scale and bytes per task stay."""
    if not observed:
        raise InputError("found no observations; expected at least one")
    names = [stage.name for stage in observed[0][1].stages]
    for scale, found in observed:
        if not 0 < scale < math.inf:
            raise InputError(f"found the scale {scale!r}; expected a number above 0", where=found.name)
        if [stage.name for stage in found.stages] != names:
            raise InputError(f"found the stages {', '.join(s.name for s in found.stages)}; expected {', '.join(names)}", where=found.name)
    logs = [math.log(scale) for scale, _ in observed]
    tasks, sizes = {}, {}
    for n, name in enumerate(names):
        counts = [math.log(found.stages[n].tasks) for _, found in observed]
        moved = [_bytes(found.stages[n]) for _, found in observed]
        tasks[name] = _slope(logs, counts, 1.0)
        sizes[name] = _slope(logs, [math.log(b) for b in moved], 0.0) if min(moved) > 0 else 0.0
    return ScalingRules(observed[-1][0], tasks, sizes)


def _bytes(stage: Stage) -> float:
    read = sum(flow.read for flow in stage.reads.values()) + (stage.initial.read if stage.initial else 0.0)
    return read + stage.final + sum(stage.writes.values())


def _slope(x: Sequence[float], y: Sequence[float], default: float) -> float:
    """The least-squares slope, or the default if all x are equal."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / spread if spread > 1e-12 else default
