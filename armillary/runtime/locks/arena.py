"""Which mutual-exclusion lock should guard this structure at this many threads and this length of the critical section?"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .simulation.machine import Machine
    from .simulation.simulate import Simulated
    from .workload import Bench, Episodes

REAL, SIMULATED = frozenset({"real"}), frozenset({"simulated"})

locks = Arena(
    "runtime/locks",
    question="Which lock should guard this structure, at this many threads and this length of the critical section?",
    metrics=[
        Metric("acquires_per_s", "1/s", better="higher", kind="measured", on=REAL | {"contended"}, doc="acquires of all threads"),
        Metric("uncontended_ns", "ns", kind="measured", on=REAL | {"uncontended"}, doc="CPU time of an episode of a thread that is alone"),
        Metric("fairness", better="higher", kind="measured", on=REAL | {"contended"}, doc="the fewest acquires of a thread over the most"),
        Metric("acquires_simulated_per_s", "1/s", better="higher", on=SIMULATED, doc="acquires per simulated second"),
        Metric("coherence_per_acquire", on=SIMULATED, doc="invalidations and moves from cache to cache of the lock's lines"),
        Metric("wait_ns", "ns", on=SIMULATED, doc="mean time from the start of an acquire to the entry"),
        Metric("handover_ns", "ns", on=SIMULATED | {"contended"}, doc="from the start of a release to the entry of one who waited"),
        Metric("overtaken", on=SIMULATED, better=None, doc="the most later comers that were let in before one thread"),
        Metric("bytes_lock", "B", kind="modelled", doc="one lock, without padding"),
        Metric("bytes_thread", "B", kind="modelled", doc="what each thread needs besides, or each that holds or waits"),
        Metric("bytes_process", "B", kind="modelled", doc="what all locks of a process share"),
    ],
    techniques={
        "hapax": ".hapax:Hapax",
        "hapax-vw": ".hapax_vw:HapaxVw",
        "ticket": ".ticket:Ticket",
        "twa": ".twa:Twa",
        "mcs": ".mcs:Mcs",
        "clh": ".clh:Clh",
        "hemlock": ".hemlock:Hemlock",
        "reciprocating": ".reciprocating:Reciprocating",
        "ttas": ".ttas:Ttas",
        "pthread": ".pthread:Pthread",
        "pylock": ".pylock:PyLock",
    },
    papers={"hapax": "hapax-locks", "hapax-vw": "hapax-locks"},
    baseline="ticket",
    telling=("max-contention", "moderate", "uncontended", "simulated/max-contention/4", "simulated/*/16", "simulated/*/64"),
    constants=[
        Constant("hit, same socket, other socket, memory", "1, 45, 130, 90", "ns", "presets coherence-*: orders of published machines"),
        Constant("invalidation", 5.0, "ns per copy", "our design"),
        Constant("step", 1.0, "ns per step inside and outside the section", "our design; about the latency of a multiply and an add"),
        Constant("pause", 10.0, "ns", "our design; 40 cycles of a recent x86 core"),
    ],
)  # fmt: skip

#: Seconds of a measured run, and acquires per thread of a simulated one.
SECONDS = {"tiny": 0.02, "small": 0.3, "large": 1.0}
ACQUIRES = {"tiny": 50, "small": 500, "large": 2000}
#: Steps inside, steps outside, locks and Zipf's exponent of the built-in work.
WORK = {
    "max-contention": (4, 0, 1, 0.0),
    "max-contention-c1": (1, 0, 1, 0.0),
    "max-contention-c8": (8, 0, 1, 0.0),
    "max-contention-c16": (16, 0, 1, 0.0),
    "moderate": (4, 200, 1, 0.0),
    "moderate-o50": (4, 50, 1, 0.0),
    "moderate-o100": (4, 100, 1, 0.0),
    "moderate-o400": (4, 400, 1, 0.0),
    "long": (200, 1000, 1, 0.0),
    "many-locks": (4, 0, 1024, 0.9),
}
ALONE = {
    "uncontended": (4, 0, 1, 0.0), "uncontended-c0": (0, 0, 1, 0.0), "uncontended-c16": (16, 0, 1, 0.0),
    "uncontended-many-locks": (4, 0, 1024, 0.9),
}  # fmt: skip
THREADS = (4, 8, 16, 32, 64, 128, 256)
MANY = 16
#: The machine of the simulated cases, and smaller ones that are filled.
MACHINE, FILLED = "coherence-2x64", (("coherence-1x16", 16), ("coherence-2x32", 64))
TINY = {"max-contention", "uncontended", "simulated/max-contention/4", "simulated/moderate/16"}


@locks.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Real threads on this machine's cores, all of them and fewer, and simulated ones on the presets or on the cluster given."""
    return (case for case in _every(scale, cluster) if scale != "tiny" or case.name in TINY or cluster is not None)


