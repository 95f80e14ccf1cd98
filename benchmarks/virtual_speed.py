"""How many messages a second virtual ranks move: a ring, a barrier of 65,536 ranks, and a 27-point halo of 2,304.

python benchmarks/virtual_speed.py [ring] [barrier] [halo]

Each runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

#: Ranks as a box, and exchanges, of the halo benchmark; 16 x 12 x 12 ranks fill the 48 nodes of `infiniband-hdr100`.
_BOX = (16, 12, 12)
_STEPS = 100


def ring(comm: Any, rounds: int) -> None:
    """Everybody passes eight bytes to the right."""
    from armillary.comm import Ghost

    mine, theirs = Ghost(8), Ghost(8)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for _ in range(rounds):
        comm.sendrecv(mine, right, theirs, left, 0, 0)


def token(comm: Any, rounds: int) -> None:
    """One message goes around."""
    from armillary.comm import Ghost

    mine = Ghost(8)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for _ in range(rounds):
        if comm.rank == 0:
            comm.send(mine, right, 0)
            comm.recv(mine, left, 0)
        else:
            comm.recv(mine, left, 0)
            comm.send(mine, right, 0)


def barrier(comm: Any) -> None:
    """ceil(log2 P) messages a rank."""
    comm.barrier()


def halo(comm: Any, steps: int, nbytes: int) -> None:
    """Every rank sends to its 26 neighbours in a periodic box, and receives from them."""
    from armillary.comm import Ghost

    here = np.unravel_index(comm.rank, _BOX)
    ways = [w for w in np.ndindex(3, 3, 3) if w != (1, 1, 1)]
    peers = [int(np.ravel_multi_index([(a + d - 1) % n for a, d, n in zip(here, way, _BOX)], _BOX)) for way in ways]
    face = Ghost(nbytes)
    for _ in range(steps):
        requests = [comm.irecv(face, peer, 25 - i) for i, peer in enumerate(peers)]
        requests += [comm.isend(face, peer, i) for i, peer in enumerate(peers)]
        comm.waitall(requests)


def measure(name: str) -> None:
    """Print one figure."""
    from armillary import comm

    programs: dict[str, tuple[Any, tuple[int, ...], int, str | None, int]] = {
        "ring": (ring, (100,), 1000, None, 100_000),
        "token": (token, (100,), 1000, None, 100_000),
        "barrier": (barrier, (), 65536, None, 65536 * 16),
        "halo": (halo, (_STEPS, 64), 2304, "infiniband-hdr100", 2304 * 26 * _STEPS),
    }
    program, args, ranks, cluster, messages = programs[name]
    comm.run(ring, 1, ranks=2, backend="virtual", payload="ghost")
    start, busy = time.perf_counter(), time.process_time()
    result = comm.run(program, *args, ranks=ranks, backend="virtual", payload="ghost", cluster=cluster)
    took, busy = time.perf_counter() - start, time.process_time() - busy
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:8} {ranks:6} ranks {messages:9,} messages: {took:6.1f} s ({busy:.1f} s of a core), "
        f"{messages / busy:9,.0f} messages/s of a core, {memory:5.0f} MiB; {result.seconds * 1e6:.1f} us simulated",
        flush=True,
    )


#: The ring on SimGrid's Python layer (Debian: python3-simgrid), which keeps one engine a process.
_SIMGRID = """
import time
from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone
n, rounds = 1000, 20
engine = Engine(["ring", "--cfg=network/model:CM02", "--log=root.thres:error"])
zone = NetZone.create_star_zone("net")
hosts = []
for i in range(n):
    host = zone.create_host(f"h{i}", "1Gf")
    up, down = (zone.create_link(f"{way}{i}", "1GBps").set_latency(5e-6).seal() for way in "ud")
    zone.add_route(host.netpoint, None, None, None, [LinkInRoute(up)], False)
    zone.add_route(None, host.netpoint, None, None, [LinkInRoute(down)], False)
    hosts.append(host)
zone.seal()
def rank(i):
    right, own = Mailbox.by_name(str((i + 1) % n)), Mailbox.by_name(str(i))
    for k in range(rounds):
        sent = right.put_async(k, 8)
        own.get()
        sent.wait()
for i, host in enumerate(hosts):
    Actor.create(f"r{i}", host, rank, i)
start = time.process_time()
engine.run()
print(n * rounds / (time.process_time() - start))
"""


def simgrid_ring() -> None:
    """Print the same ring's rate on SimGrid, where that is installed."""
    for python in (sys.executable, "/usr/bin/python3"):
        ran = subprocess.run([python, "-c", _SIMGRID], capture_output=True, text=True, check=False)
        if ran.returncode == 0:
            print(f"simgrid    1000 ranks    20,000 messages: {float(ran.stdout.split()[-1]):9,.0f} messages/s of a core", flush=True)
            return
    print("simgrid: not installed")


if __name__ == "__main__":
    chosen = sys.argv[1:]
    if len(chosen) == 1:
        measure(chosen[0])
    else:
        for one in chosen or ["ring", "token", "barrier", "halo"]:
            subprocess.run([sys.executable, __file__, one], check=True)
        simgrid_ring()
