"""How well Hestia's predictor does beside LightGBM, what each part of it brings, and how fast placements and the extender are.

python benchmarks/scheduling_colocation.py prints errors on servers that no model has seen, as ratios to attention's, with LightGBM trained
in the same run on the same samples (goals: at most 8 %, and 10 % below the trees); the table of parts, with the share of the gain from
first-fit to the oracle; milliseconds per placement on 3,132 servers with 32,408 instances (goals: 20 ms by the tables, 50 per second with
the network); and milliseconds of /filter and /prioritize together at 1,000 nodes (goal: a 99th percentile of 50 ms). --quick takes fewer.
Last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from typing import Any

import numpy as np

from armillary import catalogue
from armillary.cluster import preset
from armillary.scheduling.colocation import GradientBoosting, Hestia, Instance, OracleGreedy, Server, ablation, built_in, judge, play
from armillary.scheduling.colocation.first_fit import FirstFit
from armillary.scheduling.colocation.learning.samples import samples
from armillary.scheduling.colocation.learning.train import mape, predicted, topologies
from armillary.scheduling.colocation.simulation.play import shuffled
from armillary.scheduling.contention import Fleet
from armillary.scheduling.kubernetes import Extender, ExtenderServer
from armillary.streams import stream

FIGURES: dict[str, Any] = {}


def say(text: str) -> None:
    print(text, flush=True)


def works(names: tuple[str, ...]) -> dict[str, Any]:
    """Built-in works of the small scale."""
    found = {case.name: case for case in catalogue.arena("scheduling/colocation").built_in("small")}
    return {name: found[name].at(0, 0).workload for name in names}


def predictors(count: int) -> None:
    """Errors on samples that no predictor was trained on; LightGBM is the peer, trained on the same samples as our trees."""
    held = samples(stream(0, "colocation", "benchmark"), topologies(), 4000)
    ours = {"attention": mape(Hestia().model(), held), "our trees": mape(GradientBoosting().model(), held)}
    try:
        import lightgbm
    except ImportError:
        say("LightGBM is not installed")
    else:
        drawn = samples(stream(0, "colocation", "train"), topologies(), count)
        made = lightgbm.LGBMRegressor(n_estimators=250, num_leaves=31, learning_rate=0.08, n_jobs=1, verbose=-1, random_state=0)
        made.fit(drawn.columns.astype(np.float32), drawn.target)
        said = np.maximum(made.predict(held.columns.astype(np.float32)), 0.0)
        ours["LightGBM"] = float(np.mean(np.abs(np.exp(said - held.target) - 1)))
    for name, error in ours.items():
        FIGURES[f"MAPE of {name}"] = error
        say(f"{name:12} MAPE {100 * error:.2f} %, {error / ours['attention']:.2f} of attention's")
    model = Hestia().model()
    predicted(model, held)
    begin = time.perf_counter()
    predicted(model, held)
    say(f"attention: {1e6 * (time.perf_counter() - begin) / len(held):.0f} µs per prediction of {held.counts.mean():.1f} tokens")


def parts(names: tuple[str, ...]) -> None:
    """p95_stretch, p95_worst and CPU with one part switched off, and the share of the oracle's gain over first-fit."""
    for name, work in works(names).items():
        found = ablation(work)
        bounds = {label: play(work, made).metrics() for label, made in (("first-fit", FirstFit()), ("oracle", OracleGreedy()))}
        say(name)
        for label, values in {**{part: played.metrics() for part, played in found.items()}, **bounds}.items():
            shown = {key: values[key] for key in ("p95_stretch", "p95_worst", "cpu_cores", "moves")}
            FIGURES[f"{name}, {label}"] = shown
            say(f"  {label:22} " + "  ".join(f"{key} {value:.4g}" for key, value in shown.items()))
        logs = [np.log(v["p95_stretch"]) for v in (bounds["first-fit"], found["hestia"].metrics(), bounds["oracle"])]
        FIGURES[f"{name}, share of the oracle's gain"] = share = float((logs[0] - logs[1]) / (logs[0] - logs[2]))
        say(f"  share of the gain from first-fit to the oracle: {share:.2f}")


