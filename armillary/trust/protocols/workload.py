"""The work of a case: a protocol, machines, a log of events, captured traffic, or a broker; and what a technique makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import InputError

from .checking.encoding import with_permission
from .checking.judgement import Judgement
from .checking.machine import Machines
from .exploring.explorer import explore_machines
from .exploring.traces import differences
from .language.protocol import Protocol, load
from .readers.automata import read_machines
from .readers.events import Event, judge, read_events
from .sessions.play import Ended, play

#: Queue bound and configurations of the exploration that looks for counterexamples among what was accepted.
BOUND, MOST_CONFIGURATIONS = 2, 100_000


@dataclass(frozen=True)
class ProtocolWork:
    """A protocol, and the seeds of the sessions that are played."""

    protocol: Protocol
    seeds: tuple[int, ...] = ()
    #: Whether machines stand for themselves: then there is no text to check.
    machines: Machines | None = None


@dataclass(frozen=True)
class LogWork:
    """Events of roles, or the two directions of AMQP traffic, and the protocol that they should follow."""

    system: Machines
    events: tuple[Event, ...]
    where: str


@dataclass(frozen=True)
class CaptureWork:
    """The bytes that an AMQP client and its broker sent."""

    client: bytes
    broker: bytes


Loaded = Protocol | Machines | LogWork | CaptureWork


def read(path: Path, *, name: str = "", events: str = "", broker: str = "") -> Loaded:
    """What is in a user's files: by their endings, and by the options that name a second file."""
    if broker:
        if events:
            raise InputError("found both --events and --broker; expected one of them")
        from .amqp.capture import read_captures

        return CaptureWork(*read_captures(path, Path(broker)))
    if path.suffix.lower() in (".json", ".dot", ".gv"):
        if name:
            raise InputError(f"found --name {name} beside machines; expected it with a protocol file only")
        system = read_machines(path)
        return LogWork(system, tuple(read_events(Path(events))), events) if events else system
    protocol = load(path, name)
    if not events:
        return protocol
    from .checking.sound import check

    found = tuple(read_events(Path(events)))
    work = LogWork(check(protocol), found, events)
    judge(list(found[:1]), work.system, events)
    return work


def exercised(judged: Judgement, work: ProtocolWork) -> tuple[dict[str, float], list[Ended]]:
    """Plays the sessions of what was accepted and explores its machines; a refused protocol runs nowhere."""
    if not judged.accepted or judged.system is None:
        return {"counterexamples": 0.0, "lost_sessions": 0.0, "wasted_messages": 0.0}, []
    explored = explore_machines(judged.system, bound=BOUND, most=MOST_CONFIGURATIONS)
    ended = play(judged.system, work.seeds, monitored=judged.monitored) if work.seeds else []
    lost = sum(one.how not in ("agreement",) for one in ended)
    many = max(1, len(ended))
    return {
        "counterexamples": float(explored.counterexample is not None),
        "lost_sessions": lost / many,
        "wasted_messages": sum(one.discarded for one in ended) / many,
    }, ended


def unlike(judged: Judgement, work: ProtocolWork, length: int, bound: int = 3) -> float:
    """Traces that only the protocol or only the machines have; inf where the protocol was refused or has too many."""
    if not judged.accepted or judged.system is None:
        return float("inf")
    said: Protocol | None = with_permission(work.protocol) if judged.extra else work.protocol
    assert said is not None
    found = differences(said, judged.system, length=length, bound=bound)
    return float("inf") if found is None else float(found)


def table(judged: Judgement, ended: list[Ended]) -> list[dict[str, Any]]:
    """The judgement in rows: why it was refused, or how the sessions ended."""
    rows = [{"what": "refused", "count": 1, "said": one} for one in judged.faults] if not judged.accepted else []
    if not judged.accepted and not rows:
        rows = [{"what": "refused", "count": 1, "said": judged.why}]
    ways: dict[str, list[str]] = {}
    for one in ended:
        ways.setdefault(one.how, []).append(one.said)
    rows += [{"what": how, "count": len(said), "said": said[0]} for how, said in sorted(ways.items())]
    return rows or [{"what": "accepted", "count": 1, "said": ""}]
