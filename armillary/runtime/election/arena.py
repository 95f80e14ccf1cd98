"""How fast does a population of anonymous agents find a leader again from any corrupted state, and for how many bits?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .population.play import Result as Played
    from .population.protocol import Population, Protocol

STABILISING, SPEED, DETECT = frozenset({"stabilising"}), frozenset({"speed"}), frozenset({"detect"})

election = Arena(
    "runtime/election",
    question="How fast does a population of anonymous agents find a leader again from any corrupted state, and for how many bits?",
    metrics=[
        Metric("stabilisation_time", on=STABILISING, doc="interactions per agent until ranks are right for good, or all that are allowed"),
        Metric("p95_time", on=STABILISING, doc="its 95th percentile over the runs"),
        Metric("success", better="higher", scale="difference", on=STABILISING, doc="share of runs that end with right ranks and keep them"),
        Metric("state_bits", "bit", kind="modelled", on=STABILISING, doc="lg of the number of states of an agent"),
        Metric("detect_time", on=DETECT, doc="interactions per agent until one of two agents of a rank is proved not to be alone"),
        Metric("witness_bits", "bit", kind="modelled", on=DETECT, doc="lg of the number of states of an agent"),
        Metric("bits_over_rival", kind="modelled", on=DETECT, doc="bits over those of the other trade-off at equal time, ρ'² lg n"),
        Metric("bits_over_lg_n", kind="modelled", on=DETECT, doc="bits over lg n"),
        Metric("interactions_per_s", "1/s", better="higher", kind="measured", on=SPEED, doc="simulated on one core"),
    ],
    techniques={
        "pairwise": ".pairwise:Pairwise",
        "tree": ".tree:Tree",
        "tradeoff": ".tradeoff:Tradeoff",
        "direct": ".direct:Direct",
        "broadcast": ".broadcast:Broadcast",
    },
    papers={"tradeoff": "ss-leader-election"},
    baseline="tree",
    tradeoff=("stabilisation_time", "state_bits"),
    repeats=1,
    telling=("one-duplicate/2x", "one-duplicate/8x", "one-duplicate/32x", "random-state/2x", "random-state/8x", "detect/*"),
    constants=[
        Constant("clock", 16.0, "ln n", "interactions of the leader in a phase, and the life of what is heard of it (chosen)"),
        Constant("reset", 60.0, "ln n", "from where a reset counts down (chosen)"),
        Constant("dormancy", 8.0, "n", "own interactions for which the tree's agents sleep in a reset (chosen)"),
        Constant("patience", 20.0, "n", "own interactions for which an agent of the tree waits for a rank (chosen)"),
    ],
)  # fmt: skip

#: Agents of the smallest population; the others have 2 to 32 times as many.
SMALLEST = {"tiny": 16, "small": 32, "large": 256}
RUNS = {"tiny": 3, "small": 5, "large": 10}
TIMES = (1, 2, 4, 8, 16, 32)
STARTS = ("one-duplicate", "random-state", "random-ranks", "all-one", "two-leaders", "poisoned", "starved")
#: (agents, ρ) of Detect by itself.
WITNESSES = [*((4096, rho) for rho in (2, 4, 8, 16, 32, 64)), *((n, 2) for n in (1024, 16_384, 65_536))]
#: Populations of more agents than this are watched for two cycles of a clock after they are right, smaller ones for ten.
WATCHED = 1024
#: Interactions of one measurement of the speed.
TIMED = {"tiny": 200_000, "small": 5_000_000, "large": 20_000_000}
#: Pairwise ranking of more agents takes minutes per run.
MOST_PAIRWISE = 512
TINY = {"one-duplicate/1x", "random-state/1x", "starved/1x", "one-duplicate/2x", "detect/4096-8", "speed/4x"}


@election.cases
def cases(scale: str) -> Iterator[Case]:
    """Starts and sizes of populations, Detect by itself, and the speed of the simulation."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    for start in STARTS:
        for times in TIMES:
            n = SMALLEST[scale] * times
            what = {"agents": n, "start": start, "runs": RUNS[scale], "cycles": 10.0 if n <= WATCHED else 2.0}
            tags = {"stabilising"} | ({"starved"} if start == "starved" else {"fed"}) | ({"few"} if times <= 2 else set())
            yield Case(f"{start}/{times}x", _facts, what, frozenset(tags))
    for n, rho in WITNESSES:
        tags = {"detect"} | ({"ladder"} if n == 4096 else set()) | ({"rho-2"} if rho == 2 else set()) | ({"many"} if rho >= 8 else set())
        runs = {"tiny": 20, "small": 100, "large": 1000}[scale] if n <= 4096 else 10
        yield Case(f"detect/{n}-{rho}", _facts, {"agents": n, "rho": rho, "runs": runs}, frozenset(tags))
    for times in (1, 4):
        what = {"agents": SMALLEST[scale] * times, "meetings": TIMED[scale]}
        yield Case(f"speed/{times}x", _facts, what, frozenset({"speed", "measured"}))


