"""Streams that do nothing until they must, in any order that their events allow: a stand-in for those of a GPU."""

from __future__ import annotations

import random
from collections import deque
from contextlib import nullcontext


class LazyStreams:
    """Two queues. Work is done at `synchronise`, always of the stream that is not `delayed` if it can go on, or of either at random.

    An event belongs to one call of `record`: a wait that was queued after it holds its stream until that record has been reached, as on a
    GPU. Without `events`, waits hold nothing.
    """

    def __init__(self, delayed, seed=0, events=True):
        self.delayed, self.events = delayed, events
        self.queues = {"compute": deque(), "communication": deque()}
        self.random = random.Random(seed)

    @property
    def waiting(self):
        return sum(len(queue) for queue in self.queues.values())

    def on(self, stream):
        return nullcontext()

    def bound(self, stream, function, *arguments):
        return self.queues[stream].append, ((function, arguments),)

    def ordered(self, first, then):
        if not self.events:
            return []
        last = []

        def record():
            reached = []
            last[:] = [reached]
            self.queues[first].append((reached.append, (True,)))

        def wait():
            self.queues[then].append((None, last[0]))

        return [(record, ()), (wait, ())]

    def synchronise(self):
        while self.waiting:
            able = [name for name, queue in self.queues.items() if queue and (queue[0][0] is not None or queue[0][1])]
            assert able, "streams wait for each other"
            preferred = [name for name in able if name != self.delayed] or able
            function, arguments = self.queues[self.random.choice(preferred)].popleft()
            if function is not None:
                function(*arguments)
