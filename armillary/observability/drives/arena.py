"""Which of my drives will fail within the next days, at a false-alarm rate that I can afford?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .fleets.fleet import Fleet
    from .judging.lesson import Scorer
    from .workload import DrivesWork


def _score(name: str, doc: str, **how: Any) -> Metric:
    """A metric of found drives, which does not depend on how busy the machine is."""
    return Metric(name, kind="measured", steady=True, scale="difference", doc=doc, **{"better": "higher", **how})


DRAWN = frozenset({"drawn"})

drives = Arena(
    "observability/drives",
    question="Which of my drives will fail within the next days, at a false-alarm rate that I can afford?",
    metrics=[
        _score("f05_at_far", "F0.5 per drive at the natural rate of failures, 0 where more than 0.2 % of the healthy drives are flagged"),
        _score("precision", "share of flagged drives that fail within the horizon, at the natural rate of failures"),
        _score("recall", "share of failing drives that are flagged within the horizon before"),
        _score("f05", "F-beta with beta 0.5: 1.25 P R / (0.25 P + R)"),
        _score("false_alarm_rate", "share of healthy drives that are flagged", better="lower"),
        _score("auprc", "area under precision over recall, per drive at the natural rate"),
        _score("recall_of_possible", "recall over the share of failures that announce themselves", on=DRAWN),
        Metric("lead_days", unit="days", better="higher", kind="measured", steady=True, scale="difference",
               doc="median days from the first right flag to the failure, over the drives found"),
        Metric("oracle_recall", better=None, kind="simulated", scale="difference", on=DRAWN,
               doc="share of the failing drives that show anything before they fail"),
        Metric("train_s", unit="s", kind="measured", doc="seconds of training"),
        Metric("drives_per_s", better="higher", kind="measured", doc="drive-days scored per second"),
    ],
    techniques={
        "none": ".none:NoPrediction",
        "threshold": ".threshold:Threshold",
        "logistic": ".logistic:Logistic",
        "forest": ".forest:Forest",
        "lightgbm": ".lightgbm:LightGbm",
        "wefr-forest": ".wefr_forest:WefrForest",
        "cnn-lstm": ".cnn_lstm:CnnLstm",
        "gru-attention": ".gru_attention:GruAttention",
        "lstm": ".lstm:LstmAlone",
        "xlstm": ".xlstm:XlstmAlone",
        "gmppredictor": ".gmppredictor:GmpPredictor",
        "no-partition": ".gmppredictor:GmpPredictor(partition=false)",
        "no-guidance": ".gmppredictor:GmpPredictor(guidance=false)",
        "static-loss": ".gmppredictor:GmpPredictor(dynamic=false)",
    },
    papers={"gmppredictor": "gmppredictor"},
    baseline="threshold",
    tradeoff=("false_alarm_rate", "recall"),
    repeats=1,
    telling=("fleet-1",),
    constants=[
        Constant("natural rate", 0.7, "% per year", "published totals of about 7,000 failures among 500,000 drives in two years"),
        Constant("modes", "45 / 10 / 10 / 35", "%", "decline, wear-out, interface, sudden; our design"),
        Constant("missing days", 3, "%", "our design"),
        Constant("harmless bursts", 5, "% of healthy drives", "our design"),
        Constant("flag", "2 of the last 3 days", "", "our design"),
        Constant("slices", "60 / 15 / 25", "%", "of the days outside the gaps: train, choose the threshold, judge"),
    ],
)  # fmt: skip

#: (drives, days, failures, models, horizon, epochs, members) of the built-in fleets; 0 epochs or members leave it to the technique.
SIZES = {
    "tiny": (240, 64, 90, 2, 10, 2, 1),
    "small": (2500, 120, 300, 3, 30, 6, 1),
    "large": (12_000, 180, 1500, 6, 30, 0, 0),
}
#: The same of a fleet that is not thinned, which fails at 2.5 % a year like the worst of the models.
NATURAL = {"small": (5000, 120, 52, 3, 30, 6, 1), "large": (40_000, 365, 1080, 6, 30, 0, 0)}
NAMES = ("drives", "days", "failures", "models", "horizon", "most_epochs", "most_ensemble")
DRAWS = 4
#: Drives that an at-risk list names.
TOP = 50


@drives.cases
def cases(scale: str) -> Iterator[Case]:
    """Drawn fleets in which healthy drives are thinned, some of whose failures change their signs; and one that is not thinned."""
    size = dict(zip(NAMES, SIZES[scale]))
    for name in ("fleet", "drift"):
        for draw in range(1, DRAWS + 1 if scale != "tiny" else 2):
            # The first fleet is what `compare` runs; without the networks whose parts are switched off it answers within a minute.
            kinds = {"enriched", "drawn", name} | (set() if (name, draw) == ("fleet", 1) and scale != "tiny" else {"ablation"})
            yield Case(f"{name}-{draw}", _drawn, size | {"drift": name == "drift"}, frozenset(kinds))
    if scale != "tiny":
        yield Case("natural", _drawn, dict(zip(NAMES, NATURAL[scale])) | {"drift": False}, frozenset({"drawn", "natural"}))


@dataclass(frozen=True)
class Reading:
    """How logs are read."""

    format: str = parameter("auto", "what the files are", choices=("auto", "alibaba", "backblaze", "smartctl"))
    labels: str = parameter("", "file of failures (ssd_failure_label.csv) of an Alibaba log; by default the one in the folder", file=True)
    horizon: int = parameter(30, "days ahead", range=(1, 365))
    most_rows: int = parameter(
        2_000_000, "drive-days in memory; beyond them healthy drives are thinned, and counted so many times more", range=(1000, 200_000_000)
    )
    models: str = parameter("", "models to read, separated by commas; all by default")
    attributes: str = parameter("", "SMART attributes to read, separated by commas; by default those known to matter")
    last: int = parameter(0, "reads the last days only; 0 reads all", range=(0, 100_000))
    cache: str = parameter("", "a folder that keeps the log as Parquet in the order of drives, for the next time")


@drives.read(Reading, folders=True)
def read(path: Path, how: Reading) -> DrivesWork:
    """Reads a folder of daily logs (Alibaba, Backblaze), a quarter's archive of Backblaze, or smartctl documents."""
    from .readers.logs import read_logs
    from .workload import DrivesWork

    models = tuple(one.strip() for one in how.models.split(",") if one.strip())
    numbers = tuple(int(one) if one.isdigit() else -1 for one in how.attributes.replace(" ", "").split(",") if one)
    if any(not 1 <= one <= 255 for one in numbers):
        raise InputError(f'found "{how.attributes}"; expected numbers from 1 to 255, separated by commas', where="attributes")
    fleet = read_logs(
        path, format=how.format, labels=Path(how.labels) if how.labels else None, most_rows=how.most_rows, models=models, last=how.last,
        attributes=numbers, cache=Path(how.cache) if how.cache else None,
    )  # fmt: skip
    return DrivesWork(fleet, how.horizon)


