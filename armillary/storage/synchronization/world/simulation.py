"""The world of a schedule: users act, messages travel, links go down and up, and at the end all is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.engine import Clock, Simulation
from armillary.timing import Stopwatch

from .protocol import HEADER_BYTES, Act, Content, Message, Node, SyncProtocol
from .schedule import SERVER, Operation, Outage, Schedule, Spans, horizon
from .truth import Truth, copies

#: Synchronisation rounds after everything is up, and the seconds between them.
ROUNDS = 20
ROUND_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a schedule came to under a protocol: the counts, each replica's tree and status, and the conflicts' number."""

    counts: Mapping[str, float]
    trees: Mapping[str, Mapping[str, tuple[Content, ...]]]
    statuses: Mapping[str, str]
    nodes: Mapping[str, Node]
    truth: Truth


class _Host:
    """A node's way to the world."""

    def __init__(self, world: World, name: str, peers: tuple[str, ...], clock: Clock) -> None:
        self.name, self.peers = name, peers
        self._world, self._clock = world, clock
        self._lines: dict[str, _Line] = {}
        self._after = world.sim.after

    def now(self) -> float:
        return self._world.sim.now

    def clock(self) -> float:
        return self._clock.read()

    def send(self, peer: str, message: Message) -> None:
        world = self._world
        world.traffic += message.size
        if not world.stuck or message.paths.isdisjoint(world.stuck):
            self._lines[peer].send(message)

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        self._after(delay_s, call, *args)

    def shows(self, ops: tuple[int, ...]) -> None:
        self._world.shows(self.name, ops)

    def conflict(self, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
        self._world.truth.conflict(mine, theirs)


class _Line:
    """One direction of a link, which delays, loses or doubles what is sent, in order but for the doubles; outages may catch it on the way.

    It is `armillary.engine.Channel` with the draws of a link's messages made in blocks, because a hash for each was a third of a run.
    """

    BLOCK = 256

    def __init__(self, world: World, a: str, b: str) -> None:
        s = world.schedule
        self.world, self.a, self.b = world, a, b
        self.down = Spans((o.t0, o.t1) for o in s.outages if o.cuts(a, b))
        self._name = [s.seed, *f"{a}>{b}".encode()]
        self._delay, self._loss, self._double = s.delay_s, s.loss, s.duplication
        self._weather = [one for one in s.weather if one.meets(a, b)]
        self._is_fair = not (s.loss or s.duplication or self._weather)
        self._delays: list[float] = []
        self._fates: list[list[float]] = []
        self._blocks = 0
        self._last = 0.0

    def _draw(self) -> None:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*self._name, self._blocks])))
        self._blocks += 1
        self._delays = (0.1 + 0.9 * rng.standard_exponential(self.BLOCK)).tolist()
        if not self._is_fair:
            again = 0.1 + 0.9 * rng.standard_exponential(self.BLOCK)
            self._fates = np.column_stack((rng.random(self.BLOCK), rng.random(self.BLOCK), again)).tolist()

    def send(self, message: Message) -> None:
        if not self._delays:
            self._draw()
        sim = self.world.sim
        now = sim.now
        delay = self._delay
        if not self._is_fair:
            delay, chance_of_loss, chance_of_double = self._now(now)
            loss, double, again = self._fates.pop()
            if loss < chance_of_loss:
                self._delays.pop()
                return
            if double < chance_of_double:
                sim.at(max(now + delay * self._delays[-1], self._last, now + delay * again), self._arrive, now, message)
        arrive = now + delay * self._delays.pop()
        if arrive < self._last:
            arrive = self._last
        self._last = arrive
        sim.at(arrive, self._arrive, now, message)

    def _now(self, t: float) -> tuple[float, float, float]:
        """Returns mean delay, loss and duplication at `t`; of several rows that hold then, the last counts."""
        delay, loss, double = self._delay, self._loss, self._double
        for one in self._weather:
            if one.t0 <= t < one.t1:
                delay = delay if one.delay_s is None else one.delay_s
                loss = loss if one.loss is None else one.loss
                double = double if one.duplication is None else one.duplication
        return delay, loss, double

    def _arrive(self, sent: float, message: Message) -> None:
        world = self.world
        if not self.down.starts or not self.down.touches(sent, world.sim.now):
            world.nodes[self.b].receive(self.a, message)
            if world.step is not None:
                world.step(world)


