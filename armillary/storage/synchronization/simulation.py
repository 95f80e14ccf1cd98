"""The world of a schedule: users act, messages travel the channel, links go down and up, and at the end all is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from armillary.engine import Channel, Clock, Simulation, exponential

from .protocol import Act, Content, Message, Node, SyncProtocol
from .schedule import SERVER, Outage, Schedule, horizon
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

    def now(self) -> float:
        return self._world.sim.now

    def clock(self) -> float:
        return self._clock.read()

    def send(self, peer: str, message: Message) -> None:
        self._world.send(self.name, peer, message)

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        self._world.sim.after(delay_s, call, *args)

    def shows(self, ops: tuple[int, ...]) -> None:
        self._world.shows(self.name, ops)

    def conflict(self, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
        self._world.truth.conflict(mine, theirs)


class World:
    """One run of a schedule under a protocol; `step` is called after every event, for those who check invariants."""

    def __init__(self, schedule: Schedule, protocol: SyncProtocol, step: Callable[[World], None] | None = None) -> None:
        self.schedule, self.protocol, self.step = schedule, protocol, step
        self.sim = Simulation()
        self.truth = Truth()
        self.traffic = self.refused = 0
        self.delays: list[float] = []
        self._seen: set[tuple[str, int]] = set()
        star = protocol.topology == "star"
        self.names = (*schedule.replicas, SERVER) if star else schedule.replicas
        self.links = [(a, b) for i, a in enumerate(self.names) for b in self.names[i + 1 :] if not star or b == SERVER]
        self.channels: dict[tuple[str, str], Channel] = {}
        self.nodes: dict[str, Node] = {}
        for name in self.names:
            peers = tuple(b if a == name else a for a, b in self.links if name in (a, b))
            offset, drift = schedule.clocks.get(name, (0.0, 0.0))
            host = _Host(self, name, peers, Clock(self.sim, offset, drift * 1e-6))
            self.nodes[name] = protocol.server(host) if star and name == SERVER else protocol.node(host)
        for a, b in self.links:
            self._connect(a, b)
            self._connect(b, a)
            self._announce(a, b)

    def _connect(self, a: str, b: str) -> None:
        s = self.schedule
        down = _merged([(o.t0, o.t1) for o in s.outages if o.cuts(a, b)])
        delay = exponential(0.9 * s.delay_s, 0.1 * s.delay_s)
        self.channels[a, b] = Channel(
            self.sim, lambda m: self._deliver(a, b, m), link=f"{a}>{b}", seed=s.seed, delay=delay, loss=s.loss,
            duplicate=s.duplication, down=down,
        )  # fmt: skip

    def _announce(self, a: str, b: str) -> None:
        """Tells both ends when their link goes down and comes up again; what is lost one way only, nobody is told."""
        both = _merged([(o.t0, o.t1) for o in self.schedule.outages if not o.one_way and o.cuts(a, b)])
        if not both or both[0][0] > 0:
            self.sim.at(0.0, self._link, a, b, True)
        for t0, t1 in both:
            self.sim.at(t0, self._link, a, b, False)
            self.sim.at(t1, self._link, a, b, True)

    def _link(self, a: str, b: str, up: bool) -> None:
        for x, y in ((a, b), (b, a)):
            self.nodes[x].link(y, up)
            self._after_step()

    def send(self, sender: str, receiver: str, message: Message) -> None:
        self.traffic += message.size
        if not message.paths & self.schedule.stuck:
            self.channels[sender, receiver].send(message)

    def _deliver(self, sender: str, receiver: str, message: Message) -> None:
        self.nodes[receiver].receive(sender, message)
        self._after_step()

    def _after_step(self) -> None:
        if self.step is not None:
            self.step(self)

    def shows(self, replica: str, ops: tuple[int, ...]) -> None:
        for n in ops:
            act = self.truth.acts.get(n)
            if act is None or replica == SERVER or act.operation.replica == replica or (replica, n) in self._seen:
                continue
            self._seen.add((replica, n))
            if not self._is_away(replica, act.operation.t) and not self._is_away(act.operation.replica, act.operation.t):
                self.delays.append(self.sim.now - act.operation.t)

    def _is_away(self, replica: str, t: float) -> bool:
        return any(o.t0 <= t < o.t1 and replica in (o.a, o.b) for o in self.schedule.outages)

    def _act(self, number: int) -> None:
        op = self.schedule.operations[number]
        node = self.nodes[op.replica]
        if op.op == "read":
            self.truth.read(op.replica, node.tree())
        elif op.op in ("begin", "end", "mkdir", "rmdir"):
            node.local(Act(number, op))
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
        self.truth.happened(act, shown)
        if not node.local(act):
            raise AssertionError(f"{type(node).__name__} refused {op}")

    def run(self) -> Outcome:
        """Lets the schedule pass, then quiescence: all links up, 20 rounds, and what is in flight arrives."""
        begun = time.perf_counter()
        operations = self.schedule.operations
        for number, op in enumerate(operations):
            self.sim.at(op.t, self._act, number)
        end = max([horizon(operations), *(o.t1 for o in self.schedule.outages if o.t1 < float("inf"))]) + ROUND_S
        for k in range(ROUNDS):
            self.sim.at(end + k * ROUND_S, self._round)
        self.sim.run(until=end + (ROUNDS + 1) * ROUND_S)
        trees = {name: self.nodes[name].tree() for name in self.schedule.replicas}
        for name, tree in trees.items():
            self.truth.read(name, tree)
        return self._counted(trees, time.perf_counter() - begun)

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
            "refused_ops": self.refused,
            "visible_delay_s": sum(self.delays) / len(self.delays) if self.delays else 0.0,
            "traffic_bytes": self.traffic,
            "metadata_bytes": sum(node.metadata_bytes() for node in self.nodes.values()) / len(users) / files,
            "ops_per_s": len(self.schedule.operations) / took_s,
        }
        return Outcome({name: float(value) for name, value in counts.items()}, trees, statuses, self.nodes, self.truth)


def simulate(schedule: Schedule, protocol: SyncProtocol, step: Callable[[World], None] | None = None) -> Outcome:
    """What `schedule` comes to when its replicas are kept by `protocol`."""
    return World(schedule, protocol, step).run()


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    out: list[tuple[float, float]] = []
    for t0, t1 in sorted(spans):
        if out and t0 <= out[-1][1]:
            out[-1] = (out[-1][0], max(t1, out[-1][1]))
        else:
            out.append((t0, t1))
    return out


__all__ = ["Outage", "Outcome", "World", "simulate"]
