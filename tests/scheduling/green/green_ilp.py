"""The least brown energy of small works, by an integer program over (pod, node, slot) that HiGHS solves.

Slots are quarters of an hour, and so are submissions and durations, so that the play can do all that the program can. Both begin with all
nodes awake, know the sun, the usage and the durations, keep an empty node awake for ten minutes, pay for boots, and fill a node to 95 %.
All pods are there from the beginning, so that the program
knows nothing that the play does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from armillary.scheduling.energy import Carbon
from armillary.scheduling.green import GreenWork, Nodes, Pods, Sunshine
from armillary.scheduling.green.problem.sunshine import AHEAD, CELL, PAST

SLOTS = 12
KAPPA = 0.95


def small_work(seed: int, nodes: int = 4, pods: int = 8) -> GreenWork:
    """Some pods over three hours of a sun that comes and goes."""
    rng = np.random.default_rng(seed)
    row = [4.0, 16.0, 45.0, 120.0, 1.0, 2.0, 60.0, 72.0]
    duration = rng.integers(1, 4, pods) * 900.0
    submit = np.zeros(pods)
    cpu = rng.choice([0.9, 1.2, 1.8, 2.4], pods)
    # The deadline leaves the planners' margin of a tenth of the run.
    deadline = np.maximum(SLOTS * 900.0, submit + 1.1 * duration)
    lasting = np.asarray(duration, np.float64)
    made = Pods(submit, lasting, lasting, cpu, np.ones(pods), np.full(pods, 2), np.zeros(pods, np.int64), deadline, cpu,
                np.arange(pods + 1)).check()  # fmt: skip
    peak = rng.uniform(4, 8)
    cells = rng.uniform(150, 450) * np.exp(-(((np.arange(SLOTS) + 0.5 - peak) / rng.uniform(1.5, 3)) ** 2))
    watts = np.concatenate([np.zeros(PAST), np.repeat(cells, CELL), np.zeros(CELL * AHEAD)])
    return GreenWork(Nodes.table([f"n{i}" for i in range(nodes)], np.array([row] * nodes)), made, Sunshine(watts, watts), Carbon.flat(450.0))


def least_brown_kwh(work: GreenWork, idle_off_min: float = 10.0) -> float:
    """The bound, in kWh, over the slots of the work."""
    nodes, pods = work.nodes, work.pods
    n_nodes, n_pods = len(nodes), len(pods)
    sun = work.sun.during.reshape(SLOTS, CELL).mean(1)
    length = np.rint(pods.duration_s / 900).astype(int)
    first = np.rint(pods.submit_s / 900).astype(int)
    starts = [(p, n, t) for p in range(n_pods) for n in range(n_nodes) for t in range(first[p], SLOTS - length[p] + 1)]
    at = {key: i for i, key in enumerate(starts)}
    on = {(n, t): len(at) + n * SLOTS + t for n in range(n_nodes) for t in range(SLOTS)}
    base = len(at) + len(on)
    wake = {key: base + i for i, key in enumerate(on)}
    sleep = {key: base + len(on) + i for i, key in enumerate(on)}
    brown = base + 2 * len(on)
    size = brown + SLOTS
    rows: list[tuple[list[tuple[int, float]], float, float]] = [
        ([(at[key], 1.0) for key in starts if key[0] == p], 1.0, 1.0) for p in range(n_pods)
    ]
    running: dict[tuple[int, int], list[tuple[int, float]]] = {key: [] for key in on}
    for p, n, t in starts:
        for s in range(t, t + length[p]):
            running[n, s].append((at[p, n, t], float(pods.cpu[p])))
    idle, peak, off = nodes.idle_w, nodes.peak_w, nodes.off_w
    for n in range(n_nodes):
        for t in range(SLOTS):
            rows.append(([*running[n, t], (on[n, t], -KAPPA * float(nodes.cores[n]))], -np.inf, 0.0))
            before = [(on[n, t - 1], -1.0)] if t else []
            awake = 0.0 if t else 1.0
            rows.append(([(on[n, t], 1.0), *before, (wake[n, t], -1.0)], -np.inf, awake))
            rows.append(([(on[n, t], -1.0), *[(i, -v) for i, v in before], (sleep[n, t], -1.0)], -np.inf, -awake))
    for t in range(SLOTS):
        terms: list[tuple[int, float]] = [(brown + t, -1.0)]
        fixed = 0.0
        for n in range(n_nodes):
            fixed += off[n]
            terms.append((on[n, t], float(idle[n] - off[n])))
            terms += [(i, float((peak[n] - idle[n]) / nodes.cores[n] * c)) for i, c in running[n, t]]
            terms.append((sleep[n, t], float(idle[n] - off[n]) * idle_off_min / 15))
            if t + 1 < SLOTS:
                terms.append((wake[n, t + 1], float(nodes.boot_w[n] - off[n]) * float(nodes.boot_s[n]) / 900))
        rows.append((terms, -np.inf, float(sun[t] - fixed)))
    entries = [(r, i, v) for r, (terms, _, _) in enumerate(rows) for i, v in terms]
    r, c, v = (np.array(column) for column in zip(*entries))
    matrix: Any = coo_array((v, (r, c)), shape=(len(rows), size)).tocsr()
    cost = np.zeros(size)
    cost[brown:] = 1.0
    whole = np.ones(size, np.int64)
    whole[brown:] = 0
    upper = np.ones(size)
    upper[brown:] = np.inf
    found = milp(cost, constraints=LinearConstraint(matrix, [row[1] for row in rows], [row[2] for row in rows]), integrality=whole,
                 bounds=Bounds(0, upper), options={"mip_rel_gap": 0.005, "time_limit": 60})  # fmt: skip
    assert found.x is not None, found.message
    return float(found.mip_dual_bound if found.mip_dual_bound is not None else found.fun) * 900 / 3.6e6
