"""The compiled loop: workers take tasks from queues, compute, wait for flags, signal, and send flows that share links fairly.

A worker is an SM, a warp of one, a copy engine or a library's stream. It takes the next task of the first of its queues that is open, and
does its operations in turn. Sends of a storer or a communicator slow down the tile that their SM computes meanwhile. Flows of one class
(same links, same mechanism) progress alike, so each class has one virtual time, and rates follow max-min fairness over classes: all flows
rise together until a flow reaches its cap or a link is full.
"""

from __future__ import annotations

import numpy as np

from armillary.engine.compiled import heap, pop, push
from armillary.kernels import loop

COMPUTE, WAIT, SEND, SIGNAL = 0, 1, 2, 3
#: Flags of the worker's own SM: tiles that the consumer has finished, and tiles that the storer has let go.
PRODUCED, FREED = -1, -2
#: Amounts of signals travel in the payload of an event.
_SPAN, _ZERO = 1 << 20, 1 << 19

__all__ = ["COMPUTE", "FREED", "PRODUCED", "SEND", "SIGNAL", "WAIT", "heap", "simulate_loop"]


@loop
def _fill(active, members, cap, inverse, at, link, times, left, load, rate):  # type: ignore[no-untyped-def]
    """Max-min rates in bytes/s of one flow of each active class; `left` and `load` are room for as many links as there are."""
    left[:] = 1.0
    load[:] = 0.0
    for place in range(len(active)):
        c = active[place]
        rate[c] = -1.0
        for j in range(at[c], at[c + 1]):
            load[link[j]] += members[c] * times[j] * inverse[c]
    unset = len(active)
    while unset > 0:
        level, full = np.inf, -1
        for x in range(len(left)):
            if load[x] > 1e-30:
                found = max(left[x], 0.0) / load[x]
                if found < level:
                    level, full = found, x
        least = np.inf
        for place in range(len(active)):
            c = active[place]
            if rate[c] < 0.0 and cap[c] < least:
                least = cap[c]
        by_cap = least <= level
        for place in range(len(active)):
            c = active[place]
            if rate[c] >= 0.0:
                continue
            if by_cap:
                hit = cap[c] <= least
            else:
                hit = False
                for j in range(at[c], at[c + 1]):
                    if link[j] == full:
                        hit = True
            if hit:
                rate[c] = least if by_cap else level
                unset -= 1
                for j in range(at[c], at[c + 1]):
                    used = members[c] * times[j] * inverse[c]
                    left[link[j]] -= used * rate[c]
                    load[link[j]] -= used
        if full >= 0 and not by_cap:
            load[full] = 0.0


