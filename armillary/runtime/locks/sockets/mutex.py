"""`HapaxMutex`: first come, first served, for Python threads, in the form of `threading.Lock`."""

from __future__ import annotations

import functools
import threading
import time
from types import TracebackType
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import atomics, kernel
from armillary.runtime.locks.hapax import slot_of
from armillary.runtime.locks.threads.places import Words, aligned, places
from armillary.runtime.locks.threads.waiting import PATIENCE, RESTS, waiting

_NONE, _ONE = np.uint64(0), np.uint64(1)
#: Every mutex has its words in the same places, with a waiting array of its own. Constants spare a call the unpacking of a tuple.
AT = places(1, 1, words_of_a_lock=2, slots=16, parks=True, held=1)
#: How often a waiter yields or sleeps before it comes back to Python: some milliseconds, and a tenth of a second.
MOST_RESTS = {"yield": 10_000, "park": 5}


class HapaxMutex:
    """Lets one thread in at a time, in the order in which they came: `with HapaxMutex():`.

    Any number of threads may use it. One that waits gives the interpreter's lock away, spins for a thousand pauses and then sleeps
    (`wait="park"`) or lets others have the core ("yield"). A value is drawn for each acquire from the mutex's own counter, so nothing
    belongs to a thread. An acquire with a time limit tries again and again instead of queueing, because nobody can leave the queue.

    A thread that waits comes back to Python from time to time, so that Ctrl-C reaches it. If that raises, another thread keeps its place in
    the queue and lets the next one in.
    """

    def __init__(self, wait: str = "park") -> None:
        if wait not in ("yield", "park"):
            raise InputError(f'found wait="{wait}"; expected yield or park, because Python threads may outnumber the cores')
        self._words: Words = aligned(AT.size)
        self._enter, self._wait, self._release, self._try = _compiled(wait)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Lets the calling thread in; says whether it is. Without `blocking` it does not wait, with `timeout` at most so many seconds."""
        if not blocking:
            if timeout != -1:
                raise ValueError("an acquire that does not block takes no timeout")
            return bool(self._try(self._words))
        if timeout == -1:
            mine, before = self._enter(self._words)
            if not mine:
                return True
            try:
                while not self._wait(self._words, mine, before):
                    pass
            except BaseException:
                threading.Thread(target=self._pass_on, args=(mine, before), daemon=True).start()
                raise
            return True
        if timeout < 0:
            raise ValueError("a timeout must not be negative")
        end = time.monotonic() + timeout
        while not self._try(self._words):
            if time.monotonic() >= end:
                return False
            time.sleep(0)
        return True

    def _pass_on(self, mine: int, before: int) -> None:
        """Waits in the place of a thread that no longer wants to be let in, and lets the next one in."""
        while not self._wait(self._words, mine, before):
            pass
        self.release()

    def release(self) -> None:
        """Lets the next one in; any thread may call it while one is inside."""
        if not self._release(self._words):
            raise RuntimeError("release of a mutex that nobody holds")

    def locked(self) -> bool:
        """Whether somebody is inside."""
        return bool(self._words[AT.held])

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


@functools.cache
def _compiled(policy: str) -> tuple[Any, Any, Any, Any]:
    rest, most, publish = RESTS[policy], MOST_RESTS[policy], waiting(policy).publish

    @kernel
    def enter(words):  # type: ignore[no-untyped-def]
        """(0, 0) if the thread is in, else its value and its predecessor's."""
        mine = atomics.add(words, AT.counter, _ONE) + _ONE
        before = atomics.xchg(words, 0, mine)
        if atomics.load(words, AT.word_stride) == before:
            words[AT.held] = mine
            return _NONE, _NONE
        return mine, before

    @kernel
    def wait(words, mine, before):  # type: ignore[no-untyped-def]
        """Whether the thread is in; it looks for some milliseconds at least."""
        place = slot_of(AT, before)
        rests = 0
        while rests < most:
            seen = atomics.load(words, place)
            if atomics.load(words, AT.word_stride) == before:
                words[AT.held] = mine
                return True
            pauses = 0
            while atomics.load(words, place) == seen and rests < most:
                pauses += 1
                if pauses < PATIENCE:
                    atomics.pause()
                else:
                    rest(words, place, seen)
                    rests += 1
        return False

    @kernel
    def release(words):  # type: ignore[no-untyped-def]
        # Of two who release at once, one finds nothing.
        mine = atomics.xchg(words, AT.held, _NONE)
        if mine == _NONE:
            return False
        atomics.store(words, AT.word_stride, mine)
        publish(words, slot_of(AT, mine), mine)
        return True

    @kernel
    def attempt(words):  # type: ignore[no-untyped-def]
        last = atomics.load(words, 0)
        if atomics.load(words, AT.word_stride) != last:
            return False
        mine = atomics.add(words, AT.counter, _ONE) + _ONE
        if atomics.cas(words, 0, last, mine) != last:
            return False
        words[AT.held] = mine
        return True

    return enter, wait, release, attempt
