"""A process is code that runs in simulated time, as a generator or as a greenlet.

A generator yields what it waits for, which is an event or seconds. A spawned function is plain code whose blocking calls (`sim.sleep`,
`event.wait()`) suspend it; it runs on a greenlet, so that it may block at any depth of calls. Both are events that happen when they end,
with their return value.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from armillary.engine.events import Event, Interrupted, SimulationError, seconds

if TYPE_CHECKING:
    from greenlet import greenlet  # type: ignore[import-untyped]

    from armillary.engine.simulation import Simulation


class Process(Event):
    """Code that runs in simulated time; the event happens when the code ends, with its result or its error."""

    __slots__ = ("_later", "_resume", "_send", "_waits", "daemon")

    #: Sends a value into a generator; None for a greenlet.
    _send: Any
    #: Called by the loop. It does nothing unless the process still waits for `token`, so events that it no longer waits for may still call
    #: it.
    _wake: Callable[[Any], None]

    def __init__(self, sim: Simulation, name: str | None, daemon: bool) -> None:
        super().__init__(sim, name)
        #: Whether the process may wait forever without a deadlock (a server).
        self.daemon = daemon
        # The event, the time of waking, or the interruption that wakes the process next.
        self._waits: Any = sim.now
        self._later: list[Interrupted] = []
        # One bound method for the life of the process, because making one at each wait costs time.
        self._resume = self._wake
        sim._processes[self] = None
        sim._ready.append(self)

    @property
    def alive(self) -> bool:
        """Whether the process has not ended yet."""
        return self.callbacks is not None

    @property
    def waits_for(self) -> str:
        """What the process waits for, in words."""
        if isinstance(self._waits, Event):
            return self._waits.describe()
        return "time to pass" if isinstance(self._waits, float) else "its turn"

    def describe(self) -> str:
        """The name of the process, for messages."""
        return self.name or "process"

    def interrupt(self, cause: object = None) -> None:
        """Raises `Interrupted(cause)` in the process where it waits, at this instant; the event stays valid for others.

        A process that has not started yet never starts. Interrupting a process that has ended, or the running one, is an error.
        """
        if self.callbacks is None:
            raise SimulationError(f"{self.describe()} has ended and cannot be interrupted")
        if self.sim.active is self:
            raise SimulationError(f"{self.describe()} cannot interrupt itself")
        error = Interrupted(cause)
        if self._waits.__class__ is Interrupted:
            self._later.append(error)
            return
        self._let_go()
        self._waits = error
        self.sim._ready.append((self._resume, error))

    def _let_go(self) -> None:
        waits, self._waits = self._waits, None
        if waits.__class__ is float:
            self.sim._forget(self, waits)
        elif isinstance(waits, Event) and waits.callbacks is not None and self._resume in waits.callbacks:
            waits.callbacks.remove(self._resume)

    def _interrupt_again(self) -> None:
        if self._later and self.callbacks is not None:
            error = self._later.pop(0)
            later, self._later = self._later, []
            self.interrupt(error.cause)
            self._later = later

    def _ended(self, value: Any) -> None:
        self._waits = None
        del self.sim._processes[self]
        self.succeed(value)

    def _failed(self, error: BaseException) -> None:
        self._waits = None
        del self.sim._processes[self]
        self.fail(error)

    def kill(self) -> None:
        """Ends the process where it is: its `finally` and `with` blocks run, and it happens with None."""
        raise NotImplementedError

    def _may_end(self) -> bool:
        if self.sim.active is self:
            raise SimulationError(f"{self.describe()} cannot end itself with kill(); return instead")
        return self.callbacks is not None


class GeneratorProcess(Process):
    """A process that is a generator."""

    __slots__ = ("_generator",)

    def __init__(self, sim: Simulation, generator: Generator[Any, Any, Any], name: str | None, daemon: bool) -> None:
        if not hasattr(generator, "send"):
            raise SimulationError(f"process() takes a generator, not {generator!r}; call the generator function, or use spawn()")
        self._generator = generator
        self._send = generator.send
        super().__init__(sim, name or getattr(generator, "__name__", None), daemon)

    def _wake(self, token: Any) -> None:
        if token is not self._waits:
            return
        sim = self.sim
        sim.active = self
        try:
            if token.__class__ is Interrupted:
                if self._later:
                    sim._ready.append((_again, self))
                target = self._generator.throw(token)
            elif token._error is None:
                target = self._send(token.value)
            else:
                target = self._generator.throw(token._error)
            self._wait_for(target)
        except StopIteration as stop:
            self._ended(stop.value)
        except Exception as failure:
            self._failed(failure)
        finally:
            sim.active = None

    def _wait_for(self, target: Any) -> None:
        """Waits for what the generator yielded; if that event has already happened, the generator continues at once."""
        sim = self.sim
        while isinstance(target, Event):
            waiting = target.callbacks
            if waiting is not None:
                self._waits = target
                waiting.append(self._resume)
                return
            if target._error is None:
                target = self._send(target.value)
            else:
                target._heard = True
                target = self._generator.throw(target._error)
        self._waits = sim.now + (0.0 if target is None else seconds(target, f"{self.describe()} yields"))
        sim._insert(self._waits, self)

    def kill(self) -> None:
        """Ends the process where it is: its `finally` and `with` blocks run, and it happens with None."""
        if self._may_end():
            self._let_go()
            self._generator.close()
            self._ended(None)


def _again(process: Process) -> None:
    process._interrupt_again()


class GreenletProcess(Process):
    """A process that is a function on its own greenlet."""

    __slots__ = ("_args", "_call", "_greenlet")

    def __init__(self, sim: Simulation, call: Callable[..., Any], args: tuple[Any, ...], name: str | None, daemon: bool) -> None:
        if not callable(call):
            raise SimulationError(f"spawn() takes a function, not {call!r}; use process() for a generator")
        self._call = call
        self._args = args
        self._send = None
        self._greenlet: greenlet | None = None
        super().__init__(sim, name or getattr(call, "__name__", None), daemon)

    def _wake(self, token: Any) -> None:
        if token is not self._waits:
            return
        self._waits = None
        sim = self.sim
        sim.active = self
        try:
            if self._greenlet is not None:
                self._greenlet.switch(token)
            elif token.__class__ is Interrupted:
                self._failed(token)
            else:
                from greenlet import greenlet

                self._greenlet = greenlet(self._run)
                self._greenlet.switch()
        finally:
            sim.active = None
        if self._later and token.__class__ is Interrupted:
            self._interrupt_again()

    def _run(self) -> None:
        from greenlet import GreenletExit

        try:
            value = self._call(*self._args)
        except GreenletExit:
            self._ended(None)
        except Exception as error:
            self._failed(error)
        else:
            self._ended(value)

    def _park(self, event: Event) -> None:
        """Switches to the loop until `event` has happened; it is called on the process's own greenlet."""
        self._waits = event
        event.callbacks.append(self._resume)  # type: ignore[union-attr]
        woken = self.sim._hub.switch()
        if woken.__class__ is Interrupted:
            raise woken

    def _sleep(self, delay: float) -> None:
        sim = self.sim
        self._waits = sim.now + delay
        sim._insert(self._waits, self)
        woken = sim._hub.switch()
        if woken.__class__ is Interrupted:
            raise woken

    def kill(self) -> None:
        """Ends the process where it is: its `finally` and `with` blocks run, and it happens with None."""
        if not self._may_end():
            return
        self._let_go()
        if self._greenlet is None:
            self._ended(None)
        else:
            from greenlet import getcurrent

            self._greenlet.parent = getcurrent()
            self._greenlet.throw()
            if self.callbacks is not None:
                raise SimulationError(f"{self.describe()} blocked again while it was being ended")
