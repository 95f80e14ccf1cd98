"""My job's I/O is slow: what is wrong according to its Darshan log, how sure is that, where, and what should change?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .diagnosis.finding import Answer
    from .diagnosis.report import Diagnosis
    from .workload import IoWork, Known

LABELLED = frozenset({"labelled"})
MISFIT = frozenset({"misfit"})
PLANTED = frozenset({"planted"})
SHARE: dict[str, Any] = {"better": "higher", "kind": "measured", "scale": "difference", "steady": True, "on": LABELLED}

io = Arena(
    "observability/io",
    question="My job's I/O is slow: what is wrong according to its Darshan log, how sure is that, where, and what should change?",
    metrics=[
        Metric("f1", doc="harmonic mean of precision and recall over all labels", **SHARE),
        Metric("recall", doc="share of the known faults that were found", **SHARE),
        Metric("precision", doc="share of the findings that are right", **SHARE),
        Metric("root_cause", doc="share of the logs whose cause is named first", **SHARE),
        Metric("f1_lost", kind="measured", scale="difference", steady=True, on=MISFIT, doc="F1 that changed thresholds cost"),
        Metric("unsupported", kind="measured", scale="difference", steady=True, doc="statements per log whose number is not in the log"),
        Metric("findings", better=None, kind="measured", steady=True, doc="findings per log"),
        Metric("seconds", unit="s", kind="measured", doc="per log, reading aside (but for drishti, which reads)"),
        Metric("tokens", better=None, kind="measured", steady=True, doc="that a language model was given, per log"),
        Metric("loss", better=None, kind="simulated", on=PLANTED, doc="planted share of the I/O time that faults cost, mean over logs"),
    ],
    techniques={
        "ioagent": ".ioagent:IOAgent",
        "ioagent-llm": ".ioagent_llm:IOAgentLlm",
        "rules": ".rules:Rules",
        "rules-weighted": ".rules:Rules(least_severity=0.05)",
        "drishti": ".drishti:Drishti",
        "totals": ".totals:Totals",
        "whole-llm": ".whole_llm:WholeLlm",
    },
    papers={"ioagent": "ioagent", "ioagent-llm": "ioagent"},
    baseline="rules",
    tradeoff=("f1", "seconds"),
    repeats=1,
    telling=(
        "small-write", "high-metadata", "mixture-4", "cause-one-stripe", "cause-many-files", "decoy-few-files", "real-bad-target",
        "real-vpic", "real-macsio", "real-streams",
    ),
    constants=[
        Constant("request", 0.1, "ms", "that a data request takes beside its bytes (ours)"),
        Constant("bandwidth", 1.2, "GB/s", "of a storage target (chosen)"),
        Constant("metadata call", 0.3, "ms", "at one metadata server (chosen)"),
        Constant("lock", 0.4, "ms", "of a misaligned write to a shared file (chosen), and of a misaligned read (ours)"),
        Constant("jump", 2.0, "ms", "of a request that does not go on where the one before ended (ours)"),
        Constant("interleaving", 1.0, "ms", "of a request where more than eight ranks use a target (ours)"),
        Constant("small request", 1, "MiB", "at most, as the size bins of Darshan have it"),
    ],
)  # fmt: skip

#: Synthetic logs of a case, and the most ranks of one.
LOGS = {"tiny": 1, "small": 3, "large": 60}
MIXED = {"tiny": 2, "small": 8, "large": 160}
RANKS = {"tiny": 16, "small": 256, "large": 4096}
TINY = {"small-write", "high-metadata", "mixture", "decoy-small-job", "misfit-halved-1"}
SINGLE = (
    "small-read", "small-write", "misaligned-read", "misaligned-write", "random-read", "random-write", "repeated-read", "shared-file",
    "rank-imbalance", "server-imbalance", "high-metadata", "no-collective-read", "no-collective-write", "low-level-read", "low-level-write",
)  # fmt: skip
CAUSES = ("slow-target", "one-stripe", "many-files", "no-chunking")
DECOYS = ("collective", "few-files", "small-job", "startup")
REAL = ("bad-target", "good-target", "vpic", "macsio", "one-process", "streams", "tiny", "ior-hdf5")


@io.cases
def cases(scale: str) -> Iterator[Case]:
    """A fault at a time, mixtures, causes with effects, healthy decoys, wrong thresholds, and the logs that the package darshan brings."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    common = {"labelled", "planted"}
    for name in SINGLE:
        yield _case(name, scale, "single", [name], LOGS[scale], common)
    yield _case("no-mpi", scale, "without-mpi", ["no-mpi"], LOGS[scale], common)
    for name in ("mixture", "mixture-2", "mixture-3", "mixture-4"):
        yield _case(name, scale, "mixture", list(SINGLE), MIXED[scale], common)
    for name in CAUSES:
        yield _case(f"cause-{name}", scale, "single", [name], LOGS[scale], common)
    for name in DECOYS:
        yield _case(f"decoy-{name}", scale, "decoy", [name], LOGS[scale] + 2, common)
    for word, factor in (("halved", 0.5), ("doubled", 2.0)):
        for draw in (1, 2):
            yield _case(f"misfit-{word}-{draw}", scale, "mixture", list(SINGLE), MIXED[scale], {"misfit", "planted"}, factor)
    for name in REAL:
        yield Case(f"real-{name}", _real, {"log": name}, frozenset({"labelled", "real"}))


