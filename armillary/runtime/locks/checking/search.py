"""Breadth-first search through every state that a few threads can reach; compiled, because there are millions.

A state is one row of small whole numbers: memory; for each thread its instruction, its finished episodes, its registers and, under TSO,
its store buffer; and the threads that passed the doorway and were not let in yet, in order. One move is one step of one thread, together
with the local instructions after it, or one store that leaves a buffer. A thread that waits for a word can move only when the word lets
it, so that a lost wake-up is a state without moves.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part
from armillary.runtime.locks.description.program import (
    ADD,
    BASE,
    CAS,
    CONSTANT,
    DONE,
    DOORWAY,
    ENTER,
    EQUAL,
    EXPECTED,
    INDEX,
    JUMP,
    LEAVE,
    LESS,
    LOAD,
    LOCK,
    MINUS,
    MOVE,
    NOT_LESS,
    OPERATION,
    PLUS,
    REST,
    STORE,
    TIMES,
    TO,
    TOKEN,
    UNEQUAL,
    UNLIKE,
    UNTIL,
    VALUE,
    XCHG,
)  # fmt: skip
from armillary.runtime.locks.description.steps import SPREAD

#: What the search found: nothing wrong; it needs more room; a fault.
FINE, MORE, EXCLUSION, ORDER, STUCK, RANGE = range(6)
#: Stores that one buffer holds.
BUFFER = 4
#: Columns of a thread before its registers.
AT, EPISODES, OWN = 0, 1, 2
_SPREAD, _SHIFT = np.uint64(SPREAD), np.uint64(52)
#: The largest value in a state; twice as much would not fit its 16 bits.
MOST = 32_000
#: What `local` gives where a value is larger than it may be.
TOO_LARGE = -2
#: For `local` where values may be as large as they like.
ANY = (1 << 63) - 1


@part
def value_of(registers, first, constants, operand):  # type: ignore[no-untyped-def]
    """An operand: a register or a constant."""
    return constants[operand - CONSTANT] if operand >= CONSTANT else np.int64(registers[first + operand])


@part
def local(code, constants, registers, first, at, most):  # type: ignore[no-untyped-def]
    """Runs local instructions from `at` on; gives the next one that is not local, or -2 if a value is larger than `most`."""
    while True:
        row = code[at]
        operation = row[OPERATION]
        if operation > NOT_LESS:
            return at
        if operation == JUMP:
            at = row[TO]
            continue
        x = value_of(registers, first, constants, row[INDEX])
        if operation >= EQUAL:
            y = value_of(registers, first, constants, row[VALUE])
            found = (
                (operation == EQUAL and x == y)
                or (operation == UNEQUAL and x != y)
                or (operation == LESS and x < y)
                or (operation == NOT_LESS and x >= y)
            )
            at = row[TO] if found else at + 1
            continue
        if operation != MOVE:
            y = value_of(registers, first, constants, row[VALUE])
            if operation == PLUS:
                x += y
            elif operation == MINUS:
                x -= y
            elif operation == TIMES:
                x *= y
            else:
                x = np.int64((np.uint64(x) * _SPREAD) >> _SHIFT) & (y - 1)
        if x > most or x < -most:
            return TOO_LARGE
        registers[first + row[TO]] = x
        at += 1


@kernel
def search(  # type: ignore[no-untyped-def]
    code, constants, threads, locks, words, registers, passing, episodes, tso, fifo, states, table, parents, movers, counts
):  # fmt: skip
    """Goes on with the search from state `counts[0]` of `counts[1]`; gives what it found, and where in counts[2]; counts[3] are moves."""
    width = states.shape[1]
    size = OWN + registers + (1 + 2 * BUFFER if tso else 0)
    queue = words + threads * size
    scratch = states[len(states) - 1]
    while counts[0] < counts[1]:
        here = counts[0]
        if counts[1] + 2 * threads + 2 >= len(states) or 2 * counts[1] > len(table):
            return MORE
        moved = False
        finished = True
        for move in range(2 * threads if tso else threads):
            thread = move % threads
            base = words + thread * size
            buffer = base + OWN + registers
            state = states[here]
            at = np.int64(state[base + AT])
            if at >= 0 or (tso and state[buffer] > 0):
                finished = False
            if move >= threads:
                if state[buffer] == 0:
                    continue
                for i in range(width):
                    scratch[i] = state[i]
                scratch[np.int64(scratch[buffer + 1])] = scratch[buffer + 2]
                held = np.int64(scratch[buffer])
                for i in range(1, 2 * held - 1):
                    scratch[buffer + i] = scratch[buffer + i + 2]
                scratch[buffer + 2 * held - 1] = 0
                scratch[buffer + 2 * held] = 0
                scratch[buffer] = held - 1
            else:
                if at < 0:
                    continue
                for i in range(width):
                    scratch[i] = state[i]
                row = code[at]
                if not _step(row, constants, scratch, base + OWN, buffer, tso):
                    continue
                if row[DOORWAY] == 1:
                    place = queue
                    while scratch[place] != 0:
                        place += 1
                    scratch[place] = thread + 1
                after = local(code, constants, scratch, base + OWN, at + 1, MOST)
                if after == TOO_LARGE:
                    return _fault(states, table, parents, movers, counts, here, move, RANGE)
                if code[after, OPERATION] == ENTER:
                    if fifo:
                        if scratch[queue] != thread + 1:
                            return _fault(states, table, parents, movers, counts, here, move, ORDER)
                        for i in range(threads - 1):
                            scratch[queue + i] = scratch[queue + i + 1]
                        scratch[queue + threads - 1] = 0
                    else:
                        _forget(scratch, queue, threads, thread + 1)
                    for i in range(passing, registers):
                        scratch[base + OWN + i] = 0
                    after += 1
                    for other in range(threads):
                        there = words + other * size
                        same = scratch[there + OWN + LOCK] == scratch[base + OWN + LOCK]
                        if other != thread and same and np.int64(scratch[there + AT]) == after:
                            return _fault(states, table, parents, movers, counts, here, move, EXCLUSION)
                elif code[after, OPERATION] == DONE:
                    for i in range(passing, registers):
                        scratch[base + OWN + i] = 0
                    scratch[base + OWN + TOKEN] = 0
                    scratch[base + EPISODES] += 1
                    scratch[base + OWN + LOCK] = (thread + scratch[base + EPISODES]) % locks
                    after = -1 if scratch[base + EPISODES] == episodes else local(code, constants, scratch, base + OWN, 0, MOST)
                    if after == TOO_LARGE:
                        return _fault(states, table, parents, movers, counts, here, move, RANGE)
                scratch[base + AT] = after
            moved = True
            counts[3] += 1
            for i in range(width):
                if scratch[i] > MOST or scratch[i] < -MOST:
                    return _fault(states, table, parents, movers, counts, here, move, RANGE)
            _keep(states, table, parents, movers, counts, here, move)
        if not moved and not finished:
            counts[2] = here
            return STUCK
        counts[0] += 1
    return FINE


@part
def _forget(state, queue, threads, number):  # type: ignore[no-untyped-def]
    place = queue
    while place < queue + threads and state[place] != number:
        place += 1
    while place < queue + threads - 1:
        state[place] = state[place + 1]
        place += 1
    state[queue + threads - 1] = 0


@part
def _step(row, constants, state, first, buffer, tso):  # type: ignore[no-untyped-def]
    """One step of a thread, in `state`; false if it cannot be done now."""
    operation = row[OPERATION]
    if operation in (LEAVE, REST):
        return True
    word = row[BASE] + value_of(state, first, constants, row[INDEX])
    held = np.int64(state[buffer]) if tso else 0
    if operation == STORE:
        value = value_of(state, first, constants, row[VALUE])
        if not tso:
            state[word] = value
            return True
        if held == BUFFER:
            return False
        state[buffer + 1 + 2 * held] = word
        state[buffer + 2 + 2 * held] = value
        state[buffer] = held + 1
        return True
    if operation in (LOAD, UNLIKE, UNTIL):
        seen = np.int64(state[word])
        for i in range(held):
            if state[buffer + 1 + 2 * i] == word:
                seen = np.int64(state[buffer + 2 + 2 * i])
        if operation != LOAD:
            value = value_of(state, first, constants, row[VALUE])
            if (seen == value) == (operation == UNLIKE):
                return False
        if row[TO] >= 0:
            state[first + row[TO]] = seen
        return True
    if held > 0:
        return False
    seen = np.int64(state[word])
    value = value_of(state, first, constants, row[VALUE])
    if operation == XCHG:
        state[word] = value
    elif operation == ADD:
        state[word] = min(max(seen + value, -MOST - 1), MOST + 1)  # The search finds that it does not fit.
    elif operation == CAS and seen == value_of(state, first, constants, row[EXPECTED]):
        state[word] = value
    if row[TO] >= 0:
        state[first + row[TO]] = seen
    return True


@part
def _fault(states, table, parents, movers, counts, here, move, what):  # type: ignore[no-untyped-def]
    """Keeps the state in the scratch row as the last one, and says what is wrong with it."""
    new = counts[1]
    scratch = states[len(states) - 1]
    for i in range(states.shape[1]):
        states[new, i] = scratch[i]
    parents[new] = here
    movers[new] = move
    counts[1] = new + 1
    counts[2] = new
    return what


@part
def digest_of(state):  # type: ignore[no-untyped-def]
    """A hash of a state."""
    found = np.uint64(0xCBF29CE484222325)
    for i in range(len(state)):
        found = (found ^ np.uint64(np.uint16(state[i]))) * np.uint64(0x100000001B3)
        found ^= found >> np.uint64(29)
    return found


@part
def _keep(states, table, parents, movers, counts, here, move):  # type: ignore[no-untyped-def]
    """Adds the state in the scratch row if it is new."""
    scratch = states[len(states) - 1]
    mask = len(table) - 1
    place = np.int64(digest_of(scratch) >> np.uint64(20)) & mask
    while table[place] >= 0:
        known = states[table[place]]
        same = True
        for i in range(len(scratch)):
            if known[i] != scratch[i]:
                same = False
                break
        if same:
            return
        place = (place + 1) & mask
    new = counts[1]
    for i in range(len(scratch)):
        states[new, i] = scratch[i]
    table[place] = new
    parents[new] = here
    movers[new] = move
    counts[1] = new + 1


@kernel
def fill(states, table, count):  # type: ignore[no-untyped-def]
    """Enters the first `count` states into an empty table."""
    mask = len(table) - 1
    for number in range(count):
        place = np.int64(digest_of(states[number]) >> np.uint64(20)) & mask
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = number


@kernel
def begin(code, constants, state, first, at, most):  # type: ignore[no-untyped-def]
    """The first instruction of a thread that is not local."""
    return local(code, constants, state, first, at, most)
