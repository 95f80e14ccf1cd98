"""Which all-reduce keeps latency in its bound at the highest load when tensor-parallel groups span servers?"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster
    from armillary.study import Result

_SERVING, _COLLECTIVE = frozenset({"serving"}), frozenset({"collective"})

synchronization = Arena(
    "serving/synchronization",
    question="My tensor-parallel groups span servers: which all-reduce meets the latency bounds at the highest load, on which placement?",
    metrics=[
        Metric("max_rate", unit="1/s", better="higher", kind="simulated", on=_SERVING, doc="requests a second, 90 % within both bounds"),
        Metric("ttft_p90", unit="s", better="lower", kind="simulated", on=_SERVING, doc="to the first token, at the case's own rate"),
        Metric("tpot_p90", unit="s", better="lower", kind="simulated", on=_SERVING, doc="a token after it, at the case's own rate"),
        Metric("sync_share", better="lower", kind="simulated", scale="difference", on=_SERVING, doc="collectives over iterations"),
        Metric("allreduce_us", unit="us", better="lower", kind="simulated", on=_COLLECTIVE, doc="one all-reduce, on the event loop"),
        Metric("allreduce_model_us", unit="us", better="lower", kind="modelled", on=_COLLECTIVE, doc="the same by formula, undisturbed"),
    ],
    techniques={
        "heroserve": ".heroserve:HeroServe",
        "ring": ".ring:Ring",
        "hierarchical": ".hierarchical:Hierarchical",
        "ina": ".ina:Ina",
        "ina-hier": ".ina_hier:InaHier",
        "atp": ".atp:Atp",
        "static-split": ".static_split:StaticSplit",
        "distserve": ".distserve:DistServe",
    },
    papers={"heroserve": "heroserve"},
    baseline="distserve",
    tradeoff=("max_rate", "ttft_p90"),
    uses=("armillary.llm", "armillary.engine"),
    repeats=1,
    constants=[
        Constant("step of a ring", "10 Ethernet, 2 NVLink", "us", "ours: as in the worked example of the docs"),
        Constant("bounds", "2.5/0.15 (66B, 70B), 4/0.2 (175B), 15 s for summaries", "s", "DistServe, OSDI 2024, table 1"),
        Constant("bursts", "half a link, 10 on, 40 off", "ms", "the arena's built-in case; exponential"),
        Constant("tenant", 384, "slots", "ours: three quarters of a switch while it bursts"),
        Constant("own rate", 0.5, "", "of what the planner expects of hierarchical all-reduces: where latencies are compared; ours"),
        Constant("fallback", 500, "us", "wait for slots before the ring is taken; ours"),
    ],
)  # fmt: skip

#: Model, kind of request, how many where a placement is to be found and where one is given (eight times the bound on the first token
#: and more, at the rates that hold), and a placement that spans servers: prefill and decode as (TP, PP, instances).
MODELS: dict[str, tuple[str, str, tuple[int, int], tuple[tuple[int, int, int], tuple[int, int, int]]]] = {
    "llama-2-70b-chat": ("llama-2-70b", "chat", (2400, 1200), ((16, 1, 1), (8, 1, 1))),
    "opt-66b-summary": ("opt-66b", "summary", (2000, 800), ((8, 1, 2), (8, 1, 1))),
    "opt-175b-chat": ("opt-175b", "chat", (1200, 600), ((16, 1, 1), (8, 1, 1))),
}
#: Name, share of a link in a burst, slots that a tenant takes.
TRAFFIC = {"calm": (0.0, 0), "bursts": (0.5, 0), "tenants": (0.5, 384)}
#: Of those requests; candidates that planning simulates, and for how many seconds.
SHARE, BEST, PLAN_S = (
    {"tiny": 0.05, "small": 1.0, "large": 5.0},
    {"tiny": 2, "small": 10, "large": 10},
    {"tiny": 2.0, "small": 30.0, "large": 60.0},
)
#: Bytes of one all-reduce, and how often it is done.
SIZES = {"16KiB": 16 << 10, "256KiB": 256 << 10, "16MiB": 16 << 20}
TIMES = {"tiny": 4, "small": 60, "large": 600}


@synchronization.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Three models with a placement to find and with one that spans servers, calm and under bursts; and single all-reduces."""
    for name, (model, like, counts, placed) in MODELS.items():
        for traffic, (share, slots) in TRAFFIC.items():
            for kind, given, count in (("planned", None, counts[0]), ("spanning", placed, counts[1])):
                if traffic == "tenants" and (kind == "planned" or model == "opt-66b"):
                    continue
                facts = {"model": model, "like": like, "placed": given, "share": share, "slots": slots, "count": int(SHARE[scale] * count),
                         "best": BEST[scale], "plan_s": PLAN_S[scale]}  # fmt: skip
                yield Case(f"{name}-{kind}-{traffic}", _make, facts, frozenset({"serving", kind, traffic}), cluster=cluster)
    for name, nbytes in SIZES.items():
        for traffic in ("calm", "bursts"):
            share, slots = TRAFFIC[traffic]
            facts = {"nbytes": nbytes, "share": share, "slots": slots, "times": TIMES[scale]}
            yield Case(f"allreduce-{name}-{traffic}", _collective, facts, frozenset({"collective", traffic}), cluster=cluster)


