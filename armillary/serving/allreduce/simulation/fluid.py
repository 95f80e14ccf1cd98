"""Simulates every collective of every iteration event by event in one compiled loop.

An iteration of a group consists of repeats of compute and NVLink followed by bytes over NICs and switch. Bytes flow at max-min fair rates
over the links and chips that groups share, slots are counted, and bursts come and go. A group that nobody can disturb, because none
shares its switch or links, repeats itself exactly. Its repeats therefore pass in one step, which is undone up to the present moment when
a burst or another group arrives. Nothing is averaged, so the times are those of the event loop (`flow_level.py`) up to rounding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from armillary.kernels import kernel, part

#: Phases of a group.
IDLE, DELAY, LATENCY, TRANSFER, WAIT, CRUISE = range(6)
#: Columns of `gi`.
PHASE, HOME, CHOICE, CLASS, REPEATS, HELD, SERVERS, QUOTA, STARVED, SWITCHED, HOLD, TIMED_OUT, REHOME, KEEP = range(14)
#: Columns of `gf`. BEFORE is compute and NVLink of one repeat; LEFT is the rest of a TRANSFER in bytes; END is the end of other phases.
(
    BEFORE, BYTES, LEFT, PIECE, END, X, RATE, CAP, U0, U1, V0, INPUTS, LAT0, LAT1, FIXED_X, WAIT_S, CHUNK, HYSTERESIS, BEGAN, EACH,
    OWN, OWN_SINCE, SMALL, MARGIN,
) = range(24)  # fmt: skip
#: Columns of `sw`: all slots, those held by groups, tenants and decoding groups, those reserved for decoding, the most held, EWMA of held.
TOTAL, IN_USE, TENANT, DECODE_USE, RESERVED, MOST, BUSY, BUSY_SINCE = range(8)
#: Slots of `const`.
PER_SLOT, ASIC, BURST_SHARE, TENANT_SLOTS, TAU, CYCLE_S, LEAST_SHARE = range(7)
#: Slots of `number`.
NEXT, EVENTS, LINKS, WINDOW, MOVES = range(5)
FIXED, BY_SLOTS, BEST = range(3)
EVERY_ITERATION, EVERY_COLLECTIVE = 1, 2
#: Differences of load below this do not justify a move.
LEAST_LOAD = 0.02


class Net(NamedTuple):
    """The state of all groups, links and switches."""

    gi: np.ndarray
    gf: np.ndarray
    links: np.ndarray  # [group, switch, server] -> link, or -1 if the group does not reach the switch
    cap: np.ndarray  # bytes/s of each link now
    full: np.ndarray
    lost: np.ndarray  # [link, (EWMA of the share lost to bursts, since)]
    sw: np.ndarray
    toggle_s: np.ndarray
    toggle: np.ndarray  # link, or links + switch
    on: np.ndarray  # whether that one bursts now
    clock: np.ndarray  # [now, start of the bursts' cycle]
    number: np.ndarray
    const: np.ndarray
    left: np.ndarray  # scratch: what is left of each link and chip
    used: np.ndarray  # scratch


@part
def _ewma(value, now_value, seconds, tau):  # type: ignore[no-untyped-def]
    return now_value + (value - now_value) * math.exp(-seconds / tau)


@part
def _hold(n, g, slots):  # type: ignore[no-untyped-def]
    """Sets the number of slots that group g holds from now on."""
    w = n.gi[g, HOME]
    now, tau, total = n.clock[0], n.const[TAU], max(n.sw[w, TOTAL], 1.0)
    n.sw[w, BUSY] = _ewma(n.sw[w, BUSY], (n.sw[w, IN_USE] + n.sw[w, TENANT]) / total, now - n.sw[w, BUSY_SINCE], tau)
    n.sw[w, BUSY_SINCE] = now
    n.gf[g, OWN] = _ewma(n.gf[g, OWN], n.gi[g, HELD] / total, now - n.gf[g, OWN_SINCE], tau)
    n.gf[g, OWN_SINCE] = now
    more = slots - n.gi[g, HELD]
    n.gi[g, HELD] = slots
    n.sw[w, IN_USE] += more
    if n.gi[g, CLASS] == 0:
        n.sw[w, DECODE_USE] += more
    n.sw[w, MOST] = max(n.sw[w, MOST], n.sw[w, IN_USE] + n.sw[w, TENANT])


@part
def _free(n, g):  # type: ignore[no-untyped-def]
    """Returns the slots that group g may take now; prompts may not take unused slots that are reserved for decoding."""
    w = n.gi[g, HOME]
    free = n.sw[w, TOTAL] - n.sw[w, IN_USE] - n.sw[w, TENANT]
    if n.gi[g, CLASS] > 0:
        free -= max(min(n.sw[w, RESERVED], 0.5 * n.sw[w, TOTAL]) - n.sw[w, DECODE_USE], 0.0)
    return max(free, 0.0)


@part
def _nic(n, g):  # type: ignore[no-untyped-def]
    """Returns the bytes/s of the slowest link of a group now."""
    least = np.inf
    for k in range(n.gi[g, SERVERS]):
        least = min(least, n.cap[n.links[g, n.gi[g, HOME], k]])
    return least


@part
def _chip(n, g):  # type: ignore[no-untyped-def]
    """Returns the chip's bytes/s for group g: an equal part or what the others leave, whichever is more."""
    w = n.gi[g, HOME]
    inputs, used = n.gf[g, INPUTS], 0.0
    for o in range(len(n.gi)):
        if o != g and n.gi[o, HOME] == w and n.gi[o, PHASE] == TRANSFER and n.gf[o, X] > 0:
            inputs += n.gf[o, INPUTS]
            used += n.gf[o, INPUTS] * n.gf[o, X] * n.gf[o, RATE]
    return max(n.const[ASIC] * n.gf[g, INPUTS] / inputs, n.const[ASIC] - used)


