"""How should a communication library learn of network events, so that communication moves on while ranks compute?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .readers.traces import Trace
    from .simulation.notifier import Notifier
    from .simulation.play import Played
    from .workload import Scenario

_SIMULATED, _HIDES, _MEASURED = frozenset({"simulated"}), frozenset({"hides"}), frozenset({"measured"})

notification = Arena(
    "network/notification",
    question="How should a communication library learn of network events, so that communication moves on while ranks compute?",
    metrics=[
        Metric("time", "us", on=_SIMULATED, doc="per iteration, simulated"),
        Metric(
            "overlap", better="higher", scale="difference", on=_HIDES,
            doc="share of the communication that is hidden behind computing: 1 - (total - computing) / communication alone, within 0 and 1",
        ),
        Metric(
            "near_perfect", better="higher", scale="difference", on=_HIDES,
            doc="1 if the overlap is at least 0.95 here and at most 0.5 with polling in waits",
        ),
        Metric("stolen", scale="difference", on=_SIMULATED, doc="share of the core that notification takes from a rank that computes"),
        Metric("handler_runs", "", better=None, on=_SIMULATED, doc="per rank and iteration, outside calls"),
        Metric("latency_ratio", kind="modelled", on=_SIMULATED, doc="one-way latency of a notified 8-byte message over that of polling"),
        # By case, so that a study of simulated cases alone does not need the machine to itself.
        Metric("wakeup_measured", "us", kind="by case", on=_MEASURED, doc="one way from one thread to another on this machine"),
        Metric("wakeup_ratio", kind="by case", on=_MEASURED, doc="over polling in the same rounds, as the median of the ratios"),
    ],
    techniques={
        "poll-in-wait": ".poll_in_wait:PollInWait",
        "poll-inserted": ".poll_inserted:PollInserted",
        "block": ".block:Block",
        "thread-own-core": ".thread_own_core:ThreadOwnCore",
        "thread-shared-core": ".thread_shared_core:ThreadSharedCore",
        "interrupt": ".interrupt:Interrupt",
        "uintr": ".uintr:Uintr",
        "adaptive": ".adaptive:Adaptive",
    },
    papers={"uintr": "user-level-interrupts"},
    baseline="poll-in-wait",
    tradeoff=("time", "stolen"),
    repeats=1,
    telling=[
        "rendezvous-1MiB-2x4", "rendezvous-1MiB-8x4", "chunks-1MiB-2x4", "chunks-1MiB-8x4", "collective-1MiB-2x4", "collective-1MiB-8x4",
        "stencil-1MiB-2x4", "stencil-1MiB-8x4", "burst-2x4", "burst-8x4", "here-eventfd",
    ],
    constants=[
        Constant("latency_ratio", "2.4 (user interrupts), 6 (interrupts with system calls)", "", "the paper; inputs of the model"),
        Constant("pieces of the path", "parameters of the techniques", "us", "our decomposition of these ratios"),
        Constant("handler", 0.2, "us per event", "ours"),
        Constant("quantum", 4, "ms", "the wait for a scheduler is uniform up to it (ours)"),
        Constant("chunks", "64 KiB, 2 under way", "", "ours"),
        Constant("burst", 1e5, "messages per second to each receiver", "ours"),
    ],
)  # fmt: skip

#: Iterations of a scenario; those with many events take fewer.
ITERATIONS = {"tiny": 3, "small": 20, "large": 200}
MOST_EVENTS = {"tiny": 2e4, "small": 2e5, "large": 5e6}
KIB, MIB = 1 << 10, 1 << 20
#: (bytes, multiple of computing, ranks, cores per rank) of the cases on which the paper's claim is judged, for each of its scenarios.
PAPER = (
    (MIB, 1.5, 2, 4), (MIB, 1.5, 8, 4), (MIB, 1.5, 2, 16), (MIB, 1.5, 8, 16), (256 * KIB, 1.5, 8, 4), (256 * KIB, 4.0, 2, 16),
    (4 * MIB, 4.0, 8, 16), (16 * MIB, 1.5, 2, 4), (16 * MIB, 2.5, 8, 16), (MIB, 1.5, 64, 16), (4 * MIB, 2.5, 16, 4),
    (256 * KIB, 1.5, 64, 4),
)  # fmt: skip
#: Cases in which nothing can be overlapped, because nothing is computed.
ZERO = (
    ("rendezvous", MIB, 2), ("rendezvous", 256 * KIB, 8), ("chunks", MIB, 2), ("collective", MIB, 8), ("stencil", 64 * KIB, 8),
    ("stencil", 8, 8),
)  # fmt: skip
STENCILS = ((MIB, 1.5, 2), (MIB, 1.5, 8), (64 * KIB, 1.5, 16), (8, 1.5, 16))
BURSTS = (2, 4, 8, 16)
MECHANISMS = ("eventfd", "futex", "signalfd", "pipe")
TINY = {
    "rendezvous-1MiB-2x4", "chunks-1MiB-2x4", "collective-1MiB-8x4", "stencil-1MiB-2x4", "burst-2x4", "rendezvous-1MiB-2x4-0",
    "here-eventfd",
}  # fmt: skip


@notification.cases
def cases(scale: str) -> Iterator[Case]:
    """Five scenarios that need to be notified, cases without computing, and real wake-ups on this machine."""
    return (case for case in every_case(scale) if scale != "tiny" or case.name in TINY)


def every_case(scale: str) -> Iterator[Case]:
    """The cases, including those that the tiny scale leaves out."""
    for scenario in ("rendezvous", "chunks", "collective"):
        for nbytes, compute, ranks, cores in PAPER:
            yield _case(scale, scenario, nbytes, compute, ranks, cores, {"paper", "hides"})
    for nbytes, compute, ranks in STENCILS:
        yield _case(scale, "stencil", nbytes, compute, ranks, 4, {"hides"})
    for scenario, nbytes, ranks in ZERO:
        yield _case(scale, scenario, nbytes, 0.0, ranks, 4, {"zero"})
    for ranks in BURSTS:
        yield _case(scale, "burst", 8, 1.0, ranks, 4, set())
    for mechanism in MECHANISMS:
        facts = {"mechanism": mechanism, "rounds": 3 if scale == "tiny" else 15, "exchanges": 50 if scale == "tiny" else 400}
        yield Case(f"here-{mechanism}", _here, facts, frozenset({"measured", mechanism}))


def _case(scale: str, scenario: str, nbytes: int, compute: float, ranks: int, cores: int, kinds: set[str]) -> Case:
    from .workload import Scenario

    iterations = ITERATIONS[scale]
    one = Scenario(scenario, nbytes, compute, ranks, cores, 1).events()
    if scenario != "burst":
        iterations = max(2, min(iterations, int(MOST_EVENTS[scale] / one)))
    what = {"scenario": scenario, "nbytes": nbytes, "compute": compute, "ranks": ranks, "cores": cores, "iterations": iterations}
    size = "" if scenario == "burst" else f"-{_size(nbytes)}"
    name = f"{scenario}{size}-{ranks}x{cores}" + ("" if compute in (1.0, 1.5) else f"-{compute:g}")
    return Case(name, _built_in, what, frozenset({scenario, "simulated", *kinds}))


def _size(nbytes: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if nbytes % unit == 0:
            return f"{nbytes // unit}{name}"
    return f"{nbytes}B"


@dataclass(frozen=True)
class Work:
    """A scenario, the seconds per iteration that its communication takes alone, and its overlap with polling in waits."""

    scenario: Scenario
    alone_s: float
    compute_s: float
    polled: float


@dataclass(frozen=True)
class Reading:
    """How a trace is played; a TOML file says it itself."""

    cores: int = parameter(4, "cores of each rank of a trace, of which a progress thread takes one", range=(1, 65536))


@notification.read(Reading)
def read(path: Path, how: Reading) -> Scenario:
    """Reads a scenario (TOML) or a trace of messages (CSV)."""
    from .readers.scenarios import read_scenario
    from .readers.traces import read_trace, scenario_of

    if path.suffix.lower() == ".toml":
        return read_scenario(path)
    trace: Trace = read_trace(path)
    scenario = scenario_of(trace, how.cores, str(path))
    _work_of(scenario, str(path))  # says what is wrong with a trace before anything runs
    return scenario


@notification.own_cases
def own_cases(scenario: Scenario, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    what = {"scenario": scenario.scenario, "ranks": scenario.ranks, "cores": scenario.cores, "iterations": scenario.iterations}
    kinds = {"file", "simulated", scenario.scenario}
    if scenario.scenario != "burst" and (scenario.trace.compute_s if scenario.trace is not None else scenario.compute) > 0.0:
        kinds.add("hides")
    yield Case(name, _own, what, frozenset(kinds))


@notification.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a trace of two ranks that exchange 1 MiB three times and compute meanwhile."""
    rows = ["rank,time_ns,op,peer,bytes,compute_ns"]
    for turn in range(3):
        for rank in (0, 1):
            at = turn * 200_000
            rows += [
                f"{rank},{at},irecv,{1 - rank},1048576,0", f"{rank},{at + 100},isend,{1 - rank},1048576,0",
                f"{rank},{at + 150_000},wait,,,150000",
            ]  # fmt: skip
    path = folder / "messages.csv"
    path.write_text("\n".join(rows) + "\n")
    return path, {}


