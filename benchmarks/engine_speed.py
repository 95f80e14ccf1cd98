"""What simulated time costs: the event loop beside SimPy, flows beside SimGrid, one solve, the array queues.

    python benchmarks/engine_speed.py [--large]

The two sides of a ratio take turns in one process, in CPU seconds; medians. SimGrid's Python package is used where it can be imported
(Debian: python3-simgrid). `--large` adds a million flows on 4,096 hosts.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from armillary import cluster
from armillary.engine import Network, Resource, Simulation, Store, fifo, maxmin
from armillary.engine.compiled import heap, pop, push

REPEATS = 7


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    work()
    return time.process_time() - start


def against(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float, float]:
    """Medians of both, and of the ratio, over turns."""
    ours()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(REPEATS)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs), statistics.median(b / a for a, b in pairs)


def timeouts_here() -> None:
    sim = Simulation()

    def process(i: int) -> Generator[Any, Any, None]:
        for _ in range(200):
            yield 1.0 + i * 1e-3

    for i in range(1000):
        sim.process(process(i))
    sim.run()


def timeouts_simpy() -> None:
    env = simpy.Environment()

    def process(i: int) -> Generator[Any, Any, None]:
        for _ in range(200):
            yield env.timeout(1.0 + i * 1e-3)

    for i in range(1000):
        env.process(process(i))
    env.run()


def _player(a: Any, b: Any, first: bool) -> Generator[Any, Any, None]:
    for k in range(500):
        if first:
            yield a.put(k)
            yield b.get()
        else:
            yield a.get()
            yield b.put(k)


def ping_pong_here() -> None:
    sim = Simulation()
    for _ in range(100):
        a, b = Store(sim), Store(sim)
        sim.process(_player(a, b, True))
        sim.process(_player(a, b, False))
    sim.run()


def ping_pong_simpy() -> None:
    env = simpy.Environment()
    for _ in range(100):
        a, b = simpy.Store(env), simpy.Store(env)
        env.process(_player(a, b, True))
        env.process(_player(a, b, False))
    env.run()


def holds_here() -> None:
    sim = Simulation()
    tool = Resource(sim, 4)

    def process() -> Generator[Any, Any, None]:
        for _ in range(200):
            with tool.request() as held:
                yield held
                yield 1.0

    for _ in range(100):
        sim.process(process())
    sim.run()


def holds_simpy() -> None:
    env = simpy.Environment()
    tool = simpy.Resource(env, 4)

    def process() -> Generator[Any, Any, None]:
        for _ in range(200):
            with tool.request() as held:
                yield held
                yield env.timeout(1.0)

    for _ in range(100):
        env.process(process())
    env.run()


def star(nodes: int) -> cluster.Cluster:
    """Hosts of 1 GB/s on one switch."""
    return cluster.from_dict(
        {
            "armillary": 1,
            "name": "star",
            "group": [{"name": "h", "count": nodes, "node": {"nic": [{"rate": "1 GB/s", "network": "net"}]}}],
            "network": {"net": {"topology": "star", "rate": "1 GB/s", "latency": "10 us"}},
        }
    )


def ring(machine: cluster.Cluster) -> float:
    sim = Simulation()
    net = Network(sim, machine)

    def host(i: int) -> Generator[Any, Any, None]:
        for _ in range(10):
            yield net.flow(i, (i + 1) % 200, 1e6)

    for i in range(200):
        sim.process(host(i))
    sim.run()
    return sim.now


def all_to_all(machine: cluster.Cluster) -> float:
    sim = Simulation()
    net = Network(sim, machine)
    for i in range(64):
        for j in range(64):
            if i != j:
                net.flow(i, j, 1e6)
    sim.run()
    return sim.now


#: The same two on SimGrid, in a Python of its own because it keeps one engine a process; prints CPU seconds and simulated seconds.
SIMGRID = """
import sys, time
from simgrid import Engine, Actor, Mailbox, Comm, NetZone, Link, LinkInRoute, this_actor
what = sys.argv[1]
e = Engine(["x", "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0", "--cfg=network/TCP-gamma:0", "--log=root.thres:error"])
zone = NetZone.create_star_zone("net")
n = 200 if what == "ring" else 64
hosts = []
for i in range(n):
    h = zone.create_host(f"h{i}", "1Gf")
    up = zone.create_link(f"u{i}", "1GBps").set_latency(5e-6).seal()
    down = zone.create_link(f"d{i}", "1GBps").set_latency(5e-6).seal()
    zone.add_route(h.netpoint, None, None, None, [LinkInRoute(up)], False)
    zone.add_route(None, h.netpoint, None, None, [LinkInRoute(down)], False)
    hosts.append(h)
