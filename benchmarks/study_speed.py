"""What a study costs beyond the work itself: overhead a unit, storing, planning, intervals, the report, `armillary list`.

python benchmarks/study_speed.py [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "outside"))
os.environ["PYTHONPATH"] = sys.path[0]
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402

import armillary  # noqa: E402
from armillary.study.gains import interval  # noqa: E402
from armillary.study.plan import Recipe, plan  # noqa: E402
from armillary.study.store import Report, Store  # noqa: E402
from armillary.study.unit import Unit  # noqa: E402


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(folder: Path) -> dict[str, tuple[float, str, str]]:
    """Figure to (value, unit, what was asked for)."""
    found: dict[str, tuple[float, str, str]] = {}

    def compare(engine: str, repeats: int, store: str) -> armillary.Result:
        return armillary.compare("outside/draws", techniques=["plain", "twin"], repeats=repeats, engine=engine, store=folder / store)

    compare("here", 1, "warm.db")
    found["overhead a unit, here"] = (1e3 * seconds(lambda: compare("here", 84, "here.db")) / 1008, "ms", "< 1")
    few, many = seconds(lambda: compare("processes:2", 9, "few.db")), seconds(lambda: compare("processes:2", 92, "many.db"))
    found["overhead a unit, processes:2 (workers' start aside)"] = (1e3 * (many - few) / (12 * 83), "ms", "< 3")

    units = [Unit("a/b", f"t{i % 14}", "{}", f"c{i // 14}", "ab" * 32, 0, 0, "cd" * 32) for i in range(5000)]
    report = Report("done", {f"m{m}": ("simulated", float(m)) for m in range(10)})
    with Store.open(folder / "store.db") as store:
        store.enrol(store.begin("x", 0, "", "{}"), units)
        took = seconds(lambda: [store.finish(unit, report) for unit in units])
    found["units stored, ten values each"] = (len(units) / took, "1/s", ">= 2000")
    took = seconds(lambda: plan(Recipe("outside/draws"), techniques=["plain", "twin"], repeats=16_667))
    found["planning 200,000 units"] = (took, "s", "< 5")

    rng = np.random.default_rng(0)
    cases = [rng.lognormal(0, 0.1, 5) for _ in range(12)]
    interval(cases, log=True)
    took = seconds(lambda: [interval(cases, log=True) for _ in range(500)]) / 500
    found["one interval, 12 cases x 5 repeats, 10,000 resamples"] = (1e3 * took, "ms", "")
    result = compare("here", 834, "report.db")
    found[f"report of {len(result.units):,} units"] = (seconds(lambda: result.html(folder / "r.html")), "s", "< 10")
    found["its size"] = ((folder / "r.html").stat().st_size / 1e6, "MB", "")
    listing = [
        seconds(lambda: subprocess.run([sys.executable, "-m", "armillary.cli", "list"], capture_output=True, check=True)) for _ in range(7)
    ]
    found["armillary list, cold process"] = (statistics.median(listing), "s", "< 0.5")
    return found


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name))
    for what, (value, unit, asked) in figures.items():
        print(f"{what:<58} {value:>10.3g} {unit:<4} {asked}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))
