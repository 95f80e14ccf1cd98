"""Which all-reduce keeps latency in its bound at the highest load when tensor-parallel groups span servers?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster
    from armillary.llm import Requests

    from .collectives.wires import Wires
    from .planning.placement import Fleet
    from .workload import ServingWork

_SERVING, _COLLECTIVE = frozenset({"serving"}), frozenset({"collective"})

allreduce = Arena(
    "serving/allreduce",
    question="My tensor-parallel groups span servers: which all-reduce meets the latency bounds at the highest load, on which placement?",
    metrics=[
        Metric("max_rate", unit="1/s", better="higher", on=_SERVING, doc="the most requests per second of which 90 % meet both bounds"),
        Metric("ttft_p90", unit="s", on=_SERVING, doc="time to the first token at the case's own rate"),
        Metric("tpot_p90", unit="s", on=_SERVING, doc="time per further token at the case's own rate"),
        Metric("sync_share", scale="difference", on=_SERVING, doc="share of the iterations' time that collectives take"),
        Metric("allreduce_us", unit="us", on=_COLLECTIVE, doc="one all-reduce on the event loop"),
        Metric("allreduce_model_us", unit="us", kind="modelled", on=_COLLECTIVE, doc="the same by formula, without other traffic"),
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
    repeats=1,
    telling=["opt-175b-chat-*", "opt-66b-summary-planned-calm", "allreduce-256KiB-*"],
    constants=[
        Constant("step of a ring", "10 Ethernet, 2 NVLink", "us", "ours: as in the worked example of the docs"),
        Constant("bounds", "2.5/0.15 (66B, 70B), 4/0.2 (175B), 15 s for summaries", "s", "DistServe, OSDI 2024, table 1"),
        Constant("bursts", "half a link, 10 on, 40 off", "ms", "the arena's built-in case, with exponential times"),
        Constant("tenant", 384, "slots", "ours: a tenant takes three quarters of a switch while it bursts"),
        Constant("own rate", 0.5, "", "latencies are compared at this share of the planner's rate with hierarchical all-reduces; ours"),
        Constant("fallback", 500, "us", "the longest wait for slots before the ring is taken; ours"),
    ],
)

#: Model, kind of request, the number of requests if a placement is to be found and if one is given (at least eight times the bound on
#: the first token at the rates that hold), and a placement that spans servers: prefill and decode as (TP, PP, instances).
MODELS: dict[str, tuple[str, str, tuple[int, int], tuple[tuple[int, int, int], tuple[int, int, int]]]] = {
    "llama-2-70b-chat": ("llama-2-70b", "chat", (2400, 1200), ((16, 1, 1), (8, 1, 1))),
    "opt-66b-chat": ("opt-66b", "chat", (2400, 1200), ((8, 1, 2), (8, 1, 1))),
    "opt-66b-summary": ("opt-66b", "summary", (2000, 800), ((8, 1, 2), (8, 1, 1))),
    "opt-175b-chat": ("opt-175b", "chat", (1200, 600), ((16, 1, 1), (8, 1, 1))),
}
#: The share of a link in a burst, and the slots that a tenant takes.
TRAFFIC = {"calm": (0.0, 0), "bursts": (0.5, 0), "tenants": (0.5, 384)}
#: The share of those requests, the candidates that planning simulates, and the seconds of each simulation, by scale.
SHARE, BEST = {"tiny": 0.05, "small": 1.0, "large": 5.0}, {"tiny": 2, "small": 10, "large": 10}
PLAN_S = {"tiny": 2.0, "small": 30.0, "large": 60.0}
#: Bytes of one all-reduce, and the number of repetitions by scale.
SIZES = {"16KiB": 16 << 10, "256KiB": 256 << 10, "16MiB": 16 << 20}
TIMES = {"tiny": 4, "small": 60, "large": 600}
#: Rates within this factor of each other count as the same.
NEAR = 1.02
#: Serving cases of the tiny scale, which leaves out the long searches for a placement.
TINY = ("opt-66b-summary-planned-calm", "opt-175b-chat-spanning-bursts", "llama-2-70b-chat-spanning-tenants")


@allreduce.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Yields models with a placement to find or with one that spans servers, calm or under bursts, and single all-reduces."""
    for name, (model, like, counts, placed) in MODELS.items():
        for traffic, (share, slots) in TRAFFIC.items():
            for kind, given, count in (("planned", None, counts[0]), ("spanning", placed, counts[1])):
                if traffic == "tenants" and (kind == "planned" or model == "opt-66b"):
                    continue
                if scale == "tiny" and f"{name}-{kind}-{traffic}" not in TINY:
                    continue
                facts = {"model": model, "like": like, "placed": given, "share": share, "slots": slots, "count": int(SHARE[scale] * count),
                         "best": BEST[scale], "plan_s": PLAN_S[scale]}  # fmt: skip
                yield Case(f"{name}-{kind}-{traffic}", _make, facts, frozenset({"serving", kind, traffic}), cluster=cluster)
    for name, nbytes in SIZES.items():
        for traffic in ("calm", "bursts"):
            share, slots = TRAFFIC[traffic]
            facts = {"nbytes": nbytes, "share": share, "slots": slots, "times": TIMES[scale]}
            yield Case(f"allreduce-{name}-{traffic}", _collective, facts, frozenset({"collective", traffic}), cluster=cluster)


