"""How good and how fast TRACE is beside LightGBM on the same pairs, what each part brings, and what a large cloud costs.

python benchmarks/scheduling_vm.py trains LightGBM's regressor and ranker on TRACE's training pairs and prints for all of them the error of
the predicted QoS and the NDCG of lists of eight hosts, on fleets that nobody trained on; pairs per CPU second of TRACE, of boosted-pairs
and of LightGBM itself (goal: 50 times boosted-pairs); QoS with each part of TRACE switched off on the first two cases; and seconds and
memory for the scores of 20,000 VMs on 1,000 hosts. With `--large` these are 100,000 VMs and 5,000 hosts (goals: embeddings within 20 s,
scores within 60 s, 4 GiB). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary.learn import obtain
from armillary.scheduling.vm import BoostedPairs, Ranker, Trace, ablation, built_in, ndcg
from armillary.scheduling.vm.arena import vm
from armillary.scheduling.vm.learning.samples import Snapshot, pairs, snapshots
from armillary.scheduling.vm.learning.towers import Towers
from armillary.scheduling.vm.problem.state import State


def cpu_s(work: Callable[[], Any], turns: int = 5) -> float:
    """The median CPU seconds of one call."""
    work()
    taken = []
    for _ in range(turns):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return float(np.median(taken))


def list_inputs(rows: tuple[Snapshot, ...]) -> tuple[Any, Any]:
    """VM and host features of all lists, [lists, 8, 44], and their QoS."""
    x = [np.concatenate([np.repeat(o.x[o.vms][:, None], 8, 1), o.host_x[o.lists]], 2) for o in rows]
    return np.concatenate(x), np.concatenate([o.qos for o in rows])


def trace_lists(rows: tuple[Snapshot, ...]) -> Any:
    """TRACE's q̂ of all lists."""
    towers = Towers(obtain(Trace().recipe()))
    found = []
    for one in rows:
        standard = towers.standard(one.x.astype(np.float64))
        e_v = towers.encode_vms(standard[one.vms])
        e_p = towers.encode_hosts(one.host_x.astype(np.float64), standard[np.maximum(one.sets, 0)], one.sets >= 0)
        found.append(np.take_along_axis(towers.scores(e_v, e_p), one.lists, 1))
    return np.concatenate(found)


def accuracy() -> tuple[dict[str, dict[str, float]], Any]:
    """Error and NDCG of every learner on fleets that none was trained on, and LightGBM's regressor."""
    import lightgbm

    rows, held = snapshots()
    x, y = pairs(rows)
    lists, truth = list_inputs(held)
    flat = lists.reshape(-1, lists.shape[-1])
    how: dict[str, Any] = {"n_estimators": 300, "num_leaves": 31, "n_jobs": 1, "verbose": -1, "deterministic": True, "seed": 0}
    regressor = lightgbm.LGBMRegressor(**how).fit(x, y)
    many, known = list_inputs(rows)
    grades = np.argsort(np.argsort(known, 1), 1)
    ranker = lightgbm.LGBMRanker(**how).fit(many.reshape(-1, many.shape[-1]), grades.reshape(-1), group=[8] * len(many))
    from armillary.scheduling.vm.learning.rivals import boosted

    ours = boosted(obtain(BoostedPairs().recipe()))(flat.astype(np.float32))
    peers = {"boosted-pairs": ours, "lightgbm regressor": regressor.predict(flat), "lightgbm ranker": ranker.predict(flat)}
    said: dict[str, Any] = {"trace": trace_lists(held)} | {name: np.reshape(scores, truth.shape) for name, scores in peers.items()}
    found = {}
    for name, scores in said.items():
        found[name] = {"ndcg": ndcg(scores, truth)} | ({} if "ranker" in name else {"qos_mae": float(np.abs(scores - truth).mean())})
    return found, regressor


def state_of(hosts: int, vms: int) -> State:
    """The first state of a built-in cloud."""
    work = built_in(np.random.default_rng(3), hosts=hosts, vms=vms, rounds=1, overcommit=1.3)
    return work.state(work.start - 1, work.host, work.judge.played(work.start - 1, work.host))


def speeds(regressor: Any) -> dict[str, float]:
    """Pairs per CPU second for 900 new VMs on 60 hosts, on one thread."""
    state = state_of(60, 900)
    every = np.arange(900)
    work = built_in(np.random.default_rng(0), hosts=3, vms=20, rounds=1)
    rankers: dict[str, Ranker] = {"trace": Trace().ranker(work), "boosted-pairs": BoostedPairs().ranker(work)}
    found = {name: 54_000 / cpu_s(functools.partial(ranker.new_scores, state, every)) for name, ranker in rankers.items()}
    x = np.concatenate([np.repeat(state.x[:, None], 60, 1), np.repeat(state.host_x[None], 900, 0)], 2).reshape(54_000, -1)
    return found | {"lightgbm": 54_000 / cpu_s(lambda: regressor.predict(x, num_threads=1), 3)}


def parts() -> dict[str, float]:
    """Mean QoS over an interfering and a bursty cloud with each part of TRACE switched off, and the moves."""
    total: dict[str, float] = {}
    for name in ("interfering", "bursty"):
        work = next(case for case in vm.built_in("small") if case.name == name).at(0, 0).workload
        for part, played in ablation(work).items():
            found = played.metrics()
            total[part] = total.get(part, 0.0) + found["qos_mean"] / 2
            total[f"{part}: moves"] = total.get(f"{part}: moves", 0.0) + found["migrations"]
    return total


def cost(hosts: int, vms: int) -> dict[str, float]:
    """CPU seconds of the embeddings and of all scores in blocks, and the peak of memory in GiB."""
    state = state_of(hosts, vms)
    towers = Towers(obtain(Trace().recipe()))
    start = time.process_time()
    standard = towers.standard(state.x)
    e_v, e_p = towers.encode_vms(standard), towers.hosts_of(state, standard)
    middle = time.process_time()
    best = 0.0
    for i in range(0, len(e_v), 4096):
        best = max(best, float(towers.scores(e_v[i : i + 4096], e_p).max()))
    assert 0 < best <= 1
    return {
        "hosts": hosts, "vms": vms, "embeddings_s": middle - start, "scores_s": time.process_time() - middle,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20),
    }  # fmt: skip


def main() -> None:
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    wanted = parser.parse_args()
    with threadpool_limits(1):
        scale = cost(5_000, 100_000) if wanted.large else cost(1_000, 20_000)
        print(f"{scale['vms']:,} VMs on {scale['hosts']:,} hosts: embeddings {scale['embeddings_s']:.1f} s, "
              f"scores {scale['scores_s']:.1f} s, {scale['peak_gib']:.2f} GiB")  # fmt: skip
        found, regressor = accuracy()
        for name, values in found.items():
            print(f"{name:<20}" + ", ".join(f"{metric} {value:.4f}" for metric, value in values.items()))
        fast = speeds(regressor)
        for name, value in fast.items():
            print(f"{name:<20}{value:,.0f} pairs per CPU second")
        ratio = fast["trace"] / fast["boosted-pairs"]
        print(f"trace over boosted-pairs: {ratio:.1f} (goal 50); over LightGBM itself: {fast['trace'] / fast['lightgbm']:.1f}")
        brought = parts()
        for name in [name for name in brought if "moves" not in name]:
            print(f"{name:<20}QoS {brought[name]:.4f}, {brought[f'{name}: moves']:.0f} moves")
    print(json.dumps({"cost": scale, "accuracy": found, "pairs_per_s": fast, "ratio": ratio, "parts": brought}))


if __name__ == "__main__":
    main()
