"""How do containers of different tenants use RDMA on a shared fabric without seeing each other, and what does it cost?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .readers.traces import Trace
    from .simulation.attacks import Attacked, Scene
    from .simulation.fabric import Isolation
    from .simulation.jobs import JobsWork
    from .simulation.pods import Started

_JOBS = frozenset({"jobs"})

tenancy = Arena(
    "network/tenancy",
    question="How do containers of different tenants use RDMA on a shared fabric without seeing each other, and what does it cost?",
    metrics=[
        Metric(
            "violations", on=frozenset({"scene"}), scale="difference",
            doc="uses of a VNI that is neither the job's own nor of a claim that it joined",
        ),
        Metric(
            "alone_secure", on=frozenset({"attack"}), better="higher", scale="difference",
            doc="1 if it has no violation and each of the other ways to use RDMA has some",
        ),
        Metric("admission_delay", on=_JOBS, unit="s", scale="difference", doc="mean time that it adds to the start of a pod"),
        Metric("admission_delay_p99", on=_JOBS, unit="s", scale="difference", doc="99th percentile of that time"),
        Metric("start_delay", on=_JOBS, unit="s", doc="mean time from submission to the start of a pod"),
        Metric("start_overhead", on=_JOBS, unit="%", scale="difference", doc="mean time added, over the mean time to the start without it"),
        Metric(
            "start_kept", on=frozenset({"start"}), better="higher", scale="difference",
            doc="1 if it adds at most 5 % (ramp) or 2 % (spike), 0.5 if at most 15 %, otherwise 0",
        ),
        Metric("vni_failures", on=_JOBS, scale="difference", doc="jobs that found no VNI when they asked first"),
        Metric("reuse_hazard", kind="by case", on=frozenset({"vnis"}), scale="difference", steady=True,
               doc="acquisitions of a VNI within 60 s after its release"),
        Metric("bandwidth_share", kind="modelled", on=_JOBS, better="higher", doc="of the native bandwidth"),
        Metric("latency_ratio", kind="modelled", on=_JOBS, doc="over the native latency"),
        Metric("vni_requests_per_s", kind="by case", on=frozenset({"service"}), better="higher", doc="webhooks over HTTP on the loopback"),
        Metric("plugin_ms", kind="by case", on=frozenset({"service"}), unit="ms", doc="CPU time of one ADD of the plugin as a process"),
    ],
    techniques={
        "default-service": ".default_service:DefaultService",
        "uid-gid": ".uid_gid:UidGid",
        "vni-per-namespace": ".vni_per_namespace:VniPerNamespace",
        "host-privileged": ".host_privileged:HostPrivileged",
        "overlay-tcp": ".overlay_tcp:OverlayTcp",
        "vni-netns": ".vni_netns:VniNetns",
    },
    papers={"vni-netns": "slingshot-k8s"},
    baseline="default-service",
    telling=("ramp", "spike", "attack", "churn"),
    repeats=1,
    constants=[
        Constant("default service", "VNIs 1 and 10, any member", "", "manual of the vendor's library"),
        Constant("members, VNIs per service", "2, 4", "", "headers of the vendor's library"),
        Constant("LE and TLE pools", "16, 4", "", "manual of the vendor's library; one LE pool is shared"),
        Constant("controller", "0.132 + 0.150", "s per job", "calibrated on the artifact's mean stages of native runs"),
        Constant("scheduler, sandbox, main CNI plugin", "0.48, 0.066, 0.136", "s", "calibrated on the same"),
        Constant("place of a pod is free again after", 4.2, "s", "calibrated on the same"),
        Constant("pulls", "5 per s, burst 10, back-off 10 to 300 s", "", "defaults of the kubelet"),
        Constant("back-off of a failed sandbox", "10 to 15", "s", "pod workers of the kubelet"),
        Constant("pods per node", 110, "", "default of the kubelet"),
        Constant("controller workers", 25, "", "the artifact's configuration"),
        Constant("one request to the API server", 0.010, "s", "chosen"),
        Constant("one call of a hook, one run of the plugin", "0.002, 0.065", "CPU s", "measured (benchmarks/network_tenancy.py)"),
        Constant("overlay-tcp", "0.35 of the bandwidth, 12 times the latency", "", "assumptions; in no claim"),
    ],
)  # fmt: skip

#: Batches of a ramp and how often the largest is repeated; jobs of a spike, of the churn and its VNIs, and of the exhaustion and its VNIs.
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "tiny": {"ramp": (4, 2), "spike": (40,), "churn": (120, 150), "exhaustion": (80, 40), "attack": (3, 2, 4), "service": (40, 1)},
    "small": {"ramp": (10, 10), "spike": (500,), "churn": (1000, 420), "exhaustion": (400, 120), "attack": (4, 2, 12), "service": (400, 5)},
    "large": {"ramp": (10, 10), "spike": (500,), "churn": (10_000, 420), "exhaustion": (4000, 120), "attack": (6, 3, 24)},
}
SIZES["large"]["service"] = (2000, 9)
DRAWS = {"tiny": 1, "small": 4, "large": 4}
KINDS = {
    "ramp": {"jobs", "vnis", "start"}, "spike": {"jobs", "vnis", "start"}, "churn": {"jobs", "vnis"}, "exhaustion": {"jobs", "vnis"},
    "attack": {"scene"}, "outside": {"scene"},
}  # fmt: skip
#: How much later pods may start, in percent, and how much counts in part.
KEPT, PART = {"ramp": 5.0, "spike": 2.0}, 15.0


@tenancy.cases
def cases(scale: str) -> Iterator[Case]:
    """Ramp, spike, churn and exhaustion of jobs, scenes of attack, scenes outside the guarantees, and the real service."""
    size = SIZES[scale]
    for draw in range(1, DRAWS[scale] + 1):
        for kind, kinds in KINDS.items():
            facts = {"kind": kind, "size": list(size["attack" if kind == "outside" else kind]), "draw": draw}
            make = _scene if "scene" in kinds else _jobs
            yield Case(kind if draw == 1 else f"{kind}-{draw}", make, facts, frozenset({kind, "simulated", *kinds}))
    yield Case("service", _service, {"size": list(size["service"])}, frozenset({"service", "vnis", "measured"}))


@dataclass(frozen=True)
class Reading:
    """The cluster on which the jobs of a file run."""

    nodes: int = parameter(8, "nodes of the cluster", range=(1, 100_000))
    low: int = parameter(100, "the first VNI of the range", range=(1, 65535))
    high: int = parameter(65535, "the last VNI of the range", range=(1, 65535))
    duration_s: float = parameter(60.0, "seconds that the jobs of a manifest run, which it does not say", range=(0.0, 1e9))

    def validate(self) -> None:
        """The range begins before it ends."""
        if self.high < self.low:
            raise InputError(f"found {self.high} below --low {self.low}; expected at least as much", where="--high")


@tenancy.read(Reading)
def read(path: Path, how: Reading) -> Trace:
    """Reads jobs: a table (submit_s, pods, duration_s, and nodes, tenant, claim), a log in SWF, or Kubernetes manifests in YAML."""
    from .readers.manifest_jobs import read_manifest_jobs
    from .readers.traces import read_trace
    from .workload import own

    trace = read_manifest_jobs(path, how.duration_s) if path.suffix.lower() in (".yaml", ".yml") else read_trace(path)
    try:
        own(trace, {"nodes": how.nodes, "low": how.low, "high": how.high}, None)  # says what is wrong before anything runs
    except InputError as problem:
        raise InputError(problem.message, where=str(path)) from None
    return trace


@tenancy.own_cases
def own_cases(loaded: Trace, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    facts = {"jobs": len(loaded), "nodes": how.nodes, "low": how.low, "high": how.high}
    yield Case(name, _own, facts, frozenset({"file", "simulated", "jobs", "vnis"}))


@tenancy.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes forty jobs of three tenants."""
    file = folder / "jobs.csv"
    rows = ["submit_s,nodes,pods,duration_s,tenant,claim"]
    for i in range(40):
        claim = "mesh" if i % 10 == 3 else ""
        rows.append(f"{0.7 * i:.1f},{1 + i % 2},{1 + i % 3},{5 + 7 * i % 40},{('physics', 'biology', 'climate')[i % 3]},{claim}")
    file.write_text("\n".join(rows) + "\n")
    return file, {"nodes": "2"}