@kernel
def _choose(n, g):  # type: ignore[no-untyped-def]
    """Sets X, HOLD and CAP of a collective that starts now; returns false if it should wait for slots."""
    choice, per_slot = n.gi[g, CHOICE], n.const[PER_SLOT]
    n.gi[g, HOLD] = 0
    n.gf[g, CAP] = np.inf
    if choice == FIXED:
        n.gf[g, X] = n.gf[g, FIXED_X]
        if n.gf[g, X] == 0.0:
            return True
        got = min(float(n.gi[g, QUOTA]), _free(n, g))
        if got < max(n.const[LEAST_SHARE] * n.gi[g, QUOTA], 1.0):
            if n.gi[g, TIMED_OUT] == 0:
                return False
            n.gf[g, X] = 0.0
            n.gi[g, STARVED] += 1
            return True
        n.gi[g, HOLD] = int(got)
        n.gf[g, CAP] = int(got) * per_slot / n.gf[g, X]
        return True
    if choice == BY_SLOTS:
        got = math.floor(min(float(n.number[WINDOW]), _free(n, g)))
        n.gf[g, X] = got / n.number[WINDOW]
        n.gi[g, HOLD] = int(got)
        if got > 0:
            n.gf[g, CAP] = got * per_slot / n.gf[g, X]
        else:
            n.gi[g, STARVED] += 1
        return True
    nic, rho = _nic(n, g), n.gf[g, U0]
    got = math.floor(min(float(n.number[WINDOW]), _free(n, g)))
    share = min(got * per_slot, _chip(n, g) / n.gf[g, INPUTS])
    if n.gf[g, SMALL] > 0:
        x = 1.0 if got >= 1 and n.gf[g, LAT1] <= n.gf[g, LAT0] else 0.0
    else:
        x = min(1.0, rho * share / (nic + (rho - 1.0) * share))
        old = n.gf[g, X]
        if got >= 1 and abs(x - old) <= n.gf[g, HYSTERESIS] * old:
            x = old
    if got < 1:
        x = 0.0
    n.gf[g, X] = x
    if x > 0:
        rate = min(nic / (x + rho * (1.0 - x)), share / x)
        n.gi[g, HOLD] = int(max(1.0, min(got, math.ceil(x * rate / per_slot))))
        n.gf[g, CAP] = n.gi[g, HOLD] * per_slot / x
    return True