def _case(name: str, scale: str, kind: str, names: list[str], logs: int, kinds: set[str], factor: float = 1.0) -> Case:
    facts = {"kind": kind, "faults": names, "logs": logs, "most_ranks": RANKS[scale], "thresholds": factor}
    return Case(name, _made, facts, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """How logs are read."""

    max_records: int = parameter(1_000_000, "records that all logs together may have", range=(1, 50_000_000))
    thresholds: float = parameter(1.0, "factor on the thresholds of all rules", range=(0.01, 100.0))


@io.read(Reading, folders=True)
def read(path: Path, how: Reading) -> IoWork:
    """Reads a Darshan log (binary, or the text of darshan-parser), a folder of logs, or JSON with logs and their known issues."""
    from .logs.read import read_log
    from .workload import IoWork, Known, read_folder, read_labelled

    if path.is_dir():
        found = read_folder(path, how.max_records)
    elif path.suffix.lower() == ".json":
        found = read_labelled(path, how.max_records)
    else:
        found = (Known(read_log(path, most_records=how.max_records), None, path),)
    return IoWork(found, how.thresholds)


@io.own_cases
def own_cases(loaded: IoWork, name: str, how: Reading) -> Iterator[Case]:
    """One case for each log, or one for all logs whose issues are known."""
    del how
    if loaded.logs[0].truth is not None:
        yield Case(name, _own, {"logs": len(loaded.logs), "first": 0}, frozenset({"file", "labelled"}))
        return
    names = [one.log.name for one in loaded.logs]
    for number, one in enumerate(names):
        clean = "".join(c if c.isprintable() and c != "|" else "?" for c in (name if len(names) == 1 else one)) or f"log {number + 1}"
        clean = clean if names.count(one) == 1 else f"{clean} ({number + 1})"
        yield Case(clean, _own, {"logs": 1, "first": number}, frozenset({"file"}))


@io.example
def example(folder: Path) -> Path:
    """Writes the text of a small log: four ranks that write small misaligned pieces of a shared file without collective calls."""
    import numpy as np

    from .logs.writing import write_text_log
    from .synthesis.faults import small
    from .synthesis.logs import log_of
    from .synthesis.program import Program

    program = Program(4, 4)
    program.phases = list(small(program, np.random.Generator(np.random.PCG64DXSM(7)), 1.0, True).flawed)
    path = folder / "job.darshan.txt"
    write_text_log(log_of(program, "example", np.random.Generator(np.random.PCG64DXSM(8))), path)
    return path


@io.run
def run(technique: Any, case: Case) -> Outcome:
    """Lets a technique diagnose every log of a case."""
    from .ioagent import answer_of
    from .workload import score

    work: IoWork = case.workload
    answers, made, spent = [], list[Any](), 0.0
    for known in work.logs:
        begin = time.perf_counter()
        if hasattr(technique, "diagnose"):
            made.append(technique.diagnose(known, work.scale))
            answers.append(answer_of(made[-1]))
        else:
            answers.append(technique.answer(known, work.scale))
        spent += time.perf_counter() - begin
    many = len(work.logs)
    values = {
        "unsupported": sum(answer.unsupported + unfounded(answer) for answer in answers) / many,
        "findings": sum(len(answer.findings) for answer in answers) / many,
        "seconds": spent / many, "tokens": sum(answer.tokens for answer in answers) / many,
    }  # fmt: skip
    pairs = [(known.truth, answer) for known, answer in zip(work.logs, answers) if known.truth is not None]
    if "labelled" in case.kinds:
        found = score(pairs)
        values |= {"f1": found.f1, "recall": found.recall, "precision": found.precision, "root_cause": found.root_cause}
    if "misfit" in case.kinds:
        usual = [(known.truth, technique.answer(known, 1.0)) for known in work.logs if known.truth is not None]
        values["f1_lost"] = score(usual).f1 - score(pairs).f1
    if "planted" in case.kinds:
        values["loss"] = sum(max(known.truth.severity.values(), default=0.0) for known in work.logs if known.truth) / many
    return Outcome(values, _artifacts(work, answers, made))


def unfounded(answer: Answer) -> int:
    """How many findings of an answer name a number that its fragments do not hold."""
    wrong = 0
    for finding in answer.findings:
        for piece in finding.evidence if answer.fragments else ():
            fragment = answer.fragments.get(piece.fragment)
            if fragment is None or abs(fragment.number(piece.field) - piece.value) > 0.01 * abs(piece.value):
                wrong += 1
                break
    return wrong


def _artifacts(work: IoWork, answers: Sequence[Answer], made: Sequence[Diagnosis]) -> list[Artifact]:
    """Findings with their evidence, facts about each job, and what was planted; for a single log also its report and its timeline."""
    from .analysis.fleet import application, file_system
    from .analysis.predicting import predict
    from .knowledge.entries import built_in

    titles = {one.id: one.title for one in built_in()}
    rows, jobs = [], []
    for number, (known, answer) in enumerate(zip(work.logs, answers), 1):
        context = answer.fragments.get("JOB.context")
        jobs.append({
            "log": known.log.name, "number": number, "application": application(known.log.executable),
            "file_system": file_system(known.log), "processes": known.log.processes, "run_time_s": known.log.run_time_s,
            "io_share_of_run": context.number("io_share_of_run") if context is not None else None,
            "notes": " ".join(dict.fromkeys(answer.notes)),
        })  # fmt: skip
        gains = {one.label: one for one in predict(made[number - 1])} if made and len(work.logs) == 1 else {}
        for place, one in enumerate(answer.findings, 1):
            evidence = "; ".join(f"{e.fragment}:{e.field} = {e.value:,.6g}" for e in one.evidence)
            rows.append({
                "log": known.log.name, "number": number, "place": place, "label": one.label, "severity": one.severity,
                "confidence": one.confidence, "text": f"{one.text} {one.cause}".strip(), "evidence": evidence,
                "files": ", ".join(one.files), "ranks": ", ".join(map(str, one.ranks)), "targets": ", ".join(map(str, one.targets)),
                "slow": any(e.field == "slowest_over_usual" for e in one.evidence),
                "advice": "; ".join(titles.get(name, name) for name in one.knowledge),
                "fix": gains[one.label].fix if one.label in gains else "",
                "modelled_gain": gains[one.label].gain if one.label in gains else None,
            })  # fmt: skip
    found = [Artifact.table("jobs", jobs)] + ([Artifact.table("findings", rows)] if rows else [])
    planted = [
        {"log": known.log.name, "label": label, "loss": share}
        for known in work.logs if known.truth is not None for label, share in known.truth.severity.items()
    ]  # fmt: skip
    found += [Artifact.table("truth", planted)] if planted else []
    if len(work.logs) == 1 and made:
        found.append(Artifact("report.md", "text/markdown", made[0].markdown().encode()[: 1 << 20]))
        events = _timeline(work.logs[0])
        found += [Artifact.timeline(events)] if events else []
    return found


def _timeline(known: Known, most: int = 20_000) -> list[dict[str, Any]]:
    """Traced requests as a timeline, a lane per rank; the longest ones where there are many."""
    import numpy as np

    events = []
    for name, part in known.log.segments.items():
        order = np.sort(np.argsort(part.start_s - part.end_s, kind="stable")[:most])
        for i in order.tolist():
            begin, end = float(part.start_s[i]), float(part.end_s[i])
            what = {"offset": int(part.offset[i]), "bytes": int(part.length[i]), "file": known.log.file(int(part.ids[i]))[-80:]}
            events.append({
                "name": "write" if part.wrote[i] else "read", "cat": name, "ph": "X", "ts": 1e6 * begin, "dur": max(0.0,
                1e6 * (end - begin)),
                "pid": name, "tid": int(part.ranks[i]), "args": what,
            })  # fmt: skip
    return events


@io.answer
def answer(result: Result) -> str:
    """Says what is wrong with a user's log, or who finds most of what is planted."""
    own = [case for case, facts in result.cases.items() if "file" in facts["kinds"] and "labelled" not in facts["kinds"]]
    if own:
        return _own_answer(result, own)
    if "f1" not in result.metrics:
        return "Ask for the metric f1 to get an answer."
    means = {}
    for name in result.techniques:
        found = result.medians(name, "f1")
        if found:
            means[name] = (sum(found.values()) / len(found), len(found))
    most = max((number for _, number in means.values()), default=0)
    ranked = sorted(((value, name) for name, (value, number) in means.items() if number == most), reverse=True)
    if not ranked:
        return "No technique could run any of the cases."
    value, best = ranked[0]
    said = f"{best} finds what is wrong best: its F1 is {value:.2f} on average over {most} cases"
    if len(ranked) > 1:
        said += f", that of {ranked[1][1]} {ranked[1][0]:.2f}"
    causes = {name: result.medians(name, "root_cause") for _, name in ranked}
    if causes.get(best):
        said += f". It names the cause first in {100 * sum(causes[best].values()) / len(causes[best]):.0f} % of the logs"
        if len(ranked) > 1 and causes.get(ranked[1][1]):
            second = causes[ranked[1][1]]
            said += f", {ranked[1][1]} in {100 * sum(second.values()) / len(second):.0f} %"
    return said + "."


#: Logs of a folder, and findings of a log, that the answer puts into words; the report has them all.
MOST_LOGS, MOST_FINDINGS = 5, 3


def _own_answer(result: Result, cases: Sequence[str]) -> str:
    """What is wrong with each log, how sure that is, where, and what helps, with the evidence beside each statement."""
    from .analysis.fleet import shared_targets

    said, faults, slow = list[str](), dict[str, int](), list[tuple[str, str, Sequence[int]]]()
    for number, case in enumerate(cases):
        name = next((one for one in ("ioagent-llm", "ioagent", *result.techniques) if case in result.medians(one, "findings")), "")
        job = result.artifact_rows(name, case, "jobs")[:1] if name else []
        rows = result.artifact_rows(name, case, "findings") if name else []
        for row in rows:
            faults[row["label"]] = faults.get(row["label"], 0) + 1
            if row["slow"] and row["targets"]:
                slow.append((case, str(job[0]["file_system"]), [int(one) for one in row["targets"].split(", ")]))
        if number < MOST_LOGS:
            said.append(_about_log(case, name, job, rows))
    if len(cases) > 1:
        most = sorted(faults.items(), key=lambda one: (-one[1], one[0]))[:5]
        said += [f"{label} concerns {many} of the {len(cases)} logs." for label, many in most] or ["None of the logs shows a fault."]
        said += [
            f"{' and '.join(names)} share storage target {target} of {system} and are slow on it."
            for (system, target), names in shared_targets(slow).items()
        ]
    left = len(cases) - MOST_LOGS
    return "\n".join(said) + (f"\nThe other {left} logs are in the report (--html)." if left > 0 else "")


def _about_log(case: str, name: str, job: Sequence[Any], rows: Sequence[Any]) -> str:
    """The most important findings of one log in words."""
    share = job[0]["io_share_of_run"] if job else None
    load = f" I/O takes {100 * share:.2g} % of its processes' time." if share is not None else ""
    notes = f" {job[0]['notes']}" if job and job[0]["notes"] else ""
    if not name:
        return f"{case}: no technique could look at it."
    if not rows:
        return f"{case}: {name} finds nothing wrong with its I/O.{load}{notes}"
    said = [f"{case}:{load}{notes}"]
    for row in rows[:MOST_FINDINGS]:
        where = [f"{what} {row[part]}" for part, what in (("files", "in"), ("ranks", "rank"), ("targets", "storage target")) if row[part]]
        said.append(
            f"{row['place']}. {row['label']}: {row['text']} It touches {100 * row['severity']:.0f} % of the I/O time, and the "
            f"confidence is {100 * row['confidence']:.0f} %. Evidence: {row['evidence']}."
            + (f" Where: {'; '.join(where)}." if where else "")
            + (f" What helps: {row['advice']}." if row["advice"] else "")
            + (f" On a small model, {row['fix']} would shorten the I/O by {100 * row['modelled_gain']:.0f} %." if row["fix"] else "")
        )
    if len(rows) > MOST_FINDINGS:
        said.append(f"Further findings are {', '.join(row['label'] for row in rows[MOST_FINDINGS:])}.")
    return "\n".join(said)


@io.plots
def plots(result: Result) -> Sequence[Any]:
    """F1 and causes by case, and severities of findings in a user's logs."""
    drawn: list[Any] = []
    for metric, title in (("f1", "F1 of labels"), ("root_cause", "Cause named first"), ("f1_lost", "F1 lost to wrong thresholds")):
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    if "findings" in result.metrics and any("file" in facts["kinds"] for facts in result.cases.values()):
        drawn += result.panels("Findings", "findings")
    return drawn


def _made(case: Case, rng: np.random.Generator) -> IoWork:
    from .workload import IoWork, made

    p = case.parameters
    return IoWork(made(p["kind"], p["faults"], p["logs"], p["most_ranks"], rng), p["thresholds"])


def _real(case: Case, rng: np.random.Generator) -> IoWork:
    from .workload import IoWork, shipped_log

    del rng
    return IoWork((shipped_log(case.parameters["log"]),))


def _own(case: Case, rng: np.random.Generator) -> IoWork:
    from .workload import IoWork

    del rng
    loaded: IoWork = case.loaded
    first, many = case.parameters["first"], case.parameters["logs"]
    if first + many > len(loaded.logs):
        raise InputError("the file changed since the study was planned")
    return IoWork(loaded.logs[first : first + many], loaded.scale)
