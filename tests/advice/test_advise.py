"""Advice from end to end: which questions arise, what runs, and what a cheating technique gets."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import armillary
from armillary import catalogue, records
from armillary.advice import asking
from armillary.arena import InputError, NotForThisCase, Outcome, Technique

QUEUE = "examples/queueing"


def advice_on_queues(tmp_path: Path, **how: object) -> armillary.advice.Advice:
    return armillary.advise(**{"cluster": "laptop", "runs": [QUEUE], "store": tmp_path / "s.db", "engine": "here", "seconds": 100} | how)  # type: ignore[arg-type]


def test_a_question_is_answered_over_the_technique_in_use(tmp_path: Path) -> None:
    found = advice_on_queues(tmp_path)
    (answer,) = found.answers
    assert (answer.finding.technique, answer.finding.today, answer.near) == ("shortest-first", "fcfs", "built-in work")
    assert answer.finding.gain > 1.5
    assert not answer.finding.sure  # Three cases settle nothing.
    other = advice_on_queues(tmp_path, today={QUEUE: "shortest-first"})
    assert [a.finding.technique for a in other.stays] == ["fcfs"]


def test_the_same_on_processes(tmp_path: Path) -> None:
    here, there = advice_on_queues(tmp_path / "a"), advice_on_queues(tmp_path / "b", engine="processes:2")
    assert here.answers == there.answers


@pytest.mark.slow
def test_the_same_on_dask(tmp_path: Path) -> None:
    here, there = advice_on_queues(tmp_path / "a"), advice_on_queues(tmp_path / "b", engine="dask")
    assert here.answers == there.answers


def test_an_own_file_is_nearest_and_other_arenas_are_not_asked(tmp_path: Path) -> None:
    file, options = catalogue.arena(QUEUE).write_example(tmp_path)
    assert not options
    found = advice_on_queues(tmp_path, work=file, runs=[QUEUE, "storage/eviction"])
    assert {a.near for a in found.answers if a.finding.arena == QUEUE} == {"your file"}
    alone = armillary.advise("laptop", work=file, store=tmp_path / "s.db", seconds=60)
    assert {a.near for a in alone.answers} == {"your file"}
    assert any("does not read the file" in n.reason for n in alone.not_judged)


@dataclass(frozen=True)
class Picky(Technique):
    """Takes only the case on which it looks splendid."""

    def order(self, jobs: object) -> object:
        raise AssertionError("the arena's run is replaced")


def test_a_technique_that_cheats_on_a_subset_is_not_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = catalogue.arena(QUEUE)
    run = home._run
    assert run is not None

    def cheated(technique: Technique, case: object) -> object:
        if not isinstance(technique, Picky):
            return run(technique, case)  # type: ignore[arg-type]
        if case.parameters["load"] > 0.6:  # type: ignore[attr-defined]
            raise NotForThisCase("does not look splendid there")
        return Outcome({"mean_wait": 1e-9, "longest_wait": 1e-9})

    cheated.__module__ = run.__module__
    monkeypatch.setattr(home, "techniques", dict(home.techniques))
    monkeypatch.setattr(home, "_run", cheated)
    home.join(Picky)
    monkeypatch.setattr(asking, "_until", lambda end, name, plan, store: asking.Here())  # The planted technique lives in this process.
    found = advice_on_queues(tmp_path)
    (answer,) = found.answers
    assert answer.finding.technique == "shortest-first"
    assert answer.finding.partial == {"picky": 1}


def test_what_only_shows_a_cost_is_not_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "no_answers", lambda arena: ("shortest-first",))
    found = advice_on_queues(tmp_path)
    assert not found.answers
    assert "no technique can be compared" in found.not_judged[0].reason


def test_time_that_is_over_ends_what_runs_and_is_said(tmp_path: Path) -> None:
    started = time.monotonic()
    found = armillary.advise("laptop", runs=["storage/eviction"], store=tmp_path / "s.db", seconds=0.5, engine="here")
    assert time.monotonic() - started < 30
    if found.not_judged:
        (one,) = found.not_judged
        assert "--seconds" in one.reason or "ask again" in one.reason
    else:
        assert all(a.source.startswith("recorded") for a in found.answers)


def test_a_record_of_the_same_code_answers_without_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    armillary.reproduce("shortest-first", repeats=1, store=tmp_path / "r.db", record=folder)
    monkeypatch.setattr(asking, "records", lambda: records.records.__wrapped__(folder))
    monkeypatch.setattr(asking, "conduct", lambda *_, **__: pytest.fail("nothing should run"))
    (answer,) = advice_on_queues(tmp_path).answers
    assert answer.source.startswith("recorded ")
    assert answer.finding.technique == "shortest-first"


def test_a_machine_that_lacks_what_a_question_needs_is_told(tmp_path: Path) -> None:
    found = armillary.advise("laptop", runs=["network/routing"], store=tmp_path / "s.db", seconds=5)
    (one,) = found.not_judged
    assert one.arena == "network/routing"
    assert "dragonfly" in one.reason.lower()


def test_what_measures_this_machine_is_not_asked_for_another(tmp_path: Path) -> None:
    found = armillary.advise("dgx-h100", runs=["storage/keyvalue"], store=tmp_path / "s.db", seconds=5)
    assert ["measures the machine" in n.reason for n in found.not_judged] == [True]


@pytest.mark.parametrize(
    ("cluster", "has"),
    [("laptop", set()), ("dragonfly-10k", {"nodes", "dragonfly"}), ("dgx-h100", {"gpu"}), ("qpu-6", {"nodes", "qpu"})],
)
def test_what_a_machine_has(cluster: str, has: set[str]) -> None:
    from armillary.advice.questions import NEEDS
    from armillary.cluster import find

    assert {name for name, (asks, _) in NEEDS.items() if asks(find(cluster))} == has


def test_what_arenas_say_of_their_adoption_can_be_read() -> None:
    from armillary.advice.questions import NEEDS, _adoption, how_to_adopt, no_answers

    for path, home in catalogue.arenas().items():
        assert set(getattr(_adoption(home), "NEEDS", ())) <= set(NEEDS), path
        assert set(no_answers(home)) <= set(home.techniques), path
        if home.module.startswith("armillary."):
            assert how_to_adopt(home).endswith("."), path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"runs": ["servin"]}, "serving"),
        ({"today": {QUEUE: "fcf"}}, "fcfs"),
        ({"today": {"storage/eviction": "lru"}}, "not asked"),
        ({"cluster": "dgx-h10"}, "dgx-h100"),
        ({"work": "nowhere.csv"}, "no such file"),
        ({"seconds": -1.0}, "--seconds"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_wrong_words_are_one_line(tmp_path: Path, words: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        advice_on_queues(tmp_path, **words)


def test_the_command_prints_tables_json_and_writes_a_page(tmp_path: Path, armillary_command) -> None:  # type: ignore[no-untyped-def]
    words = ("advise", "--cluster", "laptop", "--runs", QUEUE, "--seconds", "60", "--quiet")
    shown = armillary_command(*words, "--html", "advice.html")
    assert shown.returncode == 0, shown.stderr
    assert "shortest-first" in shown.stdout
    assert "fewer" not in shown.stderr
    assert (tmp_path / "advice.html").read_text().startswith("<!DOCTYPE html>")
    told = armillary_command(*words, "--json")
    assert json.loads(told.stdout)["unsure"][0]["technique"] == "shortest-first"
    wrong = armillary_command("advise", "--today", "fcfs")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


def test_a_log_of_many_nodes_is_judged_on_any_machine(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    jobs = [f"{i + 1} {60 * i} 0 {300 + 40 * (i % 7)} {8 * (1 + i % 4)} -1 -1 {8 * (1 + i % 4)} 900 -1 1 {i % 5} -1 -1 -1 -1 -1 -1" for i in range(60)]
    log.write_text("; MaxNodes: 32\n; MaxProcs: 32\n" + "\n".join(jobs) + "\n")
    found = armillary.advise("laptop", work=log, runs=["scheduling/batch"], store=tmp_path / "s.db", seconds=60, engine="here")
    (answer,) = found.answers
    assert answer.near == "your file"
    assert answer.finding.metric == "turnaround_mean_s"  # Nothing slows I/O down, and a ratio to zero would say nothing.
