"""Simulates single collectives on the event loop, with flows over links and chips and slots as a counted resource.

This is the slow and plain twin of `fluid`: it runs the same paths on the pools and processes of `armillary.engine`, and shares only the
paths' numbers with the compiled loop. It times single collectives (`allreduce_us`) and checks the fast loop on short windows.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.engine import Activity, Pool, Simulation
from armillary.engine.events import Event

from ..collectives.allreduce_time import SMALL_BYTES, best_share
from ..collectives.path import Path, Uses, uses
from ..collectives.wires import Wires
from .bursts import CALM, Bursts
from .groups import LEAST_SHARE, Group


@dataclass
class Slots:
    """The slots of one switch: those held by groups, by decoding groups and by a tenant, and the waiting groups."""

    total: int
    reserved: int = 0
    held: int = 0
    decoding: int = 0
    tenant: int = 0
    most: int = 0
    waiting: list[Event] = field(default_factory=list)

    def free(self, decode: bool) -> int:
        """Returns the slots that may be taken now; prompts may not take those reserved for decoding."""
        kept = 0 if decode else max(self.reserved - self.decoding, 0)
        return max(self.total - self.held - self.tenant - kept, 0)

    def take(self, count: int, decode: bool) -> None:
        """Holds `count` more slots, or returns them if it is negative."""
        self.held += count
        self.decoding += count if decode else 0
        self.most = max(self.most, self.held + self.tenant)
        assert 0 <= self.held <= self.total - self.tenant
        if count < 0:
            self.wake()

    def wake(self) -> None:
        """Lets the waiting groups request slots again."""
        waiting, self.waiting = self.waiting, []
        for event in waiting:
            if event.callbacks is not None:
                event.succeed(None)


@dataclass
class _Flow:
    """A collective in flight, as another one sees it."""

    x: float = 0.0
    activity: Activity | None = None


class FlowNetwork:
    """Links, chips and slots of `wires` on a simulation, with the groups that send over them by `path`."""

    def __init__(
        self, sim: Simulation, wires: Wires, groups: Sequence[Group], path: Path, bursts: Bursts = CALM,
        rng: np.random.Generator | None = None,
    ) -> None:  # fmt: skip
        self.sim, self.wires, self.groups, self.path = sim, wires, list(groups), path
        self.links = [Pool(sim, wires.nic, f"server {i} switch {w}") for i in range(wires.servers) for w in range(wires.switches)]
        self.chips = [Pool(sim, min(wires.asic, 1e30), f"chip {w}") for w in range(wires.switches)]
        self.slots = [Slots(wires.slots) for _ in range(wires.switches)]
        self.flows = [_Flow() for _ in groups]
        wide = [g for g in groups if g.spans]
        self.jobs = [sum(g.home == w for g in wide) for w in range(wires.switches)]
        for w, slots in enumerate(self.slots):
            asked = sum(g.reserved for g in wide if g.decode and g.home == w)
            slots.reserved = min(asked, wires.slots // 2) if path.first else 0
        #: The bytes that were reduced for each group, by switch and by ring.
        self.delivered = [[0.0, 0.0] for _ in groups]
        self.fallbacks = 0
        if rng is not None:
            at, which = bursts.toggles(len(self.links), wires.switches, rng)
            sim.process(self._bursts(bursts, at, which), daemon=True)

    def _bursts(self, bursts: Bursts, at: Any, which: Any) -> Generator[Any, Any, None]:
        on, cycle = [False] * (len(self.links) + len(self.chips)), 0.0
        while len(at):
            for t, k in zip(at, which, strict=True):
                if cycle + t > self.sim.now:
                    yield cycle + t - self.sim.now
                on[k] = not on[k]
                if k < len(self.links):
                    self.links[k].set_capacity(self.wires.nic * (1 - bursts.share * on[k]))
                    continue
                slots = self.slots[k - len(self.links)]
                slots.tenant = min(bursts.slots, slots.total - slots.held) if on[k] else 0
                slots.most = max(slots.most, slots.held + slots.tenant)
                slots.wake()
            cycle += bursts.cycle_s

    def allreduce(self, g: int, nbytes: float) -> Generator[Any, Any, None]:
        """Runs one all-reduce as a process: NVLink, and then the bytes between the servers on the network's path."""
        group = self.groups[g]
        need = uses(self.path, self.wires.shape(len(group.servers), group.gpus), nbytes)
        if need.before_s:
            yield need.before_s
        if not group.spans or nbytes == 0:
            return
        slots, left, first = self.slots[group.home], nbytes, True
        chunk = self.path.chunk if self.path.chunk and not group.decode else nbytes
        while left > 0:
            x, hold, cap = yield from self._chosen(g, need, nbytes, slots)
            slots.take(hold, group.decode)
            if first:
                yield need.latency_s(x)
                first = False
            piece = min(chunk, left)
            links = [self.links[i * self.wires.switches + group.home] for i in group.servers]
            use = {link: need.link(x, first=k == 0) for k, link in enumerate(links)}
            if x > 0:
                use[self.chips[group.home]] = need.inputs * x
            self.flows[g] = _Flow(x, Activity(self.sim, piece, use, cap=cap, priority=int(self.path.first and not group.decode)))
            yield self.flows[g].activity
            self.flows[g].activity = None
            self.delivered[g][0] += x * piece
            self.delivered[g][1] += piece - x * piece
            slots.take(-hold, group.decode)
            left -= piece

    def _chosen(self, g: int, need: Uses, nbytes: float, slots: Slots) -> Generator[Any, Any, tuple[float, int, float]]:
        """Returns (x, slots to hold, most bytes/s) of a collective that starts now, after waiting for slots if the path does."""
        group, path, wires = self.groups[g], self.path, self.wires
        free = slots.free(group.decode or not path.first)
        per_slot = wires.rate_of(1)
        if path.choice == "slots":
            got = min(wires.window, free)
            self.fallbacks += got == 0
            return got / wires.window, got, got * per_slot / (got / wires.window) if got else math.inf
        if path.choice == "best":
            return self._best(g, need, nbytes, min(wires.window, free))
        if path.x == 0:
            return 0.0, 0, math.inf
        quota, patience = wires.slots // self.jobs[group.home], self.sim.timeout(path.wait_s)
        while (got := min(quota, slots.free(True))) < max(LEAST_SHARE * quota, 1):
            released = self.sim.event()
            slots.waiting.append(released)
            if (yield self.sim.any_of(released, patience)) is patience:
                self.fallbacks += 1
                return 0.0, 0, math.inf
        return path.x, got, got * per_slot / path.x

    def _best(self, g: int, need: Uses, nbytes: float, got: int) -> tuple[float, int, float]:
        group, wires = self.groups[g], self.wires
        nic = min(self.links[i * wires.switches + group.home].capacity for i in group.servers)
        inputs, used = need.inputs, 0.0
        for o, flow in enumerate(self.flows):
            if o != g and self.groups[o].home == group.home and flow.activity is not None and flow.x > 0:
                other = float(len(self.groups[o].servers))
                inputs += other
                used += other * flow.x * flow.activity.rate
        chip = max(wires.asic * need.inputs / inputs, wires.asic - used)
        share = min(wires.rate_of(got), chip / need.inputs)
        if nbytes < SMALL_BYTES:
            x = 1.0 if got and need.switch_s <= need.ring_s else 0.0
        else:
            x, old = best_share(need.ring, nic, share), self.flows[g].x
            x = old if got and abs(x - old) <= self.path.hysteresis * old else x
        if not got or x == 0:
            self.flows[g].x = 0.0
            return 0.0, 0, math.inf
        rate = min(nic / need.link(x), share / x)
        hold = max(1, min(got, math.ceil(x * rate / wires.rate_of(1))))
        self.flows[g].x = x
        return x, hold, wires.rate_of(hold) / x


