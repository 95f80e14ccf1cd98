"""Whether a lock can go wrong: every interleaving of a few threads, under sequential consistency or with store buffers (TSO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.runtime.locks.description.program import NAMES, OPERATION, Program, program
from armillary.runtime.locks.description.steps import Description

from .search import BUFFER, EXCLUSION, FINE, MORE, MOST, ORDER, OWN, RANGE, STUCK, TOO_LARGE, begin, fill, search

MODELS = ("sc", "tso")
MOST_BYTES = 2 << 30
FAULTS = {
    EXCLUSION: "two threads are inside at once", ORDER: "a thread is let in before one that came earlier",
    STUCK: "threads wait and none can go on", RANGE: "a value does not fit",
}  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """What the search found: `fault` is empty if nothing can go wrong, and `trace` is a shortest way there."""

    fault: str
    states: int
    moves: int
    trace: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.fault


def check(
    lock: Any, threads: int = 2, episodes: int = 3, *, model: str = "sc", locks: int = 1, most_states: int = 20_000_000
) -> Checked:  # fmt: skip
    """Looks at every state of so many threads that acquire and release so many times each.

    `lock` is a lock or a `Description`. Faults are two threads inside at once, an entry out of the doorway's order (for a lock that keeps
    it), and threads that wait for ever. `model` "tso" gives each thread a store buffer of four stores, as x86 does with more. Values of
    Hapax locks are drawn in blocks as small as the episodes. Waiting arrays are as large as the lock says, and a state holds all of them,
    so a search of many states needs a small one.
    """
    checked_size(threads, episodes, model)
    if not 1 <= locks <= 1000:
        raise InputError(f"found {locks} locks; expected 1 to 1,000")
    described = lock if isinstance(lock, Description) else lock.described()
    if described is None:
        raise InputError(f"{type(lock).__name__} has no description in steps, because the kernel takes part in it")
    made = program(described.with_small_values(threads, episodes), threads, locks)
    if max(len(made.memory), *(int(np.abs(values).max(initial=0)) for values in (made.constants, made.memory, made.own))) > MOST:
        raise InputError(f"the description has more than {MOST:,} words, or larger values; expected fewer, because a state holds them all")
    fifo = made.fifo and locks == 1
    tso = model == "tso"
    registers = len(made.registers)
    size = OWN + registers + (1 + 2 * BUFFER if tso else 0)
    first = np.zeros(len(made.memory) + threads * (size + 1), np.int16)
    first[: len(made.memory)] = made.memory
    for thread in range(threads):
        base = len(made.memory) + thread * size
        first[base + OWN : base + OWN + registers] = made.own[thread]
        first[base + OWN + 1] = thread % locks
        first[base] = begin(made.code, made.constants, first, base + OWN, 0, MOST)
        if first[base] == TOO_LARGE:
            raise InputError(f"the description computes a value beyond {MOST:,} before its first step; expected smaller ones")
    room = 1 << 14
    states, table = np.zeros((room, len(first)), np.int16), np.full(2 * room, -1, np.int32)
    parents, movers, counts = np.full(room, -1, np.int32), np.full(room, -1, np.int8), np.array([0, 1, -1, 0], np.int64)
    states[0] = first
    fill(states, table, 1)
    while True:
        found = search(
            made.code, made.constants, threads, locks, len(made.memory), registers, made.passing, episodes, tso, fifo, states,
            table, parents, movers, counts,
        )  # fmt: skip
        if found != MORE:
            break
        if 4 * room > most_states:
            raise InputError(f"the search has more than {most_states:,} states; expected fewer threads or episodes")
        room *= 4
        if room * 2 * len(first) > MOST_BYTES:
            raise InputError(
                f"the search has more than {room // 4:,} states of {2 * len(first):,} bytes; expected fewer threads, episodes or slots"
            )
        states, parents, movers = _grown(states, room), _grown(parents, room), _grown(movers, room)
        table = np.full(2 * room, -1, np.int32)
        fill(states, table, counts[1])
    trace = () if found == FINE else _trace(made, states, parents, movers, int(counts[2]), threads, size)
    return Checked(FAULTS.get(found, ""), int(counts[1]), int(counts[3]), trace)


def checked_size(threads: int, episodes: int, model: str) -> None:
    """Refuses searches that are too large, and memory models that there are not."""
    if model not in MODELS:
        raise unknown("memory model", model, MODELS)
    if not 1 <= threads <= 8 or not 1 <= episodes <= 100:
        raise InputError(f"found {threads} threads and {episodes} episodes; expected 1 to 8 and 1 to 100")


def _grown(rows: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    wider = np.zeros((room, *rows.shape[1:]), rows.dtype)
    wider[: len(rows)] = rows
    return wider


def _trace(made: Program, states: Any, parents: Any, movers: Any, last: int, threads: int, size: int) -> tuple[str, ...]:
    """The moves from the first state to this one, in words."""
    said = []
    while parents[last] >= 0:
        before, move = states[parents[last]], int(movers[last])
        thread = move % threads
        base = len(made.memory) + thread * size
        if move >= threads:
            word, value = before[base + OWN + len(made.registers) + 1], before[base + OWN + len(made.registers) + 2]
            said.append(f"thread {thread}: its store of {value} to {made.word(int(word))} becomes visible")
        else:
            at = int(before[base])
            names = made.text(at) if made.code[at, OPERATION] in NAMES else "leaves the section"
            said.append(f"thread {thread}: {names}")
        last = int(parents[last])
    return tuple(reversed(said))
