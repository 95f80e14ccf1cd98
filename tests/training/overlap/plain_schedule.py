"""A second simulator of schedules, in plain Python: one object per flow and worker, rates by raising all flows together."""

from __future__ import annotations

import math
from typing import Any

from armillary.training.overlap.machine.mechanisms import EPSILON
from armillary.training.overlap.simulation.schedule import COMPUTE, FREED, PRODUCED, SEND, WAIT, Schedule


def rates(flows: list[dict[str, Any]], links: int) -> None:
    """Max-min fair rates, flow by flow: the level rises until a cap or a full link stops some of them."""
    left, moving = [1.0] * links, list(flows)
    for flow in flows:
        flow["rate"] = 0.0
    while moving:
        step = min(flow["cap"] - flow["rate"] for flow in moving)
        load = [sum(flow["use"].get(x, 0.0) for flow in moving) for x in range(links)]
        step = min([step, *(left[x] / load[x] for x in range(links) if load[x] > 0)])
        step = max(step, 0.0)
        for x in range(links):
            left[x] -= step * load[x]
        for flow in moving:
            flow["rate"] += step
        full = {x for x in range(links) if left[x] <= 1e-12}
        moving = [f for f in moving if f["rate"] < f["cap"] * (1 - 1e-12) and not any(x in full and u > 0 for x, u in f["use"].items())]


def seconds(s: Schedule) -> float:
    """When the last thing happens; -1 if some worker waits for ever."""
    kind, what, amount, count = s.operations
    order, queue_at, gate_flag, gate_count = s.queues
    polls_at, polls, begin, produced, freed, sm_of = s.workers
    class_at, class_link, class_times, inverse, caps = s.classes
    flags = [0] * max(1, len(s.flags))
    following = [int(x) for x in queue_at[:-1]]
    workers = [{"ops": [], "taken": -1, "sm": int(sm_of[w]), "sent": 0.0, "base": 0.0} for w in range(len(begin))]
    #: What happens at a time: (time, number, what to do).
    later: list[tuple[float, int, Any]] = [(float(begin[w]), w, ("go", w)) for w in range(len(begin))]
    number, now, last = len(later), 0.0, 0.0
    flows: list[dict[str, Any]] = []
    waiting: list[int] = []

    def next_task(w: int) -> bool:
        for place in range(polls_at[w], polls_at[w + 1]):
            q = int(polls[place])
            if following[q] < queue_at[q + 1] and (gate_flag[q] < 0 or flags[gate_flag[q]] >= gate_count[q]):
                t = int(order[following[q]])
                following[q] += 1
                workers[w]["ops"] = list(range(int(s.task_at[t]), int(s.task_at[t + 1])))
                workers[w]["taken"] += 1
                return True
        return False

    def flag_of(w: int, i: int) -> tuple[int, int]:
        f, need = int(what[i]), int(count[i])
        if f == PRODUCED:
            return int(produced[w]), workers[w]["taken"] + 1
        return (int(freed[w]), workers[w]["taken"] + 1 - s.stages) if f == FREED else (f, need)

    def advance(w: int) -> bool:
        """Goes on until the worker blocks; says whether anything moved."""
        nonlocal number
        moved = False
        while True:
            if not workers[w]["ops"]:
                if not next_task(w):
                    return moved
                moved = True
                continue
            i = workers[w]["ops"][0]
            if kind[i] == COMPUTE:
                workers[w]["ops"].pop(0)
                workers[w]["base"] = sent(w)
                number += 1
                later.append((now + float(amount[i]), number, ("slow", w)))
                busy.add(w)
                return True
            if kind[i] == SEND:
                c = int(what[i])
                use = {int(class_link[j]): float(class_times[j] * inverse[c]) for j in range(class_at[c], class_at[c + 1])}
                flows.append({"use": use, "cap": float(caps[c]), "left": float(amount[i]), "worker": w, "rate": 0.0, "since": now})
                busy.add(w)
                return True
            f, need = flag_of(w, i)
            if kind[i] == WAIT:
                if flags[f] < need:
                    return moved
                workers[w]["ops"].pop(0)
                moved = True
                continue
            workers[w]["ops"].pop(0)
            moved = True
            if amount[i] > 0:
                number += 1
                later.append((now + float(amount[i]), number, ("flag", f, int(count[i]))))
            else:
                flags[f] += int(count[i])

    def sent(w: int) -> float:
        """The integral over time of the sends of the worker's SM."""
        sm = workers[w]["sm"]
        if sm < 0:
            return 0.0
        done = sum(other["sent"] for other in workers if other["sm"] == sm)
        return done + sum(now - flow["since"] for flow in flows if workers[flow["worker"]]["sm"] == sm)

    busy: set[int] = set(range(len(begin)))
    while True:
        moved = True
        while moved:
            moved = False
            for w in range(len(workers)):
                if w not in busy and advance(w):
                    moved = True
        rates(flows, 2 * s.devices)
        ends = [now + flow["left"] / flow["rate"] for flow in flows]
        soonest, upcoming = min(ends, default=math.inf), min(later, default=(math.inf,))[0]
        if soonest == upcoming == math.inf:
            break
        then = min(soonest, upcoming)
        for flow in flows:
            flow["left"] -= flow["rate"] * (then - now)
        now = last = then
        if soonest <= upcoming:
            flow = flows.pop(ends.index(soonest))
            w = flow["worker"]
            workers[w]["sent"] += now - flow["since"]
            workers[w]["ops"].pop(0)
            busy.discard(w)
        else:
            later.sort()
            _, _, event = later.pop(0)
            if event[0] == "flag":
                flags[event[1]] += event[2]
            elif event[0] == "slow" and (extra := EPSILON * (sent(event[1]) - workers[event[1]]["base"])) > 0:
                number += 1
                later.append((now + extra, number, ("go", event[1])))
            else:
                busy.discard(event[1])
    waiting = [w for w in range(len(workers)) if workers[w]["ops"]]
    left = any(following[q] < queue_at[q + 1] for q in range(len(following)))
    return -1.0 if waiting or left else last
