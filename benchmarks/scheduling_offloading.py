"""How fast scheduling/offloading is on this machine, what each part of Gaia brings, and how its baselines were set.

python benchmarks/scheduling_offloading.py prints CPU seconds of the inspector for a project of 1,000 files (goal 2) and for a generated
file of 2 MB (goal 1), beside those of `ast.parse` alone; requests per CPU second of the platform beside a simulator in plain Python; the
ablation of Gaia on training draws; how often an early look misleads it; what the misfit costs over cpu-only (goal 1.05); and the sweeps
that set the defaults of one-shot and bandit. With `--day`, 1,000 functions are played for 24 h (goal 60 s). Last, one JSON object.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from armillary.scheduling.offloading import (
    Bandit,
    CpuOnly,
    Gaia,
    GpuOnly,
    OffloadingWork,
    OneShot,
    StaticHint,
    ablation,
    built_in,
    corpus,
    explain,
    fleet,
    inspect_files,
    play,
)  # fmt: skip
from armillary.streams import stream

CASES = (("matmul", "closed"), ("resnet18", "closed"), ("tinyllama-short", "closed"), ("tinyllama-long", "closed"), ("idle-wait", "closed"),
         ("matmul", "poisson"), ("matmul", "bursts"), ("matmul", "drift"), ("matmul", "satellite"))  # fmt: skip
DRAWS = 6


def cpu_s(work: Callable[[], Any]) -> float:
    """CPU seconds of the best of three calls."""
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return float(best)


def generated(size: int) -> str:
    """A source of so many bytes, as generators of code write them."""
    lines, total = ["import torch\n"], 0
    for k in itertools.count():
        lines.append(
            f"def f{k}(x, y=3):\n    a = x.reshape({k}, -1) + y * {k}\n    if a.sum() > {k}:\n        return [v * 2 for v in a if v]\n"
            f"    return helper(a, mode='m{k}', flag=True)\n\n\n"
        )
        total += len(lines[-1])
        if total >= size:
            return "".join(lines)
    raise AssertionError


def inspector() -> dict[str, float]:
    """CPU seconds for a large project and for a large file, and over those of parsing alone."""
    source = generated(2_000_000)
    found = {"2 MB": cpu_s(lambda: inspect_files({"func.py": source}, "func.py")), "2 MB, ast.parse": cpu_s(lambda: ast.parse(source))}
    bodies = [one.files["func.py"] for one in corpus() if len(one.files) == 1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "func.py").write_text("".join(f"import m{k}\n" for k in range(1000)))
        for k in range(1000):
            (folder / f"m{k}.py").write_text(bodies[k % len(bodies)])
        found["1,000 files"] = cpu_s(lambda: explain(folder))
    found["ratio to ast.parse"] = found["2 MB"] / found["2 MB, ast.parse"]
    return found


def platform() -> dict[str, float]:
    """Requests per CPU second of the compiled loop, and its speed over that of the plain simulator of the tests."""
    place = Path(__file__).parents[1] / "tests" / "scheduling" / "offloading" / "offloading_reference.py"
    spec = importlib.util.spec_from_file_location("offloading_reference", place)
    assert spec is not None
    assert spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    sys.modules["offloading_reference"] = plain
    spec.loader.exec_module(plain)
    work = built_in(stream(0, "train", "resnet18", "closed"), "resnet18", "closed", 600.0)
    policy = Gaia().policy()
    play(work, policy)
    ours = cpu_s(lambda: [play(work, policy) for _ in range(20)]) / 20
    theirs = cpu_s(lambda: plain.play(work, plain.Rules("cpu_preferred"), 0))
    return {"requests per s": len(work) / ours, "ratio to plain Python": theirs / ours}


def training() -> dict[tuple[str, str], list[OffloadingWork]]:
    """Draws of the cases that no study meets."""
    return {case: [built_in(stream(seed, "train", *case), *case, 1800.0) for seed in range(DRAWS)] for case in CASES}  # type: ignore[arg-type]


def score(works: dict[Any, list[OffloadingWork]], technique: Any) -> tuple[float, float]:
    """Geometric means over all works of the mean latency in ms and of the cost in $."""
    latency, cost = [], []
    for work in itertools.chain(*works.values()):
        played = play(work, technique.policy())
        latency.append(np.log(1e3 * played.latency_s.mean()))
        cost.append(np.log(played.cost_usd(work.prices)))
    return float(np.exp(np.mean(latency))), float(np.exp(np.mean(cost)))


def sweeps(works: dict[Any, list[OffloadingWork]]) -> dict[str, Any]:
    """The settings of the baselines with the least latency times cost."""
    shots = {
        f"probes={p}, gap_ms={g}": score(works, OneShot(probes=p, gap_ms=g))
        for p, g in itertools.product((1, 2, 3, 5, 10), (0, 100, 200, 500))
    }
    arms = {
        f"cost_weight={w}, discount={d}, explore={e}, dwell_s={s}": score(works, Bandit(cost_weight=w, discount=d, explore=e, dwell_s=s))
        for w, d, e, s in itertools.product((0.0, 0.5, 1.0), (0.9, 0.95, 0.98, 1.0), (0.03, 0.1, 0.3), (60.0, 120.0, 300.0))
    }
    return {name: min(found.items(), key=lambda one: one[1][0] * one[1][1]) for name, found in (("one-shot", shots), ("bandit", arms))}


def parts(works: dict[Any, list[OffloadingWork]]) -> dict[str, tuple[float, float]]:
    """Gaia whole and with each part switched off: geometric means of latency in ms and cost in $."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for work in itertools.chain(*works.values()):
        for name, played in ablation(work).items():
            rows.setdefault(name, []).append((np.log(1e3 * played.latency_s.mean()), np.log(played.cost_usd(work.prices))))
    return {name: (float(np.exp(np.mean([a for a, _ in row]))), float(np.exp(np.mean([b for _, b in row])))) for name, row in rows.items()}