@notification.run
def run(technique: Notifier, case: Case) -> Outcome | NotForThisCase:
    """Plays the case's scenario under the technique's policy, or wakes a thread on this machine."""
    if "measured" in case.kinds:
        return _measured(technique, case)
    from .simulation.play import overlap, play

    work: Work = case.workload
    scenario = work.scenario
    if scenario.cores < 2 and type(technique).__name__ == "ThreadOwnCore":
        return NotForThisCase("takes a core away from each rank, and ranks have one")
    policy = technique.policy(scenario.cores)
    small = scenario.ranks <= 8 and scenario.events() < 20_000
    played = play(scenario, policy, work.compute_s, seed=int(technique.rng.integers(1 << 31)), timeline=small)
    values = {
        "time": 1e6 * played.iteration_s,
        "stolen": played.stolen,
        "handler_runs": played.runs,
        "latency_ratio": latency_ratio(technique, scenario),
    }
    if "hides" in case.kinds:
        values["overlap"] = overlap(played, work.alone_s)
        values["near_perfect"] = float(values["overlap"] >= 0.95 and work.polled <= 0.5)
    return Outcome(values, [Artifact.table("cores", [_shares(played)]), *_timeline(played)])


def latency_ratio(technique: Notifier, scenario: Scenario) -> float:
    """The one-way latency of a notified message of 8 bytes over that of polling, which is the overheads and the latency."""
    from .workload import Nic

    nic = scenario.nic or Nic()
    base = nic.send_overhead_us + nic.latency_us + nic.receive_overhead_us
    return (base + technique.on_top_us(max(2, scenario.cores))) / base


