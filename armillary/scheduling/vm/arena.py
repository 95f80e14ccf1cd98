"""Which host should this VM go to, or be moved to, so that nobody's quality of service drops?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .problem.fleet import Floats, Ints
    from .problem.state import State
    from .readers.azure import AzureVms
    from .readers.tables import MetricTable
    from .workload import VmWork

vm = Arena(
    "scheduling/vm",
    question="Which host should this VM go to, or be moved to, so that nobody's quality of service drops?",
    metrics=[
        Metric("qos_mean", better="higher", kind="modelled", doc="mean QoS (1/slowdown) over VMs and hours, while VMs migrate"),
        Metric("qos_p5", better="higher", kind="modelled", doc="5th percentile of the same"),
        Metric("qos_mae", kind="modelled", doc="mean error of the QoS predicted for VMs on all hosts; persistence if none is predicted"),
        Metric("ndcg@10", better="higher", kind="modelled", scale="difference", doc="NDCG of the first ten hosts against the true QoS"),
        Metric("hit@1", better="higher", kind="modelled", scale="difference", doc="share of the VMs whose first host is the best one"),
        Metric("promise_error", kind="modelled", scale="difference", on=frozenset({"contended"}),
               doc="Σ|promised − delivered|/Σ|delivered| gain of QoS of moves; 0 without moves"),
        Metric("migrations", kind="modelled", scale="difference", doc="moves in all rounds"),
        Metric("pairs_per_s", unit="1/s", better="higher", kind="measured", doc="pairs of a new VM and a host that are scored per second"),
    ],
    techniques={
        "first-fit": ".first_fit:FirstFit",
        "best-fit": ".best_fit:BestFit",
        "dot-product": ".dot_product:DotProduct",
        "least-steal": ".least_steal:LeastSteal",
        "linear-qos": ".linear_qos:LinearQos",
        "boosted-pairs": ".boosted_pairs:BoostedPairs",
        "single-tower": ".single_tower:SingleTower",
        "trace": ".trace:Trace",
        "oracle": ".oracle:Oracle",
    },
    papers={"trace": "trace"},
    baseline="best-fit",
    tradeoff=("qos_mean", "migrations"),
    repeats=1,
    telling=("interfering", "bursty", "calm"),
    constants=[
        Constant("VM sizes", "2, 4, 8, 24", "vCPU", "with shares 0.55, 0.27, 0.13 and 0.05 (chosen)"),
        Constant("deployments", 8, "VMs", "on average, which are alike and arrive together (ours)"),
        Constant("memory", "1, 2, 4", "GB/vCPU", "with shares 0.3, 0.4 and 0.3 (ours)"),
        Constant("CPU", "0.04 to 0.44", "of the vCPUs", "mean of a VM, 0.04 + 0.4·Beta(2, 3); daily wave of up to 30 % (ours)"),
        Constant("bursts", "2 to 4", "× CPU at rest", "of bursty VMs, 30 minutes on average, every 3 hours (ours)"),
        Constant("noise", 0.05, "", "of a 5-minute reading (chosen)"),
        Constant("packing", "0.80 ± 0.01", "QoS", "mean that best fit leaves; vCPUs per thread are searched for it (chosen: 0.75 to 0.85)"),
        Constant("headroom", 1.25, "", "times what packing promises may be promised to VMs that move (ours)"),
        Constant("hosts", "2 × 16 × 2", "threads", "the preset smt-2x16x2, two generations in turn"),
        Constant("contention", "0.25, 0.9, 0.15, 8", "", "smt_base, smt, socket and reach; see scheduling/contention"),
        Constant("offered", 0.01, "of the VMs", "with the worst QoS, every hour (chosen)"),
    ],
)  # fmt: skip

#: Hosts, VMs, rounds and ranked VMs.
SIZES = {"tiny": (12, 150, 6, 20), "small": (60, 900, 48, 100), "large": (5_000, 100_000, 4, 50)}
WIDE = (400, 6_000, 48, 50)
#: Each case is drawn so many times, because one packing is one cloud's luck; `compare` shows the first.
DRAWS = {"tiny": 1, "small": 4, "large": 4}
#: Pairs that the clock sees.
TIMED_VMS = 900


@vm.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """VMs that interfere, VMs with bursts, and calm ones that disturb nobody; and two wide fleets of 400 hosts."""
    from .workload import KINDS

    hosts, vms, rounds, ranked = SIZES[scale]
    for draw in range(1, DRAWS[scale] + 1):
        for kind in KINDS:
            facts = {"kind": kind, "hosts": hosts, "vms": vms, "rounds": rounds, "ranked": ranked, "draw": draw}
            yield Case(kind if draw == 1 else f"{kind}-{draw}", _built_in, facts, _kinds(kind), cluster)
    if scale != "tiny":
        for kind in KINDS[:2]:
            facts = dict(zip(("hosts", "vms", "rounds", "ranked"), WIDE)) | {"kind": kind, "draw": 1}
            yield Case(f"{kind}-wide", _built_in, facts, _kinds(kind) | {"wide"}, cluster)


def _kinds(kind: str) -> frozenset[str]:
    return frozenset({kind} if kind == "calm" else {kind, "contended"})


@dataclass(frozen=True)
class Reading:
    """How metrics or a trace are read, and what is built in where a file does not say."""

    hosts: str = parameter("", "a table of hosts beside a table of metrics", file=True)
    readings: str = parameter("", "Azure: files of CPU readings, separated by commas", file=True)
    fleet: int = parameter(60, "Azure: built-in hosts", range=(1, 20_000))
    vms: int = parameter(900, "Azure: the most VMs that are taken, in the order of the file", range=(1, 200_000))
    from_day: int = parameter(0, "Azure: the day on which the week begins", range=(0, 1000))
    rounds: int = parameter(48, "Azure: hours that are played, from the sixth day on", range=(1, 48))
    overcommit: float = parameter(
        0.0, "vCPUs that a hardware thread may promise; 0 searches for it, or allows what a table's hosts hold", range=(0.0, 64.0)
    )


@vm.read(Reading)
def read(path: Path, how: Reading) -> AzureVms | MetricTable:
    """Reads a table of metrics (CSV or Parquet), or a table of an Azure trace with its CPU readings."""
    from .readers.azure import read_azure
    from .readers.tables import is_metric_table, read_metrics

    if is_metric_table(path):
        if how.readings:
            raise InputError("found files of an Azure trace; expected none beside a table of metrics", where="--readings")
        return read_metrics(path, how.hosts)
    from .workload import DAYS, HOURS, TEST_DAY

    if how.hosts:
        raise InputError("found a table of hosts; expected none beside an Azure trace (set --fleet)", where="--hosts")
    begin = 86400.0 * how.from_day
    judged = begin + 86400.0 * TEST_DAY
    files = [Path(name) for name in how.readings.split(",") if name]
    for file in files:
        if not file.is_file():
            raise InputError("found no such file; expected CPU readings", where=f"--readings {file}")
    return read_azure(
        path, most=how.vms, begin_s=begin, alive_s=(judged, judged + 3600.0 * how.rounds), hours=DAYS * HOURS, readings=files
    )


@vm.own_cases
def own_cases(loaded: AzureVms | MetricTable, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    from .readers.azure import AzureVms

    azure = isinstance(loaded, AzureVms)
    facts = {
        "source": "azure" if azure else "table", "vms": len(loaded.names if isinstance(loaded, AzureVms) else loaded.vms),
        "hosts": how.fleet if isinstance(loaded, AzureVms) else len(loaded.hosts), "from_day": how.from_day, "rounds": how.rounds,
        "overcommit": how.overcommit,
    }  # fmt: skip
    made = Case(name, _own, facts, frozenset({"file", "contended"}))
    if not azure:
        import numpy as np

        from .readers.work import table_work

        # Says what is wrong before anything runs.
        table_work(loaded, np.random.default_rng(0), overcommit=how.overcommit or None, where=name)  # type: ignore[arg-type]
    yield made


@vm.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes ten hours of metrics of 24 VMs on four hosts."""
    import numpy as np

    from .problem.metrics import LINES

    rng = np.random.default_rng(5)
    hosts = [f"host-{i}" for i in range(4)]
    lines = ["time,host,vm,vcpu,memory_gb,cpu,ports,l2_mpki,llc_mpki,mem_gbps,net_mbps,disk_mbps,core_bound,l2_bound,llc_bound,dram_bound"]
    sizes, levels = rng.choice([2, 4, 8, 24], 24), rng.uniform(0.2, 0.7, 24)
    latent = rng.beta(2, 3, (24, 10))
    for t in range(0, 36_000, 900):
        for v in range(24):
            cpu = float(np.clip(levels[v] * rng.lognormal(0, 0.1), 0, 1))
            found = {name: low + (high - low) * latent[v, k] for k, (name, (_, _, _, low, high)) in enumerate(LINES.items())}
            row = [found["ports"], found["l2_mpki"], found["llc_mpki"], found["busy_gbps"] * sizes[v] * cpu, found["net_mbps"],
                   found["disk_mbps"], found["core_bound"], found["l2_bound"], found["llc_bound"], found["dram_bound"]]  # fmt: skip
            lines.append(f"{t},{hosts[v // 9]},vm-{v:02d},{sizes[v]},{2 * sizes[v]},{cpu:.4f}," + ",".join(f"{x:.4f}" for x in row))
    path = folder / "metrics.csv"
    path.write_text("\n".join(lines) + "\n")
    table = ["host,sockets,cores,threads,speed,memory_gb", *(f"{name},1,16,32,{1 + 0.25 * (i % 2):g},256" for i, name in enumerate(hosts))]
    (folder / "hosts.csv").write_text("\n".join(table) + "\n")
    return path, {"hosts": str(folder / "hosts.csv"), "overcommit": "3"}


