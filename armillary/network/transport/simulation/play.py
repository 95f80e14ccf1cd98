"""Plays a workflow under one transport: a process per rank, over the data transport layer."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from armillary.cluster import Cluster
from armillary.engine import Event, Simulation
from armillary.errors import InputError, unknown
from armillary.network.transport.layer.engine import EndOfStream, Engine
from armillary.network.transport.layer.files import FileEngine
from armillary.network.transport.layer.staging import StagingEngine
from armillary.network.transport.layer.variable import Variable
from armillary.network.transport.workload import Component, StreamSpec, Workflow

from .platform import Extras, Platform, group_cores, speed
from .transfers import Transfers

#: By technique: engine, transport method, whether files are shared.
TRANSPORTS = {
    "file-shared": ("File", "File", True), "file-local": ("File", "File", False),
    "staging-colocated": ("Staging", "Mailbox", False), "staging-remote": ("Staging", "Mailbox", False), "ideal": ("File", "File", False),
}  # fmt: skip
PLACEMENTS = ("remote", "colocated")
USUAL = {"file-shared": "remote", "file-local": "colocated", "staging-colocated": "colocated", "staging-remote": "remote", "": "remote"}


@dataclass(frozen=True)
class Simulated:
    """What a workflow took. Seconds; stalls and idle times are means per publisher and per subscriber."""

    makespan: float
    publisher_stall: float
    subscriber_idle: float
    bytes_moved: float
    core_seconds: float
    #: When each component ended.
    ended: dict[str, float]
    #: (component, step, what, start, end) of rank 0 of each component.
    spans: tuple[tuple[str, int, str, float, float], ...]
    processes: int
    flows: int
    placement: str


def simulate(
    workflow: Workflow,
    cluster: Cluster,
    transport: str = "",
    *,
    placement: str = "",
    extras: Extras | None = None,
    aggregate: bool = True,
) -> Simulated:
    """The workflow under `transport` for all its streams, or under the engines that its streams name.

    `placement="colocated"` puts components that take data on the nodes of those that give them, `"remote"` on their own group. `ideal`
    moves bytes in no time, with publishers that never wait, in the better placement.
    """
    if transport == "ideal":
        tried = [simulate_one(workflow, cluster, transport, p, extras, aggregate) for p in PLACEMENTS]
        return min(tried, key=lambda one: one.makespan)
    if transport and transport not in TRANSPORTS:
        raise unknown("transport", transport, TRANSPORTS)
    return simulate_one(workflow, cluster, transport, placement or USUAL[transport], extras, aggregate)


def simulate_one(
    workflow: Workflow, cluster: Cluster, transport: str, placement: str, extras: Extras | None = None, aggregate: bool = True
) -> Simulated:
    """The same in one placement."""
    if placement not in PLACEMENTS:
        raise unknown("placement", placement, PLACEMENTS)
    with Simulation() as sim:
        play = _Play(sim, workflow, cluster, transport, placement, extras, aggregate)
        play.start()
        sim.run()
        return play.result()


class _Play:
    def __init__(
        self, sim: Simulation, workflow: Workflow, cluster: Cluster, transport: str, placement: str, extras: Extras | None, aggregate: bool
    ) -> None:
        self.sim, self.workflow, self.placement = sim, workflow, placement
        self.platform = Platform(sim, cluster, extras)
        self.transfers = Transfers(sim, self.platform, aggregate=aggregate, free=transport == "ideal")
        self.nodes = placed(workflow, cluster, placement)
        self.engines: dict[str, Engine] = {}
        self.variables: dict[str, list[Variable]] = {}
        self.takes: dict[str, list[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]]] = {}
        self.stall: dict[str, float] = {c.name: 0.0 for c in workflow.components}
        self.idle: dict[str, float] = {c.name: 0.0 for c in workflow.components}
        self.ended: dict[str, float] = {}
        self.spans: list[tuple[str, int, str, float, float]] = []
        self._computing: dict[int, Event] = {}
        for stream in workflow.streams:
            self._open(stream, transport, cluster)

    def _open(self, stream: StreamSpec, transport: str, cluster: Cluster) -> None:
        engine, method, shared = TRANSPORTS[transport] if transport else (stream.engine, stream.transport, True)
        if not engine:
            raise InputError(f"stream {stream.name} has no engine; expected one, or a transport for all", where=self.workflow.where)
        if engine == "File":
            made: Engine = FileEngine(stream.name, self.sim, self.transfers, shared=shared)
            if transport != "ideal":
                for node in dict.fromkeys(self.nodes[stream.source]):
                    self.platform.disk(node, shared)
        else:
            made = StagingEngine(stream.name, self.sim, self.transfers, instant=method == "MQ")
        ranks = self.workflow.component(stream.target).ranks
        found, starts = [], []
        for spec in stream.variables:
            variable = Variable(spec.name, spec.shape, spec.itemsize, stream.reduction)
            variable.hold_all(*spec.published(self.workflow.component(stream.source).ranks))
            made.variables[spec.name] = variable
            found.append(variable)
            start, count = spec.selected(ranks)
            starts.append(list(zip(map(tuple, start.tolist()), map(tuple, count.tolist()), strict=True)))
        for node in self.nodes[stream.source]:
            made.open_publisher(node)
        for node in self.nodes[stream.target]:
            made.open_subscriber(node)
        self.engines[stream.name] = made
        self.variables[stream.name] = found
        self.takes[stream.name] = list(zip(*starts, strict=True))

    def start(self) -> None:
        first = 0
        for component in self.workflow.components:
            for rank in range(component.ranks):
                self.sim.process(self._rank(component, rank, first + rank))
            first += component.ranks

    def _rank(self, component: Component, rank: int, number: int) -> Generator[Any, Any, None]:
        sim, name = self.sim, component.name
        inputs = [(self.engines[s.name], s, self.variables[s.name]) for s in self.workflow.inputs(name)]
        outputs = [(self.engines[s.name], s, self.variables[s.name]) for s in self.workflow.outputs(name)]
        node = self.nodes[name][rank]
        seen = rank == 0
        extra = self._costs(component, rank)
        for step in range(self.workflow.steps):
            # Streams that take data set the pace: a step without any has nothing to compute.
            due = [one for one in inputs if step % one[1].every == 0]
            if inputs and not due:
                continue
            began = sim.now
            for engine, spec, variables in due:
                try:
                    waits = engine.begin_subscriber(rank)
                    if waits is not None:
                        yield waits
                except EndOfStream:
                    continue
                take = self.takes[spec.name][rank]
                for variable, (start, count) in zip(variables, take, strict=True):
                    engine.get(rank, variable, start, count)
                waits = engine.end_subscriber(rank)
                if waits is not None:
                    yield waits
            if due:
                self.idle[name] += sim.now - began
                if seen:
                    self.spans.append((name, step, "get", began, sim.now))
            gives = [one for one in outputs if step % one[1].every == 0]
            flops = component.compute + (extra[0] if due else 0.0) + (extra[1] if gives else 0.0)
            if flops:
                began = sim.now
                yield self._compute(number, node, flops)
                if seen:
                    self.spans.append((name, step, "compute", began, sim.now))
            if gives:
                began = sim.now
                for engine, _, variables in gives:
                    waits = engine.begin_publisher()
                    if waits is not None:
                        yield waits
                    for variable in variables:
                        engine.put(rank, variable)
                    waits = engine.end_publisher(rank)
                    if waits is not None:
                        yield waits
                self.stall[name] += sim.now - began
                if seen:
                    self.spans.append((name, step, "put", began, sim.now))
        began = sim.now
        for engine, _, _ in outputs:
            waits = engine.close_publisher()
            if waits is not None:
                yield waits
        self.stall[name] += sim.now - began
        for engine, _, _ in inputs:
            engine.close_subscriber(rank)
        self.ended[name] = sim.now

    def _costs(self, component: Component, rank: int) -> tuple[float, float]:
        """Flops per step that reductions cost this rank as a subscriber and as a publisher."""
        taking = giving = 0.0
        for stream in self.workflow.inputs(component.name):
            if stream.reduction.kind == "none":
                continue
            for variable, (_, count) in zip(self.variables[stream.name], self.takes[stream.name][rank], strict=True):
                elements = int(np.prod(np.array(count, np.int64)))
                taking += float(variable.reduction.flops_at("subscriber", elements))
        for stream in self.workflow.outputs(component.name):
            if stream.reduction.kind == "none":
                continue
            for variable in self.variables[stream.name]:
                giving += float(variable.reduction.flops_at("publisher", variable.held(rank)))
        return taking, giving

    def _compute(self, number: int, node: int, flops: float) -> Event:
        done = self._computing[number] = Event(self.sim)
        self.transfers.compute(np.array([node]), np.array([flops]), np.array([number]), self._computed)
        return done

    def _computed(self, owners: Any) -> None:
        for number in owners.tolist():
            self._computing.pop(number).succeed()

    def result(self) -> Simulated:
        workflow, cluster = self.workflow, self.platform.cluster
        publishing = [c for c in workflow.components if workflow.outputs(c.name)]
        taking = [c for c in workflow.components if workflow.inputs(c.name)]
        makespan = max(self.ended.values())
        held: dict[int, tuple[int, float]] = {}
        for component in workflow.components:
            for node, many in zip(*np.unique(self.nodes[component.name], return_counts=True), strict=True):
                ranks, until = held.get(int(node), (0, 0.0))
                held[int(node)] = (ranks + int(many), max(until, self.ended[component.name]))
        cores = sum(min(ranks, _cores(cluster, node)) * until for node, (ranks, until) in sorted(held.items()))
        return Simulated(
            makespan,
            sum(self.stall[c.name] for c in publishing) / sum(c.ranks for c in publishing),
            sum(self.idle[c.name] for c in taking) / sum(c.ranks for c in taking),
            self.transfers.moved, cores, dict(self.ended), tuple(self.spans), sum(c.ranks for c in workflow.components),
            self.transfers.flows, self.placement,
        )  # fmt: skip


def placed(workflow: Workflow, cluster: Cluster, placement: str) -> dict[str, list[int]]:
    """The node of each rank: spread evenly over the group, or each with the ranks that give it data."""
    found: dict[str, list[int]] = {}
    left = list(workflow.components)
    while left:
        for component in list(left):
            givers = [s.source for s in workflow.inputs(component.name)]
            if any(giver not in found for giver in givers):
                continue
            if placement == "colocated" and givers:
                nodes: Sequence[int] = found[givers[0]]
            else:
                nodes = _group(cluster, component, bool(givers))
            many = component.ranks
            if len(nodes) > many:
                step = len(nodes) // many if placement == "colocated" and givers else 1
                found[component.name] = [nodes[i * step] for i in range(many)]
            else:
                found[component.name] = [nodes[i * len(nodes) // many] for i in range(many)]
            left.remove(component)
    return found


def _group(cluster: Cluster, component: Component, takes: bool) -> range:
    if not component.group:
        # The first group publishes, and the last one takes.
        component = replace(component, group=cluster.groups[-1 if takes else 0].name)
    first = 0
    for one in cluster.groups:
        if one.name == component.group:
            room = group_cores(cluster, one.name)
            if component.ranks > room:
                said = f"found {component.ranks:,} ranks; expected at most {room:,}, the cores of group {one.name}"
                raise InputError(said, where=f"{cluster.name}, component {component.name}")
            return range(first, first + one.count)
        first += one.count
    raise unknown("group", component.group, [g.name for g in cluster.groups], where=cluster.name)


def _cores(cluster: Cluster, node: int) -> int:
    rate, each = speed(cluster, node)
    return round(rate / each)
