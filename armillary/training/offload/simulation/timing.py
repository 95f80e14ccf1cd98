"""The judge: gives every operation and every move of a schedule its seconds, lane by lane.

Six lanes work side by side, each in the order of issue: compute, host to GPU, GPU to host, reads and writes of the drive, and Adam on the
host. An operation starts when the one before it is done and all its tensors are on the GPU. Moves are issued by a thread of
the host beside the GPU's work, which blocks where memory has to be allocated first. After the last backward use of a tensor
its gradient leaves for the host. The update starts when all gradients are there (as with loss scaling, which must see all of them);
it takes tensors in forward order, streams states from the drive through a few buffers, and sends new parameters to where they live.
The next iteration starts when all of this is done. A transfer takes its latency plus its bytes over the rate of its link.
"""

# Kernels carry their types in the arrays that they are given.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop

from .machine import STATE_BUFFERS, STATE_BYTES, WORKSPACE
from .schedule import DROP, GPU, IN, NVME, OUT, READ, Schedule

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork

FloatArray = npt.NDArray[np.float64]
#: Lanes of copies: to the GPU, to the host, from the drive, to the drive.
H2D, D2H, NVME_READ, NVME_WRITE = range(4)
LANES = ("host to GPU", "GPU to host", "drive to host", "host to drive")
#: What the kernel adds up over the iterations that count.
SECONDS, STALL, HITS, ASKED, HIT_BYTES, ASKED_BYTES, GPU_BYTE_S, COMPUTE, UPDATE = range(9)
_OK, _TOO_FULL, _ABSENT, _BAD_MOVE = range(4)
_FAULTS = {
    _TOO_FULL: "the schedule puts more on the GPU than it holds",
    _ABSENT: "an operation starts without one of its tensors",
    _BAD_MOVE: "a move takes a tensor from where it is not",
}


@dataclass(frozen=True)
class Timed:
    """What happened, as means per iteration over all iterations but the first."""

    iteration_s: float
    stall_s: float
    hit_rate: float
    hit_rate_bytes: float
    #: Bytes of the GPU in use, averaged over time, activations and workspace included.
    gpu_bytes: float
    compute_s: float
    update_s: float
    #: Bytes per iteration, by lane.
    moved: FloatArray
    #: Starts and ends of the operations and moves of all iterations, in seconds.
    op_start: FloatArray
    op_end: FloatArray
    move_start: FloatArray
    move_end: FloatArray


def simulate(work: OffloadWork, schedule: Schedule, *, persistent: int = 100_000) -> Timed:
    """Carries out a schedule in simulated time; a schedule that cheats (too much on the GPU, a tensor that is not there) raises."""
    moves, machine = schedule.moves, work.machine
    n = work.iterations
    if len(moves) and (np.diff(moves.slot).min(initial=0) < 0 or moves.slot[0] < 0 or moves.slot[-1] >= 2 * work.order.size):
        raise AssertionError("moves are not in the order of their slots")
    if len(moves) and (moves.tensor.min() < 0 or moves.tensor.max() >= len(work.size) or (moves.after >= np.arange(len(moves))).any()):
        raise AssertionError("a move names a tensor that does not exist, or waits for a later move")
    assert schedule.home.shape == (n, len(work.size)), "one home for each tensor and iteration"
    sums, moved = np.zeros(9), np.zeros((n, 4))
    times = np.zeros((2, work.order.size)), np.zeros((2, max(len(moves), 1)))
    rates = np.array([machine.pcie, machine.pcie, machine.nvme_read, machine.nvme_write])
    latency = np.array([machine.pcie_s, machine.pcie_s, machine.nvme_s, machine.nvme_s])
    tensors, _ = work.rows(0)
    update = np.array(list(dict.fromkeys(tensors.tolist())), np.int64)
    fault = _simulate(
        _own(work.order), _own(work.first), _own(work.used), _own(work.phase), _own(work.seconds), _own(work.live), _own(work.size),
        _own(work.elements), _own(work.update_s), update, _own(moves.slot), _own(moves.kind), _own(moves.tensor), _own(moves.after),
        _own(moves.alloc_s), _own(schedule.resident), _own(schedule.home), _own(schedule.streamed), rates, latency,
        max(work.capacity, float(work.widest)), persistent, sums, moved, times[0], times[1],
    )  # fmt: skip
    if fault != _OK:
        raise AssertionError(_FAULTS[fault])
    counted = n - 1
    seconds = sums[SECONDS]
    return Timed(
        seconds / counted, sums[STALL] / counted, sums[HITS] / sums[ASKED] if sums[ASKED] else 1.0,
        sums[HIT_BYTES] / sums[ASKED_BYTES] if sums[ASKED_BYTES] else 1.0, sums[GPU_BYTE_S] / seconds + WORKSPACE, sums[COMPUTE] / counted,
        sums[UPDATE] / counted, moved[1:].mean(0), times[0][0], times[0][1], times[1][0, : len(moves)], times[1][1, : len(moves)],
    )  # fmt: skip


def _own(array: np.ndarray) -> np.ndarray:
    """A copy, because read-only arrays would compile the loop a second time."""
    return np.array(array)


@loop
def _copy(lane_free, lane, at, size, rates, latency, moved):
    """Puts one transfer on a lane; returns its start and its end."""
    start = max(at, lane_free[lane])
    end = start + latency[lane] + size / rates[lane]
    lane_free[lane] = end
    moved[lane] += size
    return start, end