@part
def _latency(n, g):  # type: ignore[no-untyped-def]
    x = n.gf[g, X]
    return max(n.gf[g, LAT1] if x > 0 else 0.0, n.gf[g, LAT0] if x < 1 else 0.0)


@part
def _use(n, g, k):  # type: ignore[no-untyped-def]
    """Returns the bytes on the link of the k-th server of group g per byte reduced."""
    x = n.gf[g, X]
    return x * n.gf[g, U1] + (1.0 - x) * (n.gf[g, V0] if k == 0 else n.gf[g, U0])


@part
def _alone(n, g):  # type: ignore[no-untyped-def]
    """Returns the rate of group g if it is alone."""
    rate = n.gf[g, CAP]
    for k in range(n.gi[g, SERVERS]):
        rate = min(rate, n.cap[n.links[g, n.gi[g, HOME], k]] / _use(n, g, k))
    if n.gf[g, X] > 0:
        rate = min(rate, n.const[ASIC] / (n.gf[g, INPUTS] * n.gf[g, X]))
    return rate


@kernel
def _share_out(n):  # type: ignore[no-untyped-def]
    """Sets max-min fair rates of all flowing collectives; if classes differ, decoding comes first and prompts share the rest."""
    links, groups = n.number[LINKS], len(n.gi)
    for r in range(len(n.left)):
        n.left[r] = n.cap[r] if r < links else n.const[ASIC]
    highest = 0
    for g in range(groups):
        if n.gi[g, PHASE] == TRANSFER:
            n.gf[g, RATE] = -1.0
            highest = max(highest, n.gi[g, CLASS])
    for rank in range(highest + 1):
        while True:
            for r in range(len(n.used)):
                n.used[r] = 0.0
            level, waiting = np.inf, False
            for g in range(groups):
                if n.gi[g, PHASE] == TRANSFER and n.gi[g, CLASS] == rank and n.gf[g, RATE] < 0:
                    waiting = True
                    w = n.gi[g, HOME]
                    for k in range(n.gi[g, SERVERS]):
                        n.used[n.links[g, w, k]] += _use(n, g, k)
                    if n.gf[g, X] > 0:
                        n.used[links + w] += n.gf[g, INPUTS] * n.gf[g, X]
                    level = min(level, n.gf[g, CAP])
            if not waiting:
                break
            for r in range(len(n.left)):
                if n.used[r] > 0:
                    level = min(level, max(n.left[r], 0.0) / n.used[r])
            tight = level * (1.0 + 1e-12)
            # A group that meets a full link or chip or its own cap stays at this level, and its part is subtracted for the next round.
            for g in range(groups):
                if n.gi[g, PHASE] == TRANSFER and n.gi[g, CLASS] == rank and n.gf[g, RATE] < 0:
                    w = n.gi[g, HOME]
                    full = n.gf[g, CAP] <= tight
                    for k in range(n.gi[g, SERVERS]):
                        r = n.links[g, w, k]
                        full = full or max(n.left[r], 0.0) <= tight * n.used[r]
                    r = links + w
                    if n.gf[g, X] > 0:
                        full = full or max(n.left[r], 0.0) <= tight * n.used[r]
                    if full:
                        n.gf[g, RATE] = -2.0 - level
            for g in range(groups):
                if n.gi[g, PHASE] == TRANSFER and n.gf[g, RATE] <= -2.0:
                    rate = -2.0 - n.gf[g, RATE]
                    n.gf[g, RATE] = rate
                    w = n.gi[g, HOME]
                    for k in range(n.gi[g, SERVERS]):
                        n.left[n.links[g, w, k]] -= rate * _use(n, g, k)
                    if n.gf[g, X] > 0:
                        n.left[links + w] -= rate * n.gf[g, INPUTS] * n.gf[g, X]


