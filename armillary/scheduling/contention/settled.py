"""How much CPU co-located instances use once all have slowed each other down: a fixed point per server.

Instance i has k hardware threads, each busy for the share u_i of the time. With other instances j on sibling threads and on other cores:

    slow_core(i)   = 1 + mean over its threads of Σ_{siblings} u_j·(smt_base + smt·s_i[:2]·p_j[:2]/2)
    slow_socket(i) = 1 + socket·x·√x,  x = mean over its threads of Σ_{others, other cores of the socket} u_j·s_i[2:4]·p_j[2:4]·reach/cores
    u_i            = min(1, demand_i·slow_core·slow_socket/(speed·k))

An instance's own threads on one core are siblings too, with its own s and p; its own threads on other cores are part of its demand, which
was measured alone with one thread per core. The map grows with every u, so that Gauss–Seidel from the unslowed use climbs to the least
solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop

from .applications import Applications
from .topology import MOST_INSTANCES, Fleet

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
TOLERANCE, SWEEPS = 1e-10, 200


class Model(NamedTuple):
    """The constants of the formulas. Two busy siblings take 1.25 to 2.15 times as long, after published gains of SMT and its bad cases."""

    smt_base: float = 0.25
    smt: float = 0.9
    socket: float = 0.15
    reach: float = 8.0


DEFAULT = Model()

@dataclass(frozen=True)
class Settled:
    """What each instance comes to, in the order in which instances were given.

    use: the share of the time in which each of its threads is busy, at most 1. load: the same without the limit; above 1, requests pile up.
    slow_core, slow_socket: the slowdowns by siblings and by the socket. wait: run-queue wait, 1 unless more vCPUs are busy than there are
    hardware threads. sweeps: the most that a server needed. error: the largest change in any server's last sweep.
    """

    use: Floats
    load: Floats
    slow_core: Floats
    slow_socket: Floats
    wait: Floats
    sweeps: int
    error: float

    @property
    def slowdown(self) -> Floats:
        """Time under co-location over time alone, on a server of the same speed."""
        return self.slow_core * self.slow_socket * self.wait


def settle(
    apps: Applications, fleet: Fleet, app: Array, demand: Array, server: Array, offsets: Array, threads: Array, model: Model = DEFAULT
) -> Settled:
    """Settles instances that are pinned to hardware threads.

    app: index of the application, [n]. demand: CPU-seconds per second alone at speed 1 (requests per second times `cpu_s`), [n].
    server: index of the server, [n]. threads[offsets[i]:offsets[i + 1]]: the rows of instance i's threads in its server's topology.
    No thread may be given twice.
    """
    app, demand, server = checked(apps, fleet, app, demand, server)
    offsets, threads = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(threads, np.int64)
    n = len(app)
    if offsets.shape != (n + 1,) or (n and (offsets[0] != 0 or offsets[-1] != len(threads) or np.any(np.diff(offsets) < 1))):
        raise InputError(f"offsets: expected {n + 1} numbers from 0 to {len(threads)} that increase")
    owner = np.repeat(server, np.diff(offsets)) if n else np.zeros(0, np.int64)
    if len(threads) and (threads.min() < 0 or np.any(threads >= fleet.threads[owner])):
        i = int(np.argmax((threads < 0) | (threads >= fleet.threads[owner])))
        raise InputError(f"found thread {threads[i]} on server {owner[i]}; expected 0 to {fleet.threads[owner[i]] - 1}")
    key = np.sort(owner * int(fleet.threads.max()) + threads) if n else owner
    if np.any(np.diff(key) == 0):
        m, t = divmod(int(key[np.argmax(np.diff(key) == 0)]), int(fleet.threads.max()))
        raise InputError(f"found thread {t} of server {m} in two instances; expected it in one")
    # In the order of servers and first threads, sums do not depend on how instances are listed.
    first = np.minimum.reduceat(threads, offsets[:-1]) if n else threads
    order = np.lexsort((first, server))
    counts = np.diff(offsets)[order] if n else np.zeros(0, np.int64)
    begins = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    pick = np.repeat(offsets[:-1][order] - begins[:-1], counts) + np.arange(begins[-1]) if n else np.zeros(0, np.int64)
    held = threads[pick]
    edges = np.concatenate(([0], np.cumsum(np.bincount(server, minlength=len(fleet))))).astype(np.int64)
    out = np.ones((4, n))
    state = np.zeros(2)
    for k, topology in enumerate(fleet.topologies):
        members = np.flatnonzero(fleet.kind == k)
        _settle(
            members, edges, topology.core, topology.socket, topology.members, topology.cores_per_socket, topology.speed, apps.pressure,
            apps.sensitivity, app[order], demand[order], begins, held, tuple(model), out, state,
        )  # fmt: skip
    back = np.empty((4, n))
    back[:, order] = out
    return Settled(back[0], back[1], back[2], back[3], np.ones(n), int(state[0]), float(state[1]))


def checked(apps: Applications, fleet: Fleet, app: Array, demand: Array, server: Array) -> tuple[Ints, Floats, Ints]:
    """The arrays in the types that loops take, with every index inside and every demand finite."""
    app, server = np.ascontiguousarray(app, np.int64), np.ascontiguousarray(server, np.int64)
    demand = np.ascontiguousarray(demand, np.float64)
    n = len(app)
    if n > MOST_INSTANCES or server.shape != (n,) or demand.shape != (n,):
        found_here = f"found {n:,} instances, {len(demand):,} demands and {len(server):,} servers"
        raise InputError(f"{found_here}; expected equally many, at most {MOST_INSTANCES:,}")
    for name, found, most in (("app", app, len(apps)), ("server", server, len(fleet))):
        if n and (found.min() < 0 or found.max() >= most):
            raise InputError(f"{name}: found {int(found.min() if found.min() < 0 else found.max())}; expected 0 to {most - 1}")
    if n and not ((demand >= 0) & (demand <= 1e9)).all():
        raise InputError("demand: expected numbers from 0 to 1e9")
    return app, demand, server


@loop
def overlap(core, members, cores_per_socket, socket, offsets, threads, near, far):  # type: ignore[no-untyped-def]
    """Counts who shares what on one server of n instances.

    near[i, j]: how many of j's threads are siblings of a thread of i, on average over i's threads; i's own too. far[i, j]: how many of
    j's threads are on other cores of the socket, per core of that socket, on average over i's threads; 0 for i itself.
    offsets, threads: the threads of each of the server's instances. near, far: [n, n], whatever they hold is overwritten.
    """
    n = len(near)
    owner = np.full(len(core), -1, np.int64)
    on_socket = np.zeros((n, len(cores_per_socket)))
    for i in range(n):
        for t in range(offsets[i], offsets[i + 1]):
            owner[threads[t]] = i
            on_socket[i, socket[threads[t]]] += 1.0
    for i in range(n):
        for j in range(n):
            near[i, j] = 0.0
            both = 0.0
            if i != j:
                for s in range(len(cores_per_socket)):
                    both += on_socket[i, s] * on_socket[j, s] / cores_per_socket[s]
            far[i, j] = both
    for i in range(n):
        for t in range(offsets[i], offsets[i + 1]):
            h = threads[t]
            for m in range(members.shape[1]):
                g = members[core[h], m]
                if g >= 0 and g != h and owner[g] >= 0:
                    j = owner[g]
                    near[i, j] += 1.0
                    if j != i:
                        far[i, j] -= 1.0 / cores_per_socket[socket[h]]
    for i in range(n):
        k = offsets[i + 1] - offsets[i]
        for j in range(n):
            near[i, j] /= k
            far[i, j] = far[i, j] / k if far[i, j] > 1e-9 else 0.0


@loop
def couple(app, pressure, sensitivity, model, near, far):  # type: ignore[no-untyped-def]
    """Turns the counts of `overlap` into coefficients, in place: slow_core = 1 + Σ_j near·u_j and x = Σ_j far·u_j."""
    smt_base, smt, _, reach = model
    for i in range(len(app)):
        a = app[i]
        for j in range(len(app)):
            b = app[j]
            near[i, j] *= smt_base + smt * (sensitivity[a, 0] * pressure[b, 0] + sensitivity[a, 1] * pressure[b, 1]) / 2.0
            far[i, j] *= (sensitivity[a, 2] * pressure[b, 2] + sensitivity[a, 3] * pressure[b, 3]) * reach


@loop
def climb(alone, by_core, by_socket, model, use, load, slow_core, slow_socket):  # type: ignore[no-untyped-def]
    """Gauss–Seidel from the unslowed use; returns the sweeps taken and the last sweep's largest change. alone: demand/(speed·k), [n]."""
    n = len(alone)
    for i in range(n):
        use[i] = min(1.0, alone[i])
    change, sweep = 0.0, 0
    while sweep < SWEEPS:
        sweep += 1
        change = 0.0
        for i in range(n):
            near, x = 0.0, 0.0
            for j in range(n):
                near += by_core[i, j] * use[j]
                x += by_socket[i, j] * use[j]
            slow_core[i] = 1.0 + near
            slow_socket[i] = 1.0 + model[2] * x * np.sqrt(x)
            load[i] = alone[i] * slow_core[i] * slow_socket[i]
            new = min(1.0, load[i])
            change = max(change, abs(new - use[i]))
            use[i] = new
        if change <= TOLERANCE:
            break
    return sweep, change


@loop
def _settle(  # type: ignore[no-untyped-def]
    servers, edges, core, socket, members, cores_per_socket, speed, pressure, sensitivity, app, demand, begins, threads, model, out, state
):
    # Invariant, proved by `settle`: instances edges[m]:edges[m + 1] are those of server m, and their threads are rows of its topology.
    for m in servers:
        low, high = edges[m], edges[m + 1]
        n = high - low
        if n == 0:
            continue
        by_core, by_socket = np.empty((n, n)), np.empty((n, n))
        overlap(core, members, cores_per_socket, socket, begins[low : high + 1], threads, by_core, by_socket)
        couple(app[low:high], pressure, sensitivity, model, by_core, by_socket)
        alone = np.empty(n)
        for i in range(n):
            alone[i] = demand[low + i] / (speed * (begins[low + i + 1] - begins[low + i]))
        sweeps, change = climb(alone, by_core, by_socket, model, out[0, low:high], out[1, low:high], out[2, low:high], out[3, low:high])
        state[0] = max(state[0], sweeps)
        state[1] = max(state[1], change)
