"""Locks: throughput beside the C library's mutex on this machine's cores, what each part of Hapax brings, and how fast the checker is.

    python benchmarks/runtime_locks.py [--stress]

On a busy machine a thread that is next in line may not run for milliseconds, and then nobody goes on; or one thread does not run at
all, and the other one has the lock to itself. So each lock runs in many short windows, and those count in which each thread got at least
half of what the other one got. CPU seconds are this process's. `--stress` adds 100 million acquires of a Hapax lock.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np

from armillary.cluster import preset
from armillary.runtime.locks import (
    Bench,
    Clh,
    Hapax,
    HapaxMutex,
    HapaxVw,
    Hemlock,
    Machine,
    Mcs,
    Pthread,
    Reciprocating,
    Ticket,
    Ttas,
    Twa,
    check,
    choose,
    episodes,
    measure,
    measure_python,
    simulate,
    stress,
)  # fmt: skip
from armillary.runtime.locks.threads.bench import cores

WINDOWS, WINDOW_S = 80, 0.003
LOCKS: dict[str, Any] = {
    "hapax": Hapax(), "hapax-vw": HapaxVw(), "ticket": Ticket(), "twa": Twa(), "mcs": Mcs(), "clh": Clh(), "hemlock": Hemlock(),
    "reciprocating": Reciprocating(), "ttas": Ttas(), "pthread": Pthread(),
}  # fmt: skip
SIMULATED = {name: lock for name, lock in LOCKS.items() if name != "pthread"}


def windows(lock: Any, bench: Bench, threads: int, wait: str = "spin") -> tuple[float, float]:
    """(median, upper quartile) of acquires per second in short windows in which all threads ran; NaN if there was none."""
    measure(lock, bench, threads, wait=wait, acquires=100)
    found = [measure(lock, bench, threads, wait=wait, seconds=WINDOW_S, seed=i) for i in range(WINDOWS)]
    rates = [one.acquires_per_s for one in found if one.fairness >= 0.5] or [float("nan")]
    return statistics.median(rates), float(np.quantile(rates, 0.75))


def real() -> None:
    most = len(cores())
    print(f"real threads, {WINDOWS} windows of {1000 * WINDOW_S:.0f} ms: CPU ns alone; M acquires/s at {most} threads: median (quartile)")
    works = {"max-contention": Bench(4, 0), "moderate": Bench(4, 200), "long": Bench(200, 1000)}
    print(f"  {'':14} {'alone':>8}  " + "  ".join(f"{name:>18}" for name in works))
    rates_of: dict[tuple[str, str], float] = {}
    for name, lock in LOCKS.items():
        runs = [measure(lock, Bench(0, 0), 1, acquires=200_000) for _ in range(9)]
        alone = statistics.median(1e9 * one.cpu_s / one.acquires for one in runs)
        shown = []
        for work, bench in works.items():
            middle, upper = windows(lock, bench, most)
            rates_of[name, work] = middle
            shown.append(f"{middle / 1e6:9.2f} ({upper / 1e6:5.2f})")
        print(f"  {name:14} {alone:8.2f}  " + "  ".join(f"{text:>18}" for text in shown))
    for work in works:
        queue = max(rates_of[name, work] for name in ("ticket", "twa", "mcs", "clh", "hemlock", "reciprocating"))
        over = rates_of["hapax", work]
        ratios = f"{over / rates_of['pthread', work]:.2f} of pthread, {over / queue:.2f} of the best queue lock"
        print(f"  hapax at {work}, medians: {ratios}")


def auto() -> None:
    """What the probe of `lock("auto")` promises, and what longer runs of the same work then deliver."""
    most = len(cores())
    print(f"the probe of 50 ms per kind at {most} threads, and medians of windows of {1000 * WINDOW_S:.0f} ms afterwards, M acquires/s")
    for name, bench in {"max-contention": Bench(4, 0), "long": Bench(200, 1000), "64 locks": Bench(4, 50, locks=64)}.items():
        picked = [choose(bench, threads=most) for _ in range(5)]
        delivered = {kind: windows(LOCKS[kind], bench, most)[0] for kind in picked[0].curve}
        best = max(delivered, key=lambda kind: delivered[kind])
        said = []
        for one in picked:
            then = delivered[one.kind]
            promised = one.curve[one.kind][most]
            said.append(f"{one.kind} {promised / 1e6:.2f}, then {then / 1e6:.2f}, {then / delivered[best]:.2f} of {best}")
        print(f"  {name:16} " + "; ".join(said))


def waits() -> None:
    threads = 4 * len(cores())
    print(f"{threads} threads on {len(cores())} cores, max-contention, M acquires/s in 0.2 s: yield, park")
    for name, lock in LOCKS.items():
        found = [measure(lock, Bench(4, 0), threads, wait=wait, seconds=0.2).acquires_per_s / 1e6 for wait in ("yield", "park")]
        print(f"  {name:14} " + "  ".join(f"{rate:8.3f}" for rate in found))


def python_threads() -> None:
    print("Python threads, 2 threads, an empty section: µs of CPU per acquire and release")
    for name, made in (("threading.Lock", threading.Lock()), ("HapaxMutex", HapaxMutex())):
        with made:
            pass

        def body(guard: Any = made) -> None:
            for _ in range(50_000):
                with guard:
                    pass

        for count in (1, 2):
            threads = [threading.Thread(target=body) for _ in range(count)]
            began = time.process_time()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(f"  {name:16} {count} threads  {(time.process_time() - began) / count / 50_000 * 1e6:6.2f}")
    rate = measure_python(Bench(4, 0), 2, seconds=0.3).acquires_per_s
    print(f"  threading.Lock in the arena's loop: {rate / 1e6:.2f} M acquires/s")


def rates(lock: Any, machine: Machine, bench: Bench, threads: int) -> tuple[float, float, float]:
    found = simulate(lock, episodes(bench, threads, 500, np.random.Generator(np.random.PCG64DXSM(1))), machine)
    return found.acquires_per_s / 1e6, found.handover_s * 1e9, found.coherence_per_acquire


def simulated() -> None:
    machine = Machine.of(preset("coherence-2x64"))
    print("simulated, coherence-2x64, max-contention: M acquires/s, ns of a handover, traffic per acquire")
    variants = {
        "5 ns per copy": machine, "0 ns": replace(machine, invalidate_ps=0), "20 ns": replace(machine, invalidate_ps=20_000),
        "buffered stores": replace(machine, buffered=True),
    }  # fmt: skip
    for label, one in variants.items():
        print(f"  {label}")
        for name, lock in SIMULATED.items():
            shown = [rates(lock, one, Bench(4, 0), threads) for threads in (16, 64, 128)]
            print(f"    {name:14} " + "  ".join(f"{rate:7.2f} {ns:7.0f} {traffic:6.2f}" for rate, ns, traffic in shown))


def parts() -> None:
    machine = Machine.of(preset("coherence-2x64"))
    print("what the waiting array brings: simulated M acquires/s and traffic at 64 threads, max-contention; 1,024 locks, Zipf 0.9")
    for label, lock in (
        ("4,096 slots, padded", Hapax()), ("4,096 slots, packed", Hapax(pad=False)), ("64 slots", Hapax(slots=64)),
        ("8 slots", Hapax(slots=8)), ("1 slot", Hapax(slots=1)), ("a value at a time", Hapax(block=1)), ("visible waiters", HapaxVw()),
        ("visible waiters, 1 slot", HapaxVw(slots=1)),
    ):  # fmt: skip
        shown = [rates(lock, machine, bench, 64) for bench in (Bench(4, 0), Bench(4, 0, locks=1024, zipf=0.9))]
        print(f"  {label:24} " + "  ".join(f"{rate:7.2f} {traffic:6.2f}" for rate, _, traffic in shown))


def speed() -> None:
    print("speed, CPU seconds")
    for lock, threads, count, model in (
        (Hapax(slots=2, block=4), 3, 2, "sc"),
        (Hapax(slots=2, block=4), 3, 2, "tso"),
        (Mcs(), 3, 4, "tso"),
    ):
        check(lock, 2, 1, model=model)
        began = time.process_time()
        found = check(lock, threads, count, model=model)
        took = time.process_time() - began
        said = f"{found.states:9,} states  {took:6.2f} s  {found.moves / took / 1e6:.1f} M moves/s"
        print(f"  check {type(lock).__name__:6} {threads} × {count} {model:3}  {said}")
    machine = Machine.of(preset("coherence-2x64"))
    for name in ("hapax", "ticket", "ttas"):
        work = episodes(Bench(4, 0), 128, 2000, np.random.Generator(np.random.PCG64DXSM(1)))
        began = time.process_time()
        found_events = simulate(SIMULATED[name], work, machine).events
        took = time.process_time() - began
        print(f"  simulate {name:6} 128 threads × 2,000  {took:6.2f} s  {found_events / took / 1e6:.1f} M events/s")


def stressed() -> None:
    threads = len(cores())
    began = time.process_time()
    found = stress(Hapax(), threads, 100_000_000 // threads)
    took = f"{found.seconds:.0f} s, {time.process_time() - began:.0f} CPU s"
    print(f"stress: {found.acquires:,} acquires, {found.entries:,} counted, {found.overlaps} meetings, {took}")


def main() -> None:
    speed()
    simulated()
    parts()
    real()
    auto()
    waits()
    python_threads()
    if "--stress" in sys.argv:
        stressed()


if __name__ == "__main__":
    main()
