"""Records: what a study found, kept in a file, and what is made from it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary import records
from armillary.errors import InputError
from armillary.study.recording import record


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> armillary.Result:
    store = tmp_path_factory.mktemp("record") / "s.db"
    return armillary.compare("examples/queueing", repeats=3, store=store)


def test_a_record_holds_medians_verdicts_and_where_they_come_from(result: armillary.Result, tmp_path: Path) -> None:
    file = record(result, tmp_path)
    assert file.name == "examples-queueing.json"
    found = records.load(file)
    assert (found.arena, found.scale, found.seed) == ("examples/queueing", "small", 0)
    assert found.answer == result.answer()
    medians = found.techniques["fcfs"]["medians"]["mean_wait"]
    assert medians == pytest.approx(result.medians("fcfs", "mean_wait"), rel=1e-5)
    (verdict,) = found.of("shortest-first")
    assert verdict["state"] == result.verdicts[0].state
    assert found.units["done"] == len(result.units)
    assert "cpu" in found.environment
    assert str(tmp_path) not in file.read_text()
    assert not list(tmp_path.glob("*.part"))


def test_recording_again_keeps_verdicts_that_were_not_judged_now(result: armillary.Result, tmp_path: Path) -> None:
    file = record(result, tmp_path)
    only = armillary.compare("examples/queueing", techniques=["fcfs"], scale="tiny", repeats=1, store=tmp_path / "s.db")
    before = records.load(file).verdicts
    assert records.load(record(only, tmp_path)).verdicts == before


def test_a_record_can_be_taken_in_pieces(tmp_path: Path) -> None:
    for folder in ("whole", "pieces"):
        (tmp_path / folder).mkdir()
    how: dict[str, Any] = {"repeats": 1, "store": tmp_path / "s.db"}
    whole = armillary.reproduce("shortest-first", record=tmp_path / "whole", **how)
    first, *others = whole.cases
    file = tmp_path / "pieces" / "examples-queueing.json"
    armillary.reproduce("shortest-first", record=file.parent, cases=[first], **how)
    part = records.load(file)
    assert set(part.techniques["fcfs"]["medians"]["mean_wait"]) == {first}
    assert {v["state"] for v in part.verdicts} == {records.NOT_TRIED}
    armillary.reproduce("shortest-first", record=file.parent, cases=others, **how)
    joined, expected = records.load(file), records.load(tmp_path / "whole" / "examples-queueing.json")
    for name, facts in expected.techniques.items():
        assert joined.techniques[name]["medians"] == facts["medians"]
        assert joined.techniques[name]["seconds"].keys() == facts["seconds"].keys()
        for metric, (level, low, high) in facts["levels"].items():
            if whole.metric(metric).kind != "measured":
                assert joined.techniques[name]["levels"][metric] == pytest.approx([level, low, high], rel=1e-5)


@pytest.mark.parametrize("wrong", ["words", [1], {"mean_wait": "words"}, {"mean_wait": {"x": "words"}}, {"no_such_metric": {"x": 1.0}}])
def test_a_record_that_lies_about_its_values_is_not_joined(wrong: Any, tmp_path: Path) -> None:
    how: dict[str, Any] = {"repeats": 1, "store": tmp_path / "s.db", "record": tmp_path}
    whole = armillary.reproduce("shortest-first", **how)
    file = tmp_path / "examples-queueing.json"
    lie = json.loads(file.read_text())
    lie["techniques"]["fcfs"]["medians"] = wrong
    file.write_text(json.dumps(lie))
    before = file.read_text()
    with pytest.raises(InputError, match=r"examples-queueing\.json"):
        armillary.reproduce("shortest-first", cases=[next(iter(whole.cases))], **how)
    assert file.read_text() == before


def test_a_few_cases_of_another_seed_add_verdicts_alone(tmp_path: Path) -> None:
    whole = armillary.reproduce("shortest-first", record=tmp_path, repeats=1, store=tmp_path / "s.db")
    file = tmp_path / "examples-queueing.json"
    before = file.read_text()
    armillary.reproduce("shortest-first", record=tmp_path, repeats=1, store=tmp_path / "s.db", cases=[next(iter(whole.cases))], seed=1)
    assert file.read_text() == before
    armillary.reproduce("shortest-first", record=tmp_path, repeats=1, store=tmp_path / "s.db", seed=1)
    assert records.load(file).seed == 1


def test_a_file_that_is_no_record_is_one_line(tmp_path: Path) -> None:
    for text in ("", "[]", '{"form": 99}', '{"form": 1}', "{" * 100_000):
        file = tmp_path / "x.json"
        file.write_text(text)
        with pytest.raises(InputError) as caught:
            records.load(file)
        assert "\n" not in str(caught.value)


def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(InputError, match="regular file"):
        records.load(tmp_path / "x.json")


def test_the_records_of_the_project_can_be_read_and_belong_to_arenas() -> None:
    from armillary import catalogue

    for path, found in records.records().items():
        claims = {claim for claim, _, _ in catalogue.arena(path).claims()}
        assert {v["claim"] for v in found.verdicts} == claims, path
        assert found.scale != "tiny", path
        assert {len(facts["code"]) for facts in found.techniques.values()} == {32}, path


def test_a_recorded_figure_above_the_published_range_says_so() -> None:
    from armillary import catalogue
    from armillary.claim import Gain

    seen = 0
    for path, found in records.records().items():
        claims = {number: claim for number, _, claim in catalogue.arena(path).claims()}
        for verdict in found.verdicts:
            by, honest = claims[verdict["claim"]].by, claims[verdict["claim"]].honest
            if verdict["state"] != "held" or not isinstance(by, Gain):
                continue
            published = by.percent or by.ratio or by.difference or (None, None)
            most = honest[1] if honest is not None and honest[1] is not None else published[1]
            assert verdict["beyond"] == (most is not None and verdict["figure"] > most), verdict["claim"]
            seen += verdict["beyond"]
    assert seen


def test_reproduce_writes_a_record_of_the_whole_arena(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    armillary.reproduce("shortest-first", scale="tiny", repeats=1, store=tmp_path / "s.db", record=folder)
    found = json.loads((folder / "examples-queueing.json").read_text())
    assert set(found["techniques"]) == {"fcfs", "shortest-first"}
    assert set(found["metrics"]) == {"mean_wait", "longest_wait"}


def test_a_record_judges_the_claims_of_every_technique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that was written for one technique left out the claims of the others, although all of them had run."""
    from armillary import catalogue
    from armillary.arena import Claim, Gain

    of_fcfs = Claim("longest_wait", over="shortest-first", by=Gain(ratio=(1.0, None)), says="nobody is passed over")
    monkeypatch.setattr(catalogue.arena("examples/queueing").technique("fcfs"), "claims", (of_fcfs,))
    folder = tmp_path / "results"
    folder.mkdir()
    armillary.reproduce("shortest-first", repeats=1, store=tmp_path / "s.db", record=folder)
    found = records.load(folder / "examples-queueing.json")
    assert {v["technique"]: v["state"] != "not tried" for v in found.verdicts} == {"fcfs": True, "shortest-first": True}


def test_a_claim_that_a_study_cannot_judge_is_recorded_as_not_tried_and_takes_no_earlier_verdict_away(
    result: armillary.Result, tmp_path: Path
) -> None:
    part = armillary.compare("examples/queueing", scale="tiny", repeats=1, store=tmp_path / "s.db")
    (alone,) = records.load(record(part, tmp_path)).verdicts
    assert alone["state"] == "not tried"
    assert alone["reason"]
    whole = records.load(record(result, tmp_path)).verdicts
    assert records.load(record(part, tmp_path)).verdicts == whole
