"""Proactive backup copies keys and values of full blocks to host memory while the GPUs work."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Mirror:
    """The tokens of each request in host memory, and a queue of full blocks that drains at a limited rate.

    Blocks are copied in the order in which they became full. Between two updates they are assumed to fill evenly, so the link is used
    for the whole time.
    """

    def __init__(self, requests: int, block: int) -> None:
        self.block = block
        #: The tokens of each request that are in host memory, and those that follow in the queue.
        self.safe: Ints = np.zeros(requests, np.int64)
        self.queued: Ints = np.zeros(requests, np.int64)
        self.copied_tokens = 0
        self._queue: deque[tuple[Ints, Ints]] = deque()
        self._at_s = 0.0
        #: The running requests, for one update.
        self._going = np.zeros(requests, bool)

    @property
    def lag_tokens(self) -> int:
        """The tokens of full blocks that wait to be copied."""
        return int(sum(amount.sum() for _, amount in self._queue))

    def update(self, now: float, running: Ints, computed: Ints, tokens_per_s: float) -> None:
        """Queues the blocks that became full since the last call, and copies for the time that passed."""
        full = computed // self.block * self.block
        self.queued[running] = np.minimum(self.queued[running], full)
        self.safe[running] = np.minimum(self.safe[running], self.queued[running])
        more = full - self.queued[running]
        if (more > 0).any():
            self._queue.append((running[more > 0], more[more > 0]))
            self.queued[running] = full
        self._going[:] = False
        self._going[running] = True
        room = int(tokens_per_s * (now - self._at_s) / self.block) * self.block
        self._at_s = now
        while self._queue and room > 0:
            who, amount = self._queue.popleft()
            # Blocks of a request that has ended or lost its blocks are not copied any more.
            who, amount = who[self._going[who]], amount[self._going[who]]
            sums = np.cumsum(amount)
            taken = np.clip(room - (sums - amount), 0, amount)
            np.add.at(self.safe, who, taken)
            moved = int(taken.sum())
            room -= moved
            self.copied_tokens += moved
            left = amount - taken
            if left.any():
                self._queue.appendleft((who[left > 0], left[left > 0]))
        self.safe[running] = np.minimum(self.safe[running], self.queued[running])

    def back(self, q: int, kept: int) -> None:
        """Lets request `q` go on with `kept` tokens, and discards what the mirror has beyond them."""
        self.safe[q] = self.queued[q] = kept
