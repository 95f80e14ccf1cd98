"""Locks for compiled loops: arrays of them over an array of words that the caller owns.

    stripes = lock("hapax", n=1024, threads=8)

    @njit(nogil=True)
    def move(stripes, table, thread, key):
        stripes.acquire(thread, key % 1024)
        table[key] += 1
        stripes.release(thread, key % 1024)

What is made is a named tuple, which Numba takes as an argument; its methods work inside compiled functions and in Python alike. `thread` is
the number of the calling thread, from 0, which no other thread may use at the same time. All state is in `words`, so processes share locks
by making them over the same shared memory.
"""

from __future__ import annotations

import functools
import weakref
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numba.extending import overload_method

from armillary.errors import InputError, unknown
from armillary.kernels import kernel
from armillary.runtime.locks.arena import locks as arena
from armillary.runtime.locks.description.lock import Lock
from armillary.runtime.locks.hapax import compiled_try
from armillary.runtime.locks.threads.bench import cores
from armillary.runtime.locks.threads.places import Places, Words, aligned, checked
from armillary.runtime.locks.threads.waiting import POLICIES
from armillary.runtime.locks.workload import Bench

if TYPE_CHECKING:
    from .choose import Choice

_ONE = np.uint64(1)
#: Techniques of which compiled loops can have arrays.
KINDS = tuple(name for name in arena.techniques if name != "pylock")
#: Class of locks to its compiled parts: acquire, release, try.
_PARTS: dict[type, tuple[Any, Any, Any]] = {}
#: What the probe found, by the identity of the words of locks that it picked, as long as these live.
_CHOICES: dict[int, Choice] = {}
#: The word of a thread's own that counts the locks that it holds, where one debugs.
HOLDS = 2


def lock(
    kind: str = "hapax", n: int = 1, *, threads: int | None = None, words: Words | None = None, wait: str = "spin", debug: bool = False,
    pad: bool = True, attach: bool = False, bench: Bench | None = None,
) -> Any:  # fmt: skip
    """`n` locks of a kind for so many threads, by default one for each core; "auto" picks the kind by a short probe.

    `words` is a C-contiguous array of uint64, zeroed, of at least `words_needed` words; without it one is made. `attach` says that it
    holds these locks already, made with the same options; what it holds is then believed, like any memory that processes share. `wait` is
    spin, yield or park; threads that outnumber the cores must not spin. Without `pad` locks share cache lines and are as small as can be.
    The probe of "auto" runs `bench`, by default short sections under that many locks with nothing between them; the `choice` of what is
    made has the curve.

    With `mcs`, `clh` and `reciprocating`, a thread may hold one lock of the array at a time; with the others as many as it likes. `debug`
    raises where a thread releases a lock that it does not hold, acquires one that it holds, or holds too many.
    """
    count = len(cores()) if threads is None else threads
    if attach and kind in ("auto", "pthread"):
        why = "the probe may pick another kind" if kind == "auto" else "its sleepers are not woken from another process"
        raise InputError(f"found attach=True for {kind}; expected another kind, because {why}")
    if wait == "spin" and count > len(cores()):
        raise InputError(f'found {count} threads on {len(cores())} cores; expected wait="yield" or "park" for more threads than cores')
    choice = None
    if kind == "auto":
        from .choose import choose

        _laid_out("hapax", n, count, wait, debug, pad)  # What is wrong is said before the probe.
        choice = choose(bench or Bench(locks=n), threads=count, wait=wait)
        kind = choice.kind
    elif bench is not None:
        raise InputError(f'found a bench for {kind}; expected it with "auto" only, which probes')
    made, at = _laid_out(kind, n, count, wait, debug, pad)
    given = checked(aligned(at.size) if words is None else words, at)
    if not attach:
        if given[: at.size].any():
            raise InputError("words: found words that are not 0; expected zeroed ones, or attach=True for locks that lie there already")
        made.prepare(given, at)
    locks = _class(kind, wait, debug)(given, at)
    _CHOICES.pop(id(given), None)  # Of locks that lay there before.
    if choice is not None:
        _CHOICES[id(given)] = choice
        weakref.finalize(given, _CHOICES.pop, id(given), None)
    return locks


def words_needed(
    kind: str = "hapax", n: int = 1, *, threads: int | None = None, wait: str = "spin", debug: bool = False, pad: bool = True
) -> int:  # fmt: skip
    """How many words `lock` needs for these locks; for "auto", whichever kind it picks."""
    from .choose import CANDIDATES

    count = len(cores()) if threads is None else threads
    return max(_laid_out(one, n, count, wait, debug, pad)[1].size for one in (CANDIDATES if kind == "auto" else (kind,)))


def HapaxLock(n: int = 1, **how: Any) -> Any:
    """`n` Hapax locks; `lock` has the options."""
    return lock("hapax", n, **how)


def _laid_out(kind: str, n: int, threads: int, wait: str, debug: bool, pad: bool) -> tuple[Lock, Places]:
    if kind not in KINDS:
        raise unknown("lock", kind, ("auto", *KINDS))
    if wait not in POLICIES:
        raise unknown("wait policy", wait, POLICIES)
    made: Any = arena.make(kind)
    return made, made.places(n, threads, wait, held=2 if debug else 1, pad=pad)


