"""Rollouts in chunks: instances with room take requests from a global buffer, chunk by chunk, through a shared KV pool.

A request is admitted only where the KV of its whole next chunk fits beside what was promised to others, so nothing is ever preempted. After
a chunk the request returns to the buffer and its KV to the pool, and the instance with the most free KV takes the next request. If that is
the instance on which the request ran before, nothing has to be read. Seer (arXiv 2511.14617, 2025).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..simulation import stepping as sp
from ..simulation.generation import NO_DRAFTS, FloatArray, Generation, Instances
from ..simulation.steps import Launch
from .context_scheduler import ContextScheduler
from .divided_request import DividedRequest
from .kv_pool import KvPool

#: Tokens of KV beyond a chunk that drafts in flight may need.
DRAFT_ROOM = 2 * sp.MOST_DRAFT


class DividedRollout:
    """One rollout of the requests of `launch`, in the scheduler's order, in chunks of `chunk` tokens, with drafts if `accept` has any."""

    def __init__(
        self, launch: Launch, instances: Instances, scheduler: ContextScheduler, pool: KvPool, *, chunk: int, max_length: int,
        accept: FloatArray = NO_DRAFTS, best_draft: bool = False,
    ) -> None:  # fmt: skip
        work = launch.work
        prompt = work.prompt[launch.prompt].astype(np.int64)
        pool.check(min(chunk, max_length))
        self.launch, self.scheduler, self.pool, self.block = launch, scheduler, pool, instances.block
        self.extra = DRAFT_ROOM if len(accept) else 0
        target = np.minimum(launch.length, chunk)
        self.generation = Generation(instances, prompt, target, launch.group, accept=accept, best_draft=best_draft)
        self.parts = [DividedRequest(q, int(launch.group[q]), int(prompt[q]), max_length, chunk) for q in range(len(launch))]
        #: The tokens of KV that each instance has not promised, and those that each request was promised.
        self.free = np.full(instances.count, instances.kv_tokens // self.block * self.block, np.int64)
        self.promised = np.zeros(len(launch), np.int64)
        self._ready: dict[int, float] = {}
        for q in range(len(launch)):
            self._wait(q)
        self.fill()

    def _need(self, q: int) -> int:
        tokens = self.parts[q].kv_tokens + self.extra
        return min(-(-tokens // self.block) * self.block, self.generation.instances.kv_tokens // self.block * self.block)

    def _wait(self, q: int) -> None:
        part = self.parts[q]
        self.scheduler.submit(q, part.group, part.generated, self._need(q))

    def fill(self) -> None:
        """Gives requests to instances as long as one fits."""
        seqs = self.generation.instances.max_seqs
        running = self.generation.state.eng
        while len(self.scheduler):
            r = int(np.argmax(self.free))
            if running[r, sp.RUNS] + running[r, sp.WAITS] >= seqs:
                return
            q: Any = self.scheduler.next(int(self.free[r]))
            if q is None:
                return
            self._give(q, r)

    def _give(self, q: int, r: int) -> None:
        generation, part = self.generation, self.parts[q]
        self.promised[q] = self._need(q)
        self.free[r] -= self.promised[q]
        if part.generated == 0:
            generation.send(q, r)
            return
        generation.keep_on(q, min(int(self.launch.length[q]), part.generated + part.next_max_tokens), with_kv=True)
        if generation.home(q) == r:
            self.pool.drop(q)
            generation.send(q, r)
            return
        there = self.pool.get(q, r, max(generation.now, self._ready.get(q, 0.0)))
        # Until its KV has arrived, the request belongs to the instance that promised it room.
        generation.state.tag[q, sp.HOME] = r
        generation.at(there, lambda: self._arrive(q, r))

    def _arrive(self, q: int, r: int) -> None:
        if self.generation.state.tag[q, sp.STATUS] == sp.AHEAD:
            self.generation.send(q, r)

    def next(self) -> list[int]:
        """The requests that finish their last chunk next; an empty list if all are done."""
        while True:
            ended = self.generation.next()
            if not ended:
                return []
            over = []
            for q in ended:
                self._free(q)
                part = self.parts[q]
                made = int(self.generation.done[q]) - part.generated
                if part.made(made, stopped=int(self.generation.done[q]) >= self.launch.length[q]):
                    self.scheduler.finish(q, part.generated)
                    over.append(q)
                else:
                    self._ready[q] = self.pool.put(q, part.prompt_tokens + part.generated, made, self.generation.now)
                    self._wait(q)
            if over:
                return over
            self.fill()

    def _free(self, q: int) -> None:
        self.free[self.generation.home(q)] += self.promised[q]
        self.promised[q] = 0

    def abort(self, q: int) -> None:
        """Gives a request up, wherever it is."""
        if self.promised[q]:
            self._free(q)
        self.scheduler.cancel(q)
        self.pool.drop(q)
        self.generation.abort(q)

    def run(self, over: Callable[[list[int]], bool] | None = None) -> None:
        """Runs to the end, or until `over`, which is given the requests that have just ended, returns true."""
        while ended := self.next():
            if over is not None and over(ended):
                return
            self.fill()
