"""Clocks in networks: the speed of the simulation, the ablation of gradient clock synchronisation, and offsets of live ranks.

    python benchmarks/network_clocks.py [--large]

Speeds are undirected links per CPU second, each measured from both of its ends in every period. `--large` adds a torus of 100,000 clocks.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np

from armillary import comm
from armillary.network.clocks import Average, ClockWork, Free, GcsOneWay, GcsTwoWay, MaxFlood, Tree, TreeFrequency, play, settled, shaped


def speed(work: ClockWork) -> None:
    for technique in (GcsTwoWay(), GcsOneWay(), Tree(), TreeFrequency(), Average(), MaxFlood(), Free()):
        play(replace(work, settle_s=0.01, judged_s=0.01), technique)
        began = time.process_time()
        play(work, technique)
        took = time.process_time() - began
        print(f"  {type(technique).__name__:14} {work.network.links * sum(work.steps) / took / 1e6:6.0f} M links/s  {took:.2f} CPU s")


def ablation() -> None:
    print(
        "largest skew of neighbours, ns: ring of 64, grid 16 × 16, geometric 256 (halves and bias, asymmetry 1 %), ring of 64 under slope"
    )
    works = []
    for shape, nodes, rates in (("ring", 64, "halves"), ("grid", 256, "halves"), ("geometric", 256, "halves"), ("ring", 64, "slope")):
        network = shaped(shape, nodes, np.random.default_rng(1))
        network = network.with_links(asymmetry=0.01 * network.delay, jitter=0.002 * network.delay)
        works.append(settled(ClockWork(network, rates=rates)))
    for name, technique in (
        ("gcs-two-way", GcsTwoWay()), ("one κ for all links", GcsTwoWay(per_link=False)), ("c = 2.1", GcsTwoWay(c=2.1)),
        ("c = 5", GcsTwoWay(c=5.0)), ("no allowance δ", GcsTwoWay(slack=False)), ("measured every tenth period", GcsTwoWay(sparse=10)),
        ("stamps in one direction", GcsOneWay()), ("tree", Tree()), ("average", Average()),
    ):  # fmt: skip
        print(f"  {name:28}", "  ".join(f"{play(work, technique).local_skew * 1e9:7.0f}" for work in works))


def diameters() -> None:
    print("largest skew of neighbours on lines and rings, ns: gcs-two-way, tree, average")
    for shape in ("line", "ring"):
        for nodes in (8, 16, 32, 64, 128, 256, 512):
            network = shaped(shape, nodes)
            work = settled(ClockWork(network.with_links(asymmetry=1e-8, jitter=2e-9)))
            found = [play(work, technique).local_skew * 1e9 for technique in (GcsTwoWay(), Tree(), Average())]
            print(f"  {shape} {nodes:4}  " + "  ".join(f"{x:7.0f}" for x in found))


def live() -> None:
    print("offsets of two ranks that share a clock: |offset| in µs, and over the one-way delay; medians of seven")
    for backend in ("mpi", "threads"):
        if comm.backends()[backend]:
            continue
        runs = [
            comm.run("armillary.network.clocks.alignment.live:measured", 8, 200, 0.5, ranks=2, backend=backend).values[0] for _ in range(7)
        ]
        offset = np.array([abs(one["offset"][1]) for one in runs])
        delay = np.array([one["delay"][1] for one in runs])
        print(f"  {backend:8} {np.median(offset) * 1e6:.3f} µs  {np.median(offset / delay):.3f}  (delay {np.median(delay) * 1e6:.2f} µs)")


def main() -> None:
    ring = shaped("ring", 256).with_links(asymmetry=1e-8, jitter=2e-9)
    print("ring of 256, 156,160 periods")
    speed(ClockWork(ring, settle_s=15.6, judged_s=0.016))
    if "--large" in sys.argv:
        torus = shaped("torus", 99_856).with_links(asymmetry=1e-8, jitter=2e-9)
        print(f"torus of {torus.nodes:,}, 10,000 periods")
        work = ClockWork(torus, rates="random", settle_s=0.5, judged_s=0.5)
        began = time.process_time()
        play(work, GcsTwoWay())
        print(f"  {time.process_time() - began:.1f} CPU s")
    ablation()
    diameters()
    live()


if __name__ == "__main__":
    main()
