"""One pool of tokens for all libraries of a process, as many as cores: a kernel takes as many as it uses threads.

Who finds too few waits in order of arrival, and narrower kernels may pass wider ones that do not fit. A kernel that has been passed
`passes` times is passed no more, so that a flood of narrow kernels cannot starve it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from armillary.errors import InputError


@dataclass
class _Request:
    width: int
    grant: Callable[[], None]
    passed: int = 0


class Tokens:
    """`count` tokens; `request` calls back when it has them, `hold` waits for them."""

    def __init__(self, count: int, passes: int = 8) -> None:
        if count < 1 or passes < 0:
            raise InputError(f"found {count} tokens and {passes} passes; expected at least one token", where="Tokens")
        self.count, self.passes = count, passes
        self._free = count
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []
        #: The most tokens that were out at once, and the most often that one kernel was passed by narrower ones.
        self.most_out = 0
        self.most_passed = 0

    @property
    def free(self) -> int:
        """The tokens that nobody holds."""
        return self._free

    def check(self, width: int) -> None:
        """Raises an `InputError` for a width that can never be granted."""
        if not isinstance(width, int) or not 1 <= width <= self.count:
            raise InputError(f"found a kernel of width {width}; expected 1 to {self.count}, the number of tokens", where="launch")

    def request(self, width: int, grant: Callable[[], None]) -> None:
        """Calls `grant()` once `width` tokens are taken for the caller: at once, or later on the thread that gives some back."""
        self.check(width)
        with self._lock:
            self._waiting.append(_Request(width, grant))
            granted = self._grants()
        _call(granted)

    def give(self, width: int) -> None:
        """Gives tokens back, and calls those whose turn has come."""
        with self._lock:
            self._free += width
            granted = self._grants()
        _call(granted)

    @contextmanager
    def hold(self, width: int) -> Iterator[None]:
        """Waits for the tokens, asleep, and gives them back at the end."""
        mine = threading.Event()
        self.request(width, mine.set)
        mine.wait()
        try:
            yield
        finally:
            self.give(width)

    def _grants(self) -> list[_Request]:
        granted: list[_Request] = []
        at = 0
        while self._free and at < len(self._waiting):
            request = self._waiting[at]
            if request.width <= self._free:
                self._free -= request.width
                granted.append(self._waiting.pop(at))
                for earlier in self._waiting[:at]:
                    earlier.passed += 1
                    self.most_passed = max(self.most_passed, earlier.passed)
            elif request.passed >= self.passes:
                break
            else:
                at += 1
            # One that has been passed often enough is the next, whatever would fit.
            if any(waiting.passed >= self.passes for waiting in self._waiting[:at]):
                break
        self.most_out = max(self.most_out, self.count - self._free)
        return granted


def _call(granted: list[_Request]) -> None:
    for request in granted:
        request.grant()
