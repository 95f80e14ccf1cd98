"""Measure what it takes to wake another thread on this machine: polling, eventfd, futex, signalfd and pipe.

Two threads wake each other in turn, half a round trip being one way. Rounds of polling and rounds of the mechanism alternate in the same
two threads, each on a processor of its own, so what disturbs one disturbs the other.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import signal
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

MECHANISMS = ("poll", "eventfd", "futex", "signalfd", "pipe")
#: Rounds that spread by more than this share of their median are noisy.
NOISY = 0.3
#: The numbers of futex and tgkill by machine.
_SYSTEM_CALLS = {"x86_64": (202, 234), "aarch64": (98, 131)}
#: Seconds after which a round is taken to hang.
_PATIENCE_S = 60.0
_SIGNAL = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else 0


@dataclass(frozen=True)
class Wakeup:
    """Microseconds one way, by round, with those of polling in the same rounds."""

    mechanism: str
    rounds_us: tuple[float, ...]
    polled_us: tuple[float, ...]

    @property
    def one_way_us(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds_us)

    @property
    def ratio(self) -> float:
        """The median of the ratios to polling in the same round."""
        return statistics.median(own / twin for own, twin in zip(self.rounds_us, self.polled_us))

    @property
    def noisy(self) -> bool:
        """Whether the rounds differ too much to hold a claim."""
        low, _, high = statistics.quantiles(self.rounds_us, n=4)
        return high - low > NOISY * self.one_way_us


def measure_wakeups(mechanisms: Sequence[str] = MECHANISMS, *, rounds: int = 15, exchanges: int = 400) -> list[dict[str, Any]]:
    """Return a row per mechanism: microseconds one way, the ratio to polling, the fastest round, and whether the rounds were noisy."""
    rows = []
    for mechanism in mechanisms:
        found = measure_wakeup(mechanism, rounds=rounds, exchanges=exchanges)
        rows.append(
            {
                "mechanism": mechanism,
                "one_way_us": found.one_way_us,
                "over_polling": found.ratio,
                "fastest_us": min(found.rounds_us),
                "noisy": found.noisy,
            }
        )
    return rows


def measure_wakeup(mechanism: str, *, rounds: int = 15, exchanges: int = 400) -> Wakeup:
    """Measure one mechanism beside polling, in `rounds` rounds of `exchanges` round trips each."""
    if mechanism not in MECHANISMS:
        raise unknown("mechanism", mechanism, MECHANISMS)
    for name, value, least, most in (("rounds", rounds, 2, 10_000), ("exchanges", exchanges, 1, 10_000_000)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(f"{name}: found {value!r}; expected a whole number from {least} to {most}")
    if platform.system() != "Linux" or platform.machine() not in _SYSTEM_CALLS:
        raise InputError(f"found {platform.system()} on {platform.machine()}; expected Linux on {' or '.join(_SYSTEM_CALLS)}")
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        raise InputError("found one processor; expected two, because a thread that polls would keep the other from running")
    with ExitStack() as open_files:
        pair = _Pair(mechanism, exchanges, open_files)
        own, polled = pair.run(rounds, processors[:2], processors)
    return Wakeup(mechanism, tuple(own), tuple(polled))


class _Pair:
    """The two threads, and the words, files and signals through which they wake each other."""

    def __init__(self, mechanism: str, exchanges: int, open_files: ExitStack) -> None:
        self.mechanism = mechanism
        self.exchanges = exchanges
        #: Words of 64 bits on cache lines of their own: polling's, the futexes', and buffers for files.
        self.memory = np.zeros(256, np.int64)
        base = (self.memory.ctypes.data + 63) // 64 * 64
        self.words = ((base, base + 64), (base + 128, base + 192))
        self.buffers = (base + 256, base + 768)
        for buffer in self.buffers:
            ctypes.c_int64.from_address(buffer).value = 1
        self.threads = [0, 0]
        self.files = self._open(open_files)
        self.barrier = threading.Barrier(2, timeout=_PATIENCE_S)
        self.failed: list[BaseException] = []

    def _open(self, open_files: ExitStack) -> list[tuple[int, int]]:
        """Return (file to read, file by which the other side is woken) of each side."""
        if self.mechanism == "eventfd":
            made = [os.eventfd(0) for _ in range(2)]
            ends = [(made[0], made[1]), (made[1], made[0])]
        elif self.mechanism == "pipe":
            one, two = os.pipe(), os.pipe()
            made = [*one, *two]
            ends = [(one[0], two[1]), (two[0], one[1])]
        elif self.mechanism == "signalfd":
            made = [_signalfd() for _ in range(2)]
            ends = [(made[0], -1), (made[1], -1)]
        else:
            return [(-1, -1), (-1, -1)]
        for file in made:
            open_files.callback(os.close, file)
        return ends

    def run(self, rounds: int, processors: Sequence[int], all_of_them: Sequence[int]) -> tuple[list[float], list[float]]:
        """Run both sides and return the microseconds one way of each round: of the mechanism, and of polling."""
        from armillary.network.notification.wakeups import loops

        # The loops are compiled before the clock starts; a side that begins with nothing to do returns at once.
        loops.poll(self.words[0][0], self.words[0][1], 0, 0, True)
        self._side(0, 0, True)
        other = threading.Thread(target=self._guarded, args=(1, rounds, processors[1]), daemon=True)
        collected = gc.isenabled()
        gc.disable()
        other.start()
        times: tuple[list[float], list[float]] = ([], [])
        try:
            times = self._rounds(0, rounds, processors[0])
        except threading.BrokenBarrierError:
            if not self.failed:
                raise
        finally:
            os.sched_setaffinity(0, all_of_them)
            if collected:
                gc.enable()
            other.join(_PATIENCE_S)
        if self.failed:
            raise RuntimeError(f"the other side of {self.mechanism} failed") from self.failed[0]
        return times

    def _guarded(self, side: int, rounds: int, processor: int) -> None:
        try:
            self._rounds(side, rounds, processor)
        except BaseException as error:
            self.failed.append(error)
            self.barrier.abort()

    def _rounds(self, side: int, rounds: int, processor: int) -> tuple[list[float], list[float]]:
        from armillary.network.notification.wakeups import loops

        os.sched_setaffinity(0, [processor])
        self.threads[side] = threading.get_native_id()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [_SIGNAL]) if self.mechanism == "signalfd" else None
        own: list[float] = []
        polled: list[float] = []
        first, n = side == 0, self.exchanges
        mine, theirs = self.words[0][side], self.words[0][1 - side]
        try:
            self.barrier.wait()
            # One round before warms caches and is not counted.
            for turn in range(rounds + 1):
                begin = turn * n
                seconds = self._timed(lambda begin=begin: loops.poll(mine, theirs, n, begin, first))  # type: ignore[misc]
                polled.append(seconds)
                own.append(self._timed(lambda begin=begin: self._side(side, begin, False)) if self.mechanism != "poll" else seconds)  # type: ignore[misc]
        finally:
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        scale = 1e6 / (2 * n)
        return [scale * t for t in own[1:]], [scale * t for t in polled[1:]]

    def _timed(self, loop: Callable[[], int]) -> float:
        self.barrier.wait()
        begin = time.perf_counter()
        code = loop()
        seconds = time.perf_counter() - begin
        if code:
            raise RuntimeError(f"{self.mechanism}: a wake-up did not arrive (step {code})")
        return seconds

    def _side(self, side: int, begin: int, dry: bool) -> int:
        """One side of a round of the mechanism; a dry run only compiles it."""
        from armillary.network.notification.wakeups import loops

        n = 0 if dry else self.exchanges
        first = side == 0
        mine, theirs = self.files[side]
        buffer = self.buffers[side]
        futex, tgkill = _SYSTEM_CALLS[platform.machine()]
        found = 0
        if self.mechanism in ("eventfd", "pipe"):
            found = loops.files(mine, theirs, buffer, 8, n, first)
        elif self.mechanism == "futex":
            found = loops.futex(self.words[1][side], self.words[1][1 - side], futex, n, begin, first)
        elif self.mechanism == "signalfd":
            found = loops.signals(mine, self.threads[1 - side], os.getpid(), _SIGNAL, tgkill, buffer, n, first)
        return int(found)


def _signalfd() -> int:
    """Open a signalfd for the signal of the measurement."""
    library = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * 16)()
    library.sigemptyset(ctypes.byref(mask))
    library.sigaddset(ctypes.byref(mask), int(_SIGNAL))
    file = int(library.signalfd(-1, ctypes.byref(mask), os.O_CLOEXEC))
    if file < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return file
