"""Messages with dependencies: one leaves when those before it have arrived, or at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from ..fabric.network import Network

Ints = npt.NDArray[np.int64]
MOST_MESSAGES = 20_000_000
MOST_MESSAGE_FLITS = 1 << 40


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages in flits between nodes. `pause` is the cycle in which a message starts, or its cycles after the last of those before it.

    `before` and `after` are pairs of messages: `after[i]` leaves when `before[i]` and all others before it have arrived. A message
    without flits takes no time; it stands for the moment at which a rank has got everything that it waits for.
    """

    source: Ints
    target: Ints
    flits: Ints
    pause: Ints
    before: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    after: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    cycle_ns: float = 1.0
    #: Where they come from, for messages about them.
    name: str = "messages"

    def __len__(self) -> int:
        return len(self.source)

    @property
    def total_flits(self) -> int:
        """The flits of all messages together."""
        return int(self.flits.sum())

    def checked(self, net: Network, max_cycles: int) -> tuple[Any, Ints, Ints]:
        """The rows, first successors and successors that the simulation starts with; raises InputError for what cannot be played."""
        many = len(self)
        if not 1 <= many <= MOST_MESSAGES:
            raise InputError(f"found {many:,} messages; expected 1 to {MOST_MESSAGES:,}", where=self.name)
        for name, nodes in (("source", self.source), ("destination", self.target)):
            wrong = np.flatnonzero((nodes < 0) | (nodes >= net.nodes))
            if len(wrong):
                found = f"found {name} {int(nodes[wrong[0]])}"
                raise InputError(f"message {int(wrong[0])}: {found}; expected a node from 0 to {net.nodes - 1}", where=self.name)
        if (self.flits < 0).any() or (self.flits > MOST_MESSAGE_FLITS).any():
            wrong = self.flits[(self.flits < 0) | (self.flits > MOST_MESSAGE_FLITS)]
            raise InputError(f"found a message of {int(wrong[0])} flits; expected 0 to {MOST_MESSAGE_FLITS:,}", where=self.name)
        per_node = np.bincount(self.source, self.flits, net.nodes)
        late = max(int(self.pause.max()), int(per_node.max()))
        if self.pause.min() < 0 or late > max_cycles:
            raise InputError(
                f"the messages need {late:,} cycles or more; max_cycles allows {max_cycles:,} (a larger cycle_ns makes fewer)",
                where=self.name,
            )
        if len(self.before) != len(self.after):
            raise InputError(f"found {len(self.before)} and {len(self.after)} ends of dependencies; expected pairs", where=self.name)
        for ends in (self.before, self.after):
            if len(ends) and (ends.min() < 0 or ends.max() >= many):
                raise InputError(f"found a dependency on message {int(ends.max())}; expected 0 to {many - 1}", where=self.name)
        rows = np.zeros((many, 9), np.int64)
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = self.source, self.target, self.flits, self.flits
        rows[:, 4] = np.bincount(self.after, minlength=many)
        rows[:, 5] = self.pause
        rows[:, 8] = -1
        order = np.argsort(self.before, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.before, minlength=many))])
        self._check_order(rows[:, 4].copy(), starts, self.after[order])
        return rows, starts, self.after[order]

    def _check_order(self, waiting: Ints, starts: Ints, successors: Ints) -> None:
        """Raises InputError if messages wait for each other in a circle."""
        if not len(successors):
            return
        from .order import reachable

        done = reachable(waiting, starts, successors)
        if done < len(waiting):
            raise InputError(f"{len(waiting) - done:,} messages wait for each other in a circle; expected none", where=self.name)
