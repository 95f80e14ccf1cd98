"""A block, a node or two nodes are gone: which repair plan rebuilds the data soonest with the bandwidth that is free now?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from .own_placement.bandwidth import Bandwidth
    from .own_placement.placement import Placement
    from .plans.planner import Planner
    from .workload import Work

repair = Arena(
    "storage/repair",
    question="A block, a node or two nodes are gone: which repair plan rebuilds the data soonest with the bandwidth that is free now?",
    metrics=[
        Metric("repair_throughput", unit="MB/s", better="higher", kind="simulated", doc="rebuilt data per second, until the last byte"),
        Metric("repair_s", unit="s", better="lower", kind="simulated", unbounded=True,
               doc="time until the last byte is rebuilt; infinite if a byte is wrong"),
        Metric("up_utilisation", better=None, kind="simulated", scale="difference", doc="of the uplinks of all live nodes"),
        Metric("down_utilisation", better=None, kind="simulated", scale="difference", doc="of the downlinks of all live nodes"),
        Metric("network_bytes", better="lower", kind="simulated", doc="bytes that hosts send per rebuilt byte"),
        Metric("cross_rack_bytes", better="lower", kind="simulated", doc="bytes over rack uplinks per rebuilt byte; 0 counts as 1e-9"),
        Metric("plan_ms", unit="ms", better="lower", kind="measured", doc="time to make the first plan"),
        Metric("decode_MBps", unit="MB/s", better="higher", kind="measured",
               doc="rebuilt bytes per second of arithmetic along the trees, on one thread"),
        Metric("correct", better="higher", kind="measured", steady=True, scale="difference",
               doc="1 if every rebuilt byte equals the lost one"),
    ],
    techniques={
        "conventional": ".conventional:Conventional",
        "ppr": ".ppr:Ppr",
        "rp": ".rp:Rp",
        "pivot": ".pivot:Pivot",
        "fullrepair": ".fullrepair:FullRepair",
        "switch-tree": ".switch_tree:SwitchTree",
        "repairboost": ".repairboost:RepairBoost",
        "ran": ".ran:Ran",
    },
    papers={"ran": "ran"},
    baseline="fullrepair",
    tradeoff=("repair_throughput", "network_bytes"),
    repeats=1,
    telling=("degraded-read/9-6/uniform/1", "degraded-read/14-10/down-scarce/1", "degraded-read/14-10/hotspot/1", "double/14-10/uniform/1",
             "node/6-4/hotspot/1", "node/9-6/down-scarce/1", "node/14-10/uniform/5", "two-nodes/14-10/drifting/1"),
    constants=[
        Constant("window", 64, "blocks", "ours: lost blocks that are repaired at once; no paper gives its own number"),
        Constant("switch aggregation", "line rate", "", "all ports of a switch together, as SwitchML reports (NSDI 2021)"),
    ],
)  # fmt: skip

CODES = ((6, 4), (9, 6), (14, 10), (16, 12))
STRIPES = {"tiny": 20, "small": 200, "large": 100_000}
BLOCK = {"tiny": 1 << 20, "small": 64 << 20, "large": 64 << 20}
#: The bytes of a block on which the arithmetic is really done, for single stripes and for whole nodes.
REAL = {"tiny": (16 << 10, 4 << 10), "small": (1 << 20, 32 << 10), "large": (1 << 20, 4 << 10)}


@repair.cases
def cases(scale: str) -> Iterator[Case]:
    """Combines codes, bandwidths, failures and oversubscription; where there would be too many cases, only the (14, 10) code is used."""
    bandwidths = ("uniform", "down-scarce", "hotspot", "drifting")
    for failure in ("degraded-read", "node"):
        for code in CODES if scale != "tiny" else CODES[::2]:
            for bandwidth in bandwidths:
                yield _case(scale, code, bandwidth, failure, 1)
        for oversubscription in (3, 5):
            for bandwidth in ("uniform", "down-scarce"):
                yield _case(scale, (14, 10), bandwidth, failure, oversubscription)
    for failure in ("double", "two-nodes"):
        for bandwidth in bandwidths:
            yield _case(scale, (14, 10), bandwidth, failure, 1)


def _case(scale: str, code: tuple[int, int], bandwidth: str, failure: str, oversubscription: int) -> Case:
    n, k = code
    whole = failure in ("node", "two-nodes")
    parameters = {
        "n": n, "k": k, "bandwidth": bandwidth, "failure": failure, "oversubscription": oversubscription, "stripes": STRIPES[scale],
        "block": BLOCK[scale], "real_bytes": REAL[scale][whole],
    }  # fmt: skip
    kinds = {failure, bandwidth, f"{n}-{k}", "oversubscribed" if oversubscription > 1 else "flat", "many" if whole else "few"}
    return Case(f"{failure}/{n}-{k}/{bandwidth}/{oversubscription}", _make, parameters, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """How a placement is read, what is lost, and which bandwidth is free."""

    k: int = parameter(0, "data blocks per stripe; 0 takes them from the file", range=(0, 255))
    m: int = parameter(0, "parity blocks per stripe; 0 takes them from the file", range=(0, 255))
    format: str = parameter("auto", "auto, csv, ceph or hdfs")
    bandwidth: str = parameter("", "a CSV file time_s,node,up_MBps,down_MBps of what is free on each node", file=True)
    lost: tuple[str, ...] = parameter((), "lost nodes, each of which is a case, as are all together; if empty, every node is tried")
    destination: str = parameter("", "the node that rebuilds the blocks; it may be any node if empty")
    block: int = parameter(64 << 20, "bytes of a block", range=(1, 1 << 40))


@repair.read(Reading)
def read(path: Path, how: Reading) -> tuple[Placement, Bandwidth, Reading]:
    """Reads a stripe placement (CSV, `ceph pg dump pgs -f json` or `hdfs fsck`) and the free bandwidth that `--bandwidth` names."""
    from .own_placement.bandwidth import Bandwidth
    from .own_placement.files import read_placement

    placement = read_placement(path, how.k or None, how.m or None, format=how.format)
    if not how.bandwidth:
        raise InputError("found no bandwidth; expected a CSV file time_s,node,up_MBps,down_MBps", where="--bandwidth")
    for name in how.lost:
        if name not in placement.nodes:
            raise InputError(f'found node "{name}"; expected one of the placement, such as "{placement.nodes[0]}"', where="--lost")
    loaded = placement, Bandwidth.read(how.bandwidth), how
    for group in _groups(loaded):
        _problem(loaded, group, seed=0)
    return loaded


@repair.own_cases
def own_cases(loaded: tuple[Placement, Bandwidth, Reading], name: str, how: Reading) -> Iterator[Case]:
    """Makes one case per group of lost nodes."""
    for group in _groups(loaded):
        kinds = frozenset({"file", "node" if len(group) == 1 else "two-nodes" if len(group) == 2 else "nodes"})
        yield Case(f"{name}@{'+'.join(group)}", _own, {"lost": list(group)}, kinds)


@repair.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes two stripes of a (4, 2) code over five nodes, and the free bandwidth of each node."""
    placement, free = folder / "placement.csv", folder / "free.csv"
    rows = [(stripe, index, f"n{(stripe + index) % 5}") for stripe in range(2) for index in range(4)]
    placement.write_text("# k=2 m=2\nstripe,index,node\n" + "".join(f"s{s},{i},{node}\n" for s, i, node in rows))
    free.write_text("time_s,node,up_MBps,down_MBps\n" + "".join(f"0,n{i},{100 + 10 * i},{120 - 5 * i}\n" for i in range(5)))
    return placement, {"bandwidth": str(free), "lost": "n0", "block": "65536"}