class World:
    """One run of a schedule under a protocol; `step` is called after every event, for those who check invariants.

    `run` lets the whole schedule pass. To go step by step, `do` an operation now, `advance` time, `cut` and `mend` links, and `settle`.
    """

    def __init__(self, schedule: Schedule, protocol: SyncProtocol, step: Callable[[World], None] | None = None) -> None:
        self.schedule, self.protocol, self.step = schedule, protocol, step
        self.sim = Simulation()
        self.truth = Truth()
        self.traffic = self.refused = self.stale = self.unavailable = self.done = 0
        self.stuck = schedule.stuck
        self._delays = self._arrivals = 0.0
        #: For every operation, the replicas that have shown it, as bits; and when each replica last used a path.
        self._seen: dict[int, int] = {}
        self._used: dict[tuple[str, str], float] = {}
        #: The deletes and renames that emptied a path, and for every replica and path the writes that it has shown there.
        self._emptied: dict[str, list[int]] = {}
        self._had: dict[tuple[str, str], set[int]] = {}
        self._bit = {name: 1 << i for i, name in enumerate(schedule.replicas)}
        self._away = {name: Spans((o.t0, o.t1) for o in schedule.outages if name in (o.a, o.b)) for name in schedule.replicas}
        star = protocol.topology == "star"
        self.names = (*schedule.replicas, SERVER) if star else schedule.replicas
        last = len(self.names) - 1
        self.links = [
            (a, b)
            for i, a in enumerate(self.names)
            for j, b in enumerate(self.names[i + 1 :], i + 1)
            if (b == SERVER if star else not schedule.ring or j == i + 1 or (i, j) == (0, last))
        ]
        self.nodes: dict[str, Node] = {}
        self.lines: dict[tuple[str, str], _Line] = {}
        for name in self.names:
            peers = tuple(b if a == name else a for a, b in self.links if name in (a, b))
            offset, drift = schedule.clocks.get(name, (0.0, 0.0))
            host = _Host(self, name, peers, Clock(self.sim, offset, drift * 1e-6))
            for peer in peers:
                self.lines[name, peer] = host._lines[peer] = _Line(self, name, peer)
            self.nodes[name] = protocol.server(host) if star and name == SERVER else protocol.node(host)
        for a, b in self.links:
            self._announce(a, b)

    def _announce(self, a: str, b: str) -> None:
        """Tells both ends when their link goes down and comes up again; what is lost one way only, nobody is told."""
        both = Spans((o.t0, o.t1) for o in self.schedule.outages if not o.one_way and o.cuts(a, b))
        if not both.holds(0.0):
            self.sim.at(0.0, self._link, a, b, True)
        for t0, t1 in zip(both.starts, both.ends, strict=True):
            self.sim.at(t0, self._link, a, b, False)
            if t1 < float("inf"):
                self.sim.at(t1, self._link, a, b, True)

    def _link(self, a: str, b: str, up: bool) -> None:
        for x, y in ((a, b), (b, a)):
            self.nodes[x].link(y, up)
            self._after_step()

    def _after_step(self) -> None:
        if self.step is not None:
            self.step(self)

    def shows(self, replica: str, ops: tuple[int, ...]) -> None:
        """Notes that the effects of these operations became visible at `replica`."""
        bit = self._bit.get(replica, 0)
        for n in ops:
            act = self.truth.acts.get(n)
            if act is None or not bit:
                continue
            op, seen = act.operation, self._seen.get(n, 0)
            self._had.setdefault((replica, op.to or op.path), set()).add(n)
            if op.replica != replica and not seen & bit:
                self._seen[n] = seen | bit
                if not self._away[replica].holds(op.t) and not self._away[op.replica].holds(op.t):
                    self._delays += self.sim.now - op.t
                    self._arrivals += 1
            if replica in self.schedule.evicts:
                self._used[replica, op.to or op.path] = self.sim.now

    def do(self, op: Operation) -> None:
        """Lets a user act now."""
        number = self.done
        self.done += 1
        node = self.nodes[op.replica]
        if op.op == "read":
            self._read(node, op)
        elif op.op in ("begin", "end", "mkdir", "rmdir"):
            node.local(Act(number, op))
            if op.op == "end":
                self.truth.ended(op.group)
        else:
            self._change(node, Act(number, op))
        self._after_step()

    def _change(self, node: Node, act: Act) -> None:
        op = act.operation
        shown = node.look(op.path)
        live = any(version.content is not None for version in shown)
        taken = op.op == "rename" and any(version.content is not None for version in node.look(op.to))
        if (op.op in ("delete", "rename") and not live) or taken:
            self.refused += 1
            return
        self.truth.happened(act, shown, () if live else self._vanished(op))
        self._had.setdefault((op.replica, op.to or op.path), set()).add(act.number)
        if op.op in ("delete", "rename"):
            self._emptied.setdefault(op.path, []).append(act.number)
        if op.replica in self.schedule.evicts:
            self._used[op.replica, op.to or op.path] = self.sim.now
        if not node.local(act):
            raise AssertionError(f"{type(node).__name__} refused {op}")

    def _vanished(self, op: Operation) -> tuple[int, ...]:
        """Returns the deletes and renames of which the user knows, who sees nothing where the replica once showed what they took away."""
        had = self._had.get((op.replica, op.path), set())
        return tuple(n for n in self._emptied.get(op.path, ()) if n in had or any(self.truth.before(a, n) for a in had))

    def _read(self, node: Node, op: Operation) -> None:
        shown = node.look(op.path)
        self.truth.read(op.replica, node)
        self.stale += self.truth.is_stale(shown)
        cold_s = self.schedule.evicts.get(op.replica)
        size = sum(v.content.size for v in shown if v.content is not None)
        if cold_s is not None and size and self._was_dropped(node, op, cold_s):
            if any(not self.lines[op.replica, peer].down.holds(self.sim.now) for a, peer in self.lines if a == op.replica):
                self.traffic += 2 * HEADER_BYTES + size
            else:
                self.unavailable += 1
                return
        self._used[op.replica, op.path] = self.sim.now

    def _was_dropped(self, node: Node, op: Operation, cold_s: float) -> bool:
        """Returns whether the replica dropped the content, because it was unused for long enough and is known to be elsewhere."""
        return self.sim.now - self._used.get((op.replica, op.path), 0.0) > cold_s and node.safe_elsewhere(op.path)

    def run(self) -> Outcome:
        """Lets the schedule pass, then brings all links up, makes 20 rounds, and lets what is in flight arrive."""
        with Stopwatch() as watch:
            operations = self.schedule.operations
            if operations:
                self.sim.at(operations[0].t, self._next)
            last = max([horizon(operations), *(o.t1 for o in self.schedule.outages if o.t1 < float("inf"))])
            trees = self._settle(last + ROUND_S)
        return self._counted(trees, watch.seconds)

    def _next(self) -> None:
        operations = self.schedule.operations
        self.do(operations[self.done])
        if self.done < len(operations):
            self.sim.at(operations[self.done].t, self._next)

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self._until(self.sim.now + seconds)

    def _until(self, t: float) -> None:
        # An event as the goal keeps the loop on its short path; a time would not.
        end = self.sim.event()
        self.sim.at(t, end.succeed)
        self.sim.run(until=end)

    def cut(self, a: str, b: str) -> None:
        """Takes the link between two nodes down now."""
        for line in (self.lines[a, b], self.lines[b, a]):
            line.down.open(self.sim.now)
        self._note_away(a, b)
        self._link(a, b, False)

    def mend(self, a: str, b: str) -> None:
        """Brings the link up again now."""
        for line in (self.lines[a, b], self.lines[b, a]):
            line.down.close(self.sim.now)
        for name in {a, b} - {SERVER}:
            self._away[name].close(self.sim.now)
        self._link(a, b, True)

    def _note_away(self, a: str, b: str) -> None:
        for name in {a, b} - {SERVER}:
            self._away[name].open(self.sim.now)

    def settle(self) -> Outcome:
        """Brings all links up, makes 20 rounds, lets what is in flight arrive, and counts."""
        for a, b in self.links:
            if self.lines[a, b].down.holds(self.sim.now) or self.lines[b, a].down.holds(self.sim.now):
                self.mend(a, b)
        with Stopwatch() as watch:
            trees = self._settle(self.sim.now + ROUND_S)
        return self._counted(trees, watch.seconds)

    def _settle(self, begin: float) -> dict[str, Mapping[str, tuple[Content, ...]]]:
        for k in range(ROUNDS):
            self.sim.at(begin + k * ROUND_S, self._round)
        self._until(begin + (ROUNDS + 1) * ROUND_S)
        trees = {name: self.nodes[name].tree() for name in self.schedule.replicas}
        for name, tree in trees.items():
            self.truth.at_the_end(name, tree)
        return trees

    def _round(self) -> None:
        for node in self.nodes.values():
            node.round()
            self._after_step()

    def _counted(self, trees: dict[str, Mapping[str, tuple[Content, ...]]], took_s: float) -> Outcome:
        users = [self.nodes[name] for name in self.schedule.replicas]
        statuses = {name: node.status() for name, node in zip(self.schedule.replicas, users, strict=True)}
        apart = self.truth.divergence(list(trees.values()))
        silent = all(status == "in sync" for status in statuses.values())
        pairs = self.truth.concurrent_pairs()
        lost = self.truth.lost_updates(trees.values())
        files = max(1, max(len(tree) for tree in trees.values()))
        counts = {
            "lost_updates": lost,
            "lost_per_100_concurrent": 100.0 * lost / pairs if pairs else 0.0,
            "concurrent_pairs": pairs,
            "resurrected": self.truth.resurrected(trees.values()),
            "silent_divergence": apart if silent else 0,
            "open_divergence": 0 if silent else apart,
            "torn_groups": self.truth.torn,
            "spurious_conflicts": self.truth.spurious,
            "conflict_copies": copies(users),
            "duplicates": self.truth.duplicates(trees.values()),
            "stale_reads": self.stale,
            "unavailable_reads": self.unavailable,
            "refused_ops": self.refused,
            "visible_delay_s": self._delays / self._arrivals if self._arrivals else 0.0,
            "traffic_bytes": self.traffic,
            "metadata_bytes": sum(node.metadata_bytes() for node in self.nodes.values()) / len(users) / files,
            "ops_per_s": self.done / took_s,
        }
        return Outcome({name: float(value) for name, value in counts.items()}, trees, statuses, self.nodes, self.truth)


def simulate(schedule: Schedule, protocol: SyncProtocol, step: Callable[[World], None] | None = None) -> Outcome:
    """Returns what `schedule` comes to when `protocol` keeps its replicas."""
    return World(schedule, protocol, step).run()


__all__ = ["Outage", "Outcome", "World", "simulate"]