@dataclass(frozen=True)
class Reading:
    """How a population of one's own is run."""

    schedule: str = parameter("", "a table of initiator and responder, to be replayed instead of meetings by chance", file=True)
    technique: str = parameter("", "whose variables the columns are, if there are more than the rank")
    rho: int = parameter(0, "ρ of that technique; 0 takes its default", range=(0, 1024))
    runs: int = parameter(5, "runs from this population", range=(1, 1000))
    time: float = parameter(0.0, "parallel time after which a run is given up; 0 takes the technique's own", range=(0.0, 1e9))


@election.read(Reading)
def read(path: Path, how: Reading) -> dict[str, Any]:
    """Reads agents' ranks (`rank`), or all variables of the agents of one technique."""
    from armillary.errors import InputError, unknown

    from .readers.agents import columns_of, read_agents, read_ranks, read_schedule

    if columns_of(path) == ["rank"] or not how.technique:
        ranks = read_ranks(path)
        found: dict[str, Any] = {"ranks": ranks, "agents": len(ranks)}
    else:
        from armillary.files import Column, read_table

        if how.technique not in election.techniques:
            raise unknown("technique", how.technique, election.techniques, where="--technique")
        n = read_table(path, [Column(columns_of(path)[0], "int")], row_limit=1 << 20).rows
        made = election.make(how.technique, {"rho": how.rho} if how.rho else {})
        population = read_agents(path, made.protocol(n))  # type: ignore[attr-defined]
        found = {"agents_of": population.agents, "memory_of": population.memory, "agents": n}
    if how.schedule:
        found["first"], found["second"] = read_schedule(how.schedule, found["agents"])
        if how.runs != Reading.runs and how.runs != 1:
            raise InputError("a schedule is replayed once; leave --runs out", where="--runs")
    return found


@election.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The population as one case."""
    what = {
        "agents": loaded["agents"], "runs": 1 if how.schedule else how.runs, "time": how.time, "technique": how.technique, "rho": how.rho,
        "cycles": 10.0 if loaded["agents"] <= WATCHED else 2.0,
    }  # fmt: skip
    yield Case(name, parameters=what, kinds=frozenset({"file"}) | STABILISING)


@election.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes 40 agents of which five hold a wrong rank."""
    ranks = list(range(1, 41))
    for u, rank in ((3, 1), (17, 1), (25, 40), (30, 2), (31, 2)):
        ranks[u] = rank
    (folder / "ranks.csv").write_text("rank\n" + "\n".join(map(str, ranks)) + "\n")
    return folder / "ranks.csv", {"runs": "3"}


@election.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops."""
    import numpy as np

    from .population.play import play

    protocol = _protocol(technique, case, 8)
    play(protocol, "one-duplicate", np.random.Generator(np.random.PCG64DXSM(0)), patience=1.0)


@election.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the runs of a case."""
    if "detect" in case.kinds:
        return _detected(technique, case)
    if "speed" in case.kinds:
        return _timed(technique, case)
    from .population.play import play, run_schedule
    from .population.protocol import Population

    facts = case.parameters
    work: dict[str, Any] = case.loaded if "file" in case.kinds else {}
    n = facts["agents"]
    own = facts.get("technique", "")
    if own and type(technique) is not election.technique(own):
        raise NotForThisCase(f"the file has the variables of {own}")
    protocol = _protocol(technique, case, n)
    if n > MOST_PAIRWISE and not work and type(technique) is election.technique("pairwise"):
        raise NotForThisCase(f"takes n³/2 interactions, minutes for more than {MOST_PAIRWISE} agents")
    played: list[Played] = []
    for i in range(facts["runs"]):
        rng = case.stream("run", str(i))
        start: Population | str = facts.get("start", "")
        if "agents_of" in work:
            start = Population(work["agents_of"], work["memory_of"])
        elif "ranks" in work:
            start = protocol.ranked(work["ranks"], rng)
        if "first" in work:
            played.append(run_schedule(lambda _: protocol, start, work["first"], work["second"]))
        else:
            played.append(play(protocol, start, rng, own=technique.rng, cycles=facts["cycles"], patience=facts.get("time") or None))
    return _outcome(protocol, played)