@tenancy.run
def run(technique: Isolation, case: Case) -> Outcome:
    """Plays a scene or jobs, or measures the real service."""
    if "service" in case.kinds:
        return _measured(technique, case)
    return _attacked(technique, case) if "scene" in case.kinds else _played(technique, case)


def _attacked(technique: Isolation, case: Case) -> Outcome:
    from .vni_netns import RIVALS

    found = _of_scene(technique, case)
    values = {"violations": float(found.total)}
    if "attack" in case.kinds:
        mine = next((name for name in RIVALS if isinstance(technique, tenancy.technique(name))), "")
        others = [case.once(_rival, name) for name in RIVALS if name != mine]
        values["alone_secure"] = float(technique.rdma and not found.total and all(others))
    rows = [{"way": way, "violations": count} for way, count in sorted(found.violations.items())]
    rows += [{"way": "entitled", "violations": found.own}, {"way": "attempts", "violations": found.attempts}]
    return Outcome(values, [Artifact.table("violations", rows)])


def _of_scene(technique: Isolation, case: Case) -> Attacked:
    from .simulation.attacks import attack

    return attack(technique, case.workload)


def _rival(case: Case, name: str) -> int:
    """The violations of a technique with its default parameters."""
    made: Any = tenancy.make(name)
    return _of_scene(made, case).total


