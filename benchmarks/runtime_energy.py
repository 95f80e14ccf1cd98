"""Energy per type of task: how fast intervals are filled, systems solved and meters read, beside SciPy and packages that read totals.

    python benchmarks/runtime_energy.py [--sampling]

Every ratio is between two parts of one run. `--sampling` reads meters for some seconds each: ours on a powercap tree made in a temporary
folder, and CodeCarbon's and Zeus's readers where they are installed (`pip install codecarbon zeus-ml`).
"""

from __future__ import annotations

import importlib.util
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import lsq_linear, nnls

from armillary.runtime.energy import AutoLag, Meter, Metered, Taskwise, bootstrap, drawn, overlaps, solve
from armillary.runtime.energy.simulation.power import RAPL_LIKE, truth
from armillary.runtime.energy.simulation.runs import CORES, ran

TASKS, INTERVALS, TYPES, WORKERS = 2_000_000, 10_000, 12, 64


def seconds(of: Callable[[], object], rounds: int = 5) -> float:
    """The median CPU seconds of some calls after one that compiles."""
    of()
    found = []
    for _ in range(rounds):
        begun = time.process_time()
        of()
        found.append(time.process_time() - begun)
    return statistics.median(found)


def by_numpy(start: np.ndarray, end: np.ndarray, column: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The same overlaps by whole-array operations: the share of each (task, interval) pair that meet, made explicit."""
    low, high = np.searchsorted(last, start, "right"), np.searchsorted(first, end, "left")
    count = np.maximum(0, high - low)
    task = np.repeat(np.arange(len(start)), count)
    k = np.arange(len(task)) - np.repeat(np.cumsum(count) - count, count) + low[task]
    part = np.minimum(end[task], last[k]) - np.maximum(start[task], first[k])
    return np.bincount(k * TYPES + column[task], part, minlength=len(first) * TYPES).reshape(-1, TYPES)


def filling() -> None:
    rng = np.random.default_rng(1)
    each = TASKS // WORKERS
    gaps = rng.integers(1_000, 6_000_000, (WORKERS, each))
    end = np.cumsum(gaps, axis=1).ravel()
    start = end - (gaps.ravel() * 9) // 10
    column, ones = rng.integers(0, TYPES, TASKS), np.ones(TASKS, np.int64)
    edges = np.linspace(0, int(end.max()), INTERVALS + 1).astype(np.int64)
    first, last = edges[:-1].copy(), edges[1:].copy()
    assert (overlaps(start, end, column, ones, first, last, TYPES) == by_numpy(start, end, column, first, last)).all()
    ours = seconds(lambda: overlaps(start, end, column, ones, first, last, TYPES))
    theirs = seconds(lambda: by_numpy(start, end, column, first, last), 3)
    print(f"overlap of {TASKS:,} tasks with {INTERVALS:,} intervals: {ours:.3f} s (goal: 1), NumPy {theirs:.3f} s ({theirs / ours:.1f})")
    start, end = start[::200] // 2, end[::200] // 2 + int(end.max()) // 10  # Tasks that span a thousand intervals.
    ours = seconds(lambda: overlaps(start, end, column[::200], ones[::200], first, last, TYPES))
    theirs = seconds(lambda: by_numpy(start, end, column[::200], first, last), 3)
    print(f"of {len(start):,} tasks that span about 1,000 intervals each: {ours:.4f} s, NumPy {theirs:.3f} s ({theirs / ours:.0f})")


def solving() -> None:
    rng = np.random.default_rng(2)
    a = rng.uniform(0, 0.1, (INTERVALS, 40))
    e = a @ rng.uniform(1, 20, 40) * rng.normal(1, 0.03, INTERVALS)
    weight = 1.0 / np.maximum(e, np.median(e) / 10)
    aw, ew = a * weight[:, None], e * weight
    ours = seconds(lambda: solve(a, e, huber=False))
    both = seconds(lambda: solve(a, e))
    whole, bounded = seconds(lambda: nnls(aw, ew), 3), seconds(lambda: lsq_linear(aw, ew, bounds=(0, np.inf)), 3)
    off = np.abs(solve(a, e, huber=False).power - lsq_linear(aw, ew, bounds=(0, np.inf), tol=1e-14).x).max()
    print(f"{INTERVALS:,} × 40: {1e3 * ours:.1f} ms, with Huber's pass {1e3 * both:.1f} ms; nnls on the whole system {1e3 * whole:.1f} ms "
          f"({whole / ours:.1f}), lsq_linear {1e3 * bounded:.1f} ms ({bounded / ours:.1f}); largest difference {off:.1e}")  # fmt: skip


def ablating() -> None:
    """Errors over draws: each part of the published model left out, and the lag estimated."""
    models = {
        "taskwise": Taskwise(), "no weights": Taskwise(weights=False), "no P ≥ 0": Taskwise(nonnegative=False),
        "no Huber pass": Taskwise(huber=False), "no merging": Taskwise(merging=False), "auto-lag": AutoLag(),
    }  # fmt: skip
    print(f"  {'task error, %':16}" + "".join(f"{name:>16}" for name in models))
    for misfit in ("linear", "turbo", "stranger"):
        errors: dict[str, list[float]] = {name: [] for name in models}
        for draw in range(6):
            one = ran("cholesky", 48, "priority", False, draw % 2)
            got = drawn(one.trace, one.tile, range(CORES), truth("cpu", misfit), RAPL_LIKE, "package-0", np.random.default_rng(draw))
            for name, model in models.items():
                power = model.fit(got.run).power
                errors[name].append(100 * statistics.mean(abs(power[k] / v - 1) for k, v in got.truth.items() if k != "idle"))
        print(f"  {misfit:16}" + "".join(f"{statistics.median(found):16.2f}" for found in errors.values()))
    one = ran("cholesky", 48, "priority", False, 0)
    run = drawn(one.trace, one.tile, range(CORES), truth("cpu", "linear"), RAPL_LIKE, "package-0", np.random.default_rng(0)).run
    model = Taskwise().fit(run)
    print(f"  fit {1e3 * seconds(lambda: Taskwise().fit(run)):.1f} ms, 400 resamples {1e3 * seconds(lambda: bootstrap(model), 3):.0f} ms, "
          f"auto-lag {1e3 * seconds(lambda: AutoLag().fit(Metered(run.trace, run.readings, run.workers)), 3):.0f} ms")  # fmt: skip


def sampling() -> None:
    """CPU time of sampling at 10 ms for 5 s."""

    def cost(run: Callable[[], None]) -> float:
        before = resource.getrusage(resource.RUSAGE_SELF)
        begun = time.perf_counter()
        run()
        after = resource.getrusage(resource.RUSAGE_SELF)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / (time.perf_counter() - begun)

    with tempfile.TemporaryDirectory() as room:
        for package in range(2):
            zone = Path(room) / f"intel-rapl:{package}"
            zone.mkdir()
            for name, text in (("name", f"package-{package}"), ("energy_uj", "12345678"), ("max_energy_range_uj", "262143328850")):
                (zone / name).write_text(text + "\n")

        def ours() -> None:
            with Meter("rapl", period=0.01, root=room):
                time.sleep(5)

        print(f"sampling two packages each 10 ms: {100 * cost(ours):.2f} % of a core")
        if importlib.util.find_spec("codecarbon"):
            from codecarbon.core.cpu import IntelRAPL  # type: ignore[import-not-found]
            from codecarbon.core.units import Time  # type: ignore[import-not-found]

            reader = IntelRAPL(rapl_dir=room)

            def theirs() -> None:
                until = time.perf_counter() + 5
                while time.perf_counter() < until:
                    reader.get_cpu_details(Time(0.01))
                    time.sleep(0.01)

            print(f"CodeCarbon's reader of the same tree: {100 * cost(theirs):.2f} % of a core")
        if importlib.util.find_spec("zeus"):
            from zeus.device.cpu.rapl import RAPLFile  # type: ignore[import-not-found]

            files = [RAPLFile(str(Path(room) / f"intel-rapl:{package}")) for package in range(2)]

            def zeus() -> None:
                until = time.perf_counter() + 5
                while time.perf_counter() < until:
                    for one in files:
                        one.read()
                    time.sleep(0.01)

            print(f"Zeus's reader of the same tree: {100 * cost(zeus):.2f} % of a core")


if __name__ == "__main__":
    filling()
    solving()
    ablating()
    if "--sampling" in sys.argv:
        sampling()
