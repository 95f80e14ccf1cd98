"""The communicator over paced ranks: the calls of all virtual ranks, plus staged collectives and the account of each core."""

from __future__ import annotations

import math
import time
from typing import Any, ClassVar

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG, MOST_TAG, receive_in_words
from armillary.comm.messages.requests import Request
from armillary.comm.virtual.busy import Busy
from armillary.comm.virtual.paced.requests import PacedRequest
from armillary.comm.virtual.paced.stages import Staged, Stages, binomial, recursive_doubling
from armillary.comm.virtual.rank import context_key
from armillary.comm.virtual.ranks import VirtualRanks
from armillary.comm.virtual.record import call_of
from armillary.comm.virtual.requests import VirtualRequest
from armillary.errors import InputError


class PacedRanks(VirtualRanks):
    """Ranks whose progress is a `Policy` with separate costs, or whose messages have chosen protocols."""

    _request: ClassVar[type[VirtualRequest]] = PacedRequest
    #: The rank's state, a `PacedRank`.
    _state: Any
    _staged: PacedRanks | None = None
    _staged_calls = 0

    @property
    def busy(self) -> Busy:
        """What this rank's core has done so far. The object goes on counting, so one that a program returns holds the whole run."""
        found: Busy = self._state.core.busy
        return found

    @property
    def iteration(self) -> int:
        """The number that the choice of protocols is given with each message that this rank sends."""
        number: int = self._state.iteration
        return number

    @iteration.setter
    def iteration(self, number: int) -> None:
        self._state.iteration = number

    # Messages

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Any:
        found = self._look(source, tag, "probe")
        while found is None:
            state = self._state
            state.probing = (self._context, source, tag)
            state.park(receive_in_words("probe", source, tag))
            found = self._look(source, tag, "probe")
        return found

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Any:
        found = self._look(source, tag, "iprobe")
        if found is None:
            self._state.core.spend(self._state.world.poll)
        return found

    # Staged collectives

    def staged(self, stages: Stages, words: str = "staged call") -> Request:
        """Start a staged call: a generator that starts transfers and yields those that its next stage needs."""
        call = Staged(self._state, stages, words)
        call.go()
        return call

    def iallreduce(self, send: Any, recv: Any, op: Op = SUM) -> Request:
        """Start an allreduce by recursive doubling into `recv`, which goes on stage by stage as this rank makes progress."""
        comm, tag = self._next_staged()
        return self.staged(recursive_doubling(comm, send, recv, op, tag), f"iallreduce of {self.size} ranks")

    def ibcast(self, buf: Any, root: int = 0) -> Request:
        """Start a broadcast along a binomial tree, which goes on stage by stage as this rank makes progress."""
        self._root(root)
        comm, tag = self._next_staged()
        return self.staged(binomial(comm, buf, root, tag), f"ibcast of {self.size} ranks")

    def _next_staged(self) -> tuple[PacedRanks, int]:
        """Return a communicator of its own for staged calls, and the next tag in it."""
        if self._staged is None:
            world = self._state.world
            context = context_key(world.context((self._context, "staged")))
            self._staged = PacedRanks(self._state, self._group, self.rank, context, world.unread, self._seed)
        self._staged_calls += 1
        return self._staged, self._staged_calls % MOST_TAG

    # Time

    def now(self) -> float:
        clock: float = self._state.clock
        return clock

    def compute(self, seconds: float | None = None, flops: float | None = None, bytes: float | None = None) -> None:
        for name, value in (("seconds", seconds), ("flops", flops), ("bytes", bytes)):
            if value is not None and not 0.0 <= value < math.inf:
                raise InputError(f"compute: found {name} = {value!r}; expected 0 or more")
        state = self._state
        spent = float(seconds or 0.0)
        if flops or bytes:
            spent += state.world.roof(state).seconds(flops, bytes)
        begin = state.clock
        state.core.compute(spent / (1.0 - state.core.policy.core_share))
        call_of(state, "compute", "compute", begin)

    def charge(self, measured: bool = True) -> None:
        state = self._state
        now = time.thread_time()
        if measured and state.mark is not None:
            begin = state.clock
            state.core.compute(max(0.0, now - state.mark) * state.world.speed_ratio)
            call_of(state, "compute", "compute", begin)
        state.mark = time.thread_time()