def _shares(played: Played) -> dict[str, float]:
    names = ("copying", "handling", "computing", "waiting", "stolen", "runs")
    return {name: getattr(played, name) for name in names}


def _timeline(played: Played) -> list[Artifact]:
    if played.timeline is None:
        return []
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "timeline.json"
        played.timeline.to_chrome(file)
        data = file.read_bytes()
    return [Artifact("timeline.json", "application/json", data)] if len(data) < 4 << 20 else []


def _measured(technique: Notifier, case: Case) -> Outcome | NotForThisCase:
    from .wakeups.measure import measure_wakeup

    mechanism, rounds, exchanges = (case.parameters[name] for name in ("mechanism", "rounds", "exchanges"))
    name = type(technique).__name__
    if name == "Uintr":
        return NotForThisCase("no card here posts user interrupts, and Linux offers them to no program")
    if name not in ("PollInWait", "Block"):
        return NotForThisCase("wakes nobody: polling and sleeping are what can be measured between two threads")
    found = measure_wakeup("poll" if name == "PollInWait" else mechanism, rounds=rounds, exchanges=exchanges)
    rows = [{"one_way_us": us, "polling_us": twin} for us, twin in zip(found.rounds_us, found.polled_us)]
    values = {"wakeup_measured": found.one_way_us, "wakeup_ratio": found.ratio}
    return Outcome(values, [Artifact.table("rounds", rows)], noisy=found.noisy)


@notification.answer
def answer(result: Result) -> str:
    """Names the fastest technique, what it gains over polling in waits, and what it takes from the cores."""
    if "time" not in result.metrics:
        return "Ask for the metric time to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "time"))}
    if not ranked:
        return "No technique could run any of the scenarios."
    near = {case: [t for t, value in found.items() if value <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max((t for t in [*notification.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} is fastest, or within 0.5 % of it, on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    gains = [r for case in won if best != "poll-in-wait" and (r := result.ratio(case, "time", best, "poll-in-wait"))]
    if gains:
        said += f", where it takes {_range([100 * (1 - 1 / gain) for gain in gains])} % less time than polling in waits"
    shares = [100 * found[best] for case in won if best in (found := result.on(case, "stolen"))]
    if shares:
        said += f" and {_range(shares)} % of a computing core"
    lost = [near[case][0] for case in ranked if case not in won]
    return said + (f"; elsewhere it is {', '.join(dict.fromkeys(lost))}." if lost else ".")


def _range(values: Sequence[float]) -> str:
    # Adding 0 makes a rounded -0.2 a plain 0.
    low, high = f"{round(min(values)) + 0}", f"{round(max(values)) + 0}"
    return low if low == high else f"{low} to {high}"


@notification.plots
def plots(result: Result) -> Sequence[Any]:
    """Time, overlap and what notification takes, by case."""
    drawn = []
    for metric, title in (
        ("time", "Time per iteration"), ("overlap", "Share of the communication that is hidden"), ("stolen", "Share of a core taken"),
        ("wakeup_measured", "Waking a thread on this machine"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric in ("time", "wakeup_measured"))
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> Work:
    from .workload import Scenario

    return _work_of(Scenario(**case.parameters), case.name)


def _own(case: Case, rng: np.random.Generator) -> Work:
    return _work_of(case.loaded, case.name)


def _here(case: Case, rng: np.random.Generator) -> None:
    return None


def _work_of(scenario: Scenario, where: str) -> Work:
    """Plays the scenario without computing, and with polling in waits: what every technique is compared with."""
    from armillary.comm import Deadlock

    from .poll_in_wait import PollInWait
    from .simulation.play import alone, compute_of, overlap, play

    try:
        alone_s = alone(scenario)
        compute_s = compute_of(scenario, alone_s)
        polled = overlap(play(scenario, PollInWait().policy(), compute_s), alone_s) if alone_s else 0.0
    except Deadlock as stuck:
        raise InputError(f"found ranks that wait for each other: {stuck}", where=where) from None
    return Work(scenario, alone_s, compute_s, polled)