def _every(scale: str, cluster: Cluster | None) -> Iterator[Case]:
    if cluster is None:
        for name, work in WORK.items():
            yield _real(name, scale, work, {"contended", "moderate" if "moderate" in name else "max-contention" if "max" in name else name})
        for threads in (2 << k for k in range(8)):
            for name in ("max-contention", "moderate") if threads < len(os.sched_getaffinity(0)) else ():
                yield _real(f"{name}/{threads}", scale, WORK[name], {"contended", "fewer-threads"}, threads=str(threads))
        for name, work in ALONE.items():
            yield _real(name, scale, work, {"uncontended"}, threads="1")
        yield _real("oversubscribed", scale, WORK["max-contention"], {"contended", "oversubscribed"}, threads="4 × cores", wait="park")
    from armillary.cluster import preset

    from .simulation.machine import Machine

    machine = preset(MACHINE) if cluster is None else cluster
    most = Machine.of(machine).cores
    for name in ("max-contention", "moderate"):
        for threads in THREADS:
            if threads <= most:
                yield _simulated(f"simulated/{name}/{threads}", scale, WORK[name], threads, machine, {"scaling"})
    for name in ("long", "many-locks") if most >= 64 else ():
        yield _simulated(f"simulated/{name}/64", scale, WORK[name], 64, machine, set())
    for smaller, threads in FILLED if cluster is None else ():
        for name in ("max-contention", "moderate"):
            yield _simulated(f"simulated/{name}/{threads}-of-{threads}", scale, WORK[name], threads, preset(smaller), set())


def _real(name: str, scale: str, work: tuple[int, int, int, float], kinds: set[str], threads: str = "cores", wait: str = "spin") -> Case:
    facts = dict(zip(("inside", "outside", "locks", "zipf"), work))
    return Case(name, _bench, {**facts, "threads": threads, "wait": wait, "seconds": SECONDS[scale]}, frozenset(kinds) | REAL)


def _simulated(name: str, scale: str, work: tuple[int, int, int, float], threads: int, cluster: Cluster, kinds: set[str]) -> Case:
    facts = dict(zip(("inside", "outside", "locks", "zipf"), work))
    kinds = (
        kinds
        | ({"contended"} if work[2] == 1 else set())
        | ({"many-cores"} if threads >= MANY and work[2] == 1 and work[0] < 100 else set())
    )
    return Case(name, _episodes, {**facts, "threads": threads, "acquires": ACQUIRES[scale]}, frozenset(kinds) | SIMULATED, cluster=cluster)


@dataclass(frozen=True)
class Reading:
    """Where a recorded use of locks is replayed."""

    threads: int = parameter(0, "how many threads the trace has; 0 is one more than the largest number", range=(0, 256))
    locks: int = parameter(0, "how many locks the trace has; 0 is one more than the largest number", range=(0, 1 << 20))
    machine: str = parameter(MACHINE, "a preset or a cluster file whose sockets say what a transfer of a cache line costs", file=True)


@locks.read(Reading)
def read(path: Path, how: Reading) -> tuple[Episodes, Machine]:
    """Reads `thread,lock,arrive_ns,hold_ns`."""
    from armillary.cluster import find
    from armillary.errors import InputError

    from .readers.traces import read_trace
    from .simulation.machine import Machine

    work, machine = read_trace(path, threads=how.threads, locks=how.locks), Machine.of(find(how.machine))
    if work.threads > machine.cores:
        raise InputError(f"found {work.threads} threads; expected at most {machine.cores}, the cores of {how.machine}", where=str(path))
    return work, machine


@locks.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The trace as one case."""
    work: Episodes = loaded[0]
    facts = {"threads": work.threads, "locks": work.locks, "acquires": len(work.lock)}
    yield Case(name, _own, facts, frozenset({"file"}) | SIMULATED)


@locks.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a table with four locks, of which the first is asked for most, used by eight threads."""
    rows = ["thread,lock,arrive_ns,hold_ns"]
    for i in range(400):
        thread, turn = i % 8, i // 8
        rows.append(f"{thread},{(0, 0, 0, 1, 2, 3)[(turn * 5 + thread) % 6]},{turn * 900 + thread * 37},{40 + 15 * ((turn + thread) % 4)}")
    (folder / "locks.csv").write_text("\n".join(rows) + "\n")
    return folder / "locks.csv", {"threads": "8", "locks": "4"}


