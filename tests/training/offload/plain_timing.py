"""The rules of the simulator once more, without compiled loops and without shared code: dictionaries, lists, and one function per lane."""

from __future__ import annotations

from typing import Any

IN, OUT, READ, WRITE, DROP = range(5)


class PlainLane:
    """Serves transfers one after another."""

    def __init__(self, rate: float, latency: float) -> None:
        self.rate, self.latency, self.free, self.bytes = rate, latency, 0.0, 0.0

    def serve(self, at: float, size: float) -> float:
        self.free = max(self.free, at) + self.latency + size / self.rate
        self.bytes += size
        return self.free


def plain(work: Any, schedule: Any, buffers: int = 4) -> dict[str, float]:
    """Seconds per iteration, seconds of waiting and the share of hits, as means over all iterations but the first."""
    machine, moves = work.machine, schedule.moves
    lanes = {
        "to": PlainLane(machine.pcie, machine.pcie_s), "from": PlainLane(machine.pcie, machine.pcie_s),
        "read": PlainLane(machine.nvme_read or 1.0, machine.nvme_s), "write": PlainLane(machine.nvme_write or 1.0, machine.nvme_s),
    }  # fmt: skip
    arrival = {t: 0.0 for t in range(len(work.size)) if schedule.resident[t]}
    in_host: dict[int, float] = {}
    done: dict[int, float] = {}
    by_slot: dict[int, list[int]] = {}
    for m, slot in enumerate(moves.slot.tolist()):
        by_slot.setdefault(slot, []).append(m)
    now = thread = begun = 0.0
    stall, hits, asked = 0.0, 0, 0
    ops = [
        (int(work.phase[k]), work.used[work.first[k] : work.first[k + 1]].tolist(), float(work.seconds[k])) for k in range(len(work.phase))
    ]
    order_of_update = list(dict.fromkeys(t for k in work.order[0] for t in ops[k][1]))

    def issue(slot: int) -> None:
        nonlocal thread
        for m in by_slot.get(slot, []):
            t, kind, size = int(moves.tensor[m]), int(moves.kind[m]), float(work.size[moves.tensor[m]])
            thread = max(now, thread) + float(moves.alloc_s[m])
            at = max(thread, done.get(int(moves.after[m]), 0.0))
            if kind == IN:
                arrival[t] = done[m] = lanes["to"].serve(max(at, in_host.get(t, 0.0)), size)
            elif kind == OUT:
                in_host[t] = done[m] = lanes["from"].serve(max(at, arrival.pop(t)), size)
            elif kind == DROP:
                done[m] = max(at, arrival.pop(t))
            elif kind == READ:
                in_host[t] = done[m] = lanes["read"].serve(at, size)
            else:
                done[m] = lanes["write"].serve(max(at, in_host.get(t, 0.0)), size)

    for iteration, order in enumerate(work.order.tolist()):
        if iteration == 1:
            begun = now
        uses: dict[int, int] = {}
        for phase, tensors, _ in ops:
            for t in tensors if phase == 1 else ():
                uses[t] = uses.get(t, 0) + 1
        gradients = now
        for position, k in enumerate(order):
            phase, tensors, seconds = ops[k]
            issue(2 * (iteration * len(order) + position))
            start = max([now, *(arrival[t] for t in tensors)])
            if iteration:
                stall += start - now
                large = [t for t in tensors if work.elements[t] >= 100_000]
                asked += len(large)
                hits += sum(arrival[t] <= now for t in large)
            now = start + seconds
            for t in tensors if phase == 1 else ():
                uses[t] -= 1
                if not uses[t]:
                    gradients = max(gradients, lanes["from"].serve(now, float(work.size[t])))
            issue(2 * (iteration * len(order) + position) + 1)
        start = max(now, gradients, thread)
        for lane in lanes.values():
            lane.free = max(lane.free, start)
        free, cpu, number = [start] * buffers, start, 0
        for t in order_of_update:
            ready, state = start, 12.0 * float(work.elements[t])
            if schedule.streamed[t]:
                ready = lanes["read"].serve(free[number % buffers], state)
            cpu = max(cpu, ready) + float(work.update_s[t])
            if schedule.streamed[t]:
                free[number % buffers] = lanes["write"].serve(cpu, state)
                number += 1
            if schedule.home[iteration][t] == 0:
                lanes["to"].serve(cpu, float(work.size[t]))
            elif schedule.home[iteration][t] == 2:
                lanes["write"].serve(cpu, float(work.size[t]))
        now = max(cpu, *(lane.free for lane in lanes.values()))
    counted = work.iterations - 1
    return {"iteration_s": (now - begun) / counted, "stall_s": stall / counted, "hit_rate": hits / asked if asked else 1.0}
