"""StreamModel: what a time step takes on GPUs that are not here, from what Python needs to issue it and what devices need to do it.

A host issues calls one after another. Kernels and groups of transfers wait in streams, each of which does one thing at a time; events
order streams among each other, and a synchronisation lets the host wait for them. Transfers are flows over the links of a node, and they
begin when both ends have come to them. So it shows where the interpreter runs ahead of the GPU, and where it holds it up.

    StreamModel.stored("h100-80").play([[Kernel("a", 5e-6, 50e-6), Kernel("b", 5e-6, 50e-6), Kernel("c", 5e-6, 50e-6)]])      # 155 µs
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.engine import Event, Network, Simulation, Timeline
from armillary.errors import InputError

from .costs import STORED, HostCosts
from .streams import COMMUNICATION, COMPUTE


@dataclass(frozen=True)
class Host:
    """Work of the host alone."""

    seconds: float


@dataclass(frozen=True)
class Kernel:
    """A kernel: seconds to issue it and to run it."""

    name: str
    host_s: float
    device_s: float
    stream: str = COMPUTE


@dataclass(frozen=True)
class Order:
    """An event: stream `then` goes on when what is in stream `first` now is done."""

    first: str
    then: str
    host_s: float


@dataclass(frozen=True)
class Sync:
    """The host waits until all streams are empty."""

    host_s: float


@dataclass(frozen=True)
class Group:
    """Sends of bytes to other ranks, and what they send in their group of the same key: on a stream, or by the host, which waits."""

    key: str
    sends: tuple[tuple[int, int], ...]
    host_s: float
    device_s: float = 0.0
    stream: str | None = COMMUNICATION
    #: Whether bytes go through the memory of the host on their way.
    staged: bool = False


@dataclass(frozen=True)
class Meeting:
    """A reduction of a few bytes over all ranks: on a stream, or by the hosts."""

    key: str
    host_s: float
    device_s: float
    stream: str | None = COMPUTE


Op = Host | Kernel | Order | Sync | Group | Meeting


@dataclass(frozen=True)
class Played:
    """What the program took: seconds, the share of the transfers during which kernels ran, seconds of transfers, and of the hosts."""

    seconds: float
    overlap: float
    transfer_s: float
    host_s: float
    timeline: Timeline | None = None


def same_device(name: str, model: str) -> bool:
    """Return whether a name, such as CUDA gives it, belongs to a GPU of the catalogue."""
    from armillary.cluster.merge import _catalogue, part_name

    known = _catalogue()["device"]
    return known.get(part_name(name)) is not None and known.get(part_name(name)) is known.get(part_name(model))


class StreamModel:
    """The model for one kind of GPU. Its costs belong to that GPU, and it refuses to stand for another one."""

    def __init__(self, costs: HostCosts, cluster: Any = "dgx-h100") -> None:
        from armillary import cluster as clusters

        self.costs = costs
        self.cluster = clusters.preset(cluster) if isinstance(cluster, str) else cluster
        devices = self.cluster.node(0).devices
        found = devices[0].type.model if devices else None
        if found is None or not same_device(costs.device, found):
            raise InputError(
                f"found costs of {costs.device} for a node of {found or 'no GPU'}; expected those of its GPU, or StreamModel.measured()",
                where=self.cluster.name,
            )
        memory: Any = devices[0].type.memory
        bandwidth = None if memory is None else memory.bandwidth
        if not bandwidth:
            raise InputError("found a GPU without a bandwidth of its memory; expected one", where=self.cluster.name)
        self.bandwidth = float(bandwidth)
        self.gpus = len(devices)

    @classmethod
    def stored(cls, device: str, cluster: Any = "dgx-h100") -> StreamModel:
        """The model with the stored costs of a GPU."""
        if device not in STORED:
            raise InputError(f"device: found {device}; expected {', '.join(STORED)}, whose costs are stored, or StreamModel.measured()")
        return cls(STORED[device], cluster)

    @classmethod
    def measured(cls, cluster: Any) -> StreamModel:
        """The model with costs measured on the first GPU of this machine, for a cluster of the same GPUs; without one it is refused."""
        from .costs import measured_costs

        return cls(measured_costs(), cluster)

    def kernel_s(self, nbytes: float) -> float:
        """The seconds of a kernel that moves bytes, which is what limits all kernels of CloverLeaf."""
        return self.costs.kernel_s + nbytes / self.bandwidth

    def play(self, programs: Sequence[Sequence[Op]], *, timeline: bool = False) -> Played:
        """Play one program per rank, each on a GPU of its own."""
        if len(programs) > self.gpus:
            raise InputError(f"found {len(programs)} ranks for {self.gpus} GPUs; expected at most one rank per GPU")
        return _Run(self, programs, timeline).played()


class _Run:
    """One run: hosts and streams as processes of simulated time."""

    def __init__(self, model: StreamModel, programs: Sequence[Sequence[Op]], timeline: bool) -> None:
        self.sim = Simulation()
        if timeline:
            self.sim.timeline = Timeline()
        self.net = Network(self.sim, model.cluster)
        self.model, self.programs = model, programs
        #: The last thing queued on each stream.
        self.tails: dict[tuple[int, str], Event] = {}
        #: Kernels and transfers of each rank, as (begin, end).
        self.kernels: list[list[tuple[float, float]]] = [[] for _ in programs]
        self.transfers: list[list[tuple[float, float]]] = [[] for _ in programs]
        self.begun: dict[tuple[str, int], Event] = {}
        self.sent: dict[tuple[str, int, int], Event] = {}
        self.met: dict[str, list[Event]] = {}
        self.hosts: list[float] = [0.0] * len(programs)
        #: Who sends to whom under a key, so that a receiver knows what it waits for.
        self.into: dict[tuple[str, int], list[int]] = {}
        for rank, program in enumerate(programs):
            for op in program:
                if isinstance(op, Group):
                    for other, _ in op.sends:
                        self.into.setdefault((op.key, other), []).append(rank)

    def played(self) -> Played:
        for rank, program in enumerate(self.programs):
            self.sim.process(self._host(rank, program))
        self.sim.run()
        transfer = sum(end - begin for one in self.transfers for begin, end in one)
        hidden = sum(_common(a, b) for a, b in zip(self.transfers, self.kernels))
        timeline = self.sim.timeline
        return Played(self.sim.now, hidden / transfer if transfer > 0 else 0.0, transfer, max(self.hosts), timeline)

    def _event(self, table: dict[Any, Event], key: Any) -> Event:
        if key not in table:
            table[key] = Event(self.sim)
        return table[key]

    def _host(self, rank: int, program: Sequence[Op]) -> Generator[Any, Any, Any]:
        for op in program:
            cost = op.seconds if isinstance(op, Host) else op.host_s
            if cost > 0:
                self.hosts[rank] += cost
                self._span(rank, "host", type(op).__name__.lower(), self.sim.now, self.sim.now + cost)
                yield cost
            if isinstance(op, Sync):
                yield from [event for (of, _), event in self.tails.items() if of == rank]
            elif isinstance(op, Order):
                before = self.tails.get((rank, op.first))
                if before is not None:
                    self._queue(rank, op.then, self._after(before))
            elif isinstance(op, Kernel):
                self._queue(rank, op.stream, self._kernel(rank, op))
            elif isinstance(op, Group | Meeting):
                work = self._group(rank, op) if isinstance(op, Group) else self._meeting(op)
                if op.stream is None:
                    yield self.sim.process(work)
                else:
                    self._queue(rank, op.stream, work)

    def _queue(self, rank: int, stream: str, work: Generator[Any, Any, Any]) -> None:
        """Put work at the end of a stream."""
        tail = self.tails.get((rank, stream))

        def queued() -> Generator[Any, Any, Any]:
            if tail is not None:
                yield tail
            yield from work

        self.tails[rank, stream] = self.sim.process(queued())

    def _after(self, event: Event) -> Generator[Any, Any, Any]:
        yield event

    def _kernel(self, rank: int, op: Kernel) -> Generator[Any, Any, Any]:
        began = self.sim.now
        yield op.device_s
        self.kernels[rank].append((began, self.sim.now))
        self._span(rank, op.stream, op.name, began, self.sim.now)

    def _group(self, rank: int, op: Group) -> Generator[Any, Any, Any]:
        began = self.sim.now
        if op.device_s > 0:
            yield op.device_s
        self._event(self.begun, (op.key, rank)).succeed(None)
        for other, nbytes in op.sends:
            self.sim.process(self._send(op, rank, other, nbytes))
        for other, _ in op.sends:
            yield self._event(self.sent, (op.key, rank, other))
        for other in self.into.get((op.key, rank), []):
            yield self._event(self.sent, (op.key, other, rank))
        self.transfers[rank].append((began, self.sim.now))
        self._span(rank, op.stream or "host", op.key.partition(":")[2], began, self.sim.now)

    def _send(self, op: Group, rank: int, other: int, nbytes: int) -> Generator[Any, Any, Any]:
        yield self._event(self.begun, (op.key, other))
        here, there = f"n0/device:{rank}", f"n0/device:{other}"
        if op.staged:
            near = [self.model.cluster.node(0).devices[one].near or "socket:0" for one in (rank, other)]
            yield self.net.flow(here, f"n0/{near[0]}", nbytes)
            yield self.net.flow(f"n0/{near[0]}", f"n0/{near[0]}", nbytes)
            yield self.net.flow(f"n0/{near[1]}", there, nbytes)
        elif rank != other:
            yield self.net.flow(here, there, nbytes)
        self._event(self.sent, (op.key, rank, other)).succeed(None)

    def _meeting(self, op: Meeting) -> Generator[Any, Any, Any]:
        waiting = self.met.setdefault(op.key, [])
        mine = Event(self.sim)
        waiting.append(mine)
        if len(waiting) == len(self.programs):
            for event in waiting:
                event.succeed(None)
        yield mine
        yield op.device_s

    def _span(self, rank: int, stream: str, name: str, began: float, end: float) -> None:
        timeline = self.sim.timeline
        if timeline is not None:
            timeline.span(timeline.track(f"GPU {rank}", stream), name, began, end, stream)


def _common(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> float:
    """The time that intervals of a share with those of b; b does not overlap itself."""
    total = 0.0
    for begin, end in a:
        total += sum(max(0.0, min(end, high) - max(begin, low)) for low, high in b)
    return total