@dataclass(frozen=True)
class Stream:
    """The work of a group: iterations that each consist of `repeats` times compute and an all-reduce."""

    group: int
    compute_s: float
    nbytes: float
    repeats: int


def iterations(
    wires: Wires, groups: Sequence[Group], path: Path, streams: Sequence[Stream], until_s: float, bursts: Bursts = CALM,
    rng: np.random.Generator | None = None,
) -> tuple[list[list[float]], FlowNetwork]:  # fmt: skip
    """Returns the end of every iteration of every stream up to `until_s`, collective by collective, and the final network."""
    with Simulation() as sim:
        net = FlowNetwork(sim, wires, groups, path, bursts, rng)
        ends: list[list[float]] = [[] for _ in streams]

        def work(k: int, stream: Stream) -> Generator[Any, Any, None]:
            while True:
                for _ in range(stream.repeats):
                    if stream.compute_s:
                        yield stream.compute_s
                    yield from net.allreduce(stream.group, stream.nbytes)
                ends[k].append(sim.now)

        for k, stream in enumerate(streams):
            sim.process(work(k, stream), daemon=True)
        sim.run(until=until_s)
    return ends, net


def collective_seconds(
    wires: Wires, groups: Sequence[Group], path: Path, nbytes: float, *, count: int = 1, gap_s: float = 0.0, bursts: Bursts = CALM,
    rng: np.random.Generator | None = None,
) -> float:  # fmt: skip
    """Returns the mean simulated seconds of `count` all-reduces of `nbytes` per group, `gap_s` apart, if all groups do the same."""
    with Simulation() as sim:
        net = FlowNetwork(sim, wires, groups, path, bursts, rng)
        took: list[float] = []

        def work(g: int) -> Generator[Any, Any, None]:
            for _ in range(count):
                if gap_s:
                    yield gap_s
                since = sim.now
                yield from net.allreduce(g, nbytes)
                took.append(sim.now - since)

        sim.run(until=sim.all_of(*(sim.process(work(g)) for g in range(len(groups)))))
    return float(np.mean(took))
