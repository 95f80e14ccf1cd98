"""Windows of counters of whatever a thread runs, without touching its code: a helper reads them every so often.

    with CounterSampler(every=0.1) as sampler:
        solve(A, b)
    detector.alarm(sampler.windows())
"""

from __future__ import annotations

import resource
import threading
import time
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from armillary.errors import InputError

from .perf import NoCounters, Perf

Array = np.ndarray[Any, Any]
MOST_WINDOWS = 1_000_000


class Source(Protocol):
    """Where counters come from."""

    names: tuple[str, ...]

    def sample(self) -> dict[str, float]:
        """Counts since the last sample."""

    def close(self) -> None:
        """Gives back what is held."""


class Process:
    """What the kernel says of this whole process; any thread may ask. task_clock is in nanoseconds."""

    names: tuple[str, ...] = ("task_clock", "page_faults", "context_switches")

    def __init__(self) -> None:
        self._last = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return float(time.process_time_ns()), float(used.ru_minflt + used.ru_majflt), float(used.ru_nvcsw + used.ru_nivcsw)

    def sample(self) -> dict[str, float]:
        """Counts since the last sample."""
        now = self._read()
        found = {name: b - a for name, a, b in zip(self.names, self._last, now)}
        self._last = now
        return found

    def close(self) -> None:
        """Nothing is held."""


class CounterSampler:
    """Samples the thread that enters it. source: "perf" (hardware and software events), "events" (the kernel's software events alone),
    "software" (what the process knows of itself), or "best": perf where there is any, else events, else software.

    `source` says afterwards which one it was, and `why` why no better one. A descriptor counts the thread that opened it, and any thread
    may read it, so the helper takes no time of the sampled one but the interpreter's lock, once per window.
    """

    def __init__(self, every: float = 0.1, source: str = "best") -> None:
        if not 0.001 <= every <= 3600:
            raise InputError(f"found {every}; expected seconds from 0.001 to 3600", where="every")
        if source not in ("best", "perf", "events", "software"):
            raise InputError(f'found "{source}"; expected best, perf, events or software', where="source")
        self.every, self.wanted = every, source
        self.source, self.why = "", ""
        self._windows: list[dict[str, float]] = []
        self._reader: Source | None = None

    def _open(self) -> Source:
        choices = ("perf", "events", "software") if self.wanted == "best" else (self.wanted,)
        for name in choices:
            try:
                made: Source
                if name == "software":
                    made = Process()
                else:
                    made = Perf() if name == "perf" else Perf(Process.names)
            except NoCounters as error:
                if name == choices[-1]:
                    raise
                self.why = self.why or str(error.strerror)
                continue
            self.source = name
            return made
        raise AssertionError("one of the choices is opened or raises")

    def __enter__(self) -> CounterSampler:
        self._windows = []
        self._reader = self._open()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="counter-sampler", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        due = time.monotonic() + self.every
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += self.every
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            if self._reader is not None and len(self._windows) < MOST_WINDOWS:
                self._windows.append(self._reader.sample())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        if not self._windows:
            # A block shorter than a window is one window.
            self._sample()
        with self._lock:
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def windows(self) -> list[dict[str, float]]:
        """The windows so far, each a count by name."""
        with self._lock:
            return [dict(one) for one in self._windows]


def as_table(windows: list[dict[str, float]], names: tuple[str, ...] = ()) -> tuple[Array, tuple[str, ...]]:
    """([windows, counters], names): the given counters, or those that every window has."""
    if not windows:
        raise InputError("found no window; expected at least one")
    held = set.intersection(*(set(one) for one in windows))
    names = names or tuple(name for name in windows[0] if name in held)
    missing = [name for name in names if name not in held]
    if missing or not names:
        raise InputError(f"found no {missing[0] if missing else 'counter'} in every window; expected the counters that were taught")
    return np.array([[one[name] for name in names] for one in windows]), names
