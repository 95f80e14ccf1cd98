"""Event logs: one JSON object per line, checked against a protocol after the fact.

`{"time": 0.5, "role": "Server", "direction": "receive", "peer": "Client", "label": "req", "payload": [1, "aGk="]}`; `time` and `payload`
may be missing. Events of one role stand in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from armillary.errors import InputError, one_line, unknown
from armillary.files import read_json_lines

from ..checking.machine import Machines
from ..endpoints.monitor import Monitor

#: Events that a log may have.
MOST_EVENTS = 1_000_000


@dataclass(frozen=True)
class Event:
    """One line of a log."""

    line: int
    role: str
    direction: str
    peer: str
    label: str


@dataclass(frozen=True)
class Fault:
    """An event that the protocol does not permit."""

    line: int
    role: str
    said: str


def read_events(path: Path) -> list[Event]:
    """All events of a log."""
    found: list[Event] = []
    for line, row in read_json_lines(path):
        where = f"{path}:{line}"
        if not isinstance(row, dict):
            raise InputError(f"found {one_line(str(row), 40)}; expected an object", where=where)
        texts = []
        for key in ("role", "direction", "peer", "label"):
            value = row.get(key)
            if not isinstance(value, str) or len(value) > 200:
                raise InputError(f'"{key}": found {one_line(str(value), 40)}; expected a text', where=where)
            texts.append(value)
        if texts[1] not in ("send", "receive"):
            raise unknown("direction", texts[1], ("send", "receive"), where=where)
        if len(found) >= MOST_EVENTS:
            raise InputError(f"found more than {MOST_EVENTS:,} events; expected fewer", where=str(path))
        found.append(Event(line, *texts))
    if not found:
        raise InputError("found no event; expected one JSON object per line", where=str(path))
    return found


def judge(events: list[Event], system: Machines, where: str) -> list[Fault]:
    """The first event of each role that the protocol does not permit; what a role does after it is not judged."""
    monitors = {machine.role: Monitor(machine) for machine in system.machines}
    faults: dict[str, Fault] = {}
    for event in events:
        if event.role not in monitors:
            raise unknown("role", event.role, monitors, where=f"{where}:{event.line}")
        if event.role not in faults:
            said = monitors[event.role].feed(event.direction, event.peer, event.label)  # type: ignore[arg-type]
            if not said:
                faults[event.role] = Fault(event.line, event.role, str(said))
    return sorted(faults.values(), key=lambda fault: fault.line)