@drives.own_cases
def own_cases(loaded: DrivesWork, name: str, how: Reading) -> Iterator[Case]:
    """The fleet as one case."""
    from .judging.split import split

    fleet = loaded.fleet
    split(fleet.days, fleet.known_until, how.horizon)
    if int(fleet.failed.sum()) < 10:
        raise InputError(
            f"found {int(fleet.failed.sum())} failures among {len(fleet)} drives; expected at least 10 (pool models or fleets)", where=name
        )
    facts = {"drives": len(fleet), "days": fleet.days, "failures": int(fleet.failed.sum()), "weight": fleet.weight}
    yield Case(name, parameters=facts, kinds=frozenset({"file"}))


@drives.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes logs of a small fleet in the format of the Alibaba SSD logs."""
    from armillary.streams import stream

    from .fleets.synthesis import draw
    from .readers.writing import write_alibaba

    fleet = draw(stream(0, "observability", "drives", "example"), 160, 60, 70, horizon=10, models=2)
    write_alibaba(fleet, folder)
    return folder, {"horizon": "10"}


@drives.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Loads what the technique needs, and its compiled loops."""
    _ = case.once(_days)
    if hasattr(technique, "width"):
        import torch

        from .networks.frozen import warm

        del torch
        warm(getattr(technique, "kind", "both"))


@drives.run
def run(technique: Any, case: Case) -> Outcome:
    """Learns from the days before the test days, chooses the threshold on the validation days, and judges on the test days."""
    from armillary.timing import Stopwatch

    from .judging.alarms import best_threshold

    work: DrivesWork = case.workload
    if not getattr(technique, "whole", True) and not {"ablation", "file"} & case.kinds:
        raise NotForThisCase("takes cases on which parts are switched off")
    lesson = work.lesson(case.seed32("learning"))
    days, rows = case.once(_days), case.once(_rows)
    with Stopwatch() as training:
        _ = lesson.days, lesson.validation
        scorer = technique.learn(lesson)
    threshold, _, _ = best_threshold(lesson.fleet, lesson.validated(scorer), work.horizon)
    with Stopwatch() as scoring:
        scored = work.scored(scorer)
    found = work.counts(scored, threshold)
    values = {
        "f05_at_far": found.f05_at_far, "precision": found.precision, "recall": found.recall, "f05": found.f05,
        "false_alarm_rate": found.false_alarm_rate, "auprc": work.auprc(scored), "lead_days": found.lead_days,
        "train_s": training.seconds, "drives_per_s": len(rows) / scoring.seconds,
    }  # fmt: skip
    if "drawn" in case.kinds:
        possible = case.once(_possible)
        values["oracle_recall"] = possible
        values["recall_of_possible"] = found.recall / possible if possible else 0.0
    counted = {
        "found": found.found, "missed": found.missed, "flagged in vain": found.false_healthy + found.false_failing,
        "healthy drives": found.healthy, "weight of a healthy drive": work.fleet.weight, "threshold": threshold,
    }  # fmt: skip
    artifacts = [Artifact.table("counts", [counted]), Artifact.table("at-risk", _at_risk(work, days, scorer, threshold))]
    if work.fleet.notes:
        artifacts.append(Artifact.table("notes", [{"note": one} for one in work.fleet.notes]))
    return Outcome(values, artifacts)


