"""Threads that run a lock's instructions, and the cache lines that move between their cores; compiled.

Each line is modified or exclusive in one cache, shared by several, or in none (MESI). The directory at its home serves one request at a
time, in the order in which they come. A read that hits costs `hit`. One that misses is served by the cache that has the line to itself, at
the price of the distance, and by memory otherwise. A write needs the line alone: a cache that has it to itself hands it over; copies are
invalidated, at the price of the farthest and of each one; if the writer has no copy, memory is asked too. A thread that waits for a word
costs nothing until its line is invalidated, and then reads it again. Every step takes effect in the order of the requests. A thread waits
for each of its steps, unless stores are buffered: then it goes on, and waits for them before its next read-modify-write.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part
from armillary.runtime.locks.checking.search import ANY, local, value_of
from armillary.runtime.locks.description.program import (
    ADD,
    BASE,
    CAS,
    DOORWAY,
    ENTER,
    EXPECTED,
    INDEX,
    LOAD,
    LOCK,
    OPERATION,
    REST,
    STORE,
    TO,
    TOKEN,
    UNLIKE,
    UNTIL,
    VALUE,
    XCHG,
)  # fmt: skip

#: What a thread does next: a step, the start of an episode, its section, the start of its release; or it waits, or has finished.
STEP, BEGIN, SECTION, RELEASE, WAITS, ENDED = range(6)
#: Prices.
HIT, SAME, OTHER, MEMORY, INVALIDATE, PAUSE, BUFFERED = range(7)
#: Totals.
TRANSFERS, INVALIDATIONS, HANDOVERS, HANDOVER_PS, DISORDER, OVERTAKEN, STEPS, LOOKS = range(8)
_ONE = np.uint64(1)


@part
def _push(heap, size, time, order, thread):  # type: ignore[no-untyped-def]
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if heap[above, 0] < time or (heap[above, 0] == time and heap[above, 1] < order):
            break
        for column in range(3):
            heap[place, column] = heap[above, column]
        place = above
    heap[place, 0], heap[place, 1], heap[place, 2] = time, order, thread


@part
def _pop(heap, size):  # type: ignore[no-untyped-def]
    """Takes the first event away; `size` is the number that stay."""
    time, order, thread = heap[size, 0], heap[size, 1], heap[size, 2]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and (
            heap[below + 1, 0] < heap[below, 0] or (heap[below + 1, 0] == heap[below, 0] and heap[below + 1, 1] < heap[below, 1])
        ):
            below += 1
        if heap[below, 0] > time or (heap[below, 0] == time and heap[below, 1] > order):
            break
        for column in range(3):
            heap[place, column] = heap[below, column]
        place = below
    heap[place, 0], heap[place, 1], heap[place, 2] = time, order, thread


@part
def _distance(sockets, prices, a, b):  # type: ignore[no-untyped-def]
    return prices[SAME] if sockets[a] == sockets[b] else prices[OTHER]


@part
def access(owner, sharers, copies, busy, sockets, prices, totals, counted, line, core, writes, now):  # type: ignore[no-untyped-def]
    """One core reads or writes a line from `now` on; gives when it is done."""
    word, bit = core >> 6, _ONE << np.uint64(core & 63)
    shares = sharers[line, word] & bit != 0
    if owner[line] == core or (shares and not writes):
        return now + prices[HIT]
    start = max(now, busy[line])
    if owner[line] >= 0:
        before = owner[line]
        price = _distance(sockets, prices, core, before)
        totals[TRANSFERS] += counted
        if writes:
            owner[line] = core
        else:
            owner[line] = -1
            sharers[line, word] |= bit
            sharers[line, before >> 6] |= _ONE << np.uint64(before & 63)
            copies[line] = 2
    elif not writes:
        price = prices[MEMORY]
        if copies[line] == 0:
            owner[line] = core
        else:
            sharers[line, word] |= bit
            copies[line] += 1
    else:
        others = copies[line] - (1 if shares else 0)
        price = prices[HIT] if shares else prices[MEMORY]
        if others > 0:
            for other in range(len(sockets)):
                if other != core and sharers[line, other >> 6] & (_ONE << np.uint64(other & 63)) != 0:
                    price = max(price, _distance(sockets, prices, core, other))
            price += others * prices[INVALIDATE]
            totals[INVALIDATIONS] += counted * others
        for i in range(sharers.shape[1]):
            sharers[line, i] = 0
        copies[line] = 0
        owner[line] = core
    busy[line] = start + price
    return start + price


@kernel
def play(  # type: ignore[no-untyped-def]
    code, constants, release, passing, registers, memory, line_of, lines, sockets, prices, first, lock_of, arrive_ps, outside_ps, hold_ps,
    touches, owner, sharers, copies, busy, heap, stage, at, episode, next_waiter, waiters, last_waiter, doorway, entries, left_ps, doors,
    came_ps, entered_ps, gone_ps, pending, totals,
):  # fmt: skip
    """Plays all episodes; gives when the last one has ended, in picoseconds, or −1 if threads wait for ever.

    Thread `t` has the episodes first[t] to first[t + 1]; lines from `lines` on hold the data of the locks.
    """
    threads = len(first) - 1
    size = order = end = 0
    for thread in range(threads):
        episode[thread] = first[thread]
        if first[thread] == first[thread + 1]:
            stage[thread] = ENDED
            continue
        stage[thread] = BEGIN
        _push(heap, size, max(arrive_ps[first[thread]], outside_ps[first[thread]]), order, thread)
        size += 1
        order += 1
    while size > 0:
        now, thread = heap[0, 0], heap[0, 2]
        size -= 1
        _pop(heap, size)
        totals[STEPS] += 1
        number = episode[thread]
        lock = lock_of[number]
        row = registers[thread]
        if stage[thread] == SECTION:
            if touches:
                now = access(owner, sharers, copies, busy, sockets, prices, totals, 0, lines + lock, thread, True, now)
            stage[thread] = RELEASE
            _push(heap, size, now + hold_ps[number], order, thread)
            size += 1
            order += 1
            continue
        if stage[thread] == BEGIN:
            row[LOCK] = lock
            came_ps[number] = now
            at[thread] = local(code, constants, row, 0, 0, ANY)
        elif stage[thread] == RELEASE:
            gone_ps[number] = now
            left_ps[lock] = now
            at[thread] = local(code, constants, row, 0, release + 1, ANY)
        stage[thread] = STEP
        step = code[at[thread]]
        operation = step[OPERATION]
        if operation == REST:
            now += value_of(row, 0, constants, step[VALUE]) * prices[PAUSE]
        elif operation >= LOAD:
            word = step[BASE] + value_of(row, 0, constants, step[INDEX])
            line = line_of[word]
            writes = operation != LOAD and operation != UNLIKE and operation != UNTIL
            if writes and operation != STORE:
                now = max(now, pending[thread])
            ended = access(owner, sharers, copies, busy, sockets, prices, totals, 1, line, thread, writes, now)
            if operation == STORE and prices[BUFFERED]:
                now += prices[HIT]
                ended = max(ended, pending[thread])
                pending[thread] = ended
                busy[line] = max(busy[line], ended)
            else:
                now = ended
            seen = memory[word]
            if writes:
                value = value_of(row, 0, constants, step[VALUE])
                if operation in (STORE, XCHG):
                    memory[word] = value
                elif operation == ADD:
                    memory[word] = seen + value
                elif operation == CAS and seen == value_of(row, 0, constants, step[EXPECTED]):
                    memory[word] = value
                waiter = waiters[line]
                while waiter >= 0:
                    stage[waiter] = STEP
                    _push(heap, size, ended, order, waiter)
                    size += 1
                    order += 1
                    waiter = next_waiter[waiter]
                waiters[line] = -1
            elif operation != LOAD:
                totals[LOOKS] += 1
                if (seen == value_of(row, 0, constants, step[VALUE])) == (operation == UNLIKE):
                    stage[thread] = WAITS
                    next_waiter[thread] = -1
                    if waiters[line] < 0:
                        waiters[line] = thread
                    else:
                        next_waiter[last_waiter[line]] = thread
                    last_waiter[line] = thread
                    continue
            if step[TO] >= 0:
                row[step[TO]] = seen
            if step[DOORWAY] == 1:
                doors[thread] = doorway[lock]
                doorway[lock] += 1
        after = local(code, constants, row, 0, at[thread] + 1, ANY)
        if code[after, OPERATION] == ENTER:
            entered_ps[number] = now
            if left_ps[lock] >= came_ps[number]:
                totals[HANDOVERS] += 1
                totals[HANDOVER_PS] += now - left_ps[lock]
            overtaken = entries[lock] - doors[thread]
            totals[DISORDER] += overtaken != 0
            totals[OVERTAKEN] = max(totals[OVERTAKEN], overtaken)
            entries[lock] += 1
            for i in range(passing, len(row)):
                row[i] = 0
            stage[thread] = SECTION
        elif code[after, OPERATION] > ENTER and code[after, OPERATION] < REST:
            for i in range(passing, len(row)):
                row[i] = 0
            row[TOKEN] = 0
            end = max(end, now)
            episode[thread] = number + 1
            if number + 1 == first[thread + 1]:
                stage[thread] = ENDED
                continue
            stage[thread] = BEGIN
            now = max(arrive_ps[number + 1], now + outside_ps[number + 1])
        else:
            at[thread] = after
        _push(heap, size, now, order, thread)
        size += 1
        order += 1
    for thread in range(threads):
        if stage[thread] != ENDED:
            return -1
    return end
