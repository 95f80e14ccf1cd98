"""How fast endpoints exchange messages: sessions one after another, over queues in one process or over TCP on the loopback."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from ..checking.encoding import TURN
from ..checking.machine import Machines
from ..endpoints.monitor import Direction, Monitor
from ..endpoints.session import ProtocolError, Session, Step, Table, Transport
from ..endpoints.tables import table_of
from .play import Randomness, sample
from .queues import Queues
from .tcp import TcpTransport

#: Steps after which a session takes the shortest way to its end.
ENOUGH = 200
#: Seconds after which a session that hangs is given up.
PATIENCE_S = 20.0


def messages_per_s(system: Machines, seconds: float, *, tcp: bool = False, extra: frozenset[str] = frozenset(), seed: int = 0) -> float:
    """Messages per second that count: those in `extra`, and stale ones that are thrown away, take time and do not."""
    return asyncio.run(_measured(system, seconds, tcp, extra, seed))


async def _measured(system: Machines, seconds: float, tcp: bool, extra: frozenset[str], seed: int) -> float:
    tables = [table_of(machine) for machine in system.machines]
    distances = [machine.distances() for machine in system.machines]
    randomness = Randomness(seed)
    counted = 0
    async with AsyncExitStack() as stack:
        transports: list[Transport]
        if tcp:
            opened = [await stack.enter_async_context(TcpTransport(table)) for table in tables]
            addresses = {one.table.role: one.address for one in opened}
            for one in opened:
                one.peers.update(addresses)
            transports = list(opened)
        else:
            queues = Queues(system.roles)
            transports = [queues.of(table.role) for table in tables]
        async with asyncio.timeout(PATIENCE_S + seconds):
            counted += await _session(tables, transports, distances, system.tags, randomness, extra)
            began, counted = time.perf_counter(), 0
            while (elapsed := time.perf_counter() - began) < seconds or not counted:
                counted += await _session(tables, transports, distances, system.tags, randomness, extra)
    return counted / elapsed


async def _session(
    tables: list[Table], transports: list[Transport], distances: list[list[int]], tags: bool, randomness: Randomness, extra: frozenset[str]
) -> int:
    sessions = [Session(table, transport, tags=tags) for table, transport in zip(tables, transports)]
    tasks = [_role(session, far, randomness, extra) for session, far in zip(sessions, distances)]
    return sum(await asyncio.gather(*tasks)) - sum(session.discarded for session in sessions)


async def _role(session: Session, distances: list[int], randomness: Randomness, extra: frozenset[str]) -> int:
    steps = counted = 0
    while not session.ended:
        row = session.table.states[session.state].steps
        sends = [step for step in row if step.send]
        if len(sends) < len(row) and not _ending(sends, row, distances, steps):
            if session.poll() is not None:
                steps += 1
                continue
            if not sends or _waits(sends, randomness):
                await session.receive()
                steps += 1
                continue
        step = _choice(sends, distances, randomness, steps, extra)
        await session.send(step, tuple(sample(kind, randomness) for kind in step.types))
        counted += step.label not in extra
        steps += 1
        if steps > 50 * ENOUGH:
            raise ProtocolError("a session does not end")
    return counted


def _ending(sends: list[Step], row: tuple[Step, ...], distances: list[int], steps: int) -> bool:
    """Whether a long session is brought to its end by sending instead of by taking what has come."""
    return (
        steps >= ENOUGH
        and bool(sends)
        and min(distances[one.target] for one in sends) < min(distances[one.target] for one in row if not one.send)
    )


def _waits(sends: list[Step], randomness: Randomness) -> bool:
    """A tentative role always has something to say; an observer decides by itself once in eight times, and waits otherwise."""
    return sends[0].decides[-1][1] is not None and randomness.below(8) > 0


def _choice(sends: list[Step], distances: list[int], randomness: Randomness, steps: int, extra: frozenset[str]) -> Step:
    if extra and len(sends) > 1:
        # The same with a permission: its holder starts by itself once in eight times, and who is handed it has something to say.
        turn = [step for step in sends if step.label in extra and step.label.startswith(TURN)]
        if turn and randomness.below(8) > 0:
            return turn[0]
        sends = [step for step in sends if step.label not in extra]
    if steps >= ENOUGH:
        near = min(distances[step.target] for step in sends)
        sends = [step for step in sends if distances[step.target] == near]
    return sends[randomness.below(len(sends))] if len(sends) > 1 else sends[0]


def monitor_us(system: Machines, events: int = 20_000) -> float:
    """Microseconds of `Monitor.feed` per event, on random walks through the machines."""
    randomness = Randomness(1)
    total = 0.0
    fed = 0
    for machine in system.machines:
        monitor = Monitor(machine)
        table = monitor.table
        state = 0
        walk: list[tuple[Direction, str, str]] = []
        walks: list[list[tuple[Direction, str, str]]] = []
        for _ in range(events // len(system.machines)):
            steps = table.states[state].steps
            if not steps:
                walks.append(walk)
                state, walk = 0, []
                continue
            step = steps[randomness.below(len(steps))]
            walk.append(("send" if step.send else "receive", step.peer, step.label))
            state = step.target
        walks.append(walk)
        began = time.perf_counter()
        for one in walks:
            monitor.start()
            feed = monitor.feed
            for direction, peer, label in one:
                feed(direction, peer, label)
        total += time.perf_counter() - began
        fed += sum(map(len, walks))
    return 1e6 * total / max(1, fed)