def _outcome(protocol: Protocol, played: list[Played]) -> Outcome:
    import numpy as np

    times = np.array([one.time for one in played])
    values = {
        "stabilisation_time": float(times.mean()), "p95_time": float(np.sort(times)[math.ceil(0.95 * len(times)) - 1]),
        "success": sum(one.success for one in played) / len(played), "state_bits": protocol.bits,
    }  # fmt: skip
    course = played[0].trajectory[:: max(1, len(played[0].trajectory) // 400)]
    rows = [{"time": t, "ranks_held_once": held} for t, held in course]
    facts = [
        {"run": i, "time": one.time, "success": one.success, "relapsed": one.relapsed, "interactions": one.interactions}
        for i, one in enumerate(played)
    ]
    return Outcome(values, [Artifact.table("course", rows), Artifact.table("runs", facts)])


def _detected(technique: Any, case: Case) -> Outcome:
    """Detect by itself, between two agents of one rank."""
    from .subprotocols.alone import proof_time
    from .tradeoff import Tradeoff

    if not isinstance(technique, Tradeoff):
        raise NotForThisCase("has no witnesses of a suspect rank")
    n, rho, runs = (case.parameters[name] for name in ("agents", "rho", "runs"))
    times = [proof_time(n, rho, case.stream("run", str(i))) or math.inf for i in range(runs)]
    bits = Tradeoff(rho=rho).protocol(n).bits
    lg = math.log2(n)
    other = rho * lg / math.log2(rho)
    values = {
        "detect_time": math.fsum(times) / len(times), "witness_bits": bits, "bits_over_rival": bits / (other**2 * lg),
        "bits_over_lg_n": bits / lg,
    }  # fmt: skip
    return Outcome(values)


def _timed(technique: Any, case: Case) -> Outcome:
    """Interactions per second, from a random state, whatever comes of them."""
    import numpy as np

    from armillary.timing import Stopwatch

    from .population.play import Run, recorded
    from .population.randomness import words

    n, meetings = case.parameters["agents"], case.parameters["meetings"]
    protocol = _protocol(technique, case, n)
    rng = case.stream("run", "0")
    running = Run(protocol, protocol.random_state(rng), words(rng))
    running.advance(np.array([0], np.int32), np.array([1], np.int32))
    with Stopwatch() as watch:
        for first, second in recorded(n, meetings, rng):
            running.advance(first, second)
    return Outcome({"interactions_per_s": meetings / watch.seconds})


@election.answer
def answer(result: Result) -> str:
    """Says who is fastest at the largest population, and what that costs in bits."""
    if "stabilisation_time" not in result.metrics:
        return "Ask for the metric stabilisation_time to get an answer."
    found = {case: ranked for case in result.cases if (ranked := result.on(case, "stabilisation_time"))}
    if not found:
        return "No technique could run any of the cases."
    winners = [next(iter(ranked)) for ranked in found.values()]
    names = sorted(set(winners), key=lambda name: (-winners.count(name), name))
    if len(found) == 1:
        (ranked,) = found.values()
        said = f"{names[0]} has right ranks first, after {ranked[names[0]]:,.0f} interactions per agent"
    else:
        said = f"{names[0]} has right ranks first on {winners.count(names[0])} of {len(found)} populations"
        said += f", {listed([f'{name} on {winners.count(name)}' for name in names[1:]])}" if names[1:] else ""
    if "state_bits" in result.metrics and len(names) == 1:
        bits = result.medians(names[0], "state_bits").values()
        least, most = min(bits), max(bits)
        said += f", with {least:,.0f}" + (f" to {most:,.0f}" if most > least else "") + " bits per agent"
    lost = sorted(
        name for name in {name for ranked in found.values() for name in ranked}
        if "success" in result.metrics and min(result.medians(name, "success").values(), default=1.0) < 1.0
    )  # fmt: skip
    return said + (f". Not every run of {listed(lost)} came to right ranks." if lost else ". Every run came to right ranks.")


@election.plots
def plots(result: Result) -> Sequence[Any]:
    """Time by the number of agents, and the time of a proof by ρ."""
    drawn: list[Any] = []
    if "stabilisation_time" in result.metrics:

        def sizes(case: str, facts: Any) -> tuple[str, float] | None:
            start = facts["parameters"].get("start")
            return (start, float(facts["parameters"]["agents"])) if start else None

        title = "Interactions per agent until ranks are right"
        drawn += result.panels(title, "stabilisation_time", sizes, x="agents", log_x=True, log_y=True, least_points=2)
    if "detect_time" in result.metrics:

        def witnesses(case: str, facts: Any) -> tuple[str, float] | None:
            return ("4,096 agents", float(facts["parameters"]["rho"])) if "ladder" in facts["kinds"] else None

        drawn += result.panels("Time of a proof by Detect alone", "detect_time", witnesses, x="ρ", log_x=True, log_y=True, least_points=2)
    return drawn


def _protocol(technique: Any, case: Case, n: int) -> Any:
    rho = case.parameters.get("rho", 0) if "file" in case.kinds else 0
    return (replace(technique, rho=rho) if rho and hasattr(technique, "rho") else technique).protocol(n)


def _facts(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    return dict(case.parameters)