@loop
def _simulate(
    order, first, used, phase, seconds, live, size, elements, update_s, update, slot, kind, tensor, after, alloc_s, resident, home,
    streamed, rates, latency, capacity, persistent, sums, moved, op_time, move_time,
):  # fmt: skip
    iterations, ops = order.shape
    tensors = len(size)
    here = np.zeros(tensors)  # When the tensor is on the GPU; infinite if it is not.
    since = np.zeros(tensors)
    on_gpu = np.zeros(tensors, np.bool_)
    left = np.zeros(tensors, np.int64)
    host_at = np.zeros(tensors)  # When the tensor's copy in the host is complete.
    lane_free, buffer_free = np.zeros(4), np.zeros(STATE_BUFFERS)
    held, now, start_s, host_free, m = 0.0, 0.0, 0.0, 0.0, 0
    for t in range(tensors):
        if resident[t]:
            on_gpu[t] = True
            held += size[t]
        else:
            here[t] = np.inf
    for it in range(iterations):
        counts = it > 0
        if it == 1:
            start_s = now
            for t in range(tensors):
                since[t] = max(since[t], now)
            sums[GPU_BYTE_S] = 0.0
        left[:] = 0
        for k in range(ops):
            if phase[k] == 1:
                for r in range(first[k], first[k + 1]):
                    left[used[r]] += 1
        grads = now
        for j in range(ops):
            k = order[it, j]
            n = it * ops + j
            ready = now
            for half in range(2):
                while m < len(slot) and slot[m] == 2 * n + half:
                    t, what = tensor[m], kind[m]
                    at = max(now, host_free) + alloc_s[m]
                    host_free = at
                    if after[m] >= 0:
                        at = max(at, move_time[1, after[m]])
                    if what == IN:
                        if on_gpu[t]:
                            return _BAD_MOVE
                        begin, end = _copy(lane_free, H2D, max(at, host_at[t]), size[t], rates, latency, moved[it])
                        on_gpu[t], here[t], since[t] = True, end, begin
                        held += size[t]
                        if held > capacity:
                            return _TOO_FULL
                    elif what in (OUT, DROP):
                        if not on_gpu[t]:
                            return _BAD_MOVE
                        begin, end = max(at, here[t]), max(at, here[t])
                        if what == OUT:
                            begin, end = _copy(lane_free, D2H, begin, size[t], rates, latency, moved[it])
                            host_at[t] = end
                        if counts:
                            sums[GPU_BYTE_S] += size[t] * (end - since[t])
                        on_gpu[t], here[t] = False, np.inf
                        held -= size[t]
                    elif what == READ:
                        if rates[NVME_READ] <= 0.0:
                            return _BAD_MOVE
                        begin, end = _copy(lane_free, NVME_READ, at, size[t], rates, latency, moved[it])
                        host_at[t] = end
                    else:
                        if rates[NVME_WRITE] <= 0.0:
                            return _BAD_MOVE
                        begin, end = _copy(lane_free, NVME_WRITE, max(at, host_at[t]), size[t], rates, latency, moved[it])
                    move_time[0, m], move_time[1, m] = begin, end
                    m += 1
                if half == 1:
                    break
                start = now
                for r in range(first[k], first[k + 1]):
                    t = used[r]
                    if not on_gpu[t]:
                        return _ABSENT
                    start = max(start, here[t])
                    if counts and elements[t] >= persistent:
                        sums[ASKED] += 1
                        sums[ASKED_BYTES] += size[t]
                        if here[t] <= ready:
                            sums[HITS] += 1
                            sums[HIT_BYTES] += size[t]
                end = start + seconds[k]
                op_time[0, n], op_time[1, n] = start, end
                if counts:
                    sums[STALL] += start - ready
                    sums[COMPUTE] += seconds[k]
                    sums[GPU_BYTE_S] += live[k] * (end - ready)
                now = end
                if phase[k] == 1:
                    for r in range(first[k], first[k + 1]):
                        t = used[r]
                        left[t] -= 1
                        if left[t] == 0:
                            _, done = _copy(lane_free, D2H, now, size[t], rates, latency, moved[it])
                            grads = max(grads, done)
        begun = max(now, grads, host_free)
        cpu, last, number = begun, begun, 0
        for lane in range(4):
            lane_free[lane] = max(lane_free[lane], begun)
        buffer_free[:] = begun
        for t in update:
            ready = begun
            state = STATE_BYTES * float(elements[t])
            if streamed[t]:
                lane_free[NVME_READ] = max(lane_free[NVME_READ], buffer_free[number % STATE_BUFFERS])
                _, ready = _copy(lane_free, NVME_READ, begun, state, rates, latency, moved[it])
            cpu = max(cpu, ready) + update_s[t]
            if streamed[t]:
                _, done = _copy(lane_free, NVME_WRITE, cpu, state, rates, latency, moved[it])
                buffer_free[number % STATE_BUFFERS] = done
                number += 1
            if home[it, t] == GPU:
                _copy(lane_free, H2D, cpu, size[t], rates, latency, moved[it])
            elif home[it, t] == NVME:
                _copy(lane_free, NVME_WRITE, cpu, size[t], rates, latency, moved[it])
        last = cpu
        for lane in range(4):
            last = max(last, lane_free[lane])
        if counts:
            sums[UPDATE] += last - begun
        now = last
    for t in range(tensors):
        if on_gpu[t]:
            sums[GPU_BYTE_S] += size[t] * (now - since[t])
    sums[SECONDS] = now - start_s
    return _OK