@dataclass(frozen=True)
class Reading:
    """How a trace of requests is read, the servers that serve it, and the bounds."""

    model: str = parameter("llama-2-70b", "a model that comes with Armillary, a config.json, or a folder that holds one", file=True)
    machine: str = parameter("ina-6x2", "a cluster whose servers hold GPUs: a preset or a file", file=True)
    ttft: float = parameter(2.5, "seconds within which the first token must come", range=(1e-6, 1e6))
    tpot: float = parameter(0.15, "seconds within which every further token must come", range=(1e-6, 1e6))
    prefill: str = parameter("", "the prefill instances as TPxPPxinstances (16x1x1); if empty, each technique plans its own")
    decode: str = parameter("", "the decode instances as TPxPPxinstances; given together with --prefill")
    traffic: Literal["calm", "bursts", "tenants"] = parameter("bursts", "the other traffic on the links and switches")
    limit: int = parameter(0, "the number of requests to read; 0 reads all of them", range=(0, 2**40))
    plan_s: float = parameter(60.0, "simulated seconds per candidate placement", range=(1, 3600))

    def validate(self) -> None:
        """Raises InputError unless a placement has both kinds of instance."""
        if bool(self.prefill) != bool(self.decode):
            raise InputError("--prefill and --decode: expected both or neither")
        self.placed()

    def placed(self) -> tuple[Fleet, Fleet] | None:
        """Returns the prefill and decode instances that are given, or None."""
        from .planning.placement import Fleet

        if not self.prefill:
            return None
        return Fleet(*_fleet(self.prefill, "--prefill")), Fleet(*_fleet(self.decode, "--decode"))


@allreduce.read(Reading)
def read(path: Path, how: Reading) -> tuple[Reading, Requests, Wires]:
    """Reads requests in any form that `armillary.llm` knows, and the servers that serve them."""
    from armillary.llm import Requests

    from .collectives.wires import Wires
    from .planning.phase_cost import find_model
    from .planning.placement import given

    wires = Wires.of(how.machine, aggregates=False)
    placed = how.placed()
    if placed is not None:
        given(wires, *placed)
    find_model(how.model)
    loaded = how, Requests.read(str(path), limit=how.limit or None), wires
    _work(loaded, seed=0)
    return loaded


@allreduce.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, in which every technique plans a placement unless one is given."""
    facts = {"best": 10, "plan_s": how.plan_s, "traffic": how.traffic}
    yield Case(name, _own, facts, frozenset({"serving", "file", how.traffic, "spanning" if how.prefill else "planned"}))


@allreduce.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes three requests in the form of the Azure LLM inference traces, for a placement that spans servers."""
    file = folder / "requests.csv"
    rows = ("2023-11-16 18:15:46.68,374,4", "2023-11-16 18:15:50.99,396,10", "2023-11-16 18:15:52.30,879,5")
    file.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return file, {"prefill": "16x1x1", "decode": "8x1x1", "plan_s": "1"}