@part
def _conflict(n, a, b):  # type: ignore[no-untyped-def]
    """Returns whether two groups can disturb each other, because they share a switch that both use or a link."""
    w = n.gi[a, HOME]
    if n.gi[b, HOME] != w or n.gf[a, BYTES] == 0 or n.gf[b, BYTES] == 0:
        return False
    if n.gi[a, SWITCHED] == 1 and n.gi[b, SWITCHED] == 1:
        return True
    for i in range(n.gi[a, SERVERS]):
        for j in range(n.gi[b, SERVERS]):
            if n.links[a, w, i] == n.links[b, w, j]:
                return True
    return False


@kernel
def load(n, g, w):  # type: ignore[no-untyped-def]
    """Returns how busy switch w is without group g: the shares of slots in use and of links lost to bursts, over a millisecond."""
    now, tau, total = n.clock[0], n.const[TAU], max(n.sw[w, TOTAL], 1.0)
    busy = _ewma(n.sw[w, BUSY], (n.sw[w, IN_USE] + n.sw[w, TENANT]) / total, now - n.sw[w, BUSY_SINCE], tau)
    for o in range(len(n.gi)):
        if o != g and n.gi[o, PHASE] == CRUISE and n.gi[o, HOME] == w:
            busy += n.gi[o, HOLD] / total * (1.0 - n.gf[o, BEFORE] / n.gf[o, EACH])
    if n.gi[g, HOME] == w:
        busy -= _ewma(n.gf[g, OWN], n.gi[g, HELD] / total, now - n.gf[g, OWN_SINCE], tau)
    lost = 0.0
    for k in range(n.gi[g, SERVERS]):
        link = n.links[g, w, k]
        seen = n.const[BURST_SHARE] * n.on[link]
        if n.gi[g, REHOME] != EVERY_COLLECTIVE:
            seen = _ewma(n.lost[link, 0], seen, now - n.lost[link, 1], tau)
        lost = max(lost, seen)
    return max(busy, 0.0) + lost


@kernel
def rehome(n, g):  # type: ignore[no-untyped-def]
    """Moves group g, which sends nothing now, to a switch that is less busy by more than its margin; returns whether it moved.

    Its slots are reserved at its new home. Before a single collective a server considers the present state of its NICs, not the average.
    """
    here, best, least = n.gi[g, HOME], n.gi[g, HOME], np.inf
    for w in range(len(n.sw)):
        if n.links[g, w, 0] >= 0:
            busy = load(n, g, w)
            if busy < least:
                best, least = w, busy
    busy = load(n, g, here)
    if best == here or busy <= (1.0 + n.gf[g, MARGIN]) * least or busy - least <= LEAST_LOAD:
        return False
    n.sw[here, RESERVED] -= n.gi[g, KEEP]
    n.sw[best, RESERVED] += n.gi[g, KEEP]
    n.gi[g, HOME] = best
    n.gf[g, OWN] = 0.0
    n.number[MOVES] += 1
    return True


@kernel
def _break_cruise(n, g):  # type: ignore[no-untyped-def]
    """Places a cruising group at its present position inside the current repeat."""
    now = n.clock[0]
    since = now - n.gf[g, BEGAN]
    done = min(int(since / n.gf[g, EACH]), n.gi[g, REPEATS] - 1)
    inside = since - done * n.gf[g, EACH]
    n.gi[g, REPEATS] -= done
    before, latency = n.gf[g, BEFORE], _latency(n, g)
    n.gf[g, LEFT] = n.gf[g, BYTES]
    if inside < before:
        n.gi[g, PHASE] = DELAY
        n.gf[g, END] = now + before - inside
    elif inside < before + latency:
        n.gi[g, PHASE] = LATENCY
        n.gf[g, END] = now + before + latency - inside
        _hold(n, g, n.gi[g, HOLD])
    else:
        n.gi[g, PHASE] = TRANSFER
        n.gf[g, LEFT] = max(n.gf[g, BYTES] - (inside - before - latency) * n.gf[g, RATE], 0.0)
        _piece(n, g)
        _hold(n, g, n.gi[g, HOLD])


