"""A thread that reads a meter while a program runs: `with Meter("rapl", period=0.01) as m: …`, then `m.readings`."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

from .nvml import Nvml
from .perf import Perf
from .rapl import NoMeter, Rapl
from .readings import Readings

SOURCES = {"rapl": Rapl, "perf": Perf, "nvml": Nvml}
#: Readings that are kept: a day at 10 ms.
MOST_READINGS = 10_000_000


class Meter:
    """Reads every domain of a source each `period` seconds, and notes for each reading the middle of the time that it took.

    `source` is rapl, perf or nvml, or an object with `domains`, `wraps`, `form`, `read(number)` and `close()`. Times are those of
    `time.monotonic_ns()`. A source that this process may not read raises `NoMeter` with the reason when the meter is made. What the source
    raises in mid-run ends the readings and is raised again when the block ends.
    """

    def __init__(self, source: Any = "rapl", period: float = 0.01, **options: Any) -> None:
        if not 1e-4 <= period <= 60.0:
            raise InputError(f"period: found {period:g} s; expected 0.0001 to 60")
        if isinstance(source, str) and source not in SOURCES:
            raise unknown("meter", source, SOURCES)
        self.source = SOURCES[source](**options) if isinstance(source, str) else source
        self.period = period
        self._rows: list[tuple[list[int], list[int], list[float]]] = [([], [], []) for _ in self.source.domains]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._form = self.source.form

    def __enter__(self) -> Meter:
        if self._thread is not None or self._stop.is_set():
            raise RuntimeError("a Meter is used once")
        self._sample()
        self._thread = threading.Thread(target=self._work, name="armillary-meter", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        try:
            if self._error is None:
                self._sample()
        finally:
            self.source.close()
        if self._error is not None and kind is None:
            raise self._error

    def _work(self) -> None:
        # Due times are kept on a grid, so that a late reading does not move all later ones.
        due = time.monotonic() + self.period
        try:
            while not self._stop.wait(max(0.0, due - time.monotonic())) and len(self._rows[0][0]) < MOST_READINGS:
                self._sample()
                due += self.period * max(1, int((time.monotonic() - due) / self.period) + 1)
        except BaseException as error:
            self._error = error

    def _sample(self) -> None:
        for number, (times, halves, values) in enumerate(self._rows):
            before = time.monotonic_ns()
            value = self.source.read(number)
            after = time.monotonic_ns()
            middle = (before + after) // 2
            if not times or middle > times[-1]:
                times.append(middle)
                halves.append((after - before + 1) // 2)
                values.append(value)

    @property
    def readings(self) -> dict[str, Readings]:
        """What was read, by domain."""
        return {
            name: Readings(name, np.array(times, np.int64), np.array(values), self._form, wrap, np.array(halves, np.int64))
            for name, wrap, (times, halves, values) in zip(self.source.domains, self.source.wraps, self._rows)
        }

    def write(self, path: str | Path) -> Path:
        """Writes the readings as `time_s,domain,energy_j` or `power_w`, in seconds of the monotonic clock."""
        value = "energy_j" if self._form == "energy" else "power_w"
        rows = [(t, name, v) for name, one in self.readings.items() for t, v in zip(one.time.tolist(), one.value.tolist())]
        lines = [f"time_s,domain,{value}", *(f"{t // 10**9}.{t % 10**9:09d},{name},{v!r}" for t, name, v in sorted(rows))]
        Path(path).write_text("\n".join(lines) + "\n")
        return Path(path)


__all__ = ["SOURCES", "Meter", "NoMeter"]
