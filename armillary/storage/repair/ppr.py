"""PPR: partial sums along a binary tree, in rounds of whole blocks.

k helpers and the destination hold k + 1 partial sums. In each round half of the nodes send theirs to the other half, so ⌈log2(k + 1)⌉
rounds are enough, and no downlink carries more than one block per round. A round ends when its slowest pair has finished.

Partial-parallel-repair (PPR): a distributed technique for repairing erasure coded storage, EuroSys 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .plans.plan import ROUNDS
from .plans.planner import DESTINATION, Ends, Part, Planner, Split


@dataclass(frozen=True)
class Ppr(Planner):
    """A binary tree in rounds (EuroSys 2016). Slow receivers send first, and the fastest sender of a round goes to the fastest receiver."""

    name: ClassVar[str] = "ppr"

    def split(self, ends: Ends) -> Split:
        """The rate is 1 over the sum of the times that the rounds take for one byte."""
        best = np.argsort(-ends.up, kind="stable")[: ends.k].tolist()
        # A node that stays longer receives more often, so downlinks decide who sends first.
        left = sorted(best, key=lambda i: (-ends.down[i], -ends.up[i]))
        edges: list[tuple[int, int]] = []
        time = 0.0
        while left:
            senders = (len(left) + 1) // 2
            stay, go = left[: len(left) - senders], left[len(left) - senders :]
            receivers = [(ends.into, DESTINATION), *((float(ends.down[i]), i) for i in stay)]
            receivers.sort(key=lambda pair: -pair[0])
            go.sort(key=lambda i: -ends.up[i])
            slowest = np.inf
            # With an even number of nodes every receiver is busy; otherwise the slowest one pauses.
            for sender, (down, receiver) in zip(go, receivers):
                edges.append((sender, receiver))
                slowest = min(slowest, float(ends.up[sender]), down)
            time += 1.0 / slowest if slowest > 0 else np.inf
            left = stay
        return Split(1.0 / time, ROUNDS, [Part(1.0, tuple(edges))])