@functools.cache
def _class(kind: str, wait: str, debug: bool) -> type:
    """The class of locks of a kind: named tuples of their words and places."""
    technique: Any = arena.make(kind)
    acquire, release = technique.compiled(wait)
    attempt = compiled_try() if kind in ("hapax", "hapax-vw") else None

    @kernel
    def enter(locks, thread, index):  # type: ignore[no-untyped-def]
        locks.acquire(thread, index)

    @kernel
    def leave(locks, thread, index):  # type: ignore[no-untyped-def]
        locks.release(thread, index)

    @kernel
    def attempted(locks, thread, index):  # type: ignore[no-untyped-def]
        return locks.try_acquire(thread, index)

    def acquired(self: Any, thread: int, index: int = 0) -> None:
        """Lets the thread in as soon as its turn comes."""
        enter(self, thread, index)

    def released(self: Any, thread: int, index: int = 0) -> None:
        """Lets the next one in."""
        leave(self, thread, index)

    def tried(self: Any, thread: int, index: int = 0) -> bool:
        """Lets the thread in if nobody is inside or waits; says whether it did."""
        return bool(attempted(self, thread, index))

    def chosen(self: Any) -> Choice | None:
        """What the probe of "auto" found; None for locks that it did not pick."""
        return _CHOICES.get(id(self.words))

    for compiled in (enter, leave, attempted):
        compiled._cache.disable()  # What the methods do is not part of the loop's content.
    methods = {
        "acquire": acquired, "release": released, "choice": property(chosen), "kind": kind, "wait": wait, "debug": debug,
        "holds_many": technique.holds_many, "__slots__": (),
    }  # fmt: skip
    if attempt is not None:
        methods["try_acquire"] = tried
    made = type(f"{kind.title().replace('-', '')}Locks", (namedtuple("Locks", ("words", "at")),), methods)
    _PARTS[made] = acquire, release, attempt
    return made


@overload_method(types.NamedTuple, "acquire")
def _acquire(locks, thread, index=0):  # type: ignore[no-untyped-def]
    if locks.instance_class not in _PARTS:
        return None
    acquire, debug, many = _PARTS[locks.instance_class][0], locks.instance_class.debug, locks.instance_class.holds_many

    def method(locks, thread, index=0):  # type: ignore[no-untyped-def]
        at = locks.at
        if thread < 0 or thread >= at.thread_count or index < 0 or index >= at.lock_count:
            raise IndexError("found no such thread or lock")
        if debug:
            if locks.words[index * at.lock_stride + at.held + 1] == thread + 1:
                raise RuntimeError("a thread acquired a lock that it holds")
            if not many and locks.words[at.threads + thread * at.thread_stride + HOLDS] != 0:
                raise RuntimeError("a thread acquired a second lock of a kind of which it may hold one at a time")
        token = acquire(locks.words, at, thread, index)
        locks.words[index * at.lock_stride + at.held] = token
        if debug:
            locks.words[index * at.lock_stride + at.held + 1] = thread + 1
            locks.words[at.threads + thread * at.thread_stride + HOLDS] += _ONE

    return method


@overload_method(types.NamedTuple, "release")
def _release(locks, thread, index=0):  # type: ignore[no-untyped-def]
    if locks.instance_class not in _PARTS:
        return None
    release, debug = _PARTS[locks.instance_class][1], locks.instance_class.debug

    def method(locks, thread, index=0):  # type: ignore[no-untyped-def]
        at = locks.at
        if thread < 0 or thread >= at.thread_count or index < 0 or index >= at.lock_count:
            raise IndexError("found no such thread or lock")
        if debug:
            if locks.words[index * at.lock_stride + at.held + 1] != thread + 1:
                raise RuntimeError("a thread released a lock that it does not hold")
            locks.words[index * at.lock_stride + at.held + 1] = 0
            locks.words[at.threads + thread * at.thread_stride + HOLDS] -= _ONE
        release(locks.words, at, thread, index, locks.words[index * at.lock_stride + at.held])

    return method


@overload_method(types.NamedTuple, "try_acquire")
def _try_acquire(locks, thread, index=0):  # type: ignore[no-untyped-def]
    if locks.instance_class not in _PARTS or _PARTS[locks.instance_class][2] is None:
        return None
    attempt, debug = _PARTS[locks.instance_class][2], locks.instance_class.debug

    def method(locks, thread, index=0):  # type: ignore[no-untyped-def]
        at = locks.at
        if thread < 0 or thread >= at.thread_count or index < 0 or index >= at.lock_count:
            raise IndexError("found no such thread or lock")
        token = attempt(locks.words, at, thread, index)
        if token == 0:
            return False
        locks.words[index * at.lock_stride + at.held] = token
        if debug:
            locks.words[index * at.lock_stride + at.held + 1] = thread + 1
            locks.words[at.threads + thread * at.thread_stride + HOLDS] += _ONE
        return True

    return method


def space_of(locks: Any) -> int:
    """Bytes from one lock of an array to the next, padding and the holder's words included."""
    return 8 * int(locks.at.lock_stride)
