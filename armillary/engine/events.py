"""Events happen once: an event is pending until it happens, with a value or with an error.

Processes that wait for an event continue, in the order in which they began to wait, at the instant at which it happens. Waiting for an
event that has already happened does not block. A generator process waits with `yield event`, and a spawned one with `event.wait()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.engine.simulation import Simulation


class SimulationError(RuntimeError):
    """The program uses the engine wrongly, for example with an event that happens twice or a wait outside a process."""


class Deadlock(SimulationError):
    """Nothing is left to happen but processes still wait; the message lists them and what they wait for."""


class Interrupted(Exception):
    """Raised inside a process by `process.interrupt(cause)`."""

    def __init__(self, cause: object = None) -> None:
        super().__init__(cause)
        self.cause = cause


def seconds(value: Any, what: str) -> float:
    """`value` as simulated seconds; anything but a finite number of 0 or more raises an `InputError`."""
    if value.__class__ is not float:
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise InputError(f"{what}: found {value!r}; expected seconds") from None
    if not 0.0 <= value < math.inf:
        raise InputError(f"{what}: found {value!r}; expected seconds of 0 or more")
    return value


class Event:
    """Something that happens once. `succeed(value)` or `fail(error)` makes it happen; a second call of either is an error. Once it has
    happened, `callbacks` are called with the event, in the order in which they were added. If an event fails and nothing waits for it by
    the end of that instant, the run ends with its error.
    """

    __slots__ = ("_error", "_heard", "callbacks", "name", "sim", "value")

    def __init__(self, sim: Simulation, name: str | None = None) -> None:
        self.sim = sim
        self.name = name
        #: The callbacks that wait for the event, in order; None once it has happened.
        self.callbacks: list[Callable[[Any], None]] | None = []
        #: The value that it happened with, or None before.
        self.value: Any = None
        self._error: BaseException | None = None
        self._heard = False

    @property
    def happened(self) -> bool:
        """Whether the event has succeeded or failed."""
        return self.callbacks is None

    @property
    def error(self) -> BaseException | None:
        """The error that the event failed with, or None."""
        return self._error

    def succeed(self, value: Any = None) -> Event:
        """Makes the event happen now, with a value."""
        waiting = self.callbacks
        if waiting is None:
            raise SimulationError(f"{self.describe()} has already happened")
        self.callbacks = None
        self.value = value
        if waiting:
            ready = self.sim._ready
            for callback in waiting:
                ready.append((callback, self))
        return self

    def fail(self, error: BaseException) -> Event:
        """Makes the event happen now, with an error that is raised in every process that waits."""
        if not isinstance(error, BaseException):
            raise SimulationError(f"{self.describe()}: fail() takes an exception, not {error!r}")
        waiting = self.callbacks
        if waiting is None:
            raise SimulationError(f"{self.describe()} has already happened")
        self.callbacks = None
        self._error = error
        ready = self.sim._ready
        if waiting:
            self._heard = True
            for callback in waiting:
                ready.append((callback, self))
        else:
            ready.append((_nobody_waited, self))
        return self

    def wait(self) -> Any:
        """Blocks the calling spawned process until the event has happened; returns its value or raises its error."""
        if self.callbacks is not None:
            self.sim._current()._park(self)
        if self._error is not None:
            self._heard = True
            raise self._error
        return self.value

    def describe(self) -> str:
        """A description for messages: the name of the event, or its kind."""
        return self.name or type(self).__name__.lower()

    def __repr__(self) -> str:
        state = "pending" if self.callbacks is not None else "failed" if self._error is not None else "happened"
        return f"<{self.describe()}: {state}>"


def _nobody_waited(event: Event) -> None:
    if not event._heard:
        event._heard = True
        raise event._error or SimulationError("no error")


class Timeout(Event):
    """An event that happens `delay` seconds from now, with `value`, unless `cancel()` stops it."""

    __slots__ = ("_handle", "delay")

    def __init__(self, sim: Simulation, delay: float, value: Any = None) -> None:
        super().__init__(sim)
        self.delay = seconds(delay, "timeout")
        self._handle = sim.after(self.delay, self.succeed, value)

    def cancel(self) -> None:
        """Prevents the timeout; it has no effect if the timeout has happened."""
        self._handle.cancel()

    def describe(self) -> str:
        """A description for messages."""
        return f"timeout of {self.delay:g} s"


class AnyOf(Event):
    """Happens with the first of `events`, which is its value. If the first one fails, it fails too."""

    __slots__ = ("_waits", "events")

    def __init__(self, sim: Simulation, events: tuple[Event, ...]) -> None:
        super().__init__(sim)
        self.events = events
        if not events:
            raise SimulationError("any_of needs at least one event")
        for event in events:
            if event.callbacks is None:
                self._first(event)
                return
        for event in events:
            event.callbacks.append(self._first)  # type: ignore[union-attr]

    def _first(self, event: Event) -> None:
        if self.callbacks is None:
            return
        for other in self.events:
            # A later failure must not count as handled by this event.
            if other.callbacks is not None and self._first in other.callbacks:
                other.callbacks.remove(self._first)
        if event._error is not None:
            event._heard = True
            self.fail(event._error)
        else:
            self.succeed(event)

    def describe(self) -> str:
        """A description for messages."""
        return "any of " + ", ".join(e.describe() for e in self.events[:5]) + ("…" if len(self.events) > 5 else "")


class AllOf(Event):
    """Happens with the last of `events`; its value is the list of their values, in the given order. The first failure fails it."""

    __slots__ = ("_left", "events")

    def __init__(self, sim: Simulation, events: tuple[Event, ...]) -> None:
        super().__init__(sim)
        self.events = events
        pending = [event for event in events if event.callbacks is not None]
        self._left = len(pending)
        for event in events:
            if event.callbacks is None and event._error is not None:
                event._heard = True
                self.fail(event._error)
                return
        for event in pending:
            event.callbacks.append(self._one)  # type: ignore[union-attr]
        if not pending:
            self.succeed([event.value for event in events])

    def _one(self, event: Event) -> None:
        self._left -= 1
        if self.callbacks is None:
            return
        if event._error is not None:
            for other in self.events:
                if other.callbacks is not None and self._one in other.callbacks:
                    other.callbacks.remove(self._one)
            self.fail(event._error)
        elif self._left == 0:
            self.succeed([e.value for e in self.events])

    def describe(self) -> str:
        """A description for messages."""
        return f"all of {len(self.events)} events, {self._left} to come"
