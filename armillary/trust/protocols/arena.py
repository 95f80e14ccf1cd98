"""Can all parties of this protocol always come to agree, although two of them may start at the same time?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

SOUND, BROKEN, PLAYED = frozenset({"sound"}), frozenset({"broken"}), frozenset({"played"})

protocols = Arena(
    "trust/protocols",
    question="Can all parties of this protocol always come to agree, although two of them may start at the same time?",
    metrics=[
        Metric(
            "accepted_sound", better="higher", kind="simulated", scale="difference", on=SOUND, doc="1 if a sound protocol is accepted"
        ),
        Metric("accepted_broken", kind="simulated", scale="difference", on=BROKEN, doc="1 if a broken protocol is accepted"),
        Metric(
            "accepted_unsafe", kind="simulated", scale="difference", on=BROKEN,
            doc="1 if a broken protocol is accepted and exploration finds its endpoints going wrong",
        ),
        Metric("accepted", better="higher", kind="simulated", scale="difference", on=frozenset({"file"}), doc="1 if it is accepted"),
        Metric(
            "as_listed", better="higher", kind="simulated", scale="difference", on=frozenset({"suite"}),
            doc="1 if acceptance is what was written beside the suite before the first run",
        ),
        Metric(
            "counterexamples", kind="simulated", scale="difference", on=frozenset({"explorable"}),
            doc="1 if exploration (queues of 2) finds the accepted endpoints going wrong",
        ),
        Metric("configurations", better=None, kind="simulated", on=frozenset({"explorable"}), doc="that the technique itself looked at"),
        Metric(
            "trace_differences", kind="simulated", scale="difference", on=frozenset({"corresponds"}), unbounded=True,
            doc="visible traces that only the protocol or only its endpoints have; inf where it was refused",
        ),
        Metric(
            "extra_messages", kind="simulated", scale="difference", on=frozenset({"mixed-choice"}), unbounded=True,
            doc="per session beyond the specified ones; inf where the protocol was refused",
        ),
        Metric("wasted_messages", kind="simulated", scale="difference", on=PLAYED, doc="stale ones that were thrown away, per session"),
        Metric(
            "lost_sessions", kind="simulated", scale="difference", on=PLAYED, doc="share of sessions that did not end in agreement"
        ),
        Metric(
            "recoveries", better="higher", kind="simulated", scale="difference", on=frozenset({"mixed-choice"}),
            doc="races that ended in agreement over races provoked; 1 without races, 0 where the protocol was refused",
        ),
        Metric("check_seconds", "s", kind="measured", on=frozenset({"explorable"}), doc="CPU seconds of the technique's own check"),
        Metric(
            "messages_per_s", "1/s", better="higher", kind="measured", on=SOUND,
            doc="specified messages that were not thrown away, through queues in one process; 0 where it was refused",
        ),
        Metric("tcp_messages_per_s", "1/s", better="higher", kind="measured", on=SOUND, doc="the same over TCP on the loopback"),
        Metric("monitor_us", "µs", kind="measured", on=SOUND, doc="that a monitor adds per message; 0 where the protocol was refused"),
        Metric(
            "scenarios_passed", better="higher", kind="measured", steady=True, scale="difference", on=frozenset({"broker"}),
            doc="share of tries against a real broker that went as the protocol says",
        ),
        Metric("violations", kind="simulated", scale="difference", on=frozenset({"log"}), doc="roles that broke the protocol in a log"),
    ],
    techniques={
        "mixed": ".mixed:MixedChoiceTypes",
        "classic": ".classic:Classic",
        "token": ".token:Token",
        "explore": ".explore:Explore",
        "monitor": ".monitor:MonitorOnly",
        "none": ".none:Unchecked",
    },
    papers={"mixed": "mixed-choice-session-types"},
    baseline="token",
    tradeoff=("accepted_sound", "check_seconds"),
    repeats=3,
    telling=(
        "request_timeout", "amqp_channel", "two_buyers", "ring-8", "nest-3", "commitment_early_to_third", "staleness_no_ack",
        "awareness_one_side",
    ),
    constants=[
        Constant("delays", "lognormal, median 10 ms, σ 1", "", "of each message in played sessions; order is kept per pair (chosen)"),
        Constant("patience", "0 to 50", "ms", "uniform, before a role speaks (chosen)"),
        Constant("queue bound", 2, "messages", "of the exploration that looks for counterexamples (the specification's)"),
        Constant("observer starts", "1 in 8", "", "of mixed choices while rates are measured, as the permission's holder does (chosen)"),
    ],
)  # fmt: skip

#: Sessions that are played, and visible messages of the traces that are compared.
SESSIONS = {"tiny": 10, "small": 50, "large": 1000}
#: Nodes of a protocol for which repairs are looked for.
MOST_REPAIRED = 300
LENGTH = {"tiny": 5, "small": 8, "large": 8}
SECONDS = {"tiny": 0.005, "small": 0.1, "large": 0.5}
FAMILIES = (("ring", (4, 8, 16, 64)), ("fanout", (4, 16, 64)), ("nest", (2, 3, 5, 8)), ("loop", (2, 8, 64)))
#: Scenarios with a real broker, and how often each is tried.
SCENARIOS = {"round_trip": 200, "missing_exchange": 50, "both_close": 200, "refused_login": 5, "killed_broker": 3, "frozen_broker": 3}
TINY = {
    "request_timeout", "two_sided_close", "nested_mixed", "two_buyers", "ring-4", "nest-2", "commitment_early_to_third", "staleness_no_ack",
    "observer_same_label",
}  # fmt: skip


@protocols.cases
def cases(scale: str) -> Iterator[Case]:
    """The suite (14 sound, 6 without a mixed choice, 14 broken), families that grow, and scenarios with a real broker."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    from .suite.built_in import BROKEN as BROKEN_NAMES
    from .suite.built_in import DIRECTED
    from .suite.built_in import SOUND as SOUND_NAMES

    how = {"sessions": SESSIONS[scale], "length": LENGTH[scale], "seconds": SECONDS[scale]}
    both = {"suite", "explorable", "played"}
    for name in SOUND_NAMES:
        yield Case(name, _built_in, {"protocol": name, **how}, frozenset({"sound", "mixed-choice", "corresponds", *both}))
    for name in DIRECTED:
        yield Case(name, _built_in, {"protocol": name, **how}, frozenset({"sound", "directed", "corresponds", *both}))
    for name in BROKEN_NAMES:
        yield Case(name, _built_in, {"protocol": name, **how}, frozenset({"broken", *both}))
    for family, sizes in FAMILIES:
        for size in sizes:
            facts = {"family": family, "size": size, **how, "sessions": SESSIONS[scale] // 5}
            yield Case(f"{family}-{size}", _family, facts, frozenset({"sound", "family", "mixed-choice", "explorable", "played"}))
    for name, times in SCENARIOS.items():
        yield Case(f"broker/{name}", _scenario, {"scenario": name, "times": times}, frozenset({"broker"}))


@dataclass(frozen=True)
class Reading:
    """What a user's file is, and what is done with it."""

    name: str = parameter("", "the protocol of the file; the first one by default")
    sessions: int = parameter(200, "sessions that are played with random delays", range=(1, 20_000))
    events: str = parameter("", "a log of events (JSON lines) to check against the protocol or the machines", file=True)
    broker: str = parameter("", "the bytes that an AMQP broker sent, where the work is what its client sent", file=True)


@protocols.read(Reading)
def read(path: Path, how: Reading) -> Any:
    """Reads a protocol (.mst), machines (.json, .dot), a log of events beside either, or two captured AMQP streams."""
    from .workload import read as read_work

    return read_work(path, name=how.name, events=how.events, broker=how.broker)


@protocols.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    from .checking.machine import Machines
    from .language.protocol import Protocol

    if isinstance(loaded, Protocol):
        kinds = {"file", "explorable", "played"}
    else:
        kinds = {"file", "machines", "explorable", "played"} if isinstance(loaded, Machines) else {"file", "log"}
    yield Case(name, _own, {"sessions": how.sessions, "length": 6, "seconds": 0.1}, frozenset(kinds))


@protocols.example
def example(folder: Path) -> Path:
    """Writes the job protocol: a request with an answer in time, or a server that gives it up."""
    path = folder / "job.mst"
    from .suite.built_in import FOLDER

    path.write_text((FOLDER / "sound" / "request_timeout.mst").read_text())
    return path


@protocols.run
def run(technique: Any, case: Case) -> Outcome:
    """Judges the protocol, then plays and measures what was accepted."""
    if "broker" in case.kinds:
        return _with_broker(technique, case)
    if "log" in case.kinds:
        return _judged_log(technique, case)
    from .workload import ProtocolWork, exercised, table, unlike

    work: ProtocolWork = case.workload
    began = time.process_time()
    if work.machines is None:
        judged = technique.judge(work.protocol)
    elif hasattr(technique, "system"):
        judged = technique.system(work.machines)
    else:
        raise NotForThisCase("it checks a protocol's text, and these are machines")
    values: dict[str, float] = {"check_seconds": time.process_time() - began, "configurations": float(judged.configurations)}
    found, ended = exercised(judged, work)
    values.update(found)
    accepted = float(judged.accepted)
    if "sound" in case.kinds:
        values["accepted_sound"] = accepted
        values.update(_rates(judged, case))
    if "broken" in case.kinds:
        values["accepted_broken"], values["accepted_unsafe"] = accepted, accepted * values["counterexamples"]
    if "file" in case.kinds:
        values["accepted"] = accepted
    if "suite" in case.kinds:
        values["as_listed"] = float(_as_listed(technique, case.name, judged.accepted))
    if "corresponds" in case.kinds:
        values["trace_differences"] = unlike(judged, work, case.parameters["length"])
    if "mixed-choice" in case.kinds:
        specified = {branch.label for node in work.protocol.interactions() for branch in node.branches}
        extra = sum(many for one in ended for label, many in one.labels.items() if label not in specified)
        races, agreed = sum(one.races for one in ended), sum(one.agreed for one in ended)
        values["extra_messages"] = extra / len(ended) if judged.accepted else float("inf")
        values["recoveries"] = (agreed / races if races else 1.0) * accepted
    rows = table(judged, ended)
    if "file" in case.kinds and work.machines is None:
        rows += _repairs(technique, judged, work.protocol)
    return Outcome(values, [Artifact.table("judgement", rows), *_pictures(judged, work)])


def _repairs(technique: Any, judged: Any, protocol: Any) -> list[dict[str, Any]]:
    """What would make a refused protocol sound, where few edits do and the protocol is of a size to try them."""
    from .checking.repair import repair
    from .mixed import MixedChoiceTypes

    if judged.accepted or not isinstance(technique, MixedChoiceTypes) or len(protocol.nodes) > MOST_REPAIRED:
        return []
    found = repair(protocol, tags=technique.tags)
    return [] if found is None else [{"what": "repair", "count": len(found.edits), "said": "; ".join(found.edits)}]


def _rates(judged: Any, case: Case) -> dict[str, float]:
    from .sessions.rate import messages_per_s, monitor_us

    names = ("messages_per_s", "tcp_messages_per_s", "monitor_us")
    if not judged.accepted:
        return dict.fromkeys(names, 0.0)
    seconds = case.parameters["seconds"]
    rates = (messages_per_s(judged.system, seconds, tcp=tcp, extra=judged.extra) for tcp in (False, True))
    return dict(zip(names, (*rates, monitor_us(judged.system, int(2e5 * seconds) + 1000))))


def _as_listed(technique: Any, case: str, accepted: bool) -> bool:
    from .suite.built_in import SHOULD

    name = next(name for name in protocols.techniques if isinstance(technique, protocols.technique(name)))
    return (case in SHOULD[name]) == accepted


def _pictures(judged: Any, work: Any) -> list[Artifact]:
    """A sequence chart of the counterexample, where the accepted endpoints have one."""
    from .exploring.charts import chart
    from .exploring.explorer import explore_machines
    from .workload import BOUND, MOST_CONFIGURATIONS

    made = []
    if judged.accepted and judged.system is not None:
        found = explore_machines(judged.system, bound=BOUND, most=MOST_CONFIGURATIONS).counterexample
        if found is not None:
            made.append(Artifact("counterexample.svg", "image/svg+xml", chart(judged.system.roles, found).encode()))
    return made


def _judged_log(technique: Any, case: Case) -> Outcome:
    from .monitor import MonitorOnly
    from .readers.events import judge
    from .workload import CaptureWork

    if not isinstance(technique, MonitorOnly):
        raise NotForThisCase("it checks protocols before they run, and this is what happened")
    work = case.workload
    if isinstance(work, CaptureWork):
        from .amqp.capture import judge_captures

        said = [{"role": fault.side, "line": fault.offset, "said": fault.said} for fault in judge_captures(work.client, work.broker)]
    else:
        said = [{"role": fault.role, "line": fault.line, "said": fault.said} for fault in judge(list(work.events), work.system, work.where)]
    rows = said or [{"role": "", "line": 0, "said": "nothing is wrong"}]
    return Outcome({"violations": float(len(said)), "accepted": float(not said)}, [Artifact.table("judgement", rows)])


def _with_broker(technique: Any, case: Case) -> Outcome:
    from .mixed import MixedChoiceTypes

    if not isinstance(technique, MixedChoiceTypes):
        raise NotForThisCase("the AMQP client is specified with a mixed choice")
    from .amqp.broker import lacking
    from .amqp.scenarios import run_scenario

    missing = lacking()
    if missing:
        raise NotForThisCase(missing)
    passed, said = run_scenario(case.parameters["scenario"], case.parameters["times"])
    return Outcome(
        {"scenarios_passed": passed / case.parameters["times"]}, [Artifact("said.json", "application/json", json.dumps(said).encode())]
    )


@protocols.answer
def answer(result: Result) -> str:
    """Says how many sound protocols each technique can express, and how many broken ones slip through."""
    own = [case for case, facts in result.cases.items() if "file" in facts["kinds"]]
    if own:
        return _answer_for(result, own[0])
    if "accepted_sound" not in result.metrics or "accepted_unsafe" not in result.metrics:
        return "Ask for the metrics accepted_sound and accepted_unsafe to get an answer."
    said = []
    for name in result.techniques:
        sound, broken = result.medians(name, "accepted_sound"), result.medians(name, "accepted_unsafe")
        if sound or broken:
            said.append((-sum(sound.values()), sum(broken.values()), name, len(sound), len(broken)))
    if not said:
        return "No technique could run any of the cases."
    good = sorted(one for one in said if one[1] == 0)
    if not good:
        return "Every technique lets a protocol pass that goes wrong."
    best = [one for one in good if one[0] == good[0][0]]
    names = listed([one[2] for one in best])
    text = f"{names} accept{'s' if len(best) == 1 else ''} {-best[0][0]:g} of {best[0][3]} sound protocols"
    text += f" and none of {best[0][4]} broken ones that go wrong"
    extra = result.medians("token", "extra_messages") if "extra_messages" in result.metrics else {}
    finite = [value for value in extra.values() if value != float("inf")]
    if finite:
        text += f"; token pays for it with {min(finite):.3g} to {max(finite):.3g} more messages per session"
    loose = [f"{name} lets {bad:g} pass" for _, bad, name, _, _ in said if bad]
    return text + ("; " + ", ".join(loose) if loose else "") + "."


def _answer_for(result: Result, case: str) -> str:
    for name in ("mixed", "monitor", "explore"):
        rows = result.artifact_rows(name, case, "judgement") if name in result.techniques else []
        if rows and "what" in rows[0]:
            refused = [row["said"] for row in rows if row["what"] == "refused"]
            if refused:
                repairs = [row["said"] for row in rows if row["what"] == "repair"]
                return f"{name} refuses {case}: {refused[0]}." + (f" This would repair it: {repairs[0]}." if repairs else "")
            return f"{name} accepts {case}; " + ", ".join(f"{row['count']} sessions ended in {row['what']}" for row in rows) + "."
        if rows:
            wrong = [f"{row['role']}: {row['said']}" for row in rows if row["role"]]
            return f"{case}: " + (f"found {wrong[0]}." if wrong else "nothing is wrong.")
    return "Ask for mixed, explore or monitor to get an answer."


@protocols.plots
def plots(result: Result) -> Sequence[Any]:
    """Acceptance, cost of the check, and messages, by case."""
    drawn: list[Any] = []
    for metric, title, log in (
        ("extra_messages", "Messages beyond the specified ones", False),
        ("lost_sessions", "Share of sessions that were lost", False),
        ("messages_per_s", "Specified messages per second", False),
    ):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=log)

    def sizes(case: str, facts: Any) -> tuple[str, float] | None:
        p = facts["parameters"]
        return (p["family"], float(p["size"])) if "family" in p else None

    if "check_seconds" in result.metrics:
        drawn += result.panels("Seconds of the check by size", "check_seconds", sizes, x="size", log_x=True, log_y=True, least_points=2)
    return drawn


def _seeds(case: Case) -> tuple[int, ...]:
    return tuple(case.seed32(f"session {i}") for i in range(case.parameters["sessions"]))


def _built_in(case: Case, rng: np.random.Generator) -> Any:
    from .suite.built_in import built_in
    from .workload import ProtocolWork

    return ProtocolWork(built_in(case.parameters["protocol"]), _seeds(case))


def _family(case: Case, rng: np.random.Generator) -> Any:
    from .suite.families import family
    from .workload import ProtocolWork

    return ProtocolWork(family(case.parameters["family"], case.parameters["size"]), _seeds(case))


def _scenario(case: Case, rng: np.random.Generator) -> Any:
    return dict(case.parameters)


def _own(case: Case, rng: np.random.Generator) -> Any:
    from .checking.machine import Machines
    from .language.protocol import Protocol
    from .workload import ProtocolWork

    if isinstance(case.loaded, Machines):
        # Machines stand for themselves; their random sessions have no payloads.
        return ProtocolWork(Protocol(case.name, case.loaded.roles, ()), _seeds(case), case.loaded)
    return ProtocolWork(case.loaded, _seeds(case)) if isinstance(case.loaded, Protocol) else case.loaded
