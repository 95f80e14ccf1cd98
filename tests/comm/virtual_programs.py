"""A program in which time could decide everything, and what identifies a run of it."""

from __future__ import annotations

import hashlib

import numpy as np

from armillary import comm
from armillary.comm import ANY_SOURCE, ANY_TAG, LogGP

US = 1e-6
K = LogGP(US, 0.3 * US, 0.2 * US, gap=0.1 * US, byte_gap=1e-10, copy=1e-11, eager_limit=2000)


def virtual(program, *args, ranks=2, **options):
    return comm.run(program, *args, ranks=ranks, backend="virtual", **{"constants": K, **options})


def fingerprint(line):
    whole = hashlib.sha256()
    for columns in (line.spans, line.arrows, line.instants, line.counters):
        for name in columns.names:
            whole.update(columns[name].tobytes())
    return whole.hexdigest()


def mixed(c, seed):
    """Everything that time could decide: wildcards, probes, tests, long and short messages, windows, collectives, computing."""
    rng = np.random.default_rng([seed, c.rank])
    trace = []
    plan = rng.integers(0, c.size, 12)
    counts = c.alltoall(np.bincount(plan, minlength=c.size))
    sends = []
    for i, dest in enumerate(plan):
        c.compute(float(rng.random()) * 2 * US)
        sends.append(c.isend(np.full(int(rng.choice([1, 50, 600])), c.rank * 100 + i, np.int64), int(dest), int(rng.integers(0, 3))))
    room = np.empty(600, np.int64)
    for k in range(int(counts.sum())):
        if k % 3 == 0:
            found = c.probe(ANY_SOURCE, ANY_TAG)
            status = c.recv(room, found.source, found.tag)
        elif k % 3 == 1:
            request = c.irecv(room, ANY_SOURCE, ANY_TAG)
            while (status := request.test()) is None:
                c.compute(0.1 * US)
        else:
            status = c.recv(room, ANY_SOURCE, ANY_TAG)
        trace.append((status.source, status.tag, status.nbytes, int(room[0]), c.now()))
    c.waitall(sends)
    with c.window(8, np.float64) as window:
        window.accumulate(np.array([0.1 * (c.rank + 1)]), 0)
        window.fence()
        with window.lock(0):
            value = np.empty(1)
            window.get(value, 0)
            window.flush(0)
            window.put(value * 1.5 + c.rank, 0)
        window.fence()
        trace.append(float(window.local[0]))
    half = c.split(c.rank % 2, -c.rank)
    trace.append(float(half.allreduce(np.array(c.now()))))
    requests = [c.irecv(np.empty(1), (c.rank + d) % c.size, 7) for d in (1, 2)]
    c.compute(float(rng.random()) * US)
    for d in (1, 2):
        c.send(np.zeros(1), (c.rank - d) % c.size, 7)
    i, _ = c.waitany(requests)
    c.waitall(requests)
    trace.append((i, c.now()))
    return trace
