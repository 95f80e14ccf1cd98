"""A second simulator of schedules, written from the words of the docstring alone: events in a heap, one object per message."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import Any

from armillary.training.pipeline import Pair, Schedule


def run(schedule: Schedule, costs: dict[str, Any], latency: float = 0.0, rate: float = float("inf"), blocking: bool = False) -> tuple[float, list[float]]:
    """(makespan, peak bytes per rank). `costs` maps forward, input, weight, again, kept, keys, space, sent to tables [stage][micro]."""
    c = costs
    order = [schedule.actions(r) for r in range(schedule.ranks)]
    home = schedule.stage_rank.tolist()
    nexts, befores = schedule.following.tolist(), schedule.preceding.tolist()
    slice_before, slice_after = schedule.previous_slice.tolist(), schedule.next_slice.tolist()
    inputs: dict[tuple[str, int, int], float] = {}
    done: set[tuple[str, int, int]] = set()
    at = [0] * schedule.ranks
    busy = [False] * schedule.ranks
    links: dict[tuple[int, int], float] = defaultdict(float)
    memory, peak = [0.0] * schedule.ranks, [0.0] * schedule.ranks
    heap: list[tuple[float, int, str, Any]] = []
    count = 0

    def push(time: float, what: str, data: Any) -> None:
        nonlocal count
        count += 1
        heapq.heappush(heap, (time, count, what, data))

    def ready(action: Any) -> bool:
        s, kind, k = action
        if kind == "F":
            return (befores[s] < 0 or ("F", s, k) in inputs) and (slice_before[k] < 0 or ("F", s, slice_before[k]) in done)
        if kind == "W":
            return ("I", s, k) in done
        has = nexts[s] < 0 or ("B", s, k) in inputs
        return has and ("F", s, k) in done and (slice_after[k] < 0 or ("B", s, slice_after[k]) in done)

    def halves(item: Any) -> list[Any]:
        return list(item) if isinstance(item, Pair) else [item]

    def start(rank: int, now: float) -> None:
        if busy[rank] or at[rank] >= len(order[rank]):
            return
        parts = halves(order[rank][at[rank]])
        if not all(ready(part) for part in parts):
            return
        busy[rank] = True
        time = now
        for s, kind, k in parts:
            if kind == "F":
                memory[rank] += c["kept"][s][k] + c["keys"][s][k]
                peak[rank] = max(peak[rank], memory[rank])
                time += c["forward"][s][k]
            elif kind == "W":
                time += c["weight"][s][k]
                memory[rank] -= 0.4 * c["kept"][s][k]
            else:
                peak[rank] = max(peak[rank], memory[rank] + c["space"][s][k])
                time += c["again"][s][k] + c["input"][s][k] + (c["weight"][s][k] if kind == "B" else 0.0)
                memory[rank] -= (1.0 if kind == "B" else 0.6) * c["kept"][s][k]
                if slice_before[k] < 0:
                    while k >= 0:
                        memory[rank] -= c["keys"][s][k]
                        k = slice_after[k]
        push(time, "end", rank)

    end = 0.0
    for rank in range(schedule.ranks):
        push(0.0, "look", rank)
    while heap:
        now, _, what, data = heapq.heappop(heap)
        if what == "look":
            start(data, now)
        elif what == "arrive":
            rank, key = data
            inputs[key] = now
            start(rank, now)
        elif what == "free":
            busy[data] = False
            at[data] += 1
            start(data, now)
        else:
            rank = data
            end = max(end, now)
            free = now
            parts = halves(order[rank][at[rank]])
            for s, kind, k in parts:
                done.add(("B" if kind in "IB" else kind, s, k))
                done.add((kind, s, k))
            for s, kind, k in parts:
                to = nexts[s] if kind == "F" else befores[s]
                if kind == "W" or to < 0:
                    continue
                key = ("F" if kind == "F" else "B", to, k)
                if home[to] == rank:
                    inputs[key] = now
                    continue
                size = c["sent"][s][k] if kind == "F" else c["sent"][to][k]
                begin = max(free if blocking else now, links[rank, home[to]])
                there = begin + latency + size / rate
                links[rank, home[to]] = there
                push(there, "arrive", (home[to], key))
                if blocking:
                    free = there
            push(free, "free", rank)
    assert all(at[r] == len(order[r]) for r in range(schedule.ranks)), "standstill"
    return end, peak