@part
def _piece(n, g):  # type: ignore[no-untyped-def]
    """Returns the bytes that flow before slots are requested again."""
    chunk = n.gf[g, CHUNK]
    n.gf[g, PIECE] = 0.0
    if chunk > 0 and n.gf[g, LEFT] > chunk:
        n.gf[g, PIECE] = n.gf[g, LEFT] - chunk


@kernel
def _begin_repeat(n, g):  # type: ignore[no-untyped-def]
    """Starts the next repeat of a group, or all remaining ones at once if nobody can disturb it."""
    now = n.clock[0]
    n.gi[g, TIMED_OUT] = 0
    if n.gf[g, BYTES] == 0:
        n.gi[g, PHASE] = DELAY
        n.gf[g, END] = now + n.gf[g, BEFORE] * n.gi[g, REPEATS]
        n.gi[g, REPEATS] = 1
        return
    if n.gi[g, REHOME] == EVERY_COLLECTIVE and rehome(n, g):
        for o in range(len(n.gi)):
            if o != g and n.gi[o, PHASE] == CRUISE and _conflict(n, g, o):
                _break_cruise(n, o)
    alone = True
    for o in range(len(n.gi)):
        if o != g and n.gi[o, PHASE] != IDLE and _conflict(n, g, o):
            alone = False
            break
    if alone and _choose(n, g):
        n.gf[g, RATE] = _alone(n, g)
        n.gf[g, EACH] = n.gf[g, BEFORE] + _latency(n, g) + n.gf[g, BYTES] / n.gf[g, RATE]
        n.gf[g, BEGAN] = now
        n.gf[g, END] = now + n.gf[g, EACH] * n.gi[g, REPEATS]
        n.gi[g, PHASE] = CRUISE
        n.sw[n.gi[g, HOME], MOST] = max(n.sw[n.gi[g, HOME], MOST], n.gi[g, HOLD] + n.sw[n.gi[g, HOME], TENANT])
        return
    n.gi[g, PHASE] = DELAY
    n.gf[g, END] = now + n.gf[g, BEFORE]


@kernel
def _try_slots(n, g):  # type: ignore[no-untyped-def]
    """Requests slots for a collective, which starts or waits for them until its timer ends."""
    now = n.clock[0]
    if _choose(n, g):
        _hold(n, g, n.gi[g, HOLD])
        n.gi[g, PHASE] = LATENCY
        n.gf[g, END] = now + _latency(n, g)
    elif n.gi[g, PHASE] != WAIT:
        n.gi[g, PHASE] = WAIT
        n.gf[g, END] = now + n.gf[g, WAIT_S]


@part
def _released(n, w):  # type: ignore[no-untyped-def]
    """Lets the groups that wait for slots of a switch request them again."""
    for g in range(len(n.gi)):
        if n.gi[g, PHASE] == WAIT and n.gi[g, HOME] == w:
            _try_slots(n, g)


@part
def _toggle(n):  # type: ignore[no-untyped-def]
    """Begins or ends the next burst."""
    now, links = n.clock[0], n.number[LINKS]
    what = n.toggle[n.number[NEXT]]
    starts = 1 - n.on[what]
    n.on[what] = starts
    for g in range(len(n.gi)):
        if n.gi[g, PHASE] == CRUISE:
            hit = what - links == n.gi[g, HOME] and n.gi[g, SWITCHED] == 1
            if what < links:
                for w in range(len(n.sw)):
                    if w == n.gi[g, HOME] or n.gi[g, REHOME] == EVERY_COLLECTIVE:
                        for k in range(n.gi[g, SERVERS]):
                            hit = hit or n.links[g, w, k] == what
            if hit:
                _break_cruise(n, g)
    if what < links:
        share = n.const[BURST_SHARE]
        n.lost[what, 0] = _ewma(n.lost[what, 0], share * (1 - starts), now - n.lost[what, 1], n.const[TAU])
        n.lost[what, 1] = now
        n.cap[what] = n.full[what] * (1.0 - share * starts)
    else:
        w = what - links
        free = n.sw[w, TOTAL] - n.sw[w, IN_USE]
        n.sw[w, TENANT] = min(n.const[TENANT_SLOTS], free) if starts else 0.0
        n.sw[w, MOST] = max(n.sw[w, MOST], n.sw[w, IN_USE] + n.sw[w, TENANT])
        _released(n, w)
    n.number[NEXT] += 1
    if n.number[NEXT] == len(n.toggle_s):
        n.number[NEXT] = 0
        n.clock[1] += n.const[CYCLE_S]


