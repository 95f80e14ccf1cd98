"""How fast the VNI service, the plugin and the simulations of network/tenancy are on this machine, and what each part of vni-netns brings.

python benchmarks/network_tenancy.py prints acquires per second with 1,000 allocated, of the table of free VNIs and of the published search
in one run, as ratios of CPU seconds and of seconds (goal: 50); the 99th percentile of an acquire with 10,000 allocated (goal: 2 ms); the
seconds in which a database is made (goal: 1 s); webhooks per second over HTTP; CPU seconds of one run of the plugin and of one call of a
hook, which are the constants of the simulation; the table of ablations; how much the time of the plugin delays pods; and, with --large,
the seconds of a churn of 10,000 jobs (goal: 60 s). Last, one JSON object. --folder names another disk.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary.network.tenancy import VniDatabase, VniNetns, VniService
from armillary.network.tenancy.service.measured import plugin_seconds, requests_per_s
from armillary.network.tenancy.service.published import PublishedDatabase
from armillary.network.tenancy.simulation.attacks import attack, draw
from armillary.network.tenancy.simulation.jobs import play, play_native
from armillary.network.tenancy.workload import churn, ramp, spike

ALLOCATED, LIVE = 1_000, 10_000


def acquires(made: type[VniDatabase], path: Path, many: int, *, durable: bool, journal: str = "WAL") -> dict[str, float]:
    """Acquires per second and per CPU second with 1,000 allocated."""
    with made(path, durable=durable) as base:
        base._connection.execute(f"PRAGMA journal_mode = {journal}")
        with base.together():
            for i in range(ALLOCATED):
                base._run("INSERT INTO allocation VALUES ('n', ?, ?, 'job', '')", f"first-{i}", 100 + i)
                if made is VniDatabase:
                    base._run("DELETE FROM free WHERE vni = ?", 100 + i)
        began, used = time.perf_counter(), time.process_time()
        for i in range(many):
            base.acquire(f"o{i}", "n")
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
    return {"per_s": many / seconds, "per_cpu_s": many / cpu}


def beside_the_published_search(folder: Path) -> dict[str, float]:
    """Both in turn, three times; the medians."""
    runs: dict[str, list[dict[str, float]]] = {"table": [], "search": [], "table durable": [], "search as shipped": []}
    for turn in range(3):
        runs["table"].append(acquires(VniDatabase, folder / f"a{turn}", 2000, durable=False))
        runs["search"].append(acquires(PublishedDatabase, folder / f"b{turn}", 40, durable=False))
        runs["table durable"].append(acquires(VniDatabase, folder / f"c{turn}", 500, durable=True))
        runs["search as shipped"].append(acquires(PublishedDatabase, folder / f"d{turn}", 40, durable=True, journal="DELETE"))
    found = {f"{name}: {what}": float(np.median([run[what] for run in many])) for name, many in runs.items() for what in many[0]}
    found["ratio, seconds"] = found["table: per_s"] / found["search: per_s"]
    found["ratio, CPU seconds"] = found["table: per_cpu_s"] / found["search: per_cpu_s"]
    found["ratio, durable over as shipped, seconds"] = found["table durable: per_s"] / found["search as shipped: per_s"]
    return found


def tails(folder: Path) -> dict[str, float]:
    """Milliseconds of an acquire with 10,000 live, and seconds until a new database is there."""
    found = {}
    for durable in (False, True):
        began = time.perf_counter()
        base = VniDatabase(folder / f"tail-{durable}", durable=durable)
        found[f"made in s, durable={durable}"] = time.perf_counter() - began
        with base, base.together():
            for i in range(LIVE):
                base.acquire(f"live-{i}", "n")
        with VniDatabase(folder / f"tail-{durable}", durable=durable) as base:
            taken = []
            for i in range(1000):
                start = time.perf_counter()
                base.acquire(f"o{i}", "n")
                taken.append(1e3 * (time.perf_counter() - start))
            found[f"acquire p50 ms, durable={durable}"] = float(np.quantile(taken, 0.5))
            found[f"acquire p99 ms, durable={durable}"] = float(np.quantile(taken, 0.99))
    return found


def service(folder: Path) -> dict[str, float]:
    """Webhooks per second, and CPU seconds of a hook (client and server together) and of the plugin."""
    found = {}
    with VniDatabase(folder / "shared") as base:
        began = time.perf_counter()
        for first in range(0, 2000, 25):
            with base.together():
                for i in range(first, first + 25):
                    base.acquire(f"o{i}", "n")
        found["durable acquires per s, 25 to a commit as with 25 workers"] = 2000 / (time.perf_counter() - began)
    for durable in (True, False):
        with VniService(folder / f"http-{durable}", durable=durable) as one:
            used = time.process_time()
            found[f"webhooks per s, durable={durable}"] = requests_per_s(one, 500)
            found[f"CPU s per webhook, client included, durable={durable}"] = (time.process_time() - used) / 2000
    seconds, real = plugin_seconds(21)
    return {**found, "CPU s per plugin": seconds, "real network namespace": float(real)}


def ablations() -> dict[str, dict[str, float]]:
    """Violations in four scenes, hazards and refusals of a churn, and the delay of starts, with one part switched off."""
    ways: dict[str, VniNetns] = {
        "vni-netns": VniNetns(), "no quarantine": VniNetns(quarantine_s=0), "quarantine of 20 s": VniNetns(quarantine_s=20),
        "no free table": VniNetns(free_table=False), "no free table, no quarantine": VniNetns(free_table=False, quarantine_s=0),
        "finalize as published": VniNetns(published_finalize=True), "stale services stay": VniNetns(clear_stale=False),
        "default service enabled": VniNetns(default_service=True),
    }  # fmt: skip
    scenes = [draw(np.random.default_rng(seed), 4, 2, 12) for seed in range(4)]
    work = churn(np.random.default_rng(0), 400, 300)
    native = play_native(work)
    table = {}
    for name, way in ways.items():
        played = play(way, work, native)
        table[name] = {
            "violations": float(sum(attack(way, scene).total for scene in scenes)), "hazards": float(played.hazards),
            "refused": float(played.failures), "hook_errors": float(played.errors), "start_overhead_%": played.metrics()["start_overhead"],
        }  # fmt: skip
    return table


def plugin_times() -> dict[str, Any]:
    """Percent by which pods start later, by milliseconds of the plugin and by how many pods of a node it serves at once."""
    table: dict[str, Any] = {}
    works = {
        "ramp": [ramp(np.random.default_rng(s), 10, 10) for s in range(4)],
        "spike": [spike(np.random.default_rng(s), 500) for s in range(4)],
    }
    for at_once in (1, 2, 8):
        for ms in (10.0, 30.0, 45.0, 65.0, 90.0):
            row = {}
            for kind, draws in works.items():
                many = [replace(work, kubernetes=replace(work.kubernetes, cni_at_once=at_once)) for work in draws]
                row[kind] = float(np.mean([play(VniNetns(cni_ms=ms), work).metrics()["start_overhead"] for work in many]))
            table[f"{at_once} at once, {ms:g} ms"] = row
    return table


def main() -> None:
    """Prints everything."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--large", action="store_true")
    arguments.add_argument("--folder")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        found: dict[str, Any] = {"search": beside_the_published_search(folder), "tails": tails(folder), "service": service(folder)}
    found |= {"ablations": ablations(), "plugin": plugin_times()}
    if given.large:
        used = time.process_time()
        play(VniNetns(), churn(np.random.default_rng(0), 10_000, 420))
        found["churn of 10,000, CPU s"] = time.process_time() - used
    for part, rows in found.items():
        print(part)
        for row, value in rows.items() if isinstance(rows, dict) else [("", rows)]:
            print(f"  {row}: " + (", ".join(f"{k} {v:.4g}" for k, v in value.items()) if isinstance(value, dict) else f"{value:.4g}"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
