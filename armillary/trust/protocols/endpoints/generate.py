"""Endpoint source: one class per state with the methods that the state permits, or one class with a handler per message.

The text depends on the machine alone, passes `mypy --strict`, and imports one small module. Names in it come from the protocol, whose
grammar admits Python names only.
"""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import sys
import types
from collections import Counter
from dataclasses import dataclass

from armillary.errors import InputError, one_line, unknown

from ..checking.machine import Machine, Machines, State, Step
from ..checking.sound import check
from ..language.protocol import Protocol
from .tables import table_of

STYLES = ("states", "handlers")
_MODULE = "armillary.trust.protocols.endpoints.session"
_TAKEN = {*dir(builtins), "self", "state", "label", "after", "index", "payload", "Json", "TABLE", "session", "table"} - {
    "id",
    "input",
    "type",
    "max",
    "min",
    "sum",
}
_PYTHON = {"int": "int", "float": "float", "str": "str", "bytes": "bytes", "bool": "bool", "json": "Json"}


@dataclass(frozen=True)
class Endpoint:
    """One role's endpoint, in one of the styles."""

    protocol: str
    machine: Machine
    style: str = "states"

    def source(self) -> str:
        """The text of a Python module."""
        return _states(self) if self.style == "states" else _handlers(self)

    def module(self, name: str = "") -> types.ModuleType:
        """The module, made from its text in this process; with a name it can be imported too."""
        spec = importlib.util.spec_from_loader(name or f"{self.protocol}_{self.machine.role}", loader=None)
        assert spec is not None
        made = importlib.util.module_from_spec(spec)
        before = sys.modules.get(spec.name)
        sys.modules[spec.name] = made  # Dataclasses look their module up.
        try:
            exec(compile(self.source(), f"<{spec.name}>", "exec"), made.__dict__)
        finally:
            if not name:
                del sys.modules[spec.name]
                if before is not None:
                    sys.modules[spec.name] = before
        return made


def endpoint(protocol: Protocol | Machines, role: str, style: str = "states", *, tags: bool = False) -> Endpoint:
    """The endpoint of a role of a sound protocol, or of machines that somebody checked; `tags` as for `check`."""
    if style not in STYLES:
        raise unknown("style", style, STYLES)
    known = protocol.roles
    if role not in known:
        raise unknown("role", role, known)
    system = check(protocol, tags=tags) if isinstance(protocol, Protocol) else protocol
    machine = system.of(role)
    _named(protocol.name, machine)
    return Endpoint(protocol.name, machine, style)


def _named(protocol: str, machine: Machine) -> None:
    """Every name becomes a part of Python's text, so whatever is no plain name is refused: hand-written machines have freer ones."""
    steps = [step for state in machine.states for step in state.steps]
    fields = [one.name for step in steps for one in step.payload]
    for name in (protocol, machine.role, *(name for step in steps for name in (step.peer, step.label)), *fields):
        if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
            raise InputError(f'found "{one_line(name, 60)}"; expected a name that Python can use, as endpoints are made of it')


def attribute(name: str) -> str:
    """A payload's name as it can stand in generated code; no two names become one."""
    return f"{name}_" if name.rstrip("_") in _TAKEN else name


def python_type(kind: str) -> str:
    """The type of a payload in Python."""
    levels = kind.count("[]")
    return "list[" * levels + _PYTHON[kind.replace("[]", "")] + "]" * levels


def _head(made: Endpoint, names: str) -> list[str]:
    return [
        f'"""The endpoint of role {made.machine.role} in protocol {made.protocol}. It was generated; change the protocol instead."""',
        "", "from __future__ import annotations", "", "from dataclasses import dataclass", "", f"from {_MODULE} import {names}", "",
        *_table(made.machine),
    ]  # fmt: skip


def _table(machine: Machine) -> list[str]:
    lines = ["TABLE = Table(", f"    {machine.role!r},", "    ("]
    for row in table_of(machine).states:
        lines.append("        StateRow(")
        lines.append("            (")
        lines += [f"                Step{tuple(step)!r}," for step in row.steps]
        lines += ["            ),", f"            {row.discards!r},", "        ),"]
    return [*lines, "    ),", ")"]


def _parameters(step: Step) -> str:
    return "".join(f", {attribute(one.name)}: {python_type(one.type)}" for one in step.payload)


def _tuple(step: Step, prefix: str = "") -> str:
    inside = ", ".join(prefix + attribute(one.name) for one in step.payload)
    return f"({inside},)" if len(step.payload) == 1 else f"({inside})"


def _names(steps: tuple[Step, ...]) -> dict[Step, str]:
    """A name for each step: its label, and its peer where the label alone does not tell."""
    labels = Counter(step.label for step in steps)
    return _distinct({s: s.label if labels[s.label] == 1 else f"{s.label}_{'to' if s.send else 'from'}_{s.peer}" for s in steps})


def _distinct(names: dict[Step, str]) -> dict[Step, str]:
    """The same names, with "_" behind those that a longer one has become by chance."""
    used: set[str] = set()
    for step, name in names.items():
        while name in used:
            name += "_"
        used.add(name)
        names[step] = name
    return names


def _states(made: Endpoint) -> str:
    machine = made.machine
    lines = _head(made, "Json, Message, Session, State, StateRow, Step, Table, Transport")
    for number, state in enumerate(machine.states):
        lines += _received(machine, number, state)
        lines += _state(machine, number, state)
    lines += [
        "", "", f"def begin(transport: Transport, *, tags: bool = True) -> {machine.role}0:",
        '    """The first state of a new session."""', f"    return {machine.role}0(Session(TABLE, transport, tags=tags))", "", "",
        '__all__ = ["Json", "TABLE", "begin"]', "",
    ]  # fmt: skip
    return "\n".join(lines)


