"""Pilots: our launchers beside Ray, Dask, Parsl, Dragon and RADICAL-Pilot on this machine, one run; memory; and the simulation's speed.

    python benchmarks/runtime_pilot.py [--peers FOLDER[:FOLDER]] [--rounds 3] [--only NAME,NAME]

`--peers` names virtual environments, or folders of them, that have the peers; without it those of this interpreter are driven. Every peer
is up and warm before the clock starts, gets all tasks before any result is asked for, and has as many workers as there are cores; batches
go to it as batches. Rounds are interleaved, and a figure is the best of its rounds: for the peers, too, other programs took the cores.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from armillary.arena import NotForThisCase
from armillary.runtime.pilot import Pilot, campaign, null, simulate
from armillary.runtime.pilot.running.peers import run_peer
from armillary.runtime.pilot.running.pilots import run_pilot
from armillary.runtime.pilot.running.real import Ran, RealWork
from armillary.runtime.pilot.simulation.plan import Plan, flux
from armillary.runtime.pilot.simulation.predict import hybrid_plan

CORES = len(os.sched_getaffinity(0))
WORKS = {
    "2,000 functions, each a task": RealWork(functions=2000, slots=CORES),
    "20,000 functions in batches": RealWork(functions=20_000, slots=CORES, batched=True),
    "200 executables (true)": RealWork(executables=200, nodes=4, slots=8),
}
#: Dragon starts 65 to 300 single functions per second, so it gets a tenth of them.
FEWER = {"dragon": 10}
PEERS = ("ray", "dask", "parsl", "dragon", "radical-pilot")


def launchers(work: RealWork) -> dict[str, Callable[[], Ran]]:
    """Everything that may run this work."""
    ours = [["local"], ["srun"]] if work.executables else [["pool"]]
    found: dict[str, Callable[[], Ran]] = {names[0]: lambda names=names: run_pilot(work, names) for names in ours}
    for peer in PEERS if work.executables else PEERS[:-1]:
        count = work.functions // FEWER.get(peer, 1) if not work.batched else work.functions
        mine = RealWork(work.executables, count, work.seconds, work.nodes, work.slots, work.batched)
        found[peer] = lambda peer=peer, mine=mine: run_peer(peer, mine)
    return found


def real(rounds: int, only: set[str]) -> None:
    """Rates of all launchers, and ours over theirs."""
    for title, work in WORKS.items():
        rates: dict[str, list[float]] = {}
        starts: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, run in launchers(work).items():
                if only and name not in only:
                    continue
                try:
                    ran = run()
                except (NotForThisCase, RuntimeError) as reason:
                    print(f"  {name}: {reason}")
                    continue
                rates.setdefault(name, []).append(ran.done / ran.makespan)
                starts.setdefault(name, []).append(ran.bootstrap)
        print(f"{title}: tasks per second, best of {rounds} rounds (all rounds); seconds of the start")
        for name, found in rates.items():
            print(f"  {name:14} {max(found):12,.0f}  ({', '.join(f'{rate:,.0f}' for rate in found)})  {min(starts[name]):6.1f}", flush=True)
        own = "local" if work.executables else "pool"
        for name, found in rates.items():
            if name != own and own in rates:
                print(f"  {own} over {name}: {max(rates[own]) / max(found):.2f}", flush=True)


def memory() -> None:
    """A hundred thousand functions, without and with their stamps."""
    for rows in (0, 1_000_000):
        with Pilot(1, ["pool"], cores=CORES, rows=rows) as pilot:
            pilot.wait_ready(60)

            def batch(pilot: Pilot = pilot) -> None:
                for future in [pilot.submit(abs, -1) for _ in range(5000)]:
                    future.result()
                gc.collect()

            for _ in range(2):
                batch()
            before, began = resident(), time.monotonic()
            for _ in range(20):
                batch()
            grown, took = resident() - before, time.monotonic() - began
        print(f"100,000 null functions, {rows:,} rows of stamps: {100_000 / took:,.0f} per second, {grown / 1e6:.1f} MB more than before")


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def simulation() -> None:
    """CPU seconds of large simulated ensembles."""
    simulate(null(4), Plan((flux(4),)))
    works = {
        "1,000,000 null tasks on 1,024 nodes": (lambda: null(1024, 1_000_000), Plan((flux(1024, 16),))),
        "a campaign of 111,576 tasks on 1,024 nodes": (lambda: campaign(1024, np.random.default_rng(0)), hybrid_plan(1024, 16)),
    }
    for title, (make, plan) in works.items():
        work = make()
        began = time.process_time()
        simulate(work, plan)
        print(f"{title}: {time.process_time() - began:.1f} CPU s")
    print(f"largest resident size: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=os.environ.get("ARMILLARY_PEERS", ""))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    os.environ["ARMILLARY_PEERS"] = asked.peers
    real(asked.rounds, set(filter(None, asked.only.split(","))))
    memory()
    simulation()
