"""Programs whose times depend on progress, and a digest of everything that a run of them says."""

from __future__ import annotations

import hashlib

import numpy as np
from virtual_programs import US, fingerprint

from armillary import comm
from armillary.comm import Ghost, LogGP, SharedMemory

HAND = LogGP(latency=US, send_overhead=0.5 * US, receive_overhead=0.5 * US, byte_gap=1e-9)
NEAR = LogGP(US, 0.3 * US, 0.2 * US, gap=0.1 * US, byte_gap=1e-10, copy=1e-11, eager_limit=2000, shm=SharedMemory())
GETS = LogGP(US, 0.3 * US, 0.2 * US, byte_gap=1e-10, copy=1e-11, eager_limit=2000, get=True)
MIB = 1 << 20
LONG = 1_000_000


def virtual(program, *args, ranks=2, payload="ghost", constants=HAND, **options):
    return comm.run(program, *args, ranks=ranks, backend="virtual", payload=payload, constants=constants, **options)


def exchange(c, seed, rounds=4, sizes=(8, 1500, 5000, 60_000, LONG)):
    """Every rank sends to every other while it computes; all sizes, in an order of its own; then a reduction and a broadcast."""
    rng = np.random.default_rng([seed, c.rank])
    sizes_of = np.random.default_rng(seed).choice(sizes, (rounds, c.size, c.size))
    trace = []
    for k in range(rounds):
        others = [int(r) for r in rng.permutation(c.size) if r != c.rank]
        c.compute(float(rng.random()) * 30 * US)
        receives = [c.irecv(Ghost(LONG), other, k) for other in others]
        sends = []
        for other in others[::-1]:
            sends.append(c.isend(Ghost(int(sizes_of[k, c.rank, other])), other, k))
            c.compute(float(rng.random()) * 5 * US)
        c.compute(float(rng.random()) * 300 * US)
        if k % 2:
            c.waitall([*receives, *sends])
        else:
            for request in (*sends, *receives):
                request.wait()
        trace.append(c.now())
        c.allreduce(Ghost(int(sizes_of[k, 0, 1])))
        c.bcast(Ghost(3000), k % c.size)
        trace.append(c.now())
    return trace


def late(c, n=MIB, seconds=10e-3):
    """Rank 1 posts and computes; rank 0 waits for it."""
    if c.rank == 0:
        c.send(Ghost(n), 1)
    else:
        request = c.irecv(Ghost(n), 0)
        c.compute(seconds)
        request.wait()
    return c.now()


def digest(result):
    """What identifies a run: all values and times to the last bit, and the timeline."""
    whole = hashlib.sha256(repr((result.values, result.seconds, result.unreceived)).encode())
    if result.timeline is not None:
        whole.update(fingerprint(result.timeline).encode())
    return whole.hexdigest()[:16]