@repair.run
def run(planner: Planner, case: Case) -> dict[str, float]:
    """Plans against the clock, runs the plan in simulated time, and does its arithmetic on real bytes."""
    from armillary.timing import timed

    from .simulation.carrying_out import carry_out, rebuild

    work: Work = case.workload
    problem = work.problem
    plan = planner.plan(problem)
    quick = len(problem) <= 2
    plan_s = timed(lambda: planner.plan(problem), min_seconds=0.05 if quick else 0.0, min_calls=3 if quick else 1).median
    outcome = carry_out(planner, plan, work.bandwidth)
    right, arithmetic_s = rebuild(problem, outcome.pieces, work.real_bytes, work.seed)
    rebuilt = float(problem.size.sum())
    n, racks = problem.fabric.nodes, problem.fabric.racks
    live = _live(problem)
    moved, offered = outcome.pool_bytes, outcome.capacity_bytes
    return {
        # Wrong bytes are as good as none.
        "repair_throughput": rebuilt / outcome.seconds / 1e6 if right else 0.0,
        "repair_s": outcome.seconds if right else math.inf,
        "up_utilisation": float(moved[:n][live].sum() / offered[:n][live].sum()),
        "down_utilisation": float(moved[n : 2 * n][live].sum() / offered[n : 2 * n][live].sum()),
        "network_bytes": float(moved[:n].sum()) / rebuilt,
        "cross_rack_bytes": max(float(moved[2 * n : 2 * n + racks].sum()) / rebuilt, 1e-9),
        "plan_ms": 1e3 * plan_s,
        "decode_MBps": len(problem) * work.real_bytes / max(arithmetic_s, 1e-9) / 1e6,
        "correct": float(right),
    }


