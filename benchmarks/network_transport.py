"""Transports: tens of thousands of simulated processes, redistribution, SimGrid beside us, and what each part of the design brings.

    python benchmarks/network_transport.py [--large]

CPU seconds. SimGrid's Python package runs in a process of its own (Debian: python3-simgrid). `--large` adds fans of 25,000 processes.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

from armillary import cluster
from armillary.network.transport import (
    Auto,
    Reduction,
    TransportWork,
    Workflow,
    blocks,
    compare,
    fan,
    grayscott,
    md,
    pipeline,
    redistribution,
)
from armillary.network.transport.arena import SCALED

INSITU = cluster.preset("two-clusters-insitu")
TRANSPORTS = ("file-shared", "file-local", "staging-colocated", "staging-remote")
REPEATS = 3

#: The fan with SimGrid's mailboxes: same platform, same blocks; prints CPU seconds of the run and simulated seconds.
SIMGRID = """
import json, sys, time
from simgrid import Actor, Barrier, Comm, Engine, LinkInRoute, Mailbox, NetZone, this_actor
work = json.load(sys.stdin)
whole = time.process_time()
e = Engine(["x", "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0", "--cfg=network/TCP-gamma:0", "--log=root.thres:error"])
zone = NetZone.create_full_zone("net")
a = [zone.create_host(f"a{i}", "1Gf") for i in range(work["a"])]
b = [zone.create_host(f"b{i}", "1Gf") for i in range(work["b"])]
up = [zone.create_link(f"u{i}", "125MBps").set_latency(2e-3).seal() for i in range(len(a))]
down = [zone.create_link(f"d{i}", "125MBps").set_latency(2e-3).seal() for i in range(len(b))]
middle = [zone.create_link(n, r).set_latency(1e-3).seal() for n, r in (("pub", "1250MBps"), ("between", "2500MBps"), ("sub", "1250MBps"))]
for i, j in {(work["pub"][p], work["sub"][s]) for p, s, _ in work["rows"]}:
    zone.add_route(a[i].netpoint, b[j].netpoint, None, None, [LinkInRoute(x) for x in (up[i], *middle, down[j])], False)
zone.seal()
gives, takes = {}, {}
for p, s, nbytes in work["rows"]:
    gives.setdefault(p, []).append((s, nbytes))
    takes.setdefault(s, []).append(p)
gate = Barrier(len(gives) + len(takes))
def publisher(p):
    for _ in range(work["steps"]):
        Comm.wait_all([Mailbox.by_name(f"{p}-{s}").put_async(0, nbytes) for s, nbytes in gives[p]])
        gate.wait()
def subscriber(s):
    for _ in range(work["steps"]):
        for comm, _ in [Mailbox.by_name(f"{p}-{s}").get_async() for p in takes[s]]:
            comm.wait()
        gate.wait()
for p in gives:
    Actor.create(f"p{p}", a[work["pub"][p]], publisher, p)
for s in takes:
    Actor.create(f"s{s}", b[work["sub"][s]], subscriber, s)
