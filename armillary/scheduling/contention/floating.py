"""The same fixed point for virtual machines whose vCPUs float over all hardware threads of their host.

A vCPU is on any thread with equal odds. The load on a given sibling or on another core is therefore its expectation:

    L = Σ_j u_j·v_j busy vCPUs on T threads;  g = min(1, T/L);  wait = max(1, L/T)
    siblings of a thread: Σ_j u_j·v'_j·g·(T/C − 1)/(T − 1),    v'_j = v_j for others and v_i − 1 for its own
    other cores:          Σ_{j≠i} u_j·v_j·g·(T_socket − T/C)/(T − 1)

with T/C threads per core. More busy vCPUs than threads wait in the run queue (steal), which takes time and no CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop

from .applications import Applications
from .settled import DEFAULT, SWEEPS, TOLERANCE, Model, Settled, checked
from .topology import Fleet

Array = npt.NDArray[Any]
MOST_VCPUS = 4096
MOST_PER_HOST = 2048


def settle_floating(
    apps: Applications, fleet: Fleet, app: Array, demand: Array, server: Array, vcpus: Array, model: Model = DEFAULT
) -> Settled:
    """Settles virtual machines. app, demand, server: as for `settle`, [n]. vcpus: whole numbers from 1, [n].

    `use` is the share of the time in which a vCPU wants a thread, at most 1. QoS is 1/`slowdown`.
    """
    app, demand, server = checked(apps, fleet, app, demand, server)
    n = len(app)
    vcpus = np.ascontiguousarray(vcpus, np.int64)
    if vcpus.shape != (n,) or (n and (vcpus.min() < 1 or vcpus.max() > MOST_VCPUS)):
        raise InputError(f"vcpus: expected {n} whole numbers from 1 to {MOST_VCPUS:,}")
    # Equal machines are interchangeable, so that this order makes sums independent of how machines are listed.
    order = np.lexsort((demand, vcpus, app, server))
    held = np.bincount(server, minlength=len(fleet))
    if held.max() > MOST_PER_HOST:  # the loop keeps a coefficient for each pair on a host
        raise InputError(f"found {int(held.max()):,} machines on host {int(held.argmax())}; expected at most {MOST_PER_HOST:,}")
    edges = np.concatenate(([0], np.cumsum(held))).astype(np.int64)
    kinds = np.array([(t.threads, t.cores, t.sockets, t.speed) for t in fleet.topologies])[fleet.kind]
    out, state = np.ones((5, n)), np.zeros(2)
    _settle_floating(edges, kinds, apps.pressure, apps.sensitivity, app[order], demand[order], vcpus[order], tuple(model), out, state)
    back = np.empty((5, n))
    back[:, order] = out
    return Settled(back[0], back[1], back[2], back[3], back[4], int(state[0]), float(state[1]))


@loop
def _settle_floating(edges, kinds, pressure, sensitivity, app, demand, vcpus, model, out, state):  # type: ignore[no-untyped-def]
    smt_base, smt, to_socket, reach = model
    for m in range(len(kinds)):
        low, high = edges[m], edges[m + 1]
        n = high - low
        if n == 0:
            continue
        threads, cores, sockets, speed = kinds[m, 0], kinds[m, 1], kinds[m, 2], kinds[m, 3]
        others = max(threads - 1.0, 1.0)
        sibling = (threads / cores - 1.0) / others
        # Threads of other cores of the socket, and the formula's division by the cores of a socket.
        distant = (threads / sockets - threads / cores) / others * reach / (cores / sockets)
        by_core, by_socket, alone = np.empty((n, n)), np.empty((n, n)), np.empty(n)
        for i in range(n):
            a, v = app[low + i], vcpus[low + i]
            alone[i] = demand[low + i] / (speed * v)
            for j in range(n):
                b, w = app[low + j], vcpus[low + j]
                near = sensitivity[a, 0] * pressure[b, 0] + sensitivity[a, 1] * pressure[b, 1]
                far = sensitivity[a, 2] * pressure[b, 2] + sensitivity[a, 3] * pressure[b, 3]
                by_core[i, j] = (smt_base + smt * near / 2.0) * sibling * (w if i != j else w - 1)
                by_socket[i, j] = far * distant * w if i != j else 0.0
        use, load, slow_core, slow_socket, wait = out[0, low:high], out[1, low:high], out[2, low:high], out[3, low:high], out[4, low:high]
        for i in range(n):
            use[i] = min(1.0, alone[i])
        change, sweep = 0.0, 0
        while sweep < SWEEPS:
            sweep += 1
            change = 0.0
            for i in range(n):
                near, x, busy = 0.0, 0.0, 0.0
                for j in range(n):
                    near += by_core[i, j] * use[j]
                    x += by_socket[i, j] * use[j]
                    busy += use[j] * vcpus[low + j]
                running = min(1.0, threads / busy) if busy > 0.0 else 1.0
                slow_core[i] = 1.0 + near * running
                x *= running
                slow_socket[i] = 1.0 + to_socket * x * np.sqrt(x)
                load[i] = alone[i] * slow_core[i] * slow_socket[i]
                new = min(1.0, load[i])
                change = max(change, abs(new - use[i]))
                use[i] = new
            if change <= TOLERANCE:
                break
        busy = 0.0
        for j in range(n):
            busy += use[j] * vcpus[low + j]
        for i in range(n):
            wait[i] = max(1.0, busy / threads)
        state[0] = max(state[0], sweep)
        state[1] = max(state[1], change)
