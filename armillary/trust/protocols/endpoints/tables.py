"""A machine as the plain table that sessions and monitors follow."""

from __future__ import annotations

from ..checking.machine import Machine
from .session import StateRow, Step, Table


def table_of(machine: Machine) -> Table:
    """The table of a machine."""
    rows = []
    for state in machine.states:
        steps = tuple(
            Step(
                step.send, step.peer, step.label, tuple(one.name for one in step.payload), tuple(one.type for one in step.payload),
                step.target, step.path, tuple(sorted(step.fresh)), step.decides,
            )
            for step in state.steps
        )  # fmt: skip
        rows.append(StateRow(steps, tuple(sorted(state.discards))))
    return Table(machine.role, tuple(rows))