def _received(machine: Machine, number: int, state: State) -> list[str]:
    lines = []
    for step, name in _names(state.receives).items():
        lines += ["", "", "@dataclass(frozen=True)", f"class {machine.role}{number}_{name}:"]
        lines += [f'    """"{step.label}" came from {step.peer}; `state` is what follows."""', ""]
        lines += [f"    {attribute(one.name)}: {python_type(one.type)}" for one in step.payload]
        lines += [f"    state: {machine.role}{step.target}"]
    return lines


def _state(machine: Machine, number: int, state: State) -> list[str]:
    role = machine.role
    lines = ["", "", f"class {role}{number}(State):", f'    """{_said(state)}"""', "", f"    number = {number}"]
    sends, receives = _names(state.sends), _names(state.receives)
    at = {step: index for index, step in enumerate(state.steps)}
    for step, name in sends.items():
        lines += ["", f"    async def send_{name}(self{_parameters(step)}) -> {role}{step.target}:"]
        lines += [f'        """Sends "{step.label}" to {step.peer}."""', f"        await self._say({at[step]}, {_tuple(step)})"]
        lines += [f"        return {role}{step.target}(self._session)"]
    if receives:
        heard = " | ".join(f"{role}{number}_{name}" for name in receives.values())
        lines += ["", f"    async def receive(self) -> {heard}:", '        """Waits for what may come."""']
        lines += ["        return self._heard(*await self._hear())", ""]
        lines += [f"    async def receive_within(self, after: float) -> {heard} | None:"]
        lines += [
            '        """The same for so many seconds; after None this state goes on."""',
            "        found = await self._hear_within(after)",
        ]
        lines += ["        return None if found is None else self._heard(*found)", ""]
        lines += [f"    def _heard(self, step: Step, message: Message) -> {heard}:"]
        for index, (step, name) in enumerate(receives.items()):
            values = "".join(f"message.payload[{i}], " for i in range(len(step.payload)))
            made = f"{role}{number}_{name}({values}{role}{step.target}(self._session))"
            last = index == len(receives) - 1
            lines += [f"        return {made}"] if last else [f"        if step == self._step({at[step]}):", f"            return {made}"]
        for step, name in sends.items():
            lines += ["", f"    async def receive_or_{name}(self{_parameters(step)}, *, after: float) -> {heard} | {role}{step.target}:"]
            lines += [f'        """Waits for so many seconds, then sends "{step.label}" to {step.peer}."""']
            lines += ["        found = await self.receive_within(after)"]
            call = ", ".join(attribute(one.name) for one in step.payload)
            lines += [f"        return await self.send_{name}({call}) if found is None else found"]
    return lines


def _said(state: State) -> str:
    said = [f"{'send' if s.send else 'receive'} {s.label} {'to' if s.send else 'from'} {s.peer}" for s in state.steps]
    return (f"May {', '.join(said)}." if said else "Nothing more happens.") if len(said) < 9 else f"May do {len(said)} things."


def _handlers(made: Endpoint) -> str:
    machine = made.machine
    lines = _head(made, "After, Handler, Json, StateRow, Step, Table")
    body: list[str] = []
    for number, state in enumerate(machine.states):
        kinds = []
        for index, step in enumerate(state.steps):
            if step.send:
                name = f"Say{number}_{_names(state.sends)[step]}"
                kinds.append(name)
                lines += ["", "", "@dataclass(frozen=True)", f"class {name}:", f'    """Send "{step.label}" to {step.peer}."""', ""]
                lines += [f"    {attribute(one.name)}: {python_type(one.type)}" for one in step.payload]
                lines += ["", "    index = " + str(index), "", "    def payload(self) -> tuple[object, ...]:"]
                lines += ['        """The values in their order."""', f"        return {_tuple(step, 'self.')}"]
        if kinds:
            wait = " | After | None" if state.receives else ""
            body += ["", f"    async def at_{number}(self) -> {' | '.join(kinds)}{wait}:", f'        """{_said(state)}"""']
            body += ["        raise NotImplementedError"]
    heard = _heard_by(machine)
    for name, step in {name: step for step, name in heard.items()}.items():
        body += ["", f"    async def on_{name}(self{_parameters(step)}) -> None:", f'        """"{step.label}" came from {step.peer}."""']
    keys = {(step.peer, step.label): f"on_{name}" for step, name in heard.items()}
    lines += ["", "", f"class {machine.role}Handler(Handler):", f'    """Role {machine.role}: override what it says and hears."""', ""]
    lines += ["    table = TABLE", "    on = {"]  # fmt: skip
    lines += [f"        {key!r}: {name!r}," for key, name in sorted(keys.items())] + ["    }"]
    return "\n".join([*lines, *body, "", "", '__all__ = ["After", "Json"]', ""])


def _heard_by(machine: Machine) -> dict[Step, str]:
    """One name for each (sender, label)."""
    first: dict[tuple[str, str], Step] = {}
    for state in machine.states:
        for step in state.receives:
            first.setdefault((step.peer, step.label), step)
    labels = Counter(label for _, label in first)
    return _distinct({step: step.label if labels[step.label] == 1 else f"{step.label}_from_{step.peer}" for step in first.values()})
