"""How fast scheduling/green plays and answers on this machine, how near GreenK8s comes to an exact bound, and what its parts bring.

python benchmarks/scheduling_green.py prints seconds of a play of 3,000 pods on 20 nodes; microseconds of the sun's zenith per moment
beside pvlib's in the same run, as a ratio, with the largest difference in degrees; milliseconds of a /prioritize at 1,000 nodes (goal: 50);
brown energy over the bound of an integer program on small works (goal: 1.15); the misfits beside pack-and-sleep (goal: 1.05); the table of
parts; and, with --large, seconds of 200,000 pods on 500 nodes over seven days (goal: 600 s). Last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "scheduling" / "green"))

from armillary.cluster import preset
from armillary.scheduling.energy import zenith
from armillary.scheduling.green import GreenK8s, Nodes, OracleSun, PackAndSleep, ablation, built_in, play
from armillary.scheduling.green.arena import green
from armillary.scheduling.green.sockets.files import powers_of
from armillary.scheduling.kubernetes import Extender

NODES, ASKED = 1000, 200


def played_s() -> dict[str, float]:
    """CPU seconds of one play, without the forecast and without compilation."""
    work = built_in(np.random.default_rng(0), Nodes.of(preset("k8s-20")), many=3000, days=2, latitude=35.0, weather="clear")
    policy = GreenK8s().policy(work)
    play(work, policy)
    start = time.process_time()
    play(work, policy)
    return {"play_s": time.process_time() - start}


def beside_pvlib(many: int = 200_000) -> dict[str, float]:
    """Zenith angles of one place over a year."""
    import pandas as pd
    import pvlib

    moments = 1.7e9 + np.arange(many) * 150.0
    index = pd.DatetimeIndex(pd.to_datetime(moments, unit="s", utc=True))
    start = time.process_time()
    mine = zenith(moments, 51.48, 0.0)
    ours = time.process_time() - start
    start = time.process_time()
    theirs = pvlib.solarposition.get_solarposition(index, 51.48, 0.0)["zenith"].to_numpy()
    other = time.process_time() - start
    return {"zenith_us": 1e6 * ours / many, "over_pvlib": other / ours, "zenith_off_deg": float(np.abs(mine - theirs).max())}


def extender_ms() -> dict[str, float]:
    """Milliseconds of /filter and /prioritize together at 1,000 nodes that come as objects, in this process."""
    scheduler = GreenK8s().scheduler(51.5, 0.0, powers=powers_of("k8s-20"), clock=lambda: 1718971200.0)
    scheduler.observe_sun(1718971200.0 - 900.0 * np.arange(96)[::-1], np.full(96, 5000.0))
    scheduler.observe_usage({f"n{i}": i % 16 / 2 for i in range(0, NODES, 2)})
    extender = Extender(scheduler.judge)
    nodes = [
        {"metadata": {"name": f"n{i}", "resourceVersion": "1", "labels": {"node.kubernetes.io/instance-type": "medium"}},
         "status": {"allocatable": {"cpu": "16", "memory": "64Gi"}}}
        for i in range(NODES)
    ]  # fmt: skip
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}
    taken = []
    for _ in range(ASKED):
        start = time.perf_counter()
        document = {"Pod": pod, "Nodes": {"items": nodes}}
        extender.filter(document)
        extender.prioritize(document)
        taken.append(1e3 * (time.perf_counter() - start))
    return {"extender_p50_ms": float(np.median(taken)), "extender_p99_ms": float(np.quantile(taken, 0.99))}


def beside_bound(seeds: range = range(12)) -> dict[str, float]:
    """Brown energy of GreenK8s with the true sun over the least possible, on 4 nodes, 8 pods and 12 quarters of an hour."""
    from green_ilp import SLOTS, least_brown_kwh, small_work

    from armillary.scheduling.green.problem.sunshine import CELL

    ratios = []
    for seed in seeds:
        work = small_work(seed)
        played = play(work, OracleSun().policy(work))
        power, sun = (series.reshape(SLOTS, CELL).mean(1) for series in (played.power_w, work.sun.during))
        ratios.append(float(np.maximum(0, power - sun).sum()) * 900 / 3.6e6 / least_brown_kwh(work))
    print("over the bound:", " ".join(f"{ratio:.2f}" for ratio in sorted(ratios)))
    near = float(np.mean(np.array(ratios) <= 1.15))
    return {"bound_median": float(np.median(ratios)), "bound_worst": max(ratios), "within_15_percent": near}


def misfits() -> dict[str, float]:
    """Energy over that of pack-and-sleep, the mean of four draws."""
    found = {}
    for kind in ("dark", "tight"):
        ratios = []
        for case in green.built_in("small"):
            if kind in case.kinds:
                ratios.append(play(case.workload, GreenK8s().policy(case.workload)).energy_kwh)
                ratios[-1] /= play(case.workload, PackAndSleep().policy(case.workload)).energy_kwh
        found[f"{kind}_over_pack_and_sleep"] = float(np.mean(ratios))
    return found


def parts() -> dict[str, Any]:
    """Energy, green share and missed deadlines with one part switched off, on the three usual cases."""
    rows: dict[str, list[str]] = {}
    for name in ("clear-35n", "broken-52n", "overcast-35s"):
        (case,) = [case for case in green.built_in("small") if case.name == name]
        for part, played in ablation(case.workload).items():
            m = played.metrics()
            rows.setdefault(part, []).append(f"{m['energy_kwh']:.1f} kWh, {m['green_share']:.3f}, {100 * m['deadline_missed']:.2f} %")
    for part, cells in rows.items():
        print(f"| {part} | " + " | ".join(cells) + " |")
    return rows


def large() -> dict[str, float]:
    """Seconds of the large scale."""
    (case,) = [case for case in green.built_in("large") if case.name == "clear-35n"]
    work = case.workload
    policy = GreenK8s().policy(work)
    start = time.perf_counter()
    played = play(work, policy)
    return {"large_s": time.perf_counter() - start, "large_missed": float(played.missed.mean())}


def main() -> None:
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    wanted = parser.parse_args()
    found: dict[str, Any] = {}
    for measure in (played_s, beside_pvlib, extender_ms, beside_bound, misfits, parts, *((large,) if wanted.large else ())):
        figures = measure()
        if measure is not parts:
            print(", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
        found |= figures
    print(json.dumps(found))


if __name__ == "__main__":
    main()