@allreduce.run
def run(technique: Any, case: Case) -> Outcome:
    """Plans, finds the highest rate within the bounds and serves at the case's own rate, or times one all-reduce on the event loop."""
    import numpy as np

    if "collective" in case.kinds:
        return _run_collective(technique, case)
    work = case.workload
    if technique.path.switched and work.wires.slots < 1:
        raise NotForThisCase("no switch of this cluster aggregates")
    plan = technique.plan_work(work, best=case.parameters["best"], seconds=case.parameters["plan_s"])
    found = technique.max_rate(work, plan)
    ttft, tpot = found.at_rate.p90()
    probes = [{"rate_per_s": rate, "attained": share} for rate, share in found.probes]
    left = [Artifact("plan.json", "application/json", plan.to_json().encode()), Artifact.table("probes", probes)]
    for name, seconds in (("ttft", found.at_rate.ttft_s), ("tpot", found.at_rate.tpot_s)):
        left.append(Artifact.quantiles(name, seconds[np.isfinite(seconds)], "s"))
    return Outcome({"max_rate": found.rate, "ttft_p90": ttft, "tpot_p90": tpot, "sync_share": found.at_rate.sync_share}, left)


def _run_collective(technique: Any, case: Case) -> Outcome:
    import numpy as np

    from .planning.planner import planned_seconds
    from .simulation.bursts import Bursts
    from .simulation.flow_level import collective_seconds
    from .simulation.groups import Group

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


@allreduce.answer
def answer(result: Result) -> str:
    """Says which technique carries the most requests, and on which cases that depends on the all-reduce at all."""
    cases = [case for case in result.cases if result.on(case, "max_rate")] if "max_rate" in result.metrics else []
    if not cases:
        return _fastest(result)
    gains = {case: _gain(result.on(case, "max_rate")) for case in cases}
    case = max(gains, key=lambda c: gains[c])
    best, *others = result.on(case, "max_rate").items()
    said = f"{best[0]} carries {best[1]:.2f} requests per second" + (f" on {case}" if len(cases) > 1 else "")
    if others and gains[case] <= NEAR:
        return f"On no case does the all-reduce matter: all techniques carry about the same rate, {said}."
    base = result.on(case, "max_rate").get("distserve", 0.0)
    said += f", {best[1] / base:.2f} times as many as distserve" if base > 0 and best[0] != "distserve" else ""
    alike = sum(gain <= NEAR for gain in gains.values())
    return f"{said}." + (f" On {alike} of {len(cases)} cases the all-reduce does not matter." if alike and others else "")


def _gain(rates: Mapping[str, float]) -> float:
    """Returns the best rate over the worst."""
    return max(rates.values()) / max(min(rates.values()), 1e-12)


def _fastest(result: Result) -> str:
    if "allreduce_us" not in result.metrics:
        return ""
    first = result.first_places("allreduce_us")
    if not first:
        return "Nothing was run to the end."
    best, wins = next(iter(first.items()))
    return f"{best} does one all-reduce fastest on {wins} of {len(result.cases)} cases."


def _wires(case: Case) -> Any:
    from .collectives.wires import Wires

    if case.cluster is not None:
        return Wires.of(case.cluster, aggregates=False)
    return Wires.of(str(case.parameters.get("cluster", "ina-6x2")), aggregates="cluster" not in case.parameters)


def _make(case: Case, rng: np.random.Generator) -> Any:
    from .planning.placement import Fleet
    from .simulation.bursts import Bursts
    from .workload import synthetic

    p = case.parameters
    placed = tuple(Fleet(*f) for f in p["placed"]) if p["placed"] else None
    bursts = Bursts(p["share"], slots=p["slots"])
    return synthetic(_wires(case), p["model"], p["like"], p["count"], rng, bursts=bursts, placed=placed)  # type: ignore[arg-type]


def _collective(case: Case, rng: np.random.Generator) -> Any:
    return _wires(case)


def _own(case: Case, rng: np.random.Generator) -> ServingWork:
    return _work(case.loaded, case.seed32("bursts"))


def _work(loaded: tuple[Reading, Requests, Wires], seed: int) -> ServingWork:
    from .planning.placement import Slo
    from .simulation.bursts import Bursts
    from .workload import from_requests

    how, requests, wires = loaded
    share, slots = TRAFFIC[how.traffic]
    bursts = Bursts(share, slots=slots)
    return from_requests(requests, wires, how.model, Slo(how.ttft, how.tpot), bursts=bursts, placed=how.placed(), seed=seed)


def _fleet(text: str, where: str) -> list[int]:
    """Returns "16x1x1" as [tensor parallel, pipeline parallel, instances]."""
    numbers = text.split("x")
    if len(numbers) != 3 or not all(n.isascii() and n.isdigit() and len(n) < 5 and int(n) > 0 for n in numbers):
        raise InputError(f'found "{text[:40]}"; expected TPxPPxinstances, as in 16x1x1', where=where)
    return [int(n) for n in numbers]