def early_looks() -> dict[str, float]:
    """Shares of first looks, drawn within the first 30 s, after which Gaia keeps a GPU that brings nothing, or leaves one that does."""
    draws = 200
    found = {"resnet18 kept on the GPU": 0.0, "tinyllama-short left on the CPU": 0.0, "tinyllama-long left on the CPU": 0.0}
    for seed in range(draws):
        for key, name in zip(found, ("resnet18", "tinyllama-short", "tinyllama-long")):
            share = play(built_in(stream(seed, "train", name, "phase"), name, "closed", 900.0), Gaia().policy()).gpu_share
            found[key] += ((share > 0.5) if name == "resnet18" else (share < 0.5)) / draws
    return found


def misfit(works: dict[Any, list[OffloadingWork]]) -> dict[str, float]:
    """Gaia over cpu-only where the GPU brings nothing: cost and latency."""
    ratios = [(play(w, Gaia().policy()), play(w, CpuOnly().policy()), w) for w in works["idle-wait", "closed"]]
    return {
        "cost": float(np.mean([a.cost_usd(w.prices) / b.cost_usd(w.prices) for a, b, w in ratios])),
        "latency": float(np.mean([a.latency_s.mean() / b.latency_s.mean() for a, b, w in ratios])),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--day", action="store_true", help="play 1,000 functions for 24 h too")
    wanted = parser.parse_args()
    found: dict[str, Any] = {"inspector": inspector()}
    print("inspector, CPU seconds:", ", ".join(f"{name} {value:.2f}" for name, value in found["inspector"].items()))
    found["platform"] = platform()
    print("platform:", ", ".join(f"{name} {value:,.0f}" for name, value in found["platform"].items()))
    works = training()
    techniques = (CpuOnly(), GpuOnly(), StaticHint(), OneShot(), Bandit(), Gaia())
    found["techniques"] = {type(one).__name__: score(works, one) for one in techniques}
    print("geometric means over training draws, ms and $:")
    for name, (latency, cost) in found["techniques"].items():
        print(f"  {name:<12} {latency:8.0f} {cost:.4f}")
    found["ablation"] = parts(works)
    for name, (latency, cost) in found["ablation"].items():
        print(f"  {name:<42} {latency:8.0f} {cost:.4f}")
    found["early looks"] = early_looks()
    print("first looks:", ", ".join(f"{name} {100 * value:.0f} %" for name, value in found["early looks"].items()))
    found["misfit"] = misfit(works)
    print("misfit over cpu-only:", ", ".join(f"{name} {value:.3f}" for name, value in found["misfit"].items()))
    found["sweeps"] = sweeps(works)
    for name, (setting, (latency, cost)) in found["sweeps"].items():
        print(f"best {name}: {setting} ({latency:.0f} ms, {cost:.4f} $)")
    if wanted.day:
        start = time.process_time()
        work = fleet(stream(0, "train", "fleet"), 1000, 86_400.0, 10_000_000)
        drawn_s, start = time.process_time() - start, time.process_time()
        played = play(work, Gaia().policy())
        found["day"] = {"requests": len(work), "draw_s": drawn_s, "play_s": time.process_time() - start, "switches": played.switches}
        print("24 h of 1,000 functions:", ", ".join(f"{name} {value:,.1f}" for name, value in found["day"].items()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
