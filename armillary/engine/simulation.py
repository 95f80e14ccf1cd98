"""The event loop, which orders everything in simulated time by (time, priority, order of insertion).

Entries for one time wait in one list, in the order of insertion, and the times are ordered apart from them; this gives the same order as
a heap of all entries, at a lower cost. The earlier half of the times is sorted, and the next time is taken from its end. A time beyond
that half is only appended to the later ones, which are sorted when the earlier half is used up; a time within it waits in a heap. Entries
with a priority of their own wait in another heap. Nothing reads the wall clock, and no decision depends on a hash or an address, so a
program gives the same numbers every time.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Generator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, TypeAlias

from armillary.engine.events import AllOf, AnyOf, Deadlock, Event, SimulationError, Timeout, seconds
from armillary.engine.processes import GeneratorProcess, GreenletProcess, Process
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.engine.sharing import Sharing
    from armillary.engine.timeline import Timeline

#: One step of priority in the key of an entry, which is far above any insertion number.
_STEP = 1 << 60
#: The largest absolute value of a caller's priority.
MOST_PRIORITY = 1000
#: The number of far times that are not worth sorting, and how many times over their span lasts.
_FEW, _SPANS = 64, 16
#: The number of processes that the message of a deadlock names before it counts the rest.
_SHOWN = 20


#: A call and its arguments, or a process that sleeps.
_Entry: TypeAlias = tuple[Callable[[Any], None], Any] | Process


class Handle:
    """A scheduled call; `cancel()` prevents it, in O(1)."""

    __slots__ = ("_args", "_call", "_sim", "time")

    def __init__(self, sim: Simulation, time: float, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._sim = sim
        #: The simulated time of the call.
        self.time = time
        self._call: Callable[..., Any] | None = call
        self._args = args

    @property
    def pending(self) -> bool:
        """Whether the call has neither happened nor been cancelled."""
        return self._call is not None

    def cancel(self) -> None:
        """Prevents the call; it has no effect if the call has happened."""
        if self._call is not None:
            self._call = None
            self._args = ()
            self._sim._lose(1)


def _fire(handle: Handle) -> None:
    call = handle._call
    if call is not None:
        handle._call = None
        call(*handle._args)


def _listed(slot: _Entry | list[_Entry]) -> list[_Entry]:
    return slot if isinstance(slot, list) else [slot]


def _is_dead(entry: _Entry) -> bool:
    return isinstance(entry, tuple) and entry[0] is _fire and entry[1]._call is None


class Simulation:
    """Simulated time, in seconds from `start`, and everything that happens in it.

    `timeline=True` records flows and lanes in a `Timeline`. As a context manager, it ends every process on leaving.
    """

    def __init__(self, start: float = 0.0, *, timeline: bool = False) -> None:
        #: The current simulated time in seconds; only the loop changes it.
        self.now: float = seconds(start, "start")
        #: The process that is running, or None between processes.
        self.active: Process | None = None
        self.timeline: Timeline | None = None
        if timeline:
            from armillary.engine.timeline import Timeline

            self.timeline = Timeline()
        #: The entries of this instant, in order; and the later entries by time (one entry or a list).
        self._ready: deque[_Entry] = deque()
        self._slots: dict[float, _Entry | list[_Entry]] = {}
        #: Their times: a sorted run with the earliest at its end, a heap of those that were added later but are due before the end of the
        #: run, and the times beyond it, in no order. Times without entries may be among them.
        self._run: list[float] = []
        self._near: list[float] = []
        self._far: list[float] = []
        #: The last time of the sorted run; only `_sort` changes it.
        self._horizon = -math.inf
        #: The entries with a priority, as a heap of (time, key, entry).
        self._special: list[tuple[float, int, _Entry]] = []
        self._next = itertools.count(1).__next__
        #: The processes that are alive, in the order in which they were made.
        self._processes: dict[Process, None] = {}
        #: The approximate number of dead entries, and the number at which they are removed.
        self._dead = 0
        self._bearable = 64
        self._running = False
        #: The greenlet that runs the loop.
        self._hub: Any = None
        self._sharing: Sharing | None = None

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Calls

    def at(self, time: float, call: Callable[..., Any], *args: Any, priority: int = 0) -> Handle:
        """Schedules `call(*args)` at simulated `time`; at equal times, lower priorities come first, and then earlier requests."""
        time = seconds(time, "at")
        if time < self.now:
            raise InputError(f"at: found {time!r}; expected a time from now on, {self.now!r}")
        handle = Handle(self, time, call, args)
        if priority == 0:
            self._insert(time, (_fire, handle))
        else:
            if not isinstance(priority, int) or abs(priority) > MOST_PRIORITY:
                raise InputError(f"priority: found {priority!r}; expected a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}")
            heappush(self._special, (time, priority * _STEP + self._next(), (_fire, handle)))
        return handle

    def after(self, delay: float, call: Callable[..., Any], *args: Any, priority: int = 0) -> Handle:
        """Schedules `call(*args)` `delay` seconds from now."""
        if delay.__class__ is not float or not 0.0 <= delay < math.inf:
            delay = seconds(delay, "after")
        if priority:
            return self.at(self.now + delay, call, *args, priority=priority)
        handle = Handle(self, self.now + delay, call, args)
        self._insert(handle.time, (_fire, handle))
        return handle

    def _insert(self, time: float, entry: _Entry) -> None:
        if time == self.now:
            self._ready.append(entry)
            return
        slot = self._slots.get(time)
        if slot is None:
            self._slots[time] = entry
            if time > self._horizon:
                self._far.append(time)
            else:
                heappush(self._near, time)
        elif slot.__class__ is list:
            slot.append(entry)
        else:
            self._slots[time] = [slot, entry]  # type: ignore[list-item]

    def _at_last(self, call: Callable[[Any], None], argument: Any) -> None:
        """Schedules a call after everything else of this instant."""
        heappush(self._special, (self.now, (MOST_PRIORITY + 1) * _STEP + self._next(), (call, argument)))

    # Events and processes

    def event(self, name: str | None = None) -> Event:
        """An event that the program triggers."""
        return Event(self, name)

    def timeout(self, delay: float, value: Any = None) -> Timeout:
        """An event that happens `delay` seconds from now; for a plain wait, `yield delay` costs less."""
        return Timeout(self, delay, value)

    def any_of(self, *events: Event) -> AnyOf:
        """An event that happens with the first of these, which is its value."""
        return AnyOf(self, events)

    def all_of(self, *events: Event) -> AllOf:
        """An event that happens with the last of these; its value is the list of their values."""
        return AllOf(self, events)

    def process(self, generator: Generator[Any, Any, Any], *, name: str | None = None, daemon: bool = False) -> Process:
        """Starts a generator as a process, at this instant; it yields an `Event`, seconds, or None (to let others of this instant run).

        A `daemon` may wait forever, because it does not count in the detection of deadlocks.
        """
        return GeneratorProcess(self, generator, name, daemon)

    def spawn(self, call: Callable[..., Any], *args: Any, name: str | None = None, daemon: bool = False) -> Process:
        """Starts `call(*args)` as a process on a greenlet, at this instant; it waits with `sim.sleep(s)` and `event.wait()`."""
        if self._hub is None:
            from greenlet import getcurrent  # type: ignore[import-untyped]

            self._hub = getcurrent()
        return GreenletProcess(self, call, args, name, daemon)

    def sleep(self, delay: float) -> None:
        """Blocks the calling spawned process for `delay` seconds."""
        self._current()._sleep(seconds(delay, "sleep"))

    def _current(self) -> GreenletProcess:
        if isinstance(self.active, GreenletProcess):
            return self.active
        raise SimulationError("only a process made with spawn() can block; a generator yields what it waits for")

    @property
    def sharing(self) -> Sharing:
        """Computes how activities share the pools of this simulation; it is made on first use."""
        if self._sharing is None:
            from armillary.engine.sharing import Sharing

            self._sharing = Sharing(self)
        return self._sharing

    # The loop

    def run(self, until: float | Event | None = None) -> Any:
        """Advances time until nothing is left, until a time (whose own entries have not happened yet), or until an event happens.

        With an event, its value is returned or its error is raised. If nothing is left but processes still wait, `Deadlock` lists them and
        what they wait for; a run until a time does not check this.
        """
        if self._running:
            raise SimulationError("run() inside run()")
        stop = math.inf
        goal: Event | None = None
        if isinstance(until, Event):
            goal = until
            if goal.callbacks is None:
                return _outcome(goal)
            goal.callbacks.append(_stop)
        elif until is not None:
            stop = seconds(until, "until")
            if stop < self.now:
                raise InputError(f"until: found {stop!r}; expected a time from now on, {self.now!r}")
            if stop == self.now:
                return None
        if self._hub is not None:
            self._take_over()
        self._running = True
        end = (_stop, None)
        if stop < math.inf:
            heappush(self._special, (stop, -(MOST_PRIORITY + 1) * _STEP - self._next(), end))
        try:
            self._loop()
        except _Stop:
            return None if goal is None else _outcome(goal)
        finally:
            self._running = False
            if goal is not None and goal.callbacks is not None and _stop in goal.callbacks:
                goal.callbacks.remove(_stop)
            if stop < math.inf:
                self._special[:] = [x for x in self._special if x[2] is not end]
                heapify(self._special)
        self._check_deadlock(goal)
        return None

    def _take_over(self) -> None:
        """Makes spawned processes return to the current caller of the loop."""
        from greenlet import getcurrent

        hub = getcurrent()
        if hub is not self._hub:
            self._hub = hub
            for process in self._processes:
                if isinstance(process, GreenletProcess) and process._greenlet is not None:
                    process._greenlet.parent = hub

    def _loop(self) -> None:
        try:
            self._turn()
        finally:
            self.active = None

    def _turn(self) -> None:
        ready, run, near, special = self._ready, self._run, self._near, self._special
        slots: dict[float, Any] = self._slots
        take: Callable[[], Any] = ready.popleft
        push, pop, next_time, place, forget, later = heappush, heappop, run.pop, slots.setdefault, slots.pop, self._far.append
        sleeper, number, forever = GeneratorProcess, float, math.inf
        now, horizon = self.now, self._horizon
        entry: Any
        while True:
            if special and special[0][0] <= now and (special[0][1] < 0 or not ready):
                entry = pop(special)[2]
            elif ready:
                entry = take()
            elif special or self._dead or not (run or near):
                if not self._advance():
                    return
                now, horizon = self.now, self._horizon
                continue
            else:
                # The usual case of `_advance`, inlined.
                time = next_time() if run and not (near and near[0] < run[-1]) else pop(near)
                entry = forget(time, None)
                if entry is None:
                    continue
                self.now = now = time
            kind = type(entry)
            if kind is not sleeper:
                self.active = None
                if kind is tuple:
                    entry[0](entry[1])
                elif kind is list:
                    ready.extend(entry)
                else:
                    entry._resume(entry._waits)
                continue
            # A generator that slept. It usually sleeps again, which is handled here without a call.
            self.active = entry
            try:
                delay = entry._send(None)
                if type(delay) is number and now < (time := now + delay) < forever:
                    entry._waits = time
                    if (slot := place(time, entry)) is entry:
                        if time > horizon:
                            later(time)
                        else:
                            push(near, time)
                    elif type(slot) is list:
                        slot.append(entry)
                    else:
                        slots[time] = [slot, entry]
                else:
                    entry._wait_for(delay)
            except StopIteration as ended:
                entry._ended(ended.value)
            except Exception as error:
                entry._failed(error)

    def _sort(self) -> None:
        """Sorts the earlier half of the far times, when the near ones and the sorted run are used up.

        A few times are a heap instead, for as long as their span lasts some times over; a time without entries marks its end.
        """
        far = self._far
        if len(far) > _FEW:
            far.sort(reverse=True)
            half = len(far) // 2
            self._run[:] = far[half:]
            del far[half:]
            self._horizon = self._run[0]
        elif far:
            last = max(far)
            self._horizon = last + _SPANS * (last - self.now)
            self._near[:] = [*far, self._horizon]
            far.clear()
            heapify(self._near)

    def _advance(self) -> bool:
        """Moves to the next time at which something happens; returns false if there is none. Cancelled entries do not advance time."""
        special, run, near, slots = self._special, self._run, self._near, self._slots
        while True:
            if self._dead:
                while special and _is_dead(special[0][2]):
                    heappop(special)
            if not run and not near:
                self._sort()
            first = min(run[-1] if run else math.inf, near[0] if near else math.inf)
            if special and special[0][0] < first:
                self.now = special[0][0]
                return True
            if not run and not near:
                return False
            time = run.pop() if run and run[-1] == first else heappop(near)
            entries = _listed(slots.pop(time, []))
            if self._dead:
                alive = [entry for entry in entries if not _is_dead(entry)]
                self._dead -= len(entries) - len(alive)
                entries = alive
            if entries:
                self.now = time
                self._ready.extend(entries)
                return True

    def _check_deadlock(self, goal: Event | None) -> None:
        stuck = [p for p in self._processes if not p.daemon]
        if not stuck and goal is None:
            return
        lines = [f"{p.describe()} waits for {p.waits_for}" for p in stuck[:_SHOWN]]
        if len(stuck) > _SHOWN:
            lines.append(f"and {len(stuck) - _SHOWN} more")
        if goal is not None:
            lines.insert(0, f"{goal.describe()} can no longer happen")
        raise Deadlock(f"deadlock at {self.now!r} s: " + "; ".join(lines))

    def peek(self) -> float:
        """The time of the next entry, as far as is known now; infinite if nothing is left."""
        if self._ready:
            return self.now
        self._throw_out()
        return min(min(self._slots, default=math.inf), self._special[0][0] if self._special else math.inf)

    def close(self) -> None:
        """Ends every process that is alive, newest first, and discards all entries; the simulation cannot be used afterwards."""
        for process in reversed(list(self._processes)):
            process.kill()
        for waiting in (self._ready, self._slots, self._run, self._near, self._far, self._special):
            waiting.clear()
        self._dead = 0

    def _forget(self, process: Process, time: float) -> None:
        """Prevents a process that sleeps until `time` from waking."""
        if time == self.now:
            self._ready.remove(process)
            return
        left = _listed(self._slots[time])
        left.remove(process)
        # The time stays where it is; a time without entries is skipped.
        if left:
            self._slots[time] = left
        else:
            del self._slots[time]

    def _lose(self, entries: int) -> None:
        """Counts dead entries, and removes them when they are about half of all."""
        self._dead += entries
        if self._dead > self._bearable:
            self._throw_out()

    def _throw_out(self) -> None:
        for time in list(self._slots):
            alive = [entry for entry in _listed(self._slots[time]) if not _is_dead(entry)]
            if alive:
                self._slots[time] = alive
            else:
                del self._slots[time]
        for times in (self._run, self._near, self._far):
            times[:] = [time for time in times if time in self._slots]
        self._special[:] = [x for x in self._special if not _is_dead(x[2])]
        heapify(self._near)
        heapify(self._special)
        self._dead = 0
        self._bearable = max(64, sum(len(_listed(slot)) for slot in self._slots.values()) + len(self._special))


class _Stop(Exception):
    pass


def _stop(cause: object) -> None:
    raise _Stop


def _outcome(event: Event) -> Any:
    if event._error is not None:
        event._heard = True
        raise event._error
    return event.value
