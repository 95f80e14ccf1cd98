"""How fast scheduling/functions decides and plays on this machine, and how fast the Kubernetes scheduler extender answers.

python benchmarks/scheduling_functions.py prints decisions and calls per second of DHRT (goal: 20,000 decisions per second); calls per
second of a queue on one node beside SimPy's in the same run, as a ratio, with equal ends; microseconds of `Dhrt.allocate` from Python;
milliseconds of /filter and /prioritize together at 1,000 nodes, by names and as objects (goal: a 99th percentile of 50 ms); the table of
parts; and, with --large, seconds of two million calls on 200 nodes (goal: 180 s). Last, one JSON object.
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from typing import Any

import numpy as np

from armillary.scheduling.functions import Call, Calls, Dhrt, FixedLeastLoaded, Fleet, NodeType, Profile, Worker, ablation, judge, play
from armillary.scheduling.functions.problem.fleet import built_in as fleet
from armillary.scheduling.functions.problem.functions import PROFILES
from armillary.scheduling.functions.workload import built_in, owned

NODES, ASKED = 1000, 300


def work(calls: int, load: float = 0.7, times: int = 1, misfit: bool = False) -> Any:
    """The built-in functions."""
    return built_in(np.random.default_rng(0), fleet(times), names=tuple(PROFILES), calls=calls, load=load, misfit=misfit)


def rates() -> dict[str, float]:
    """Decisions and calls per CPU second."""
    what = work(20_000, 0.95)
    play(what, Dhrt().policy(), np.random.default_rng(0))
    start = time.process_time()
    played = play(what, Dhrt().policy(), np.random.default_rng(0))
    taken = time.process_time() - start
    return {"decisions_per_s": played.decisions / taken, "calls_per_s": len(what.calls) / taken}


def beside_simpy(calls: int = 20_000) -> dict[str, float]:
    """One function on one node of 16 cores, first come, first served, here and in SimPy."""
    import simpy

    rng = np.random.default_rng(0)
    run_s = 1.0
    arrival = np.sort(rng.uniform(0, calls * run_s / 16 / 0.95, calls))
    noise = rng.lognormal(0, 0.5, calls)
    drawn = Calls(np.zeros(calls, np.int64), arrival, arrival + 100, np.ones(calls), noise, np.ones(calls), np.full(calls, 64.0))
    one = Fleet((NodeType("standard", 16, 1.0, 1.0, 65536),), (1,))
    what = owned(one, [Profile("f", 10 * run_s, 0.0, 64, cold_s=0.0, vcpu=1.0)], drawn, rng)
    play(what, FixedLeastLoaded().policy(what), np.random.default_rng(0))
    start = time.process_time()
    ours = play(what, FixedLeastLoaded().policy(what), np.random.default_rng(0)).end_s
    mine = time.process_time() - start

    start = time.process_time()
    env = simpy.Environment()
    cores = simpy.Resource(env, 16)
    ends = np.zeros(calls)

    def call(i: int) -> Any:
        yield env.timeout(arrival[i])
        with cores.request() as turn:
            yield turn
            yield env.timeout(run_s * noise[i])
        ends[i] = env.now

    for i in range(calls):
        env.process(call(i))
    env.run()
    theirs = time.process_time() - start
    differ = float(np.abs(ours - ends).max())
    return {"ours_calls_per_s": calls / mine, "simpy_calls_per_s": calls / theirs, "ratio": theirs / mine, "differ_s": differ}


def learned() -> Dhrt:
    """A DHRT that knows a function on three node types."""
    dhrt = Dhrt()
    for i in range(60):
        kind, speed = (("old", 0.7), ("standard", 1.0), ("fast", 1.6))[i % 3]
        v = (1.0, 2.0, 4.0)[i // 3 % 3]
        dhrt.observe(Call("f", 1), 8 / speed, 8 / speed * (0.1 + 0.9 / v), 300, Worker(kind, kind, 32, 32, speed=speed), v)
    return dhrt


def allocations(turns: int = 2000) -> dict[str, float]:
    """Microseconds of one allocation from Python, on ten nodes."""
    dhrt = learned()
    nodes = [Worker(f"n{i}", ("old", "standard", "fast")[i % 3], 16, 8 + i % 5, speed=(0.7, 1.0, 1.6)[i % 3]) for i in range(10)]
    dhrt.allocate(Call("f", 5.0), nodes)
    start = time.process_time()
    for i in range(turns):
        dhrt.allocate(Call("f", 2.0 + i % 7), nodes)
    return {"allocate_us": 1e6 * (time.process_time() - start) / turns}


def node(i: int) -> dict[str, Any]:
    """A node as a kubelet reports it, with images and conditions, about 3.5 kB."""
    kind = ("old", "standard", "fast")[i % 3]
    images = [{"names": [f"registry.example/library/image-{k}@sha256:{k:064x}"], "sizeBytes": 10_000_000 + k} for k in range(15)]
    conditions = [
        {"type": name, "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "reason": "KubeletHas", "message": "kubelet is fine"}
        for name in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    status = {"allocatable": {"cpu": "31850m", "memory": "126Gi", "pods": "110"}, "conditions": conditions, "images": images}
    return {
        "metadata": {"name": f"node-{i}", "resourceVersion": str(i), "labels": {"node.kubernetes.io/instance-type": kind}},
        "status": status,
    }


def extender() -> dict[str, float]:
    """Milliseconds of /filter and then /prioritize, one after the other on one connection, as a scheduler asks."""
    from armillary.scheduling.kubernetes import Extender, ExtenderServer

    nodes = [node(i) for i in range(NODES)]
    notes = {"armillary.dev/function": "f", "armillary.dev/deadline-seconds": "8"}
    pod = {"metadata": {"name": "p", "annotations": notes}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    found: dict[str, float] = {}
    with ExtenderServer(Extender(judge(learned(), speeds={"old": 0.7, "fast": 1.6}), nodes=nodes)) as server:
        for form, rest in (("names", {"NodeNames": [n["metadata"]["name"] for n in nodes]}), ("objects", {"Nodes": {"items": nodes}})):
            body = json.dumps({"Pod": pod, **rest}).encode()
            line = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=30)
            taken, cpu, turns = [], time.process_time(), ASKED if form == "names" else ASKED // 5
            for _ in range(turns):
                start = time.perf_counter()
                for verb in ("/filter", "/prioritize"):
                    line.request("POST", verb, body, {"content-type": "application/json"})
                    reply = line.getresponse()
                    assert reply.status == 200, reply.status
                    reply.read()
                taken.append(1e3 * (time.perf_counter() - start))
            line.close()
            found[f"extender_{form}_cpu_ms"] = 1e3 * (time.process_time() - cpu) / turns  # the asking side is in it
            found |= {f"extender_{form}_p50_ms": float(np.median(taken)), f"extender_{form}_p99_ms": float(np.quantile(taken, 0.99))}
            found[f"extender_{form}_kb"] = len(body) / 1e3
    return found


def parts() -> dict[str, float]:
    """Missed deadlines, in percent, and core-seconds per call in time, with one part of DHRT switched off."""
    found: dict[str, float] = {}
    works = {"0.4": work(20_000, 0.4), "0.7": work(20_000), "0.95": work(20_000, 0.95), "misfit": work(20_000, misfit=True)}
    rows = {name: ablation(what) for name, what in works.items()}
    print(f"{'':26s}" + "".join(f"{name:>18s}" for name in works))
    for part in rows["0.7"]:
        values = [rows[name][part].metrics() for name in works]
        print(f"{part:26s}" + "".join(f"{100 * v['deadline_missed']:9.2f} %{v['core_s_per_met']:7.2f}" for v in values))
        found |= {f"{part}/{name}": v["deadline_missed"] for name, v in zip(works, values)}
    return found


def large() -> dict[str, float]:
    """Two million calls on 200 nodes."""
    what = work(2_000_000, 0.7, 20)
    start = time.process_time()
    played = play(what, Dhrt().policy(), np.random.default_rng(0))
    return {"large_s": time.process_time() - start, "large_missed": float(played.missed.mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="two million calls, too")
    chosen = parser.parse_args()
    found: dict[str, float] = {}
    for part in (rates, beside_simpy, allocations, extender, *((large,) if chosen.large else ())):
        values = part()
        print(", ".join(f"{name} {value:,.4g}" for name, value in values.items()))
        found |= values
    found |= parts()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
