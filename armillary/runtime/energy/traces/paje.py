"""Pajé traces, such as StarPU's paje.trace: the states of its workers, with columns as the file's own header names them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_lines
from armillary.tasks.formats.listing import number

from .tasks import MOST_NS, MOST_TASKS, TaskTrace

#: The type of state in which StarPU's workers run tasks, and how many kinds of event and containers a file may have.
WORKER_STATE, MOST_EVENTS, MOST_CONTAINERS = "Worker State", 256, 200_000


@dataclass
class _Paje:
    where: str
    #: Number of an event to (its name, its fields).
    events: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    #: Alias of a state type to its name, and the states that the file itself defines (idle, sleeping, overhead…) as (type, alias).
    states: dict[str, str] = field(default_factory=dict)
    known: set[tuple[str, str]] = field(default_factory=set)
    containers: dict[str, str] = field(default_factory=dict)
    #: The open states of (container, type): (value, since in ns).
    open: dict[tuple[str, str], list[tuple[str, int]]] = field(default_factory=dict)
    found: list[tuple[str, str, str, int, int]] = field(default_factory=list)


def read_paje(path: str | Path) -> TaskTrace:
    """The states of type `Worker State`, or of the only type of state, that are not among those that the file defines itself."""
    paje = _Paje(str(path))
    defining: tuple[str, str, list[str]] | None = None
    for line, text in read_lines(path):
        where = f"{path}:{line}"
        if text.startswith("%"):
            words = text[1:].split()
            if not words:
                continue
            if words[0] == "EventDef":
                if len(words) < 3 or len(paje.events) >= MOST_EVENTS:
                    raise InputError(f'found "{one_line(text, 60)}"; expected %EventDef, a name and a number', where=where)
                defining = (words[1], words[2], [])
            elif words[0] == "EndEventDef":
                if defining is None:
                    raise InputError("found %EndEventDef without %EventDef", where=where)
                paje.events[defining[1]] = (defining[0], defining[2])
                defining = None
            elif defining is not None:
                defining[2].append(words[0])
        elif text.strip() and not text.lstrip().startswith("#"):
            _event(paje, text, where)
    if not paje.events:
        raise InputError("found no %EventDef; expected a Pajé trace", where=str(path))
    return _made(paje)


def _event(paje: _Paje, text: str, where: str) -> None:
    try:
        words = shlex.split(text) if '"' in text or "'" in text else text.split()
    except ValueError:
        raise InputError(f'found "{one_line(text, 60)}"; expected closed quotation marks', where=where) from None
    if words[0] not in paje.events:
        raise InputError(f'found the event "{one_line(words[0], 20)}"; expected one that %EventDef defines', where=where)
    kind, names = paje.events[words[0]]
    if kind not in _USED:
        return
    if len(words) - 1 < len(names):
        raise InputError(f"found {len(words) - 1} values of {kind}; expected {', '.join(names)}", where=where)
    facts = dict(zip(names, words[1:]))
    alias = facts.get("Alias") or facts.get("Name", "")
    if kind == "PajeDefineStateType":
        paje.states[alias] = facts.get("Name", alias)
    elif kind == "PajeDefineEntityValue":
        paje.known |= {(facts.get("EntityType", facts.get("Type", "")), one) for one in (alias, facts.get("Name", ""))}
    elif kind == "PajeCreateContainer":
        if len(paje.containers) >= MOST_CONTAINERS:
            raise InputError(f"found more than {MOST_CONTAINERS:,} containers", where=where)
        paje.containers[alias] = facts.get("Name", alias)
    else:
        _state(paje, kind, facts, where)


def _state(paje: _Paje, kind: str, facts: dict[str, str], where: str) -> None:
    needed = ("Time", "Type", "Container") + (("Value",) if kind != "PajePopState" else ())
    missing = [name for name in needed if name not in facts]
    if missing:
        raise InputError(f"{kind} has no field {missing[0]}; expected {', '.join(needed)}", where=where)
    at = round(number(facts["Time"], f"{where}: Time", MOST_NS / 1e6) * 1e6)
    place = (facts["Container"], facts["Type"])
    stack = paje.open.setdefault(place, [])
    if kind in ("PajePopState", "PajeSetState", "PajeResetState"):
        # Setting a state ends whatever was open, and popping the last one only.
        ended = stack[-1:] if kind == "PajePopState" else stack[:]
        del stack[len(stack) - len(ended) :]
        # An outer state goes on when an inner one ends, but a worker runs one task at a time: only innermost ones are tasks.
        for value, since in ended[-1:]:
            _add(paje, place, value, since, at, where)
        if stack and kind == "PajePopState":
            stack[-1] = (stack[-1][0], at)
    if kind in ("PajePushState", "PajeSetState"):
        if stack:
            _add(paje, place, stack[-1][0], stack[-1][1], at, where)
        if len(stack) > 1000:
            raise InputError("found more than 1,000 states inside each other", where=where)
        stack.append((facts["Value"], at))


def _add(paje: _Paje, place: tuple[str, str], value: str, since: int, until: int, where: str) -> None:
    if until < since:
        raise InputError(f"found a time before {since / 1e6:g}; expected times that do not decrease per container", where=where)
    if (place[1], value) in paje.known or until == since:
        return
    if len(paje.found) >= MOST_TASKS:
        raise InputError(f"found more than {MOST_TASKS:,} states", where=where)
    paje.found.append((place[1], place[0], value, since, until))


_USED = {
    "PajeDefineStateType", "PajeDefineEntityValue", "PajeCreateContainer", "PajeSetState", "PajePushState", "PajePopState",
    "PajeResetState",
}  # fmt: skip


def _made(paje: _Paje) -> TaskTrace:
    of_workers = {alias for alias, name in paje.states.items() if name == WORKER_STATE} or set(paje.states)
    rows = [row for row in paje.found if row[0] in of_workers]
    if not rows:
        raise InputError(f'found no task among the states of type "{WORKER_STATE}"', where=paje.where)
    if len({row[0] for row in rows}) > 1:
        said = one_line(", ".join(sorted({paje.states.get(row[0], row[0]) for row in rows})), 100)
        raise InputError(f'found tasks in states of the types {said}; expected one type named "{WORKER_STATE}"', where=paje.where)
    workers = sorted({row[1] for row in rows})
    types = sorted({row[2] for row in rows})
    worker, type_ = ({name: i for i, name in enumerate(names)} for names in (workers, types))
    named = [paje.containers.get(name, name) for name in workers]
    labels = named if len(set(named)) == len(named) else workers
    kinds = tuple("gpu" if "CUDA" in name or "HIP" in name else "cpu" for name in named)
    return TaskTrace(
        np.array([row[3] for row in rows], np.int64), np.array([row[4] for row in rows], np.int64),
        np.array([type_[row[2]] for row in rows], np.int64), np.array([worker[row[1]] for row in rows], np.int64), tuple(types),
        tuple(labels), kinds,
    ).checked(paje.where)  # fmt: skip