def _live(problem: Any) -> np.ndarray:
    """The nodes that send or may receive; failed nodes do neither."""
    found = problem.allowed.any(axis=0)
    found[problem.holder[problem.holder >= 0]] = True
    return found


@repair.warm_up
def warm_up(planner: Planner, case: Case) -> None:
    """Plans and runs a small failure of each size, so that compilation is not measured."""
    import numpy as np

    from armillary.arena import NotForThisCase

    from .simulation.carrying_out import carry_out, rebuild
    from .workload import built_in

    for failure in ("degraded-read", "node"):
        work = built_in(6, 4, "drifting", failure, 3.0, 4, 1 << 16, 1 << 10, np.random.default_rng(1))
        try:
            plan = planner.plan(work.problem)
        except NotForThisCase:
            continue
        rebuild(work.problem, carry_out(planner, plan, work.bandwidth).pieces, 1 << 10, 0)


@repair.answer
def answer(result: Result) -> str:
    """Which plan rebuilds single stripes soonest, which whole nodes, and by how much."""
    few = [case for case, facts in result.cases.items() if {"degraded-read", "double"} & set(facts["kinds"])]
    many = [case for case in result.cases if case not in few]
    said = [f"{name}, {found}" for name, cases in (("For blocks of one stripe", few), ("for whole nodes", many))
            if (found := _soonest(result, cases))]  # fmt: skip
    sentence = "; ".join(said) or "No plan was carried out to the end"
    return f"{sentence[0].upper()}{sentence[1:]} (simulated)."


def _soonest(result: Result, cases: Sequence[str]) -> str:
    """`ran rebuilds 1.2 times as fast as switch-tree, the next best over all`, or that two are level."""
    from statistics import geometric_mean

    ranked = {case: result.on(case, "repair_throughput") for case in cases}
    names = [name for name in result.techniques if ranked and all(ranked[case].get(name, 0.0) > 0 for case in cases)]
    if not names:
        return ""
    mean = {name: geometric_mean([ranked[case][name] for case in cases]) for name in names}
    best, *rest = sorted(names, key=lambda name: -mean[name])
    if not rest:
        return f"{best} rebuilds {mean[best]:.0f} MB/s"
    lead, over = mean[best] / mean[rest[0]], "" if len(cases) == 1 else f" on average over {len(cases)} cases"
    if lead < 1.01:
        return f"{best} and {rest[0]} are level at {mean[best]:.0f} MB/s{over}"
    return f"{best} rebuilds {lead:.2f} times as fast as {rest[0]}, the next best{over}"


@repair.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots the throughput by code, one panel per failure and bandwidth, without oversubscription."""

    def place(case: str, facts: Mapping[str, Any]) -> tuple[str, str] | None:
        p = facts["parameters"]
        return (f"{p['failure']}, {p['bandwidth']}", f"({p['n']}, {p['k']})") if p.get("oversubscription") == 1 else None

    return result.panels("Rebuilt MB/s by code", "repair_throughput", place, x="(n, k)", y="MB/s", least_points=2)


def _make(case: Case, rng: np.random.Generator) -> Work:
    from .workload import built_in

    p = case.parameters
    return built_in(p["n"], p["k"], p["bandwidth"], p["failure"], p["oversubscription"], p["stripes"], p["block"], p["real_bytes"], rng)


def _own(case: Case, rng: np.random.Generator) -> Work:
    return _problem(case.loaded, tuple(case.parameters["lost"]), seed=int(rng.integers(2**31)))


def _groups(loaded: tuple[Placement, Bandwidth, Reading]) -> list[tuple[str, ...]]:
    placement, _, how = loaded
    return [(name,) for name in how.lost or placement.nodes] + ([how.lost] if len(how.lost) > 1 else [])


def _problem(loaded: tuple[Placement, Bandwidth, Reading], lost: tuple[str, ...], seed: int) -> Work:
    from .workload import Work

    placement, bandwidth, how = loaded
    problem = placement.problem(lost, bandwidth, destination=how.destination or None, block=how.block)
    real = (1 << 20) if len(problem) <= 16 else (16 << 10)
    return Work(problem, bandwidth, min(real, how.block), seed)
