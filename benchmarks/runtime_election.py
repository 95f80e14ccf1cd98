"""Leader election: interactions per second beside ppsim, what each part of the trade-off brings, and from how many agents on it pays.

    python benchmarks/runtime_election.py [--large]

ppsim 1.0.2 brings a notebook server along, so it runs in an environment of its own: ARMILLARY_PPSIM names that environment's Python. CPU
seconds. `--large` adds the crossover and the largest populations.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from armillary.runtime.election import Broadcast, Direct, Pairwise, Tradeoff, Tree, play, proof_time, recorded, simulate
from armillary.runtime.election.choosing import expected_time
from armillary.runtime.election.population.play import Run
from armillary.runtime.election.population.randomness import words
from armillary.streams import stream

#: Pairwise ranking in ppsim's rules: in how many of some runs ranks are right after the expected time, and CPU seconds of so many units.
PPSIM = """
import sys, time
import ppsim
n, runs, units = map(int, sys.argv[1:])
rules = {(i, i): (i, (i + 1) % n) for i in range(n)}
start = {i: 1 for i in range(n - 1)}
start[0] = 2
right, until = 0, (n - 1) ** 2 / 2
for seed in range(runs):
    sim = ppsim.Simulation(dict(start), rules, seed=seed + 1)
    sim.run(until, history_interval=until, stopping_interval=until, timer=False)
    right += sum(count > 0 for count in sim.config_dict.values()) == n
begun = time.process_time()
if units:
    sim = ppsim.Simulation(dict(start), rules, seed=1)
    begun = time.process_time()
    sim.run(units, history_interval=units, stopping_interval=units, timer=False)
print(time.process_time() - begun, right)
"""


def ppsim(python: str, *arguments: object) -> list[float]:
    """[CPU seconds, runs with right ranks] of ppsim."""
    found = subprocess.run([python, "-c", PPSIM, *map(str, arguments)], capture_output=True, text=True, check=True)
    return [float(word) for word in found.stdout.split()]


def beside_ppsim() -> None:
    """The same rules in both: how often ranks are right after the expected time at 64 agents, and interactions per CPU second at 1,024."""
    python = os.environ.get("ARMILLARY_PPSIM")
    n, runs, units = 1024, 40, 20_000
    protocol = Pairwise().protocol(n)
    rng = stream(0, "speed")
    run = Run(protocol, protocol.begin("one-duplicate", rng), words(rng))
    run.advance(np.array([0], np.int32), np.array([1], np.int32))
    begun = time.process_time()
    for first, second in recorded(n, units * n, rng):
        run.advance(first, second)
    ours = units * n / (time.process_time() - begun)
    print(f"pairwise, {n} agents: {ours / 1e6:.0f} million interactions/s", end="")
    if python is None:
        print("; ppsim is not here (ARMILLARY_PPSIM)")
        return
    # Its Gillespie method takes 40 times as long for these rules, and its sequential one fails in 1.0.2.
    theirs = units // 20 * n / ppsim(python, n, 0, units // 20)[0]
    print(f", ppsim {theirs / 1e6:.2f}: {ours / theirs:.0f}x (goal 5x)")
    there = ppsim(python, 64, runs, 0)[1] / runs
    small, until = Pairwise().protocol(64), 63**2 / 2
    population = small.ranked(np.array([1, *range(1, 64)]), rng)
    here = float(np.mean([play(small, population, stream(seed, "ppsim"), after=0, cycles=0).time <= until for seed in range(10 * runs)]))
    apart = abs(here - there) / np.sqrt(here * (1 - here) * 1.1 / runs)
    print(f"right ranks at 64 agents after {until:.0f}: {here:.2f} of the runs, ppsim {there:.2f} ({apart:.1f} errors apart); exactly 0.52")


def speeds() -> None:
    """Interactions per CPU second from a random state."""
    for technique in (Pairwise(), Tree(), Direct(), Broadcast(), Tradeoff()):
        for n in (1024, 65_536) if "--large" in sys.argv else (1024,):
            protocol, rng = technique.protocol(n), stream(1, "speed")
            run = Run(protocol, protocol.random_state(rng), words(rng))
            run.advance(np.array([0], np.int32), np.array([1], np.int32))
            begun = time.process_time()
            for first, second in recorded(n, 20_000_000, rng):
                run.advance(first, second)
            print(f"  {technique!s:60} {n:7,} agents: {20 / (time.process_time() - begun):6.0f} million interactions/s")


STARTS = ("one-duplicate", "random-state", "starved")


def mean(technique: Any, n: int, start: str = "one-duplicate", runs: int = 20) -> float:
    """The mean time to right ranks."""
    return float(np.mean([simulate(technique, n, start, seed, cycles=0).time for seed in range(runs)]))


def parts() -> None:
    """The trade-off without each of its parts."""
    print("time to right ranks, 1,024 agents" + "".join(f"{start:>16}" for start in STARTS))
    for name, technique in (
        ("tradeoff, ρ = 32", Tradeoff()), ("ρ = 8", Tradeoff(rho=8)), ("ρ = 2", Tradeoff(rho=2)), ("soft healing", Tradeoff(heal="soft")),
        ("guessed target", Tradeoff(find=False)), ("no Detect (direct)", Direct()), ("tokens for all (broadcast)", Broadcast()),
        ("ranks one by one", Tradeoff(intervals=False)), ("tree", Tree()),
    ):  # fmt: skip
        many = 3 if not getattr(technique, "intervals", True) else 20
        times = (mean(technique, 1024, start, many) for start in STARTS)
        print(f"  {name:31}" + "".join(f"{time:16,.0f}" for time in times))


def witnesses() -> None:
    """Detect alone."""
    rng = stream(2, "witnesses")
    for rho in (2, 4, 8, 16, 32, 64):
        found = np.mean([proof_time(4096, rho, rng) for _ in range(300)])  # type: ignore[misc]
        print(f"  ρ = {rho:2}: proof after {found:6.1f}; bits {Tradeoff(rho=rho).protocol(4096).bits:7,.0f}")


def crossover() -> None:
    """Times by the number of agents, and what the choice expects."""
    sizes = [2**k for k in range(6, 17 if "--large" in sys.argv else 12)]
    for n in sizes:
        row = []
        for technique in (Tree(), Direct(), Broadcast(), Tradeoff()):
            runs = 10 if n <= 4096 else 3
            name, found = type(technique).__name__.lower(), mean(technique, n, runs=runs)
            row.append(f"{name} {found:9,.0f} (expected {expected_time(technique, n):9,.0f})")
        print(f"  {n:7,}: " + "  ".join(row), flush=True)


if __name__ == "__main__":
    beside_ppsim()
    speeds()
    witnesses()
    parts()
    crossover()
