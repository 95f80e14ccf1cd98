"""An asyncio loop in virtual time: whenever everybody waits, the clock jumps to the next timer, and where there is none, all are stuck.

Sessions with delays of seconds so run in microseconds, in an order that depends on nothing but the delays; and a deadlock is seen at
once instead of being waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """Everybody waits for somebody else."""


class _Jumping(selectors.BaseSelector):
    """A selector that never waits: it moves the clock on by what the loop would have waited."""

    def __init__(self) -> None:
        self.now = 0.0
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("everybody waits for somebody else")
        self.now += max(0.0, timeout)
        return self._inner.select(0) if timeout <= 0 else []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def close(self) -> None:
        self._inner.close()

    def get_map(self) -> Any:
        return self._inner.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; use `run`."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop began."""
        return self._jumping.now


def run(main: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """Runs a coroutine in virtual time; raises `Stuck` when nothing can happen any more. A given loop can be used again."""
    own = loop is None
    loop = loop or VirtualLoop()
    task = loop.create_task(main)
    try:
        return loop.run_until_complete(task)
    finally:
        for other in asyncio.all_tasks(loop):
            other.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        if own:
            loop.close()