@synchronization.read
def read(
    path: Path,
    *,
    model: str = "llama-2-70b",
    machine: str = "ina-6x2",
    ttft: float = 2.5,
    tpot: float = 0.15,
    prefill: str = "",
    decode: str = "",
    traffic: Literal["calm", "bursts", "tenants"] = "bursts",
    limit: int = 0,
    plan_s: float = 60.0,
) -> Iterator[Case]:
    """Requests from any trace that `armillary.llm` reads, served by `model` on the cluster `machine` within `ttft` and `tpot` seconds.

    `prefill` and `decode` give a placement as TPxPPxinstances ("16x1x1"); without them each technique plans its own.
    """
    from .placement import Slo

    Slo(ttft, tpot)
    if limit < 0 or not 1 <= plan_s <= 3600:
        raise InputError("limit, plan_s: expected 0 or more requests, and 1 to 3600 s of simulation a candidate")
    if bool(prefill) != bool(decode):
        raise InputError("--prefill and --decode: expected both or neither")
    placed = [_fleet(prefill, "--prefill"), _fleet(decode, "--decode")] if prefill else None
    share, slots = TRAFFIC[traffic]
    facts = {"path": str(path), "model": model, "cluster": machine, "ttft_s": ttft, "tpot_s": tpot, "placed": placed, "share": share,
             "slots": slots, "limit": limit, "best": 10, "plan_s": plan_s}  # fmt: skip
    _file(path, path.stat().st_mtime_ns, json.dumps(facts, sort_keys=True), 0)
    yield Case(path.name, _load, facts, frozenset({"serving", "file", traffic, "spanning" if placed else "planned"}), source=path)


@synchronization.run
def run(technique: Any, case: Case) -> Outcome:
    """A plan, the highest rate within the bounds, and latencies at the case's own rate; or one all-reduce on the event loop."""
    import numpy as np

    if "collective" in case.kinds:
        return _run_collective(technique, case)
    work = case.workload
    if technique.path.switched and work.wires.slots < 1:
        raise NotForThisCase("no switch of this cluster aggregates")
    plan = technique.plan_work(work, best=case.parameters["best"], seconds=case.parameters["plan_s"])
    found = technique.max_rate(work, plan)
    ttft, tpot = found.at_rate.p90()
    probes = "rate_per_s,attained\n" + "".join(f"{rate!r},{share!r}\n" for rate, share in found.probes)
    left = [Artifact("plan.json", "application/json", plan.to_json().encode()), Artifact("probes.csv", "text/csv", probes.encode())]
    for name, seconds in (("ttft", found.at_rate.ttft_s), ("tpot", found.at_rate.tpot_s)):
        left.append(Artifact.quantiles(name, seconds[np.isfinite(seconds)], "s"))
    return Outcome({"max_rate": found.rate, "ttft_p90": ttft, "tpot_p90": tpot, "sync_share": found.at_rate.sync_share}, left)


