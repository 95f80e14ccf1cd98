"""Hand-written machines from JSON or DOT.

JSON: `{"roles": [...], "machines": {role: {"initial": s, "final": [s...], "transitions": [[from, "!" or "?", peer, label, to]...]}}}`.
States are whole numbers or words; `final` may be left out, and then states without transitions are final.

DOT: one `digraph` per role, named after it, whose edges say `from -> to [label="Peer!label"]` or `"Peer?label"`; the first state of the
first edge is the initial one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import parse_json, read_text

from ..checking.machine import Machine, Machines, State, Step, machines

#: Limits on a stranger's machines.
MOST_BYTES, MOST_ROLES, MOST_TRANSITIONS, MOST_NAME = 1 << 22, 64, 100_000, 60
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_GRAPH = re.compile(r"digraph\s+\"?([A-Za-z][A-Za-z0-9_.-]{0,59})\"?\s*\{([^{}]*)\}")
_EDGE = re.compile(r'^"?([\w.-]{1,60})"?\s*->\s*"?([\w.-]{1,60})"?\s*\[[^\]]*label\s*=\s*"([\w.-]{1,60})([!?])([\w.-]{1,60})"[^\]]*\]$')
_Row = tuple[str, str, str, str, str]


def read_machines(path: Path) -> Machines:
    """The machines of a `.json` or `.dot` file."""
    text = read_text(path, limit=MOST_BYTES)
    return from_dot(text, str(path)) if path.suffix.lower() in (".dot", ".gv") else from_json(text, str(path))


def from_json(text: str, where: str) -> Machines:
    """Machines from JSON."""
    data = parse_json(text.encode(), where)
    if not isinstance(data, dict) or not isinstance(data.get("machines"), dict):
        raise InputError('found no "machines"; expected an object with "roles" and "machines"', where=where)
    roles = data.get("roles", list(data["machines"]))
    if not isinstance(roles, list) or not all(isinstance(one, str) and _NAME.fullmatch(one) for one in roles) or not roles:
        raise InputError(f"roles: found {one_line(str(roles), 60)}; expected names", where=where)
    if len(set(roles)) != len(roles) or len(roles) > MOST_ROLES:
        raise InputError(
            f"roles: found {len(roles)} with {len(set(roles))} names; expected at most {MOST_ROLES} different ones", where=where
        )
    if set(roles) != set(data["machines"]):
        raise InputError(f"machines: found those of {', '.join(sorted(data['machines']))}; expected one per role", where=where)
    return machines([_machine(role, data["machines"][role], roles, where) for role in roles], Path(where).stem)


def _machine(role: str, data: Any, roles: list[str], where: str) -> Machine:
    at = f"{where}: machines.{role}"
    if not isinstance(data, dict) or not isinstance(data.get("transitions"), list) or "initial" not in data:
        raise InputError('expected an object with "initial" and "transitions"', where=at)
    if len(data["transitions"]) > MOST_TRANSITIONS:
        raise InputError(f"found {len(data['transitions']):,} transitions; expected at most {MOST_TRANSITIONS:,}", where=at)
    rows: list[_Row] = []
    for i, row in enumerate(data["transitions"]):
        if not isinstance(row, list) or len(row) != 5:
            raise InputError(f'transitions[{i}]: found {one_line(str(row), 60)}; expected [from, "!" or "?", peer, label, to]', where=at)
        rows.append((_state(row[0], at), str(row[1]), str(row[2]), str(row[3]), _state(row[4], at)))
    final = data.get("final")
    if final is not None and not isinstance(final, list):
        raise InputError(f"final: found {one_line(str(final), 60)}; expected a list of states", where=at)
    return _made(role, _state(data["initial"], at), rows, None if final is None else {_state(one, at) for one in final}, roles, at)


def _state(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > MOST_NAME:
        raise InputError(f"found state {one_line(str(value), 60)}; expected a whole number or a word", where=where)
    return str(value)


def from_dot(text: str, where: str) -> Machines:
    """Machines from DOT, one digraph per role."""
    graphs = _GRAPH.findall(text)
    if not graphs:
        raise InputError("found no digraph with a name; expected one per role", where=where)
    roles = [name for name, _ in graphs]
    if len(set(roles)) != len(roles) or len(roles) > MOST_ROLES:
        raise InputError(
            f"found {len(roles)} digraphs with {len(set(roles))} names; expected at most {MOST_ROLES} different ones", where=where
        )
    found = []
    for role, body in graphs:
        rows: list[_Row] = []
        for statement in re.split(r"[;\n]", body):
            if "->" not in statement:
                continue
            edge = _EDGE.match(statement.strip())
            if edge is None:
                raise InputError(
                    f'digraph {role}: found "{one_line(statement.strip(), 60)}"; expected from -> to [label="Peer!label"]', where=where
                )
            source, target, peer, mark, label = edge.groups()
            rows.append((source, mark, peer, label, target))
        if not rows:
            raise InputError(f"digraph {role}: found no edge; expected at least one", where=where)
        found.append(_made(role, rows[0][0], rows, None, roles, f"{where}: digraph {role}"))
    return machines(found, Path(where).stem)


def _made(role: str, initial: str, rows: list[_Row], final: set[str] | None, roles: list[str], where: str) -> Machine:
    numbers = {initial: 0}
    for source, mark, peer, label, target in rows:
        if mark not in ("!", "?"):
            raise InputError(f'found "{one_line(mark, 20)}"; expected "!" or "?"', where=where)
        if peer not in roles or peer == role:
            raise InputError(f'found peer "{one_line(peer, 60)}"; expected another role', where=where)
        if not _NAME.fullmatch(label) or len(label) > MOST_NAME:
            raise InputError(f'found label "{one_line(label, 70)}"; expected a name', where=where)
        for state in (source, target):
            numbers.setdefault(state, len(numbers))
    if final is not None and not final <= numbers.keys():
        raise InputError(
            f"final: found {one_line(', '.join(sorted(final - numbers.keys())), 60)}; expected states of the machine", where=where
        )
    steps: dict[int, list[Step]] = {number: [] for number in numbers.values()}
    for source, mark, peer, label, target in rows:
        steps[numbers[source]].append(Step(mark == "!", peer, label, (), numbers[target]))
    names = {number: name for name, number in numbers.items()}
    states = [State(tuple(found), not found if final is None else names[number] in final) for number, found in sorted(steps.items())]
    return Machine(role, tuple(states))


def to_json(system: Machines) -> dict[str, Any]:
    """Machines as JSON values that `from_json` reads; tags and discards have no place in that form."""
    found = {}
    for machine in system.machines:
        rows = [[i, step.mark, step.peer, step.label, step.target] for i, state in enumerate(machine.states) for step in state.steps]
        rows += [[i, "?", peer, label, i] for i, state in enumerate(machine.states) for peer, label in sorted(state.discards)]
        final = [i for i, state in enumerate(machine.states) if state.ended or not state.steps]
        found[machine.role] = {"initial": 0, "final": final, "transitions": rows}
    return {"roles": list(system.roles), "machines": found}


def to_dot(system: Machines) -> str:
    """Machines as DOT, one digraph per role."""
    lines = []
    for machine in system.machines:
        lines.append(f"digraph {machine.role} {{")
        for i, state in enumerate(machine.states):
            lines += [f'  {i} -> {step.target} [label="{step}"];' for step in state.steps]
            lines += [f'  {i} -> {i} [label="{peer}?{label}", style=dashed];' for peer, label in sorted(state.discards)]
        lines.append("}")
    return "\n".join(lines) + "\n"