@locks.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops."""
    import numpy as np

    from .workload import Bench, episodes

    if "simulated" in case.kinds:
        from .simulation.machine import Machine
        from .simulation.simulate import simulate

        simulate(technique, episodes(Bench(), 2, 2, np.random.Generator(np.random.PCG64DXSM(0))), Machine((2,)))
    else:
        _run(technique, Bench(), 1, str(case.parameters["wait"]), acquires=10)


@locks.run
def run(technique: Any, case: Case) -> Outcome:
    """Runs threads, or plays them."""
    space = technique.occupies()
    values = {"bytes_lock": space.lock, "bytes_thread": space.thread, "bytes_process": space.process}
    made = _played(technique, case) if "simulated" in case.kinds else _measured(technique, case)
    return Outcome({**made.values, **{name: float(value) for name, value in values.items()}}, made.artifacts)


def _measured(technique: Any, case: Case) -> Outcome:
    from .threads.bench import cores

    p, available = case.parameters, len(cores())
    threads = {"cores": available, "4 × cores": 4 * available}.get(str(p["threads"])) or int(str(p["threads"]))
    if threads == 1 and "contended" in case.kinds:
        raise NotForThisCase("this process has one core, and contention takes two")
    bench: Bench = case.workload
    alone = "uncontended" in case.kinds
    slices = 5 if alone else 1
    seed, seconds = case.seed32("threads"), float(p["seconds"]) / slices
    runs = [_run(technique, bench, threads, str(p["wait"]), seconds=seconds, seed=seed) for _ in range(slices)]
    for one in runs:
        if one.entries != one.acquires:
            raise RuntimeError(f"{one.acquires:,} acquires let in {one.entries:,}: two threads were inside at once")
    if alone:
        # CPU time, so that it does not matter how often another program had the core.
        values = {"uncontended_ns": statistics.median(1e9 * one.cpu_s / one.acquires for one in runs)}
    else:
        values = {"acquires_per_s": runs[0].acquires_per_s, "fairness": runs[0].fairness}
    made = [{"thread": thread, "acquires": int(count)} for thread, count in enumerate(runs[0].counts)]
    return Outcome(values, [Artifact.table("threads", made)])


def _run(technique: Any, bench: Bench, threads: int, wait: str, **how: Any) -> Any:
    from .pylock import PyLock
    from .threads.bench import measure, measure_python

    if isinstance(technique, PyLock):
        return measure_python(bench, threads, **how)
    return measure(technique, bench, threads, wait=wait, **how)


def _played(technique: Any, case: Case) -> Outcome:
    from .simulation.simulate import simulate

    work, machine = case.workload
    found = simulate(technique, work, machine)
    values = {
        "acquires_simulated_per_s": found.acquires_per_s, "coherence_per_acquire": found.coherence_per_acquire,
        "wait_ns": float((found.entered_ps - found.came_ps).sum()) / found.acquires * 1e-3, "overtaken": float(found.overtaken),
    }  # fmt: skip
    if "contended" in case.kinds:
        values["handover_ns"] = found.handover_s * 1e9
    return Outcome(values, [Artifact.quantiles("wait", (found.entered_ps - found.came_ps) * 1e-12, "s"), _timeline(found, work)])


#: Episodes that a timeline shows.
SHOWN = 300


def _timeline(found: Simulated, work: Episodes) -> Artifact:
    """The first entries: when each thread waited and when it was inside, one lane per thread."""
    import numpy as np

    events: list[dict[str, Any]] = []
    for number in np.argsort(found.entered_ps, kind="stable")[:SHOWN]:
        thread = int(np.searchsorted(work.first, number, side="right")) - 1
        came, entered, gone = (1e-6 * float(times[number]) for times in (found.came_ps, found.entered_ps, found.gone_ps))
        lane = {"ph": "X", "pid": 0, "tid": thread}
        events += [
            {"name": "waits", "ts": came, "dur": entered - came, **lane},
            {"name": f"inside lock {work.lock[number]}", "ts": entered, "dur": gone - entered, **lane},
        ]
    return Artifact.timeline(events)


@locks.answer
def answer(result: Result) -> str:
    """Says which lock is fastest here and on the simulated machine, where hapax stands, and how long threads wait in a trace."""
    said = []
    for metric, where in (("acquires_per_s", "On this machine's cores"), ("acquires_simulated_per_s", "On the simulated machine")):
        ranked = {case: found for case in result.cases if (found := result.on(case, metric))}
        if metric not in result.metrics or not ranked:
            continue
        winners = [next(iter(found)) for found in ranked.values()]
        best = max(dict.fromkeys(winners), key=winners.count)
        won = [case for case, name in zip(ranked, winners) if name == best]
        on = won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} cases"
        others = [name for name in dict.fromkeys(winners) if name != best]
        text = f"{where} {best} lets threads in fastest on {on}" + (f", elsewhere {listed(others)}" if others else "")
        ordered = {case: [name for name in found if name not in UNORDERED] for case, found in ranked.items()}
        first = [names[0] for names in ordered.values() if names]
        if best in UNORDERED and first:
            text += f"; of the locks that keep the order of arrival it is {max(dict.fromkeys(first), key=first.count)}"
            passed = max(result.medians(best, "overtaken").values(), default=0.0) if "overtaken" in result.metrics else 0.0
            if metric == "acquires_simulated_per_s" and passed:
                text += f", while {best} lets up to {passed:,.0f} later comers in before one thread"
        said.append(text + ".")
        shares = [found["hapax"] / next(iter(found.values())) for found in ranked.values() if "hapax" in found and best != "hapax"]
        if shares:
            low, high = min(shares), max(shares)
            said.append(
                f"hapax reaches {_percent(low)}{'' if _percent(low) == _percent(high) else f' to {_percent(high)}'} of the fastest there."
            )
    said += _waits(result)
    return " ".join(said) or "Ask for acquires_per_s or acquires_simulated_per_s to get an answer."


def _waits(result: Result) -> list[str]:
    """For each trace of the user's, how long a thread waits with the best and with the worst lock."""
    own = [case for case, facts in result.cases.items() if "file" in facts["kinds"]] if "wait_ns" in result.metrics else []
    said = []
    for case in own:
        ranked = result.on(case, "wait_ns")
        if len(ranked) > 1:
            (least, least_ns), (most, most_ns) = next(iter(ranked.items())), list(ranked.items())[-1]
            said.append(f"In {case} an acquire waits {least_ns:,.4g} ns on average with {least} and {most_ns:,.4g} ns with {most}.")
    return said


