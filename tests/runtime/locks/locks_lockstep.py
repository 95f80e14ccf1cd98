"""Three forms of one lock, step by step: its generators, their translation, and the source of its compiled parts.

The parts' Python source runs in greenlets with its atomic operations replaced by requests. At each step all three must ask for the same
operation on the same word with the same values; it is done once, and all get the same answer.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]
from numba.core.dispatcher import Dispatcher

from armillary.kernels import atomics
from armillary.runtime.locks.checking.search import ANY, begin
from armillary.runtime.locks.description.lock import Lock
from armillary.runtime.locks.description.program import (
    BASE,
    CONSTANT,
    DONE,
    ENTER,
    EXPECTED,
    INDEX,
    NAMES,
    OPERATION,
    TO,
    TOKEN,
    VALUE,
    program,
)  # fmt: skip
from armillary.runtime.locks.threads.places import LINE_WORDS, Places, aligned

#: Where each lock's regions lie in the array of the compiled parts.
WHERE = {
    "lock 0": lambda at, i: i * at.lock_stride,
    "lock 1": lambda at, i: i * at.lock_stride + at.word_stride,
    "counter": lambda at, i: at.counter,
    "array": lambda at, i: at.array + i * at.slot_stride,
    "thread 0": lambda at, i: at.threads + i * at.thread_stride,
    "thread 1": lambda at, i: at.threads + i * at.thread_stride + LINE_WORDS,
}
REGIONS = {
    "Hapax": {"arrive": "lock 0", "depart": "lock 1", "blocks": "counter", "array": "array"},
    "HapaxVw": {"arrive": "lock 0", "depart": "lock 1", "blocks": "counter", "array": "array"},
    "Ticket": {"next": "lock 0", "serving": "lock 1"},
    "Twa": {"next": "lock 0", "serving": "lock 1", "array": "array"},
    "Mcs": {"tail": "lock 0", "after": "thread 0", "waits": "thread 1"},
    "Clh": {"tail": "lock 0", "busy": "array"},
    "Hemlock": {"tail": "lock 0", "grant": "thread 0"},
    "Reciprocating": {"arrivals": "lock 0", "gate": "thread 1"},
    "Ttas": {"held": "lock 0"},
}


def _ask(kind: str) -> Any:
    def asked(words: Any, index: int, *values: Any) -> Any:
        return getcurrent().parent.switch((kind, int(index), *(int(value) for value in values)))

    return asked


def _nothing(*_: Any) -> None:
    return None


#: What stands for the atomic operations and for the parts of a wait policy.
FAKES: dict[str, Any] = {
    "load": _ask("load"), "load_seq_cst": _ask("load"), "store": _ask("store"), "store_seq_cst": _ask("xchg"), "xchg": _ask("xchg"),
    "add": _ask("add"), "cas": _ask("cas"), "pause": _nothing,
}  # fmt: skip
WAITS: dict[str, Any] = {"unlike": _ask("unlike"), "until": _ask("until"), "publish": _ask("store"), "wake": _nothing}


def plain(compiled: Any) -> Any:
    """The Python source of a compiled part, with everything that it calls replaced likewise."""
    function = compiled.py_func
    names = {name: _plain(name, value) if name in function.__code__.co_names else value for name, value in function.__globals__.items()}
    cells = tuple(
        types.CellType(_plain(name, cell.cell_contents)) for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())
    )
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)


def _plain(name: str, value: Any) -> Any:
    if value is atomics:
        return types.SimpleNamespace(**FAKES)
    if name in WAITS and isinstance(value, Dispatcher):
        return WAITS[name]
    if isinstance(value, Dispatcher) and value.py_func.__module__.startswith("armillary.runtime.locks"):
        return plain(value)
    return value


class Thread:
    """One thread in three forms, between two steps."""

    def __init__(self, whole: Lockstep, number: int, episodes: int) -> None:
        self.whole, self.number, self.left = whole, number, episodes
        self.me = whole.described.thread(number)
        self.registers = whole.program.own[number].copy()
        self.inside, self.done = False, False
        self.steps = 0
        self._begin()

    def _begin(self) -> None:
        self.generator = self.whole.described.acquire(self.me, 0)
        self.greenlet = greenlet(lambda *_: self.whole.acquire(self.whole.words, self.whole.at, self.number, 0))
        self.at = begin(self.whole.program.code, self.whole.program.constants, self.registers, 0, 0, ANY)
        self.wanted = next(self.generator)
        self.asked = self.greenlet.switch()

    def request(self) -> tuple[Any, ...]:
        """(kind, word of the compiled array, expected and value) on which all three agree."""
        whole = self.whole
        wanted, row = self.wanted, whole.program.code[self.at]
        while wanted.kind == "rest":
            assert NAMES[int(row[OPERATION])] == "rest"
            self._advance(0, compiled=False)
            wanted, row = self.wanted, whole.program.code[self.at]
        place = WHERE[whole.where[wanted.region]](whole.at, wanted.place)
        values = {"load": (), "cas": (wanted.expected, wanted.value)}.get(wanted.kind, (wanted.value,))
        assert self.asked[:2] == (wanted.kind, place)
        assert self.asked[2:] == values
        first, _ = whole.program.regions[wanted.region]
        assert (NAMES[int(row[OPERATION])], int(row[BASE]), self._operand(row[INDEX])) == (wanted.kind, first, wanted.place)
        columns = {"load": (), "cas": (EXPECTED, VALUE)}.get(wanted.kind, (VALUE,))
        assert tuple(self._operand(row[column]) for column in columns) == values
        return (wanted.kind, place, *values)

    def _operand(self, operand: int) -> int:
        return int(self.whole.program.constants[operand - CONSTANT]) if operand >= CONSTANT else int(self.registers[operand])

    def able(self) -> bool:
        """Whether the thread's next step can be done now."""
        if self.done:
            return False
        if self.inside:
            return True
        kind, place, *values = self.request()
        seen = int(self.whole.words[place])
        return not ((kind == "unlike" and seen == values[0]) or (kind == "until" and seen != values[0]))

    def step(self) -> None:
        """Does one step, or leaves the section."""
        if self.inside:
            self._leave()
            return
        kind, place, *values = self.request()
        words = self.whole.words
        seen = int(words[place])
        if kind in ("store", "xchg"):
            words[place] = values[0]
        elif kind == "add":
            words[place] = seen + values[0]
        elif kind == "cas" and seen == values[0]:
            words[place] = values[1]
        self.steps += 1
        self.whole.log.append((self.number, kind))
        self._advance(seen)

    def _advance(self, seen: int, compiled: bool = True) -> None:
        made = self.whole.program
        row = made.code[self.at]
        if row[TO] >= 0 and compiled:
            self.registers[row[TO]] = seen
        self.at = begin(made.code, made.constants, self.registers, 0, self.at + 1, ANY)
        if compiled:
            self.asked = self.greenlet.switch(np.uint64(seen))
        ended, result = False, None
        try:
            self.wanted = self.generator.send(seen)
        except StopIteration as end:
            ended, result = True, end.value
        if ended:
            self._over(result)

    def _over(self, result: Any) -> None:
        """The thread is let in, or its release is over."""
        made = self.whole.program
        assert self.greenlet.dead
        if made.code[self.at, OPERATION] == ENTER:
            assert int(self.asked) == result == self.registers[TOKEN]
            self.token = result
            self.inside = True
            self.whole.enters(self.number)
            return
        assert made.code[self.at, OPERATION] == DONE
        self.left -= 1
        self.done = self.left == 0
        if not self.done:
            self._begin()

    def _leave(self) -> None:
        whole = self.whole
        self.inside = False
        self.steps = 0
        whole.leaves(self.number)
        self.generator = whole.described.release(self.me, 0, self.token)
        token = np.uint64(self.token)
        self.greenlet = greenlet(lambda *_: whole.release(whole.words, whole.at, self.number, 0, token))
        self.at = begin(whole.program.code, whole.program.constants, self.registers, 0, whole.program.release + 1, ANY)
        self.wanted = next(self.generator)
        self.asked = self.greenlet.switch()


