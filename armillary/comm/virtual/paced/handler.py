"""The handler of one rank's core: it takes events where the policy of progress lets it.

    computing   end pushed back ->|====== handler ======|
    event ----- detect ---------->| entry handler* exit |

A core is *calling* (in a call that takes time), *computing*, or *waiting* (in a call, polling or asleep); while its rank's program goes on
between these, no time passes. A run of the handler takes the events that are there, in order, and makes the copies that they ask for.
Everything that the handler takes on this core pushes back the end of what it interrupted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from armillary.comm.virtual.busy import Busy

if TYPE_CHECKING:
    import numpy as np

    from armillary.comm.virtual.paced.rank import PacedRank
    from armillary.comm.virtual.progress import Policy

ACTIVE, CALLING, COMPUTING, WAITING = range(4)
#: States of the handler: HELD has been refused by a call, which will look itself.
IDLE, SCHEDULED, RUNNING, HELD = range(4)


class Copy:
    """A copy that a core has to make, in pieces; `piece(n)` is called after each and `done()` after the last."""

    __slots__ = ("chunk", "done", "left", "piece", "poll", "seconds_per_byte")

    def __init__(
        self,
        nbytes: int,
        seconds_per_byte: float,
        chunk: int,
        poll: float,
        done: Callable[[], None],
        piece: Callable[[int], None] | None = None,
    ) -> None:
        self.left = nbytes
        self.seconds_per_byte = seconds_per_byte
        #: The bytes of a piece, and the seconds of a poll between two pieces.
        self.chunk = chunk or nbytes
        self.poll = poll
        self.done = done
        self.piece = piece


class Handler:
    """The state of one core, and the part of it that takes events. Only the loop and the rank's own program call it, and never at once."""

    __slots__ = (
        "_asleep", "_base", "_began", "_copies", "_count", "_end", "_idle_since", "_in_call", "_items", "_late", "_leaving", "_main",
        "_need", "_parked", "_queue", "_raised", "_run", "_seen", "_since", "_taking", "_through", "_token", "_waking", "acting",
        "any", "busy", "copies", "mode", "occupied", "policy", "rank", "rng", "sim", "state",
    )  # fmt: skip

    def __init__(self, rank: PacedRank, policy: Policy, rng: np.random.Generator | None) -> None:
        self.rank = rank
        self.sim = rank.world.sim
        self.policy = policy
        #: The policy in force: `policy`, or `policy.otherwise` in a storm.
        self.mode = policy
        self.rng = rng
        self.busy = Busy()
        self.state = ACTIVE
        #: Whether the handler runs an event's action, which then spends time by moving the rank's clock.
        self.acting = False
        #: Whether the handler or the completion of a request has the core.
        self.occupied = False
        #: The copies to make.
        self.copies: deque[Copy] = deque()
        #: Whether a wait ends with the first completed request.
        self.any = False
        #: The request whose completion has the core at present.
        self._taking: Any = None
        self._queue: deque[Callable[[], None] | None] = deque()
        #: The completed requests that the wait has not taken yet, and the number that it still needs.
        self._items: deque[Any] = deque()
        self._need = 0
        self._through = False
        self._parked = False
        #: The end of what the core computes or calls, and whether its timer has gone off meanwhile.
        self._end = 0.0
        self._late = False
        #: The time from which polls are counted, and since when a waiting core has been idle.
        self._base = 0.0
        self._idle_since = 0.0
        self._run = IDLE
        self._token = 0
        #: Of the current run: whether it is on this core, its beginning, its events, whether it may copy, and the cost of its end.
        self._main = True
        self._began = 0.0
        self._count = 0
        self._in_call = False
        self._copies = True
        self._leaving = 0.0
        #: Whether an interrupt is on its way whose events a call has taken.
        self._raised = False
        self._asleep = False
        self._waking = False
        #: The events of this interval of measuring the rate, and its beginning.
        self._seen = 0
        self._since = 0.0

    # Events

    def notify(self, action: Callable[[], None] | None) -> None:
        """Take in an event; `action` is what the protocol has to do, or None if nothing waits for it."""
        self.busy.events += 1
        if self.policy.otherwise is not None:
            self._measure()
        state = self.state
        # Completions that ask for nothing cost only a rank that is told of them.
        if action is None and (state == ACTIVE or self.mode.computing == "never" or (state == WAITING and not self.mode.armed_in_wait)):
            return
        self._queue.append(action)
        if self._run == IDLE:
            self._consider()

    def _measure(self) -> None:
        """Change the policy if events have become many or few."""
        now = self.sim.now
        if not self._seen:
            self._since = now
        self._seen += 1
        passed = now - self._since
        if passed < self.policy.during:
            return
        rate = self._seen / passed
        self._seen = 0
        other = self.policy.otherwise
        assert other is not None
        if self.mode is self.policy and rate > self.policy.above:
            self._change(other)
        elif self.mode is other and rate < self.policy.above / 2:
            self._change(self.policy)

    def _change(self, mode: Policy) -> None:
        before, self.mode = self.mode, mode
        if self.state != COMPUTING:
            return
        left = max(0.0, self._end - self.sim.now)
        extra = 0.0
        if before.computing == "poll":
            extra -= int(left // (before.every + before.poll)) * before.poll
        if mode.computing == "poll":
            extra += int((left + extra) // mode.every) * mode.poll
            self._base = self.sim.now
        self.busy.handling += extra
        self.busy.stolen += extra
        self._push(extra)

    def _push(self, seconds: float) -> None:
        """Move the end of what the core does, and the timer with it."""
        self._end = max(self.sim.now, self._end + seconds)
        self._late = False
        self.sim._insert(self._end, (self._due, self._end))

    # The handler

    def _consider(self, again: bool = False) -> None:
        """Decide when the handler takes the events of the queue."""
        state, mode, now = self.state, self.mode, self.sim.now
        if state == ACTIVE:
            return
        if state == WAITING:
            if self._asleep:
                self._wake_up()
            else:
                self._pump()
            return
        how = mode.computing
        if how == "never" or (state == CALLING and (how == "poll" or (mode.lock and how == "helper"))):
            return
        if how == "poll":
            step = mode.every + mode.poll
            when = self._base + max(1, -int((self._base - now) // step)) * step
            if when < now:
                when += step
            if when > self._end:
                return
        else:
            when = now if again else now + mode.detect
            if mode.spread and not again:
                assert self.rng is not None
                when += mode.spread * float(self.rng.random())
        self._token += 1
        self._run = SCHEDULED
        if when <= now:
            self._begin(self._token)
        else:
            self.sim._insert(when, (self._begin, self._token))

    def _cancel(self) -> None:
        if self._run == SCHEDULED:
            self._token += 1
            self._run = IDLE

    def _begin(self, token: int) -> None:
        if token != self._token or self._run != SCHEDULED:
            return
        mode = self.mode
        interrupts = mode.computing == "interrupt"
        if self.state == CALLING and mode.lock and interrupts:
            # The call holds the library's lock, so the handler only notes that there is something to do.
            self._run = HELD
            cost = mode.entry + mode.exit + 2 * mode.switch
            if cost:
                self.busy.handling += cost
                self.busy.stolen += cost
                self.busy.runs += 1
                self._push(cost)
            return
        self._run = IDLE
        if self.state == CALLING and mode.computing == "poll":
            return
        self._start(in_call=False, copying=True)

    def _start(self, in_call: bool, copying: bool) -> None:
        mode = self.mode
        self._run = RUNNING
        self._main = in_call or mode.computing != "helper"
        self._began = self.sim.now
        self._count = 0
        self._in_call = in_call
        self._copies = copying
        cost = 0.0
        self._leaving = 0.0
        if self._main:
            if self.state == WAITING and self._taking is None:
                self.busy.waiting += self.sim.now - self._idle_since
            self.occupied = True
        if not in_call:
            self.busy.runs += 1
            if mode.computing != "poll":
                cost = mode.switch + mode.entry
                self._leaving = mode.exit + mode.switch
        self._later(cost, self._step, None)

    def _later(self, cost: float, call: Callable[[Any], None], argument: Any) -> None:
        if cost:
            self._account(cost, 0.0)
            self.sim._insert(self.sim.now + cost, (call, argument))
        else:
            call(argument)

    def _account(self, handling: float, copying: float) -> None:
        busy = self.busy
        if self._run == RUNNING and not self._main and (self.acting or self.state != ACTIVE):
            busy.helper += handling + copying
        else:
            busy.handling += handling
            busy.copying += copying

    def _step(self, _: Any) -> None:
        """Take the next event, make the next piece of a copy, or leave."""
        queue, handler = self._queue, self.mode.handler
        while queue and (self._in_call or self._count < self.mode.batch):
            action = queue.popleft()
            self._count += 1
            if action is None and self._in_call:
                continue
            if handler:
                self._account(handler, 0.0)
                self.sim._insert(self.sim.now + handler, (self._act, action))
                return
            if self._do(action):
                return
        # A wait goes on with what is complete, or ends, before the next piece of a copy.
        elsewhere = self._main and self.state == WAITING and (self._items or not self._need)
        if not queue and self.copies and self._copies and not elsewhere:
            self._copy()
            return
        self._later(self._leaving, self._finish, None)

    def _act(self, action: Callable[[], None] | None) -> None:
        if not self._do(action):
            self._step(None)

    def _do(self, action: Callable[[], None] | None) -> bool:
        """Run an action; return whether it took time, after which the handler goes on."""
        if action is None:
            return False
        rank, now = self.rank, self.sim.now
        before, rank.clock = rank.clock, now
        self.acting = True
        try:
            action()
        finally:
            self.acting = False
        after, rank.clock = rank.clock, before
        if after > now:
            self.sim._insert(after, (self._step, None))
            return True
        return False

    def _copy(self) -> None:
        """Make one piece of the oldest copy."""
        copy = self.copies[0]
        rank, sim = self.rank, self.sim
        nbytes = min(copy.chunk, copy.left)
        begin = sim.now
        rank.world.copy(
            rank, begin, nbytes, copy.seconds_per_byte, 1, lambda end: sim._insert(max(end, sim.now), (self._copied, (copy, nbytes, begin)))
        )

    def _copied(self, what: tuple[Copy, int, float]) -> None:
        copy, nbytes, begin = what
        self._account(0.0, self.sim.now - begin)
        copy.left -= nbytes
        if copy.piece is not None:
            self._do(partial(copy.piece, nbytes))
        if copy.left:
            self._later(copy.poll, self._step, None)
            return
        self.copies.popleft()
        if not self._do(copy.done):
            self._step(None)

    def _finish(self, _: Any) -> None:
        """End a run, and look once more whether something has happened."""
        now = self.sim.now
        length = now - self._began
        self._run = IDLE
        rank = self.rank
        if self._main:
            self.occupied = False
            if length and rank.world.record is not None:
                rank.world.record.handled(rank, self._began, now)
            if self.state == WAITING:
                self._idle_since = now
                if rank.ended and length:
                    rank.clock = now
                if self._taking is not None and (length or self._late):
                    self._end = max(now, self._end + length)
                    self._late = False
                    self.sim._insert(self._end, (self._taken, self._end))
            elif self._end:
                self.busy.stolen += length
                self._base += length
                if length or self._late:
                    self._push(length)
            else:
                self._wake()
        if self.state == WAITING:
            self._pump()
        elif self._queue and (self._end or not self._main):
            self._consider(again=self._count >= self.mode.batch)

    # What the core does in its waits and at its ends

    def _pump(self) -> None:
        """Do what a waiting core does next."""
        raise NotImplementedError

    def _wake_up(self) -> None:
        """Wake a core that sleeps in the kernel."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Let the program go on."""
        raise NotImplementedError

    def _due(self, time: float) -> None:
        """End what the core computes or calls, unless that has been pushed back."""
        raise NotImplementedError

    def _taken(self, time: float) -> None:
        """End the completion of a request, unless that has been pushed back."""
        raise NotImplementedError