def _run_collective(technique: Any, case: Case) -> Outcome:
    import numpy as np

    from .bursts import Bursts
    from .flow_level import collective_seconds
    from .groups import Group
    from .planner import planned_seconds

    wires, p = case.workload, case.parameters
    if technique.path.switched and wires.slots < 1:
        raise NotForThisCase("no switch of this cluster aggregates")
    servers = tuple(range(min(4, wires.servers)))
    if len(servers) < 2:
        raise NotForThisCase("a single server has nothing to send")
    group, seed = Group(servers, wires.gpus, wires.common(servers)[0]), case.seed32("bursts")
    rng = np.random.default_rng(seed) if p["share"] else None
    took = collective_seconds(wires, [group], technique.path, p["nbytes"], count=p["times"], gap_s=1e-3, bursts=Bursts(p["share"]), rng=rng)
    modelled = planned_seconds(technique.path, wires, wires.shape(len(servers)), p["nbytes"])
    return Outcome({"allreduce_us": took * 1e6, "allreduce_model_us": modelled * 1e6})


@synchronization.answer
def answer(result: Result) -> str:
    """Which technique carries the most requests on each case, and by how much more than the baseline."""
    said = []
    for case in result.cases:
        rates = (
            {t: found[case] for t in result.techniques if case in (found := result.medians(t, "max_rate"))}
            if "max_rate" in result.metrics
            else {}
        )
        if not rates:
            continue
        best = max(rates, key=lambda t: rates[t])
        line = f"{case}: {best} carries {rates[best]:.2f} requests a second"
        near = [t for t in rates if t != best and rates[t] >= 0.98 * rates[best]]
        if len(near) == len(rates) - 1 and near:
            line = f"{case}: all carry about {rates[best]:.2f} requests a second; the all-reduce does not matter here"
        elif near:
            line += f", {', '.join(near)} as many"
        if "distserve" in rates and best != "distserve" and "distserve" not in near and rates["distserve"] > 0:
            line += f"; {rates[best] / rates['distserve']:.2f} times distserve"
        said.append(line)
    return "\n".join(said)


def _wires(case: Case) -> Any:
    from .wires import Wires

    if case.cluster is not None:
        return Wires.of(case.cluster, aggregates=False)
    return Wires.of(str(case.parameters.get("cluster", "ina-6x2")), aggregates="cluster" not in case.parameters)


def _make(case: Case, rng: np.random.Generator) -> Any:
    from .bursts import Bursts
    from .placement import Fleet
    from .workload import synthetic

    p = case.parameters
    placed = tuple(Fleet(*f) for f in p["placed"]) if p["placed"] else None
    return synthetic(
        _wires(case), p["model"], p["like"], p["count"], rng, bursts=Bursts(p["share"], slots=p["slots"]), placed=placed,  # type: ignore[arg-type]
    )  # fmt: skip


def _collective(case: Case, rng: np.random.Generator) -> Any:
    return _wires(case)


def _load(case: Case, rng: np.random.Generator) -> Any:
    path = Path(case.parameters["path"])
    return _file(path, path.stat().st_mtime_ns, json.dumps(dict(case.parameters), sort_keys=True), case.seed32("bursts"))


@functools.lru_cache(maxsize=2)
def _file(path: Path, changed_ns: int, facts: str, seed: int) -> Any:
    from armillary.llm import Requests

    from .bursts import Bursts
    from .phase_cost import find_model
    from .placement import Fleet, Slo, given
    from .wires import Wires
    from .workload import from_requests

    p = json.loads(facts)
    find_model(p["model"])
    wires = Wires.of(p["cluster"], aggregates=False)
    placed = tuple(Fleet(*f) for f in p["placed"]) if p["placed"] else None
    if placed is not None:
        given(wires, *placed)
    requests = Requests.read(str(path), limit=p["limit"] or None)
    return from_requests(
        requests, wires, p["model"], Slo(p["ttft_s"], p["tpot_s"]), bursts=Bursts(p["share"], slots=p["slots"]),
        placed=placed, seed=seed,  # type: ignore[arg-type]
    )  # fmt: skip


def _fleet(text: str, where: str) -> list[int]:
    """ "16x1x1" as [tensor parallel, pipeline parallel, instances]."""
    numbers = text.split("x")
    if len(numbers) != 3 or not all(n.isascii() and n.isdigit() and len(n) < 5 and int(n) > 0 for n in numbers):
        raise InputError(f'found "{text[:40]}"; expected TPxPPxinstances, as in 16x1x1', where=where)
    return [int(n) for n in numbers]