class Lockstep:
    """Some threads on one lock."""

    def __init__(self, lock: Lock, threads: int, episodes: int) -> None:
        described: Any = lock.described()
        self.described = described
        self.program = program(described, threads)
        self.at: Places = lock.places(1, threads)
        self.words = aligned(self.at.size)
        lock.prepare(self.words, self.at)
        self.where = REGIONS[type(lock).__name__]
        self.acquire, self.release = (plain(one) for one in lock.compiled("spin"))
        self.log: list[tuple[int, str]] = []
        self.entries: list[int] = []
        self.holder: int | None = None
        self.threads = [Thread(self, number, episodes) for number in range(threads)]

    def enters(self, number: int) -> None:
        assert self.holder is None, "two threads are inside"
        self.holder = number
        self.entries.append(number)

    def leaves(self, number: int) -> None:
        assert self.holder == number
        self.holder = None

    def run(self, rng: np.random.Generator) -> None:
        """Lets threads go on in random order until all have finished; fails if none can."""
        with np.errstate(over="ignore"):
            while not all(thread.done for thread in self.threads):
                able = [thread for thread in self.threads if thread.able()]
                assert able, "nobody can go on"
                able[rng.integers(len(able))].step()

    def until_blocked(self, number: int, most: int = 100) -> int:
        """Lets one thread go on alone until it is inside, has finished, or must wait; gives the number of its steps."""
        thread, count = self.threads[number], 0
        with np.errstate(over="ignore"):
            while not thread.done and not thread.inside and thread.able() and count < most:
                thread.step()
                count += 1
        return count