#: Techniques that let threads in out of order.
UNORDERED = frozenset({"ttas", "pthread", "pylock", "reciprocating"})


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


@locks.plots
def plots(result: Result) -> Sequence[Any]:
    """Throughput and traffic by the number of simulated threads, and throughput on real cores."""

    def scaling(case: str, facts: Any) -> tuple[str, float] | None:
        if "scaling" not in facts["kinds"]:
            return None
        return case.split("/")[1], float(facts["parameters"]["threads"])

    def real(case: str, facts: Any) -> tuple[str, str] | None:
        return ("cores of this machine", case) if "real" in facts["kinds"] else None

    drawn: list[Any] = []
    for title, metric in (("Simulated throughput", "acquires_simulated_per_s"), ("Simulated coherence traffic", "coherence_per_acquire")):
        if metric in result.metrics:
            drawn += result.panels(f"{title} by threads", metric, scaling, x="threads", log_x=True, log_y=True, least_points=2)
    if "acquires_per_s" in result.metrics:
        drawn += result.panels("Throughput on this machine's cores", "acquires_per_s", real, log_y=True)
    return drawn


def _bench(case: Case, rng: np.random.Generator) -> Bench:
    from .workload import Bench

    p = case.parameters
    return Bench(p["inside"], p["outside"], locks=p["locks"], zipf=p["zipf"])


def _episodes(case: Case, rng: np.random.Generator) -> tuple[Episodes, Machine]:
    from .simulation.machine import Machine
    from .workload import episodes

    if case.cluster is None:
        raise TypeError(f"case {case.name} has no machine")
    return episodes(_bench(case, rng), case.parameters["threads"], case.parameters["acquires"], rng), Machine.of(case.cluster)


def _own(case: Case, rng: np.random.Generator) -> tuple[Episodes, Machine]:
    found: tuple[Episodes, Machine] = case.loaded
    return found
