"""What every Linux tells a thread about itself: its processor time, page faults and context switches."""

from __future__ import annotations

import resource
import time

COUNTERS = ("task_clock", "page_faults", "context_switches")


class Software:
    """Counts since the last sample, of the thread that samples. task_clock is in nanoseconds."""

    names = COUNTERS

    def __init__(self) -> None:
        self._last = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float]:
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return float(time.thread_time_ns()), float(used.ru_minflt + used.ru_majflt), float(used.ru_nvcsw + used.ru_nivcsw)

    def sample(self) -> dict[str, float]:
        """The counts since the last sample."""
        now = self._read()
        found = {name: b - a for name, a, b in zip(self.names, self._last, now)}
        self._last = now
        return found

    def close(self) -> None:
        """Nothing is held open."""