@part
def _finished(n, g):  # type: ignore[no-untyped-def]
    """Moves a group on at the end of its phase; returns true if its iteration is finished."""
    phase = n.gi[g, PHASE]
    if phase == CRUISE or (phase == DELAY and n.gf[g, BYTES] == 0):
        n.gi[g, PHASE] = IDLE
        return True
    if phase == DELAY:
        n.gf[g, LEFT] = n.gf[g, BYTES]
        _try_slots(n, g)
    elif phase == WAIT:
        n.gi[g, TIMED_OUT] = 1
        _try_slots(n, g)
    elif phase == LATENCY:
        n.gi[g, PHASE] = TRANSFER
        _piece(n, g)
    else:
        w, held = n.gi[g, HOME], n.gi[g, HELD]
        n.gf[g, LEFT] = n.gf[g, PIECE]
        _hold(n, g, 0)
        n.gi[g, PHASE] = IDLE
        if held > 0:
            _released(n, w)
        if n.gf[g, LEFT] > 0:
            _choose(n, g)
            _hold(n, g, n.gi[g, HOLD])
            n.gi[g, PHASE] = TRANSFER
            _piece(n, g)
            return False
        n.gi[g, REPEATS] -= 1
        if n.gi[g, REPEATS] == 0:
            return True
        _begin_repeat(n, g)
    return False


@kernel
def start(n, g):  # type: ignore[no-untyped-def]
    """Starts an iteration of group g, whose numbers are already in `gi` and `gf`."""
    for o in range(len(n.gi)):
        if o != g and n.gi[o, PHASE] == CRUISE and _conflict(n, g, o):
            _break_cruise(n, o)
    _begin_repeat(n, g)
    _share_out(n)


@kernel
def advance(n, until):  # type: ignore[no-untyped-def]
    """Advances time until the first group ends its iteration and returns it, or until `until` and returns -1."""
    groups = len(n.gi)
    while True:
        n.number[EVENTS] += 1
        now, soonest, who = n.clock[0], until, -1
        for g in range(groups):
            phase = n.gi[g, PHASE]
            if phase == TRANSFER:
                end = np.inf
                if n.gf[g, RATE] > 0:
                    end = now + (n.gf[g, LEFT] - n.gf[g, PIECE]) / n.gf[g, RATE]
            elif phase != IDLE:
                end = n.gf[g, END]
            else:
                continue
            if end < soonest:
                soonest, who = end, g
        burst = np.inf
        if len(n.toggle_s) > 0:
            burst = n.clock[1] + n.toggle_s[n.number[NEXT]]
            if burst < soonest:
                soonest, who = burst, -2
        for g in range(groups):
            if n.gi[g, PHASE] == TRANSFER:
                n.gf[g, LEFT] = max(n.gf[g, LEFT] - (soonest - now) * n.gf[g, RATE], n.gf[g, PIECE])
        n.clock[0] = soonest
        if who == -1:
            return -1
        if who == -2:
            _toggle(n)
            _share_out(n)
            continue
        flowed = n.gi[who, PHASE] == TRANSFER
        done = _finished(n, who)
        if flowed or n.gi[who, PHASE] == TRANSFER:
            _share_out(n)
        if done:
            return who
