"""A clock that a step of the wall clock cannot hurry: a quarantine lasts as long as it should."""

from __future__ import annotations

import time


class SteadyClock:
    """Seconds since 1970 at the start, or the latest known time if that is later; from then on as the monotonic clock goes."""

    def __init__(self, latest: float = 0.0) -> None:
        self._began = max(time.time(), latest) - time.monotonic()

    def __call__(self) -> float:
        """The time in seconds."""
        return self._began + time.monotonic()
