"""What one role does: a machine of states, with what it may send, must understand, and may throw away in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..language.grammar import Field
from ..language.protocol import Side


@dataclass(frozen=True)
class Step:
    """One message that a state may send or receive.

    `path` names the sides of mixed choices in which the message stands, outermost first; those in `fresh` begin a new instance with it.
    `decides` says for each of them which side the role holds from now on: None while it is tentative.
    """

    send: bool
    peer: str
    label: str
    payload: tuple[Field, ...] = ()
    target: int = 0
    path: tuple[Side, ...] = ()
    fresh: frozenset[int] = frozenset()
    decides: tuple[tuple[int, str | None], ...] = ()
    #: Whether the message interrupts what the role began tentatively.
    interrupt: bool = False

    @property
    def mark(self) -> str:
        """`!` for a message that is sent, `?` for one that is received."""
        return "!" if self.send else "?"

    def __str__(self) -> str:
        return f"{self.peer}{self.mark}{self.label}"


@dataclass(frozen=True)
class State:
    """What is possible here; `discards` are stale messages (sender, label) that are thrown away where messages carry no tags."""

    steps: tuple[Step, ...]
    ended: bool = False
    discards: frozenset[tuple[str, str]] = frozenset()

    @property
    def sends(self) -> tuple[Step, ...]:
        """The steps that send."""
        return tuple(step for step in self.steps if step.send)

    @property
    def receives(self) -> tuple[Step, ...]:
        """The steps that receive."""
        return tuple(step for step in self.steps if not step.send)


@dataclass(frozen=True)
class Machine:
    """The states of a role; it begins in the first one."""

    role: str
    states: tuple[State, ...]

    @property
    def steps(self) -> int:
        """The number of steps of all states."""
        return sum(len(state.steps) for state in self.states)

    def distances(self) -> list[int]:
        """For each state the least number of steps to one that may end; the number of states where there is none."""
        before: list[list[int]] = [[] for _ in self.states]
        for i, state in enumerate(self.states):
            for step in state.steps:
                before[step.target].append(i)
        far = len(self.states)
        found = [0 if state.ended else far for state in self.states]
        order = [i for i, state in enumerate(self.states) if state.ended]
        for at in order:
            for i in before[at]:
                if found[i] == far:
                    found[i] = found[at] + 1
                    order.append(i)
        return found


@dataclass(frozen=True)
class Machines:
    """A system of machines, one per role, that send each other messages; `tags` says whether messages carry theirs."""

    machines: tuple[Machine, ...]
    tags: bool = False
    name: str = "system"
    #: Which role observes each mixed choice, where the machines come from a protocol.
    observers: dict[int, str] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles in their order."""
        return tuple(machine.role for machine in self.machines)

    def of(self, role: str) -> Machine:
        """The machine of a role."""
        return next(machine for machine in self.machines if machine.role == role)


def machines(found: Sequence[Machine], name: str = "system") -> Machines:
    """Hand-written machines as a system, whose messages carry no tags."""
    return Machines(tuple(found), False, name)