zone.seal()
def sender(i):
    if what == "ring":
        for k in range(10):
            Mailbox.by_name(f"{i}").put(k, 1000000)
    else:
        Comm.wait_all([Mailbox.by_name(f"{i}-{j}").put_async(i, 1000000) for j in range(n) if j != i])
def receiver(i):
    if what == "ring":
        for k in range(10):
            Mailbox.by_name(f"{(i - 1) % n}").get()
    else:
        pending = [Mailbox.by_name(f"{j}-{i}").get_async() for j in range(n) if j != i]
        for comm, _ in pending:
            comm.wait()
for i, h in enumerate(hosts):
    Actor.create(f"s{i}", h, sender, i)
    Actor.create(f"r{i}", h, receiver, i)
start = time.process_time()
e.run()
print(time.process_time() - start, e.clock)
"""


def simgrid(what: str) -> tuple[float, float] | None:
    """(CPU seconds, simulated seconds) on SimGrid; None where it is not there."""
    for python in (sys.executable, "/usr/bin/python3"):
        ran = subprocess.run([python, "-c", SIMGRID, what], capture_output=True, text=True, check=False)
        if ran.returncode == 0:
            took, clock = map(float, ran.stdout.split()[-2:])
            return took, clock
    return None


def one_solve(name: str, machine: cluster.Cluster, flows: int) -> None:
    """Milliseconds of one solve of everything, flows between random hosts."""
    sim = Simulation()
    net = Network(sim, machine)
    rng = np.random.default_rng(0)
    for a, b in rng.integers(0, machine.nodes, (flows, 2)).tolist():
        if a != b:
            net.flow(a, b, 1e9, latency=0.0)
    sim.sharing._settle()
    nobody = np.zeros(0, np.int64)
    times = []
    for _ in range(15):
        for r in range(sim.sharing._pools):
            if sim.sharing.system.chain[r, maxmin.FIRST] >= 0:
                maxmin.touch(sim.sharing.system, r)
        start = time.perf_counter()
        maxmin.solve(sim.sharing.system, 0.0, nobody)
        times.append(time.perf_counter() - start)
    print(f"one solve, {flows:,} flows on {name:<18} {min(times) * 1e3:9.2f} ms best, {statistics.median(times) * 1e3:9.2f} median")


def large() -> None:
    """A million flows on 4,096 hosts, about a thousand at once."""
    machine = fat_tree_4096()
    sim = Simulation()
    net = Network(sim, machine)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 4096, (1_000_000, 2))
    done = 0

    def host(k: int) -> Generator[Any, Any, None]:
        nonlocal done
        for a, b in pairs[k * 1000 : (k + 1) * 1000].tolist():
            if a != b:
                yield net.flow(a, b, float(1e5 + 1e3 * (a % 97)))
            done += 1

    for k in range(1000):
        sim.process(host(k))
    took = seconds(sim.run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"{done:,} flows on 4,096 hosts, 1,000 at once: {took:.0f} s, {sim.sharing.solves:,} solves, {peak:.2f} GiB   goal 300 s, 2 GiB")


def fat_tree_4096() -> cluster.Cluster:
    """Sixteen hosts a leaf, three levels."""
    levels = [{"down": 16, "up": 16, "switches": 256}, {"down": 16, "up": 16, "switches": 256}, {"down": 16, "up": 0, "switches": 256}]
    return cluster.from_dict(
        {
            "armillary": 1,
            "name": "fat-tree-4096",
            "group": [{"name": "h", "count": 4096, "node": {"nic": [{"rate": "25 GB/s", "network": "net"}]}}],
            "network": {"net": {"topology": "fat-tree", "levels": levels, "rate": "25 GB/s", "latency": "1 us"}},
        }
    )


def main() -> None:
    """Measure and print."""
    for name, count, ours, theirs in (
        ("1,000 processes x 200 timeouts", 200_000, timeouts_here, timeouts_simpy),
        ("100 pairs, Store ping-pong", 100_000, ping_pong_here, ping_pong_simpy),
        ("Resource(4), 100 x 200 holds", 20_000, holds_here, holds_simpy),
    ):
        a, b, ratio = against(ours, theirs)
        print(f"{name:<32} {count / a:12,.0f} /s   SimPy {count / b:10,.0f} /s   {ratio:5.2f}x   goal 3x")
    small, wide = star(64), star(200)
    for name, count, goal, work in (
        ("ring", 2000, 10, lambda: ring(wide)),
        ("all-to-all", 4032, 3, lambda: all_to_all(small)),
    ):
        work()  # type: ignore[no-untyped-call]
        mine, theirs_s = [], []
        for _ in range(REPEATS):
            mine.append(seconds(work))
            if (other := simgrid(name)) is None:
                break
            theirs_s.append(other[0])
            if abs(other[1] - work()) > 1e-6 * other[1]:  # type: ignore[no-untyped-call]
                print(f"{name}: SimGrid ends at {other[1]!r}, Armillary at {work()!r}")  # type: ignore[no-untyped-call]
        line = f"{name:<32} {count / statistics.median(mine):12,.0f} /s"
        if theirs_s:
            ratio = statistics.median(t / m for t, m in zip(theirs_s, mine, strict=True))
            line += f"   SimGrid {count / statistics.median(theirs_s):8,.0f} /s   {ratio:5.2f}x   goal {goal}x"
        print(line if theirs_s else line + "   SimGrid is not here")
    one_solve("fat-tree-1k", cluster.preset("fat-tree-1k"), 1024)
    one_solve("fat-tree-1k", cluster.preset("fat-tree-1k"), 10_000)
    one_solve("fat-tree-4096", fat_tree_4096(), 100_000)
    rng = np.random.default_rng(0)
    arrivals, service = np.cumsum(rng.exponential(1.0, 2_000_000)), rng.exponential(7.5, 2_000_000)
    for servers in (1, 8, 64):
        fifo(arrivals[:10], service[:10], servers)
        took = min(seconds(lambda c=servers: fifo(arrivals, service, c)) for _ in range(5))  # type: ignore[misc]
        print(f"array queue, {servers:3d} servers {2_000_000 / took / 1e6:24.1f} M items/s   goal 5 M/s")
    took = min(seconds(lambda: heap_round(1_000_000)) for _ in range(5))
    print(f"compiled heap, push + pop, 1,000 waiting {1.0 / took:11.1f} M/s   goal 5 M/s")
    if "--large" in sys.argv:
        large()


def heap_round(count: int) -> float:
    """`count` pushes and pops with a thousand events waiting."""
    return float(_churn(heap(2048), count))


def _compiled_churn() -> Any:
    from armillary.kernels import loop

    @loop
    def churn(h, count):  # type: ignore[no-untyped-def]
        state = 12345
        for _ in range(1000):
            state = (state * 1103515245 + 12345) % 2147483648
            push(h, state * 1e-9, 0, 0)
        now = 0.0
        for _ in range(count):
            now, _kind, _payload = pop(h)
            state = (state * 1103515245 + 12345) % 2147483648
            push(h, now + state * 1e-9, 0, 0)
        return now

    return churn


_churn = _compiled_churn()

if __name__ == "__main__":
    main()