def _native(case: Case) -> Started:
    from .simulation.jobs import play_native

    return play_native(case.workload)


def _played(technique: Isolation, case: Case) -> Outcome:
    from .simulation.jobs import play
    from .simulation.pods import STAGES

    native = case.once(_native)
    played = play(technique, case.workload, native)
    values = dict(played.metrics())
    if not values:
        raise NotForThisCase("no job started, because none found a VNI")
    values |= {"vni_failures": float(played.failures), "reuse_hazard": float(played.hazards)}
    values |= {"bandwidth_share": 1.0 if technique.rdma else 0.35, "latency_ratio": 1.0 if technique.rdma else 12.0}
    for kind, limit in KEPT.items():
        if kind in case.kinds:
            values["start_kept"] = 1.0 if values["start_overhead"] <= limit else 0.5 if values["start_overhead"] <= PART else 0.0
    stages = zip(STAGES, native.stage_means(), played.started.stage_means())
    rows = [{"stage": stage, "native_s": before, "with_it_s": after} for stage, before, after in stages]
    rows.append({"stage": "calls of the plugin that came too early", "native_s": 0.0, "with_it_s": float(played.started.retries)})
    rows.append({"stage": "calls of hooks that ended in an error", "native_s": 0.0, "with_it_s": float(played.errors)})
    started = played.started.delay_s
    artifacts = [Artifact.table("stages", rows), Artifact.quantiles("start", started[started == started], "s")]
    return Outcome(values, artifacts)


def _measured(technique: Isolation, case: Case) -> Outcome:
    import tempfile

    from .service.measured import hazards, plugin_seconds, requests_per_s

    with tempfile.TemporaryDirectory(prefix="armillary-vni-") as folder:
        service = technique.service(f"{folder}/vni.db", None, 100, 65535)
        if service is None:
            raise NotForThisCase("it has no service")
        with service:
            jobs, runs = case.workload
            rate = requests_per_s(service, jobs)
            early = hazards(service.database)
    seconds, _ = plugin_seconds(runs)
    return Outcome({"vni_requests_per_s": rate, "plugin_ms": 1e3 * seconds, "reuse_hazard": float(early)})


@tenancy.answer
def answer(result: Result) -> str:
    """Says which ways let no attack through, and how much later pods start with the best of them."""
    scenes = [case for case, facts in result.cases.items() if "attack" in facts["kinds"]]
    starts = [case for case, facts in result.cases.items() if "jobs" in facts["kinds"]]
    said = []
    if scenes and "violations" in result.metrics:
        counts = {name: sum(result.medians(name, "violations").get(case, 0.0) for case in scenes) for name in result.techniques}
        tight = [name for name, count in counts.items() if not count and name != "overlay-tcp"]
        leaky = sorted((count, name) for name, count in counts.items() if count)
        if tight:
            said.append(f"{listed(tight)} {'lets' if len(tight) == 1 else 'let'} no attack through.")
        if leaky:
            shown = listed([f"{name} {count:,.0f}" for count, name in leaky])
            said.append(f"Uses of other jobs' VNIs that succeed with the others: {shown}.")
    name = "vni-netns" if "vni-netns" in result.techniques else next(iter(result.techniques))
    added = [(case, value) for case, value in result.medians(name, "start_overhead").items() if case in starts]
    if added:
        shown = listed([f"{abs(value):.1f} % {'later' if value >= 0 else 'earlier'} on {case}" for case, value in added[:3]])
        said.append(f"With {name}, pods start {shown} (simulated).")
    return " ".join(said) or "Nothing was measured that would answer the question."


@tenancy.plots
def plots(result: Result) -> Sequence[Any]:
    """Violations by scene, and the time that is added to starts."""
    drawn: list[Any] = []
    for metric, title in (("violations", "Uses of other jobs' VNIs that succeeded"), ("start_overhead", "Time added to the start of pods")):
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    return drawn


def _scene(case: Case, rng: np.random.Generator) -> Scene:
    from .simulation.attacks import draw

    tenants, jobs, guesses = case.parameters["size"]
    return draw(rng, tenants, jobs, guesses, outside=case.parameters["kind"] == "outside")


def _jobs(case: Case, rng: np.random.Generator) -> JobsWork:
    from . import workload

    kind, size = case.parameters["kind"], case.parameters["size"]
    if kind == "exhaustion":
        return workload.churn(rng, *size)
    make: Any = getattr(workload, kind)
    made: JobsWork = make(rng, *size)
    return made


def _service(case: Case, rng: np.random.Generator) -> tuple[int, int]:
    jobs, runs = case.parameters["size"]
    return jobs, runs


def _own(case: Case, rng: np.random.Generator) -> JobsWork:
    from .workload import own

    return own(case.loaded, case.parameters, rng)
