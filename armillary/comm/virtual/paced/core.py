"""The core of one rank: what its program lets it do, and how it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.comm.virtual.paced.handler import ACTIVE, CALLING, COMPUTING, HELD, IDLE, RUNNING, SCHEDULED, WAITING, Handler


class Core(Handler):
    """The core of one rank."""

    __slots__ = ()

    # What the rank's program does

    def spend(self, handling: float, copying: float = 0.0) -> None:
        """Let the core be busy for `handling + copying` seconds, in a call or in the action of an event."""
        self._account(handling, copying)
        seconds = handling + copying
        if self.acting:
            self.rank.clock += seconds
        else:
            self._pass(seconds, CALLING)

    def compute(self, seconds: float) -> None:
        """Let the core compute for so many seconds, plus what interrupts it and what polls cost."""
        self.busy.computing += seconds
        if self.acting:
            self.rank.clock += seconds
            return
        self.settle()
        extra = 0.0
        if self.mode.computing == "poll":
            extra = int(seconds // self.mode.every) * self.mode.poll
            self.busy.handling += extra
            self.busy.stolen += extra
            self._base = self.rank.clock
        self._pass(seconds + extra, COMPUTING)

    def settle(self) -> None:
        """Let the loop catch up with a clock that a call has moved ahead."""
        ahead = self.rank.clock - self.sim.now
        if ahead > 0.0 and not self.acting:
            self.busy.handling += ahead
            self._until(self.rank.clock, CALLING)

    def _pass(self, seconds: float, state: int) -> None:
        self.settle()
        self._until(self.rank.clock + seconds, state)

    def _until(self, end: float, state: int) -> None:
        rank, sim = self.rank, self.sim
        if end > sim.now:
            self.state = state
            self._end = end
            self._late = False
            sim._insert(end, (self._due, end))
            if state == COMPUTING and self._queue and self._run in (IDLE, HELD):
                self._run = IDLE
                self._consider()
            while sim.now < self._end or self.occupied:
                self._park()
            rank.clock = sim.now
            self.state = ACTIVE

    def _due(self, time: float) -> None:
        if time == self._end and self.state in (CALLING, COMPUTING):
            if self.occupied:
                self._late = True
            else:
                self._wake()

    def _park(self) -> None:
        self._parked = True
        self.rank._leave()
        self._parked = False

    def _wake(self) -> None:
        if self._parked:
            self._parked = False
            self.rank.world.wake(self.rank, self.sim.now)

    def drain(self, copying: bool = False) -> None:
        """Handle what has happened up to now, at the end of a call or in a poll; copies are made only by calls that poll."""
        if self._run == HELD:
            self._run = IDLE
        if self.acting or self._run == RUNNING or not (self._queue or (copying and self.copies)):
            return
        raised = self._run == SCHEDULED and self.mode.computing == "interrupt"
        self._cancel()
        self.state = CALLING
        self._end = 0.0
        self._start(in_call=True, copying=copying)
        while self.occupied:
            self._park()
        self.rank.clock = self.sim.now
        self.state = ACTIVE
        if raised:
            self._spurious()

    def wait(self, requests: Sequence[Any], any_one: bool = False) -> None:
        """Wait until all of these requests, or one of them, are complete and taken."""
        self.settle()
        self.any = any_one
        self._need = 1 if any_one else len(requests)
        if any_one:
            if any(request.arrival is not None for request in requests):
                self._need = 0
        else:
            known = [request for request in requests if request.arrival is not None]
            known.sort(key=lambda request: request.arrival)
            self._items.extend(known)
        for request in requests:
            if request.arrival is None:
                request.waited = True
        self.rank.waits = requests
        self._enter()
        while not self._through:
            self._park()
        self._leave_wait()
        if any_one:
            for request in requests:
                request.waited = False

    def sleep(self, what: str) -> None:
        """Wait until another rank or the loop wakes this rank."""
        self.settle()
        self._need = 1
        self.rank.waits = what
        self._enter()
        self.rank._leave()
        self._need = 0
        if self._asleep:
            self._wake_up()
        else:
            self._pump()
        while not self._through:
            self._park()
        self._leave_wait()

    def end(self) -> None:
        """Go on answering after the program has returned."""
        self.settle()
        self._need = 1
        self._enter()

    def close(self, length: float) -> None:
        """Count what is left of the run as waiting."""
        self.busy.waiting += length - self._idle_since

    def _enter(self) -> None:
        if self._run == SCHEDULED:
            self._raised = self.mode.computing == "interrupt"
            self._cancel()
        elif self._run == HELD:
            self._run = IDLE
        self.state = WAITING
        self._through = False
        self._asleep = False
        self._idle_since = self.sim.now
        self._pump()

    def _leave_wait(self) -> None:
        rank = self.rank
        self.busy.waiting += self.sim.now - self._idle_since
        rank.clock = self.sim.now
        rank.waits = None
        self.state = ACTIVE
        if self.mode.rearm:
            self.spend(self.mode.rearm)
        if self._raised:
            self._raised = False
            self._spurious()
        # What came while notifications were armed again has been refused, so the call looks once more.
        self.drain()

    def _spurious(self) -> None:
        """Pay for an interrupt that was on its way and finds nothing."""
        cost = self.mode.entry + self.mode.exit + 2 * self.mode.switch
        if cost:
            self.busy.stolen += cost
            self.busy.runs += 1
            self.spend(cost)

    # Waiting

    def known(self, request: Any) -> None:
        """Note that a request that the rank waits for is complete."""
        if self.any:
            self._need = 0
        else:
            self._items.append(request)
        if self._asleep:
            self._wake_up()
        else:
            self._pump()

    def _pump(self) -> None:
        """Do what a waiting core does next."""
        while self.state == WAITING and not self.occupied and not self._waking:
            taking = self._taking is not None
            if self._queue and self._run == IDLE and (not taking or self.mode.enters_calls):
                self._start(in_call=not self.mode.armed_in_wait, copying=not taking)
                if self._run == RUNNING:
                    return
            elif taking:
                return
            elif self._items:
                request = self._items.popleft()
                self.busy.waiting += self.sim.now - self._idle_since
                self._idle_since = self.sim.now
                if request.cost:
                    self.busy.handling += request.cost - request.copied
                    self.busy.copying += request.copied
                    self._taking = request
                    self._end = self.sim.now + request.cost
                    self._late = False
                    self.sim._insert(self._end, (self._taken, self._end))
                    return
                request.done = True
                self._need -= 1
            elif not self._need:
                self._through = True
                self._wake()
                return
            elif self.copies and self._run == IDLE:
                self._start(in_call=True, copying=True)
                return
            else:
                self._asleep = self.mode.wake > 0.0 and not self.rank.ended
                return

    def _taken(self, time: float) -> None:
        """End the completion of a request, unless the handler has pushed its end back."""
        request = self._taking
        if request is None or time != self._end:
            return
        if self.occupied:
            self._late = True
            return
        self._taking = None
        request.done = True
        self._need -= 1
        self._idle_since = self.sim.now
        self._pump()

    def _wake_up(self) -> None:
        self._asleep = False
        self._waking = True
        self.sim._insert(self.sim.now + self.mode.wake, (self._awake, None))

    def _awake(self, _: Any) -> None:
        self._waking = False
        self._pump()
