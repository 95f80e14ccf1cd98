"""What the policy of `ppo` sees, and what its actions mean.

80 numbers: of each of six QPUs the share of free qubits and the expected time until its last job ends; the scaled rate of each of the 15
pairs of QPUs (over their best route); how long the queue is, how much is free, and the mean expected time by which all times are divided;
and of each of the first ten waiting jobs the qubits, the EPR demand, the expected time alone, the age, and whether it fits. Fewer than six
QPUs or ten jobs leave zeros, and times are cut at ten means.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from armillary.scheduling.quantum.planning.placing import best_sets
from armillary.scheduling.quantum.planning.planner import Placement
from armillary.scheduling.quantum.planning.strategy import State

QPUS, JOBS, SETS = 6, 10, 8
LINKS = QPUS * (QPUS - 1) // 2
#: Numbers that do not belong to a job, numbers of each job, and all of them.
CONTEXT, FACTS = 2 * QPUS + LINKS + 3, 5
INPUTS = CONTEXT + FACTS * JOBS
#: Times beyond so many means are cut.
LONGEST = 10.0
#: Action `WAIT` starts nothing; the others start a job of the queue.
WAIT = JOBS
#: The rate, in Hz, that counts as 1.
FASTEST_HZ = 250.0
Floats32 = npt.NDArray[np.float32]


def observe(state: State) -> tuple[Floats32, npt.NDArray[np.bool_]]:
    """(observation [80], mask of the actions [11])."""
    planner, network = state.planner, state.network
    seen = np.zeros(INPUTS, np.float32)
    first = state.queue[:JOBS]
    alone = [planner.expected_s(state.jobs[j], planner.alone(state.jobs[j])) for j in first]
    under_way = [end - state.now_s for _, _, end in state.running]
    scale = max((sum(alone) + sum(max(0.0, left) for left in under_way)) / max(1, len(alone) + len(under_way)), 1e-9)
    until = [0.0] * len(network)
    for _, placement, end in state.running:
        for qpu in placement.qpus:
            until[qpu] = max(until[qpu], (end - state.now_s) / scale)
    for qpu in range(len(network)):
        seen[2 * qpu] = state.free[qpu] / int(network.data[qpu])
        seen[2 * qpu + 1] = until[qpu]
    at = 2 * QPUS
    for a in range(len(network)):
        for b in range(a + 1, len(network)):
            # Pairs are numbered as if there were six QPUs.
            seen[at + a * (2 * QPUS - a - 1) // 2 + b - a - 1] = 1 / (FASTEST_HZ * max(float(planner.pair_s[a, b]), 1e-12))
    room = sum(state.free)
    seen[at + LINKS : CONTEXT] = (len(state.queue) / 50, room / network.qubits, math.log10(scale) / 4)
    mask = np.zeros(JOBS + 1, bool)
    for i, j in enumerate(first):
        job = state.jobs[j]
        mask[i] = job.qubits <= room
        seen[CONTEXT + FACTS * i : CONTEXT + FACTS * (i + 1)] = (
            job.qubits / network.qubits, planner.demand_s(job) / scale, alone[i] / scale, (state.now_s - job.arrival_s) / scale, mask[i],
        )  # fmt: skip
    mask[WAIT] = bool(state.running)
    return np.minimum(seen, np.float32(LONGEST)), mask


def choices(state: State, action: int, sets: int) -> list[tuple[int, Placement]]:
    """The job of an action with each of its best placements, at most `sets`."""
    j = state.queue[action]
    return [(j, placement) for placement in best_sets(state.planner, state.jobs[j].circuit, state.free, sets)]


def after(state: State, j: int, placement: Placement) -> State:
    """The state in which a job has been started."""
    free = list(state.free)
    for qpu, size in zip(placement.qpus, placement.sizes):
        free[qpu] -= size
    end = state.now_s + state.planner.expected_s(state.jobs[j], placement)
    queue = tuple(other for other in state.queue if other != j)
    return replace(state, free=tuple(free), queue=queue, running=(*state.running, (j, placement, end)))