start = time.process_time()
e.run()
print(time.process_time() - start, time.process_time() - whole, repr(e.clock))
"""


def beside_simgrid(workflow: Workflow) -> None:
    """The same fan on both."""
    publishers, subscribers = (c.ranks for c in workflow.components)
    variable = workflow.streams[0].variables[0]
    parts = redistribution(variable.shape, variable.published(publishers), variable.selected(subscribers))
    rows = np.stack([parts.publisher, parts.subscriber, parts.elements * variable.itemsize], 1).tolist()
    work = {
        "a": 256, "b": 128, "rows": rows, "steps": workflow.steps, "pub": [_node(i, publishers, 256) for i in range(publishers)],
        "sub": [_node(i, subscribers, 128) for i in range(subscribers)],
    }  # fmt: skip
    ours, theirs, mine, clock = [], [], 0.0, 0.0
    for _ in range(REPEATS):
        began = time.process_time()
        mine = workflow.simulate(INSITU, "staging-remote").makespan
        ours.append(time.process_time() - began)
        for python in (sys.executable, "/usr/bin/python3"):
            ran = subprocess.run([python, "-c", SIMGRID], input=json.dumps(work), capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                took, clock = map(float, ran.stdout.split()[-2:])
                theirs.append(took)
                break
    name = f"fan {publishers} x {subscribers}, {len(rows)} pairs"
    if not theirs:
        print(f"{name}: {statistics.median(ours):.3f} CPU s here; SimGrid is not here")
        return
    ratio = statistics.median(theirs) / statistics.median(ours)
    off = abs(clock - mine) / clock
    print(
        f"{name}: {statistics.median(ours):.3f} CPU s, SimGrid {statistics.median(theirs):.3f}: {ratio:.1f}x (goal 5x); "
        f"ends differ by {off:.1e}"
    )


def _node(rank: int, ranks: int, nodes: int) -> int:
    return rank if ranks < nodes else rank * nodes // ranks


def speed(names: tuple[str, ...]) -> None:
    for name in names:
        shape, publish, subscribe = SCALED[name]
        workflow = fan(20_000, 5_000, shape, publish, subscribe)
        for transport in TRANSPORTS:
            began = time.process_time()
            found = workflow.simulate(INSITU, transport)
            took = time.process_time() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"  {name:8} {transport:18} {took:6.1f} CPU s  {found.flows:8,} flows  makespan {found.makespan:8.2f} s  {peak:.0f} MiB",
                flush=True,
            )


def redistributions() -> None:
    for name, (shape, publish, subscribe) in SCALED.items():
        if publish:
            ours, theirs = blocks(shape, publish), blocks(shape, subscribe)
            began = time.process_time()
            found = redistribution(shape, ours, theirs)
            print(f"  20,000 x 5,000 blocks, {name:8} {len(found):9,} pairs  {time.process_time() - began:.3f} CPU s  goal 2 s")


def parts() -> None:
    print("makespans, in both placements")
    for workflow in (fan(64, 16, (64, 64, 64)), pipeline(64), grayscott(64), grayscott(64, heavy=True), md(), md(dense=True)):
        rows = {f"{r['transport']}/{r['placement']}": r["makespan"] for r in compare(workflow, INSITU)}
        print(f"  {workflow.name:10}", "  ".join(f"{name} {seconds:.4g}" for name, seconds in rows.items()))
    print("aggregation: CPU s with and without (fan 2,000 x 500, staging-remote)")
    for together in (True, False):
        began = time.process_time()
        found = fan(2000, 500, (200, 200, 200)).simulate(INSITU, "staging-remote", aggregate=together)
        print(
            f"  {'with' if together else 'without':8} {time.process_time() - began:6.2f} CPU s  {found.flows:,} flows  "
            f"ends at {found.makespan!r}"
        )
    print("reductions on md, staging-remote: makespan")
    for reduction in (Reduction(), Reduction("decimation", flops=10.0), Reduction("compression", compressor="sz", flops=10.0),
                      Reduction("compression", compressor="zfp", flops=10.0),
                      Reduction("compression", compressor="sz", flops=1e5)):  # fmt: skip
        found = md(dense=True).with_reduction(reduction).simulate(INSITU, "staging-remote")
        print(
            f"  {reduction.kind:12} {reduction.compressor:6} {reduction.flops:8g} flops  "
            f"{found.makespan:.4f} s  {found.bytes_moved / 1e6:.1f} MB"
        )
    began = time.process_time()
    choices = Auto().search(TransportWork(md(), INSITU))
    print(f"auto on md: {len(choices)} ways in {time.process_time() - began:.2f} CPU s")


def main() -> None:
    """Measure and print."""
    fan(8, 4, (16, 16, 16)).simulate(INSITU, "staging-remote")
    redistributions()
    for publishers, subscribers, edge in ((64, 16, 200), (512, 128, 200), (1024, 256, 200), (120, 35, 211)):
        beside_simgrid(fan(publishers, subscribers, (edge, edge, edge)))
    parts()
    print("fans of 25,000 processes, 5 transactions   goal 10 CPU s")
    speed(tuple(SCALED) if "--large" in sys.argv else ("cubes",))


if __name__ == "__main__":
    main()