def _days(case: Case) -> Any:
    work: DrivesWork = case.workload
    return work.days


def _rows(case: Case) -> Any:
    work: DrivesWork = case.workload
    return work.rows


def _possible(case: Case) -> float:
    work: DrivesWork = case.workload
    found = work.possible()
    return float(found.mean()) if len(found) else 0.0


def _at_risk(work: DrivesWork, days: Any, scorer: Scorer, threshold: float) -> list[dict[str, Any]]:
    """The drives with the highest scores on the last days of the log, of those that have not failed by then."""
    import numpy as np

    from .features.windows import ends

    rows = ends(days, work.fleet.days - 3, work.fleet.days)
    last = rows[np.append(days.drive[rows][1:] != days.drive[rows][:-1], True)] if len(rows) else rows
    score = scorer.scores(work.fleet, days, last)
    order = np.argsort(-score, kind="stable")[:TOP]
    fleet: Fleet = work.fleet
    return [
        {
            "model": fleet.models[int(fleet.model[days.drive[last[i]]])], "serial": fleet.serial[int(days.drive[last[i]])],
            "date": fleet.date(int(days.day[last[i]])), "score": round(float(np.maximum(score[i], -1e9)), 4),
            "flagged": bool(score[i] >= threshold),
        }
        for i in order.tolist()
    ]  # fmt: skip


@drives.answer
def answer(result: Result) -> str:
    """Names the technique that finds most at an affordable rate of false alarms, and what that means for an operator."""
    if "f05_at_far" not in result.metrics:
        return "Ask for the metric f05_at_far to get an answer."
    means: dict[str, list[float]] = {}
    for case in result.cases:
        for name, value in result.on(case, "f05_at_far").items():
            means.setdefault(name, []).append(value)
    most = max((len(found) for found in means.values()), default=0)
    ranked = sorted(((sum(found) / len(found), name) for name, found in means.items() if len(found) == most), reverse=True)
    if not ranked:
        return "No technique could run any of the cases."
    value, best = ranked[0]
    if value <= 0:
        return "No technique finds failing drives with less than 0.2 % of the healthy drives flagged."
    said = f"{best} predicts failures best: its F0.5 at an affordable rate of false alarms is {value:.2f}"
    if len(ranked) > 1:
        said += f", that of {ranked[1][1]} {ranked[1][0]:.2f}"
    for metric, words in (
        ("recall", "It finds {:.0f} % of the failing drives"), ("precision", "{:.0f} % of the drives that it flags fail in time"),
        ("false_alarm_rate", "it flags {:.2f} % of the healthy ones"),
    ):  # fmt: skip
        found = result.medians(best, metric) if metric in result.metrics else {}
        if found:
            start = ". " if metric == "recall" else ", "
            said += start + words.format(100 * sum(found.values()) / len(found))
    oracle = result.medians(best, "oracle_recall") if "oracle_recall" in result.metrics else {}
    if oracle:
        said += f"; {100 * sum(oracle.values()) / len(oracle):.0f} % of the failures show anything before they happen"
    risky = [row for case in result.cases for row in result.artifact_rows(best, case, "at-risk") if str(row["flagged"]).lower() == "true"]
    own = any("file" in facts["kinds"] for facts in result.cases.values())
    if own and risky:
        names = ", ".join(f"{row['model']}/{row['serial']}" for row in risky[:5])
        said += f". At risk now are {names}" + (f" and {len(risky) - 5} more" if len(risky) > 5 else "")
    return said + "."


@drives.plots
def plots(result: Result) -> Sequence[Any]:
    """Scores by case, and recall against false alarms."""
    drawn: list[Any] = []
    for metric, title in (
        ("f05_at_far", "F0.5 at an affordable false-alarm rate"),
        ("recall", "Recall"),
        ("auprc", "Area under precision over recall"),
    ):
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    return drawn


def _drawn(case: Case, rng: np.random.Generator) -> DrivesWork:
    from .fleets.synthesis import draw
    from .workload import DrivesWork

    p = case.parameters
    border = p["days"] - 25 if p["drift"] else None
    fleet = draw(
        rng,
        p["drives"],
        p["days"],
        p["failures"],
        horizon=p["horizon"],
        models=p["models"],
        drift_day=border,
        natural="natural" in case.kinds,
    )
    return DrivesWork(fleet, p["horizon"], p["most_epochs"], p["most_ensemble"])