@loop
def _sift(targets, workers, size, target, worker):  # type: ignore[no-untyped-def]
    """Inserts a flow into the heap of its class."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if targets[parent] <= target:
            break
        targets[place], workers[place] = targets[parent], workers[parent]
        place = parent
    targets[place], workers[place] = target, worker


@loop
def _first(targets, workers, size):  # type: ignore[no-untyped-def]
    """Removes the flow of a class that ends first and returns its worker."""
    found = workers[0]
    last = size - 1
    target, worker = targets[last], workers[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and targets[child + 1] < targets[child]:
            child += 1
        if targets[child] >= target:
            break
        targets[place], workers[place] = targets[child], workers[child]
        place = child
    targets[place], workers[place] = target, worker
    return found


@loop
def simulate_loop(  # type: ignore[no-untyped-def]
    kind, what, amount, count, task_at, order, queue_at, gate_flag, gate_count, polls_at, polls, begin, produced, freed, sm_of, stages,
    epsilon, flags, gates, class_at, class_link, class_times, class_inverse, class_cap, link_bytes, free, events, start, end, owner,
    task_of, op_of,
):  # fmt: skip
    """Runs until nothing can happen any more; returns the last time and the number of workers that are not done.

    Invariants: a worker is in exactly one place (ready, in the heap, in one flow, on one flag, idle or done); `members[c]` is the size
    of class c's heap; `task_of` and `op_of` say what each worker does, or −1 when it is done.
    """
    workers, classes, links = len(begin), len(class_at) - 1, len(link_bytes)
    next_task = queue_at[:-1].copy()
    # Queues before this one are empty for good.
    poll_from = polls_at[:-1].copy()
    op_end = np.zeros(workers, np.int64)
    taken = np.full(workers, -1, np.int64)
    idle = np.zeros(workers, np.bool_)
    ready = np.empty(workers + 1, np.int64)
    head, tail = 0, 0
    waiting = np.full(len(flags), -1, np.int64)
    after = np.full(workers, -1, np.int64)
    need = np.zeros(workers, np.int64)
    members = np.zeros(classes, np.int64)
    virtual, rate = np.zeros(classes), np.zeros(classes)
    targets = np.empty((classes, workers))
    senders = np.empty((classes, workers), np.int64)
    active_room = np.empty(classes, np.int64)
    left, load = np.empty(links), np.empty(links)
    # Of each SM: sends in flight, since when that number holds, and the time integral of the number before.
    sms = 0
    for w in range(workers):
        sms = max(sms, sm_of[w] + 1)
    sending, since, sent_s = np.zeros(sms, np.int64), np.zeros(sms), np.zeros(sms)
    at_start = np.zeros(workers)
    for w in range(workers):
        op_of[w] = 0
        push(events, begin[w], 0, w)
    now, last, busy_classes, dirty = 0.0, 0.0, 0, False
    fired, delta = -1, 0
    while True:
        # A flag that changes lets workers go on, and opens queues.
        while True:
            if fired >= 0:
                flags[fired] += delta
                w, before = waiting[fired], -1
                while w >= 0:
                    follower = after[w]
                    if flags[fired] >= need[w]:
                        if before < 0:
                            waiting[fired] = follower
                        else:
                            after[before] = follower
                        end[op_of[w]] = now
                        op_of[w] += 1
                        ready[tail] = w
                        tail = (tail + 1) % (workers + 1)
                    else:
                        before = w
                    w = follower
                if gates[fired, 0] <= flags[fired] and flags[fired] - delta < gates[fired, 1]:
                    for v in range(workers):
                        if idle[v]:
                            idle[v] = False
                            ready[tail] = v
                            tail = (tail + 1) % (workers + 1)
                fired = -1
            if head == tail:
                break
            w = ready[head]
            head = (head + 1) % (workers + 1)
            while True:
                if op_of[w] == op_end[w]:
                    found, gated = False, False
                    while poll_from[w] < polls_at[w + 1] and next_task[polls[poll_from[w]]] == queue_at[polls[poll_from[w]] + 1]:
                        poll_from[w] += 1
                    for place in range(poll_from[w], polls_at[w + 1]):
                        q = polls[place]
                        if next_task[q] < queue_at[q + 1]:
                            if gate_flag[q] < 0 or flags[gate_flag[q]] >= gate_count[q]:
                                t = order[next_task[q]]
                                next_task[q] += 1
                                task_of[w], op_of[w], op_end[w] = t, task_at[t], task_at[t + 1]
                                taken[w] += 1
                                owner[t] = w
                                found = True
                                break
                            gated = True
                    if found:
                        continue
                    idle[w] = gated
                    if not gated:
                        task_of[w], op_of[w], op_end[w] = -1, 0, 0
                    else:
                        task_of[w] = -2
                    break
                i = op_of[w]
                start[i] = now
                if kind[i] == COMPUTE:
                    sm = sm_of[w]
                    if sm >= 0:
                        at_start[w] = sent_s[sm] + sending[sm] * (now - since[sm])
                    push(events, now + amount[i], 2, w)
                    break
                if kind[i] == SEND:
                    c = what[i]
                    for j in range(class_at[c], class_at[c + 1]):
                        link_bytes[class_link[j]] += amount[i] * class_times[j]
                    if free or amount[i] <= 0.0 or class_cap[c] == np.inf:
                        end[i] = now
                        op_of[w] += 1
                        continue
                    if members[c] == 0:
                        virtual[c] = 0.0
                        busy_classes += 1
                    _sift(targets[c], senders[c], members[c], virtual[c] + amount[i], w)
                    members[c] += 1
                    sm = sm_of[w]
                    if sm >= 0:
                        sent_s[sm] += sending[sm] * (now - since[sm])
                        since[sm] = now
                        sending[sm] += 1
                    dirty = True
                    break
                f, wanted = what[i], count[i]
                if f == PRODUCED:
                    f, wanted = produced[w], taken[w] + 1
                elif f == FREED:
                    f, wanted = freed[w], taken[w] + 1 - stages
                if kind[i] == WAIT:
                    if flags[f] >= wanted:
                        end[i] = now
                        op_of[w] += 1
                        continue
                    need[w] = wanted
                    after[w] = waiting[f]
                    waiting[f] = w
                    break
                end[i] = now
                op_of[w] += 1
                if amount[i] > 0.0:
                    push(events, now + amount[i], 1, f * _SPAN + count[i] + _ZERO)
                    continue
                # The worker goes on after those whom its signal lets go.
                fired, delta = f, count[i]
                ready[tail] = w
                tail = (tail + 1) % (workers + 1)
                break
        if dirty:
            held = 0
            for c in range(classes):
                if members[c] > 0:
                    active_room[held] = c
                    held += 1
            _fill(active_room[:held], members, class_cap, class_inverse, class_at, class_link, class_times, left, load, rate)
            dirty = False
        soonest, which = np.inf, -1
        if busy_classes > 0:
            for c in range(classes):
                if members[c] > 0:
                    at = now + max(targets[c, 0] - virtual[c], 0.0) / rate[c] if rate[c] > 0.0 else np.inf
                    if at < soonest:
                        soonest, which = at, c
        upcoming = events.time[0] if events.held[0] > 0 else np.inf
        if soonest == np.inf and upcoming == np.inf:
            break
        then = min(soonest, upcoming)
        for c in range(classes):
            if members[c] > 0:
                virtual[c] += (then - now) * rate[c]
        now = then
        last = now
        if soonest <= upcoming:
            virtual[which] = targets[which, 0]
            w = _first(targets[which], senders[which], members[which])
            members[which] -= 1
            if members[which] == 0:
                busy_classes -= 1
            sm = sm_of[w]
            if sm >= 0:
                sent_s[sm] += sending[sm] * (now - since[sm])
                since[sm] = now
                sending[sm] -= 1
            end[op_of[w]] = now
            op_of[w] += 1
            ready[tail] = w
            tail = (tail + 1) % (workers + 1)
            dirty = True
        else:
            _, event, payload = pop(events)
            if event == 2:
                # Every send in flight beside a tile has slowed it by epsilon of their common time.
                w, extra = payload, 0.0
                sm = sm_of[w]
                if sm >= 0:
                    extra = epsilon * (sent_s[sm] + sending[sm] * (now - since[sm]) - at_start[w])
                end[op_of[w]] = now + extra
                op_of[w] += 1
                if extra > 0.0:
                    push(events, now + extra, 0, w)
                else:
                    ready[tail] = w
                    tail = (tail + 1) % (workers + 1)
            elif event == 0:
                ready[tail] = payload
                tail = (tail + 1) % (workers + 1)
            else:
                fired, delta = payload // _SPAN, payload % _SPAN - _ZERO
    stuck = 0
    for w in range(workers):
        if task_of[w] != -1:
            stuck += 1
    return last, stuck