@vm.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops and loads the model."""
    import numpy as np

    from .simulation.play import play
    from .workload import built_in

    work = built_in(np.random.default_rng(0), hosts=3, vms=20, rounds=1)
    ranker = technique.ranker(work)
    play(work, ranker)
    state = work.state(work.start - 1, work.host, work.judge.played(work.start - 1, work.host))
    ranker.new_scores(state, np.arange(20))


@vm.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the rounds, ranks hosts for some VMs, and times the scores of all pairs."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # The matrices are small: a second thread waits longer than it works.
    with threadpool_limits(1):
        return _run(technique, case)


def _run(technique: Any, case: Case) -> Outcome:
    import numpy as np

    from armillary.timing import timed

    from .simulation.play import play
    from .simulation.ranking import hit, ndcg

    work: VmWork = case.workload
    ranker = technique.ranker(work)
    played = play(work, ranker)
    errors, gains, hits = [], [], []
    for hour, state, vms, truth in case.once(_rankings):
        ranker.look(hour)
        scores = ranker.scores(state, vms)
        # Who predicts no QoS is taken to say that it stays what it was.
        predicted = scores if ranker.predicts else np.broadcast_to(state.qos[vms][:, None], truth.shape)
        errors.append(np.abs(predicted - truth).mean())
        gains.append(ndcg(scores, truth))
        hits.append(hit(scores, truth))
    hour, state, *_ = case.once(_rankings)[0]
    ranker.look(hour)
    # The oracle settles hosts pair by pair.
    timed_vms = np.flatnonzero(state.host >= 0)[: TIMED_VMS if not technique.oracle else 10]
    timing = timed(lambda: ranker.new_scores(state, timed_vms), min_seconds=0.05, min_calls=1)
    found = played.metrics()
    if "contended" not in case.kinds:
        del found["promise_error"]
    values = found | {
        "qos_mae": float(np.mean(errors)), "ndcg@10": float(np.mean(gains)), "hit@1": float(np.mean(hits)),
        "pairs_per_s": len(timed_vms) * len(state.hosts) / timing.median,
    }  # fmt: skip
    rows = [
        {"hour": m.hour, "vm": _name(work.population.names, m.vm), "source": work.hosts.names[m.source],
         "target": work.hosts.names[m.target], "promised": m.promised, "delivered": m.delivered}
        for m in played.moves[:1000]
    ]  # fmt: skip
    artifacts = [Artifact.quantiles("QoS", played.qos[np.isfinite(played.qos)])]
    return Outcome(values, [*artifacts, Artifact.table("moves", rows)] if rows else artifacts)


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if names else f"vm{number}"


def _rankings(case: Case) -> list[tuple[int, State, Ints, Floats]]:
    """(the hour to come, a state, VMs, their true QoS on every host) at the start and half a day later, without moves."""
    import numpy as np

    work: VmWork = case.workload
    found = []
    for later in (0, min(12, work.rounds - 1)):
        hour = work.start + later
        state = work.state(hour - 1, work.host, work.judge.played(hour - 1, work.host))
        here = np.flatnonzero((work.host >= 0) & work.present(hour))
        many = min(len(here), max(1, work.ranked // 2))
        vms = here[((np.arange(many) + 0.5) * len(here) / many).astype(np.int64)]
        n = len(work.hosts)
        truth = work.judge.pairs(hour, work.host, np.repeat(vms, n), np.tile(np.arange(n), many)).reshape(many, n)
        found.append((hour, state, vms, truth))
        if not later and work.rounds < 2:
            break
    return found


@vm.answer
def answer(result: Result) -> str:
    """Names the technique that leaves the highest QoS, what it gains over best fit, and what is left to the oracle."""
    if "qos_mean" not in result.metrics:
        return "Ask for the metric qos_mean to get an answer."
    oracles = {name for name in result.techniques if name in vm.techniques and vm.technique(name).oracle}
    ranked = {case: found for case in result.cases if (found := result.on(case, "qos_mean", without=oracles))}
    if not ranked:
        return "No technique could run any of the cases."
    quiet = [case for case, found in ranked.items() if max(found.values()) - min(found.values()) < 1e-6]
    told = {case: found for case, found in ranked.items() if case not in quiet}
    if not told:
        return "All techniques leave the same QoS: there is nothing to gain from moving VMs."
    near = {case: [t for t, value in found.items() if value >= max(found.values()) - 0.0005] for case, found in told.items()}
    names = [t for best in near.values() for t in best]
    best = max((t for t in [*vm.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} leaves the highest QoS on {won[0] if len(told) == 1 else f'{len(won)} of {len(told)} cases'}"
    gains = [100 * (ratio - 1) for case in won if best != "best-fit" and (ratio := result.ratio(case, "qos_mean", best, "best-fit"))]
    if gains:
        low, high = f"{min(gains):.1f}", f"{max(gains):.1f}"
        said += f", {low if low == high else f'{low} to {high}'} % above best fit's"
    lost = list(dict.fromkeys(near[case][0] for case in told if case not in won))
    said += f"; elsewhere it is {listed(lost)}." if lost else "."
    left = [100 * (ratio - 1) for case in won if (ratio := result.ratio(case, "qos_mean", "oracle", best))]
    if left and max(left) > 0.05:
        said += f" Knowing the next hour and the contention model would add {max(left):.1f} % at the most."
    return said + (f" On {listed(quiet)} nothing is to gain." if quiet else "")


@vm.plots
def plots(result: Result) -> Sequence[Any]:
    """QoS, errors of prediction and speed, by case."""
    drawn = []
    for metric, title in (
        ("qos_mean", "Mean QoS while VMs migrate"), ("qos_p5", "5th percentile of QoS"), ("qos_mae", "Error of predicted QoS"),
        ("ndcg@10", "NDCG of the first ten hosts"), ("pairs_per_s", "Pairs scored per second"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric == "pairs_per_s")
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> VmWork:
    from .problem.fleet import built_in as fleet
    from .workload import built_in

    p = case.parameters
    hosts = fleet(p["hosts"], case.cluster)
    return built_in(rng, kind=p["kind"], vms=p["vms"], rounds=p["rounds"], ranked=p["ranked"], fleet=hosts)


def _own(case: Case, rng: np.random.Generator) -> VmWork:
    from .readers.work import azure_work, table_work

    p = case.parameters
    limit = p["overcommit"] or None
    if p["source"] == "azure":
        return azure_work(case.loaded, rng, hosts=p["hosts"], begin_s=86400.0 * p["from_day"], rounds=p["rounds"], overcommit=limit)
    return table_work(case.loaded, rng, overcommit=limit, where=case.name)
