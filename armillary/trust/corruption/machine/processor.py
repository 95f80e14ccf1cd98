"""A modelled core: three caches, a table of pages, a branch predictor, and what its counters would read.

The loops of `solvers` call `load` for every access and `branch` for every branch, with the addresses and outcomes of the real data. All
state stands in one int64 array, because a compiled call passes seven numbers for each array. A level is a list of lines per set, the last
used one first; a line that misses in the first level brings the next line along, through the same levels and uncounted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel, part

Array = np.ndarray[Any, Any]

ON, HISTORY = 0, 1
INSTRUCTIONS, BRANCHES, BRANCH_MISSES, LOADS, L1_MISSES, L2_MISSES, LLC_MISSES, PAGE_MISSES, FLOPS, ASSISTS = range(2, 12)
#: The counts in the order in which they stand in the array.
COUNTS = (
    "instructions", "branches", "branch_misses", "l1_loads", "l1_misses", "l2_misses", "llc_misses", "dtlb_misses", "flops", "assists",
)  # fmt: skip
#: What a window holds: the counts and two clocks that follow from them.
COUNTERS = (*COUNTS, "cycles", "task_clock")
#: Where the sets, ways and first entries of the levels, the pages and the predictor stand.
_L1, _L2, _LLC, _PAGES, _PREDICTOR, _TABLES = 16, 19, 22, 25, 28, 32
LINE_BITS, PAGE_BITS, HISTORY_MASK = 6, 12, 4095
#: Cycles per instruction, per miss of each level, per mispredicted branch, and per operand that is subnormal.
CYCLES = {"instructions": 0.35, "l1_misses": 12.0, "l2_misses": 40.0, "llc_misses": 180.0, "branch_misses": 15.0, "assists": 150.0}
GHZ = 2.45
SMALLEST_NORMAL = 2.2250738585072014e-308


class Processor:
    """One core: `state` is what the loops count into. l1, l2, llc: bytes; sets are rounded down to a power of two."""

    def __init__(self, l1: int = 32 << 10, l2: int = 512 << 10, llc: int = 2 << 20, *, counting: bool = True) -> None:
        places = ((_L1, _sets(l1, 8, "l1"), 8), (_L2, _sets(l2, 8, "l2"), 8), (_LLC, _sets(llc, 16, "llc"), 16), (_PAGES, 16, 4))
        size = _TABLES + sum(sets * ways for _, sets, ways in places) + HISTORY_MASK + 1
        self.state = np.full(size, -1, np.int64)
        self.state[:_TABLES] = 0
        at = _TABLES
        for head, sets, ways in places:
            self.state[head : head + 3] = sets - 1, ways, at
            at += sets * ways
        self.state[_PREDICTOR] = at
        self.state[at:] = 1
        self.state[ON] = counting
        #: The next free address; arrays begin on a page of their own.
        self._next = 1 << 20

    def place(self, array: Array) -> int:
        """The address at which an array begins."""
        found = self._next
        self._next += -(-max(1, array.nbytes) >> PAGE_BITS << PAGE_BITS) + (1 << PAGE_BITS)
        return found

    def read(self) -> Array:
        """The values of `COUNTERS` since the last reading, before any noise."""
        counts = self.state[INSTRUCTIONS : ASSISTS + 1].astype(np.float64)
        self.state[INSTRUCTIONS : ASSISTS + 1] = 0
        cycles = 0.0
        for name, each in CYCLES.items():
            cycles += each * float(counts[COUNTS.index(name)])
        return np.append(counts, [cycles, cycles / GHZ])


def idle() -> Array:
    """The state of a core that counts nothing, for the same loops."""
    return Processor(4096, 4096, 8192, counting=False).state


def _sets(size: int, ways: int, name: str) -> int:
    sets = size // (ways << LINE_BITS)
    if not 1 <= sets <= 1 << 20:
        raise InputError(f"found {size} bytes; expected room for 1 to {1 << 20} sets of {ways} lines", where=name)
    return 1 << (sets.bit_length() - 1)


@kernel
def _known(m: Array, head: int, line: int) -> bool:
    """Whether a line is in a level; it is its last used one from now on."""
    ways = m[head + 1]
    first = m[head + 2] + (line & m[head]) * ways
    if m[first] == line:
        return True
    before = m[first]
    for way in range(first + 1, first + ways):
        here = m[way]
        m[way] = before
        if here == line:
            m[first] = line
            return True
        before = here
    m[first] = line
    return False


@kernel
def _touch(m: Array, address: int) -> None:
    if not _known(m, _PAGES, address >> PAGE_BITS):
        m[PAGE_MISSES] += 1
    line = address >> LINE_BITS
    if _known(m, _L1, line):
        return
    m[L1_MISSES] += 1
    if not _known(m, _L2, line):
        m[L2_MISSES] += 1
        if not _known(m, _LLC, line):
            m[LLC_MISSES] += 1
    if not _known(m, _L1, line + 1) and not _known(m, _L2, line + 1):
        _known(m, _LLC, line + 1)


@part
def load(m, address):  # type: ignore[no-untyped-def]
    """One access, of a load or a store."""
    if m[ON]:
        m[LOADS] += 1
        _touch(m, address)


@kernel
def sweep(m: Array, address: int, count: int, width: int) -> None:
    """Accesses to `count` neighbours of `width` bytes: each line is looked up once, because the others are the last used one again."""
    if m[ON] and count:
        m[LOADS] += count
        for line in range(address >> LINE_BITS, ((address + count * width - 1) >> LINE_BITS) + 1):
            _touch(m, line << LINE_BITS)


@kernel
def _predict(m: Array, place: int, taken: int) -> None:
    at = m[_PREDICTOR] + ((place ^ m[HISTORY]) & HISTORY_MASK)
    held = m[at]
    if (held >= 2) != (taken != 0):
        m[BRANCH_MISSES] += 1
    m[at] = min(held + 1, 3) if taken else max(held - 1, 0)
    m[HISTORY] = ((m[HISTORY] << 1) | taken) & HISTORY_MASK


@part
def branch(m, place, taken):  # type: ignore[no-untyped-def]
    """One conditional branch at a place of the program: gshare with 12 bits of history and two-bit counters."""
    if m[ON]:
        m[BRANCHES] += 1
        _predict(m, place, 1 if taken else 0)


@part
def work(m, instructions, flops):  # type: ignore[no-untyped-def]
    """Instructions, among which there are so many floating-point operations."""
    m[INSTRUCTIONS] += instructions
    m[FLOPS] += flops


@part
def assist(m, a):  # type: ignore[no-untyped-def]
    """Counts an operand that is subnormal."""
    if a != 0.0 and -SMALLEST_NORMAL < a < SMALLEST_NORMAL:
        m[ASSISTS] += 1