def speed(servers: int, instances: int, timed: int) -> None:
    """Placements on the paper's population when three quarters of the threads are taken, with the network and by the tables alone."""
    fleet = Fleet.of(preset("smt-2x16x2"), servers)
    work = built_in(np.random.default_rng(0), fleet, population="mixed", instances=instances, requests=100)
    packing = shuffled(work, np.random.default_rng(1))
    for label, made in (("with the network", Hestia()), ("by the tables", Hestia(top=0))):
        scene = work.scene(packing.copy())
        begin = time.perf_counter()
        scheduler = made.scheduler(scene)
        scheduler.ranked(0, 1)
        ready = time.perf_counter() - begin
        taken = []
        for i in range(timed):
            scene.packing.take(i)
            begin = time.perf_counter()
            place = scheduler.place(i)
            taken.append(time.perf_counter() - begin)
            scene.packing.put(i, *place)
        mean = float(np.mean(taken))
        FIGURES[f"placement {label}"] = {"servers": servers, "ms": 1e3 * mean, "p99_ms": 1e3 * float(np.quantile(taken, 0.99))}
        say(f"{servers:,} servers, {label}: {1e3 * mean:.1f} ms per placement (p99 {1e3 * np.quantile(taken, 0.99):.1f}), "
            f"{1 / mean:.0f} per s; {instances:,} instances in {mean * instances / 60:.1f} min; ready after {ready:.1f} s")  # fmt: skip


def extender(nodes: int, asked: int) -> None:
    """`/filter` and `/prioritize` together over HTTP, with nodes by name."""
    topology = Fleet.of(preset("smt-2x16x2")).topologies[0]
    rng = np.random.default_rng(0)
    servers = []
    for m in range(nodes):
        cpi, mpki, memory, network = (rng.uniform(low, high, 8).tolist() for low, high in ((0.5, 1.8), (1, 25), (1, 10), (20, 300)))
        residents = tuple(
            Instance(
                f"i{m}-{j}", f"a{j}", 4, cpu_cores=2.0, rps=100.0, cpi=cpi[j], mpki=mpki[j], mem_gbps=memory[j], net_mbps=network[j],
                cpuset=f"{4 * j}-{4 * j + 3}",
            )
            for j in range(8)
        )
        servers.append(Server(f"n{m}", topology, residents[: 4 + m % 5]))
    pod = {
        "metadata": {"name": "p", "annotations": {"armillary.dev/app": "a3"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]},
    }
    body = json.dumps({"Pod": pod, "NodeNames": [server.name for server in servers]}).encode()
    with ExtenderServer(Extender(judge(Hestia.load(servers)))) as server:
        taken = []
        for _ in range(asked + 1):
            begin = time.perf_counter()
            for verb in ("filter", "prioritize"):
                request = urllib.request.Request(f"{server.url}/{verb}", body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answer.read()
            taken.append(time.perf_counter() - begin)
    median, p99 = 1e3 * float(np.median(taken[1:])), 1e3 * float(np.quantile(taken[1:], 0.99))
    FIGURES["extender"] = {"nodes": nodes, "median_ms": median, "p99_ms": p99, "first_s": taken[0]}
    say(f"extender, {nodes:,} nodes: median {median:.1f} ms, p99 {p99:.1f} ms; the first answer took {taken[0]:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer cases and servers")
    parser.add_argument("--only", choices=("predictors", "parts", "speed", "extender"))
    how = parser.parse_args()
    quick = how.quick
    jobs: dict[str, Any] = {
        "predictors": lambda: predictors(4_000 if quick else 40_000),
        "parts": lambda: parts(("mixed",) if quick else ("sc-heavy", "ss-heavy", "mixed", "calm")),
        "speed": lambda: speed(*((200, 2_000, 30) if quick else (3_132, 32_408, 200))),
        "extender": lambda: extender(100 if quick else 1_000, 20 if quick else 200),
    }
    for name, job in jobs.items():
        if how.only in (None, name):
            job()
    say(json.dumps(FIGURES))


if __name__ == "__main__":
    main()
