"""The arena: a user's log from the command line, labels in JSON, folders, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from darshan_logs import EXAMPLES, alone, rng, shipped_file

from armillary import catalogue, compare
from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.observability.io import Known, Log, workload, write_text_log
from armillary.observability.io.drishti import Drishti, found_program
from armillary.observability.io.synthesis.logs import log_of
from armillary.observability.io.synthesis.program import MIB, Program, requests

ARENA = "observability/io"


def test_a_log_is_answered_in_words_with_its_evidence(tmp_path):
    path, _ = catalogue.arena(ARENA).write_example(tmp_path)
    found = compare(ARENA, work=path, techniques=["ioagent", "rules", "totals"], store=tmp_path / "s.db")
    said = found.answer()
    assert said.startswith(f"{path.name}: I/O takes ")
    rows = found.artifact_rows("ioagent", path.name, "findings")
    assert rows
    for row in rows[:3]:
        assert f"{row['label']}: {row['text']}" in said
        assert f"Evidence: {row['evidence']}." in said
        assert row["advice"].split("; ")[0] in said
    assert "POSIX.sizes:writes_small = " in said
    assert "the confidence is" in said
    assert "On a small model, requests of 4 MiB instead of small ones would shorten the I/O by " in said
    assert any(row["label"] == "small-write" for row in found.artifact_rows("ioagent", path.name, "findings"))


@pytest.mark.slow
def test_labelled_logs_are_scored_together(tmp_path):
    write_text_log(alone("small-write", 16), tmp_path / "a.txt")
    write_text_log(alone("low-level-read", 16), tmp_path / "b.txt")
    labels = [{"log": "a.txt", "issues": ["small-write"]}, {"log": "b.txt", "issues": ["low-level-read"]}]
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    found = compare(ARENA, work=tmp_path / "labels.json", techniques=["ioagent", "totals"], store=tmp_path / "s.db")
    recall = found.on("labels.json", "recall")
    assert recall["ioagent"] == 1.0
    assert recall["totals"] == 0.5


def test_a_folder_becomes_a_case_for_each_log(tmp_path):
    for name in ("a", "b"):
        write_text_log(alone("small-write", 4), tmp_path / f"{name}.txt")
    (tmp_path / "notes.md").write_text("no log")
    cases = catalogue.arena(ARENA).from_file(tmp_path, {})
    assert [case.name for case in cases] == ["a.txt", "b.txt"]
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found 0 files"):
        catalogue.arena(ARENA).from_file(empty, {})


def test_a_folder_is_answered_with_what_its_logs_share(tmp_path):
    (folder := tmp_path / "logs").mkdir()
    for seed, name in enumerate(("a", "b")):
        write_text_log(with_slow_target(seed), folder / f"{name}.txt")
    write_text_log(alone("small-write", 16), folder / "c.txt")
    said = compare(ARENA, work=folder, techniques=["ioagent"], store=tmp_path / "s.db").answer()
    assert "a.txt and b.txt share storage target 3 of /scratch and are slow on it." in said
    assert "server-imbalance concerns 2 of the 3 logs" in said


def test_a_log_that_no_technique_could_look_at_is_not_called_healthy(tmp_path):
    path, _ = catalogue.arena(ARENA).write_example(tmp_path)
    said = compare(ARENA, work=path, techniques=["whole-llm"], store=tmp_path / "s.db").answer()
    assert "no technique could look at it" in said
    assert "nothing" not in said


def with_slow_target(seed: int) -> Log:
    """A file per process on eight targets, of which the fourth is ten times slower than the others."""
    program = Program(64, 8, slow={3: 10.0})
    files = [program.add(f"/scratch/run/f.{rank:03d}", (rank % 8,)) for rank in range(64)]
    program.phases = [requests(range(64), files, True, [0] * 64, 4, 8 * MIB)]
    return log_of(program, f"app{seed}", rng(seed))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"log": "a.txt", "issues": ["slow"]}], "issues: found 'slow'"),
        ([{"log": "../a.txt", "issues": []}], "expected a file beside this one"),
        ([{"log": "/etc/passwd", "issues": []}], "expected a file beside this one"),
        ([{"log": "none.txt", "issues": []}], "no such file"),
        ([{"issues": []}], 'expected {"log"'),
        ([], "found 0 logs"),
        ([{"log": "a.txt", "issues": 3}], "issues: found"),
    ],
)
def test_what_is_wrong_with_labels_is_said(tmp_path, content, message):
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as raised:
        catalogue.arena(ARENA).from_file(path, {})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_bad_log_ends_with_status_2_and_nothing_written(tmp_path, armillary_command):
    (tmp_path / "bad.txt").write_text("# darshan log version: 3.41\n# nprocs: 4\nPOSIX\t0\n")
    run = armillary_command("compare", ARENA, "--work", str(tmp_path / "bad.txt"), "--store", str(tmp_path / "s.db"))
    assert run.returncode == 2
    assert "bad.txt:3: found 2 fields" in run.stderr
    assert not (tmp_path / "s.db").exists()


def test_the_tiny_logs_are_the_first_of_the_small_ones():
    tiny, small = (next(case for case in catalogue.arena(ARENA).built_in(scale) if case.name == "mixture") for scale in ("tiny", "small"))
    assert tiny.parameters["logs"] < small.parameters["logs"]


@pytest.mark.slow
def test_drishti_is_run_as_it_is():
    if found_program() is None:
        pytest.skip("drishti is not installed")
    path = shipped_file(f"{EXAMPLES}/example.darshan")
    log = Known(alone("small-write", 16), None, Path(path))
    assert "misaligned-write" in Drishti().answer(log).labels
    assert "small-write" in Drishti().answer(Known(alone("small-write", 16))).labels
    crashed = Drishti().answer(Known(log.log, None, shipped_file(f"{EXAMPLES}/dxt.darshan")))
    assert crashed.labels == ()
    assert "ended with status" in crashed.notes[0]


def test_real_logs_are_declined_where_the_package_that_brings_them_is_missing(monkeypatch):
    monkeypatch.setattr(workload, "shipped", lambda: None)
    arena = catalogue.arena(ARENA)
    case = next(one for one in arena.built_in("small") if one.name == "real-vpic").at(0, 0)
    outcome = arena.execute(arena.make("ioagent"), case)
    assert isinstance(outcome, NotForThisCase)
    assert "darshan is not installed" in str(outcome)
