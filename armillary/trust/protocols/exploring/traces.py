"""Do the roles together do what the protocol says? Traces of the protocol against traces of the composition.

What is visible is the reception of a message that counts: tentative messages that turn stale are never received. On the protocol's side a
run picks a branch at each choice and a side at each mixed choice, and a message can be received once its sender could have sent it and its
receiver has done all that comes before; so what is independent happens in any order. On the other side the machines run with their
queues. Both sides allow the same number of messages per queue.
"""

from __future__ import annotations

from armillary.errors import InputError

from ..checking.machine import Machines
from ..language.protocol import Interaction, Mixed, Protocol, targets
from .system import System

#: Sets of states that one prefix may lead to.
MOST_STATES = 200_000
Seen = tuple[str, str, str]
#: Messages that are decided and not received yet, and the node that comes after them.
_Global = tuple[tuple[Seen, ...], int]
#: A trace, and the states of both sides that it leads to.
_Level = tuple[tuple[Seen, ...], frozenset[_Global], frozenset[tuple[int, ...]]]


def differences(protocol: Protocol, system: Machines, *, length: int = 8, bound: int = 4, most: int = 20_000) -> int | None:
    """How many visible traces of up to `length` messages only one side has; None where one has more than `most` traces."""
    said, done = Spoken(protocol, bound), Composed(System(system, bound))
    levels: list[_Level] = [((), frozenset([said.first]), frozenset([done.first]))]
    different = seen = 0
    for _ in range(length):
        following = []
        for trace, here, there in levels:
            ours, theirs = said.after(here), done.after(there)
            different += len(ours.keys() ^ theirs.keys())
            following += [((*trace, event), ours[event], theirs[event]) for event in sorted(ours.keys() & theirs.keys())]
        seen += len(following)
        if seen > most:
            return None
        # Two traces that lead to the same sets of states go on in the same way, so one of them is enough.
        levels = list({(here, there): (trace, here, there) for trace, here, there in following}.values())
    return different


class Spoken:
    """The protocol's own steps."""

    def __init__(self, protocol: Protocol, bound: int) -> None:
        self.protocol = protocol
        self.bound = bound
        self.first: _Global = ((), 0)

    def after(self, states: frozenset[_Global]) -> dict[Seen, frozenset[_Global]]:
        """The receptions that are possible next, and the states that they lead to."""
        found: dict[Seen, set[_Global]] = {}
        seen = set(states)
        waiting = list(states)
        while waiting:
            decided, node = waiting.pop()
            for i, event in enumerate(decided):
                if self.receivable(decided, i):
                    found.setdefault(event, set()).add(((*decided[:i], *decided[i + 1 :]), node))
            for state in self.decide(decided, node):
                if state not in seen:
                    if len(seen) > MOST_STATES:
                        raise InputError(f"found more than {MOST_STATES:,} states of one trace; expected fewer")
                    seen.add(state)
                    waiting.append(state)
        return {event: frozenset(to) for event, to in found.items()}

    def decide(self, decided: tuple[Seen, ...], at: int) -> list[_Global]:
        node = self.protocol.nodes[at]
        if isinstance(node, Mixed):
            return [(decided, target) for target in targets(node)]
        if not isinstance(node, Interaction):
            return []
        made = [((*decided, (node.sender, node.receiver, branch.label)), branch.target) for branch in node.branches]
        # A message is decided only when it can be sent, or its sender waits: then it is decided later, in this order.
        pair = sum(1 for sender, receiver, _ in decided if (sender, receiver) == (node.sender, node.receiver))
        return made if pair < self.bound and len(decided) < 3 * self.bound else []

    def receivable(self, decided: tuple[Seen, ...], i: int) -> bool:
        sender, receiver, _ = decided[i]
        return (
            self.can_send(decided, i, sender)
            and not any(receiver == other for _, other, _ in decided[:i])
            and self.has_sent(decided, i, receiver)
        )

    def can_send(self, decided: tuple[Seen, ...], i: int, role: str) -> bool:
        """Whether a role has nothing left to receive before its i-th message, and so has sent all before it."""
        return not any(receiver == role for _, receiver, _ in decided[:i])

    def has_sent(self, decided: tuple[Seen, ...], i: int, role: str) -> bool:
        return self.can_send(decided, i, role)


class Composed:
    """The machines' steps; sends and discards are silent."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.first = system.first

    def after(self, states: frozenset[tuple[int, ...]]) -> dict[Seen, frozenset[tuple[int, ...]]]:
        """The receptions that are possible next, and the configurations that they lead to."""
        system = self.system
        found: dict[Seen, set[tuple[int, ...]]] = {}
        seen, waiting = set(states), list(states)
        while waiting:
            config = waiting.pop()
            for role in range(len(system.roles)):
                local = config[role]
                for place, letter, after, _, _ in system.sends(role, local):
                    if len(system.queues[config[place]]) < system.bound:
                        self._silent(self._with(config, role, after, place, system.pushed(config[place], letter)), seen, waiting)
                for place, sender in system.inbound[role]:
                    if not config[place]:
                        continue
                    letters = system.queues[config[place]]
                    for step, after in system.reaction(role, local, place, sender, letters[0]).outcomes:
                        to = self._with(config, role, after, place, system.queue(letters[1:]))
                        if step is None:
                            self._silent(to, seen, waiting)
                        else:
                            event = (system.roles[sender], system.roles[role], step.label)
                            found.setdefault(event, set()).add(system.settled(to))
        return {event: frozenset(to) for event, to in found.items()}

    def _with(self, config: tuple[int, ...], role: int, after: int, place: int, queue: int) -> tuple[int, ...]:
        changed = list(config)
        changed[role], changed[place] = after, queue
        return tuple(changed)

    def _silent(self, config: tuple[int, ...], seen: set[tuple[int, ...]], waiting: list[tuple[int, ...]]) -> None:
        config = self.system.settled(config)
        if config not in seen:
            seen.add(config)
            waiting.append(config)
