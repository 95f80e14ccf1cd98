"""Logs in and out: the Standard Workload Format, Slurm's accounting texts, and its queue."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.scheduling.slurm import MARK, TOP, Governor, Running, Slurm, Waiting
from armillary.scheduling.swf import (
    UNLIMITED_S,
    Jobs,
    SlurmJob,
    Swf,
    jobcomp_text,
    queue_json,
    read_jobcomp,
    read_jobs,
    read_queue,
    read_sacct,
    read_swf,
    sacct_text,
)

LOG = """\
; Version: 2.2
; Computer: a machine
; Information: http://somewhere/
;              https://elsewhere/
;
; UnixStartTime: 749458803
; MaxNodes: 64
; MaxProcs: 128 (two per node)
; Note: the first
;       goes on
; Note: the second
; MyKey: kept
1 0 10 100 4 -1 -1 8 200 -1 1 7 1 3 0 1 -1 -1
2 5 -1 50.50 2 -1 -1 -1 -1 -1 0 7 1 3 0 1 -1 -1
; between two jobs
3 4 0 -1 2 -1 -1 2 10 -1 5 8 1 -1 0 1 -1 -1
4 9 3 20 0 -1 -1 -1 10 -1 1 8 1 -1 0 1 -1 -1
5 9 3 20 1 -1 -1 1 10 -1 3 8 1 -1 0 1 -1 -1
006 1 0 7 128 -1 -1 -1 60 -1 1 -1 -1 -1 -1 -1 -1 -1
"""


def spaced(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_a_log_is_read_by_the_format_and_written_again_up_to_spacing(tmp_path: Path) -> None:
    path = tmp_path / "log.swf.gz"
    wide = "\n".join(line if line.startswith(";") else "  " + line.replace(" ", "   ") for line in LOG.splitlines())
    path.write_bytes(gzip.compress(wide.encode()))
    swf = read_swf(path)
    assert spaced(swf.text()) == spaced(LOG)
    assert swf.header["Note"] == ["the first\ngoes on", "the second"]
    assert swf.header["Information"] == ["http://somewhere/\nhttps://elsewhere/"]
    assert swf.header["MyKey"] == ["kept"]
    assert (swf.number("MaxProcs"), swf.number("Computer"), swf.number("Nothing")) == (128, None, None)
    jobs = swf.jobs()
    assert jobs.job.tolist() == [1, 6, 2]  # 3 has no run time, 4 no size, 5 is a part of another line.
    assert (jobs.dropped, jobs.reordered, jobs.machine_nodes, jobs.epoch_s) == (2, 2, 128, 749458803.0)
    assert jobs.nodes.tolist() == [8, 128, 2]
    assert jobs.requested_s.tolist() == [200, 60, 50.5]
    assert jobs.wait_s[[0, 1]].tolist() == [10, 0]
    assert np.isnan(jobs.wait_s[2])
    assert jobs.waits_known
    assert jobs.end_s[0] == 110


@given(rows=st.lists(st.lists(st.one_of(st.integers(-1, 1 << 40), st.floats(0, 1e6).map(lambda x: round(x, 3))), min_size=18, max_size=18)))
@settings(max_examples=30, deadline=None)
def test_any_table_of_numbers_survives_a_round_trip(rows: list[list[float]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    text = "".join(" ".join(map(str, row)) + "\n" for row in rows)
    path.write_text(text)
    assert read_swf(path).text() == text


def test_a_log_without_waits_can_be_replayed_and_not_learned_from(tmp_path: Path) -> None:
    (tmp_path / "x.swf").write_text("1 0 -1 100 4 -1 -1 -1 -1 -1 1 1 1 1 1 1 -1 -1\n")
    jobs = read_jobs(tmp_path / "x.swf")
    assert not jobs.waits_known
    with pytest.raises(InputError, match="without a known start"):
        sacct_text(jobs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 0 10\n", r"log.swf:1: found 3 fields; expected the 18 numbers of SWF"),
        (" ".join(["1"] * 17) + "\n", "found 17 fields"),
        ("; Version: 2.2\n" + " ".join(["1"] * 19) + "\n", "log.swf:2: found 19 fields"),
        ("1 0 10 x" + " 1" * 14, r'field 4 \(run\): found "x"'),
        ("1 0 10 nan" + " 1" * 14, r'field 4 \(run\): found "nan"'),
        ("1 0 10 1e999" + " 1" * 14, r'field 4 \(run\): found "1e999"'),
        ("1 0 10 1_0" + " 1" * 14, r'field 4 \(run\): found "1_0"'),
        ("1 0 10 -5" + " 1" * 14, r"log.swf:1: field 4 \(run\): found -5; expected 0 or more"),
        ("; MaxProcs: 8\n1 0 10 5 16" + " 1 1 16" + " 1" * 10, "log.swf:2: field 8 .*found 16; expected at most the machine's 8"),
        ("1 0 10 1e13" + " 1" * 14, "at most 1e"),
        ("job,time\n1,2\n", "expected a log in SWF .18 numbers per line., the text of sacct --parsable2, or a file of jobcomp"),
        ("", "expected a log in SWF"),
        ("a\0|b", "found no text; expected a log in SWF"),
        ("a|b\n1|2\n", "found no column JobIDRaw"),
        ("JobId=1 UserId=x\n", "found no GroupId="),
    ],
)
def test_bad_logs_end_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "log.swf").write_text(text)
    with pytest.raises(InputError, match=said):
        read_jobs(tmp_path / "log.swf")


# Slurm

SACCT = """\
JobIDRaw|User|Account|JobName|Partition|Submit|Start|End|Timelimit|NNodes|State
10|ann|physics|relax|batch|2026-01-31T12:00:00|2026-01-31T12:05:00|2026-01-31T13:05:00|02:00:00|4|COMPLETED
10.batch|||batch||2026-01-31T12:00:00|2026-01-31T12:05:00|2026-01-31T13:05:00||1|COMPLETED
11|bob|physics|relax|batch|2026-01-31T11:00:00|2026-01-31T12:00:00|2026-01-31T12:30:00|1-00:30:00|2|CANCELLED by 1000
12|bob|physics|x|batch|2026-01-31T13:00:00|Unknown|Unknown|30:15|2|PENDING
13|ann|physics|y|batch|2026-01-31T13:00:00|2026-01-31T13:00:00|2026-01-31T13:00:07|UNLIMITED|1|FAILED
14|ann|physics|y|batch|2026-01-31T14:00:00|2026-01-31T14:00:00|2026-01-31T14:10:00|Partition_Limit|1|TIMEOUT
"""
JOBCOMP = (
    "JobId=7 UserId=ann(1001) GroupId=users(100) Name=my job, really JobState=COMPLETED Partition=all TimeLimit=90 "
    "StartTime=2026-01-31T12:05:00 EndTime=2026-01-31T13:05:00 NodeList=d[1-4] NodeCnt=4 ProcCnt=8 WorkDir=/home/ann/a b ReservationName= "
    "Tres=cpu=8,node=4 Account= QOS= WcKey= Cluster=c SubmitTime=2026-01-31T12:00:00 EligibleTime=2026-01-31T12:00:00 {more}"
    "DerivedExitCode=0:0 ExitCode=0:0 \n"
)


def test_sacct_is_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(SACCT)
    jobs = read_jobs(tmp_path / "sacct.txt")
    assert jobs.job.tolist() == [11, 10, 13, 14]
    assert jobs.dropped == 1
    assert jobs.requested_s.tolist() == [86400 + 1800, 7200, UNLIMITED_S, 600]
    assert jobs.wait_s.tolist() == [3600, 300, 0, 0]
    assert jobs.status.tolist() == [5, 1, 0, 0]
    assert jobs.frame()["user"].to_list() == ["bob", "ann", "ann", "ann"]
    assert jobs.epoch_s == 1769857200.0
    (tmp_path / "again.txt").write_text(sacct_text(jobs))
    again = read_sacct(tmp_path / "again.txt")
    assert sacct_text(again) == sacct_text(jobs)
    berlin = read_sacct(tmp_path / "sacct.txt", zone="Europe/Berlin")
    assert berlin.epoch_s == 1769857200.0 - 3600
    with pytest.raises(InputError, match="time zone"):
        read_sacct(tmp_path / "sacct.txt", zone="Nowhere/At all")


def test_jobcomp_is_cut_at_the_next_known_key(tmp_path: Path) -> None:
    text = JOBCOMP.format(more="") + JOBCOMP.format(more="ArrayJobId=8 ArrayTaskId=3 HetJobId=1 HetJobOffset=0 ").replace("=7 ", "=9 ", 1)
    never = (
        JOBCOMP.format(more="").replace("StartTime=2026-01-31T12:05:00", "StartTime=Unknown").replace("TimeLimit=90", "TimeLimit=UNLIMITED")
    )
    (tmp_path / "jobcomp.txt").write_text(text + never)
    jobs = read_jobs(tmp_path / "jobcomp.txt")
    assert jobs.job.tolist() == [7, 9]
    assert jobs.dropped == 1
    assert jobs.names["executable"] == ("my job, really",)
    assert (jobs.nodes.tolist(), jobs.requested_s.tolist(), jobs.wait_s.tolist()) == ([4, 4], [5400, 5400], [300, 300])
    (tmp_path / "again.txt").write_text(jobcomp_text(jobs))
    again = read_jobcomp(tmp_path / "again.txt")
    assert again.frame().drop("status").equals(jobs.frame().drop("status"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SACCT.replace("|4|", "|four|"), 'NNodes: found "four"'),
        (SACCT.replace("2026-01-31T13:05:00|02", "2026-01-31T12:01:00|02"), "sacct.txt:2: found End before Start"),
        (SACCT.replace("|4|", "|99999999|"), r"sacct.txt: job \d+: found the size 1e\+08"),
        (SACCT.replace("12:05:00", "25:05:00"), 'Start: found "2026-01-31T25:05:00"'),
        (SACCT.replace("02:00:00|4", "soon|4"), 'Timelimit: found "soon"'),
        (SACCT.replace("|COMPLETED\n", "|COMPLETED|more\n", 1), "sacct.txt:2: found 12 cells; expected 11"),
    ],
)
def test_bad_accounting_ends_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "sacct.txt").write_text(text)
    with pytest.raises(InputError, match=said):
        read_jobs(tmp_path / "sacct.txt")


OLD = {"job_id": 5, "job_state": "PENDING", "submit_time": 100, "start_time": 0, "time_limit": 30, "node_count": 2, "priority": 7,
       "partition": "all", "user_name": "ann", "name": "relax", "state_reason": "Resources"}  # fmt: skip
NEW = {"job_id": 5, "job_state": ["PENDING", "REQUEUED"], "submit_time": {"set": True, "infinite": False, "number": 100},
       "start_time": {"set": True, "infinite": False, "number": 0}, "time_limit": {"set": True, "infinite": False, "number": 30},
       "node_count": {"set": True, "infinite": False, "number": 2}, "priority": {"set": True, "infinite": False, "number": 7},
       "partition": "all", "user_name": "ann", "name": "relax", "state_reason": "Resources"}  # fmt: skip


def test_both_forms_of_squeues_json_are_the_same_queue() -> None:
    wanted = [SlurmJob(5, "PENDING", 100.0, None, 1800.0, 2, 7, "all", "ann", "relax", "Resources")]
    assert read_queue(json.dumps({"jobs": [OLD]})) == read_queue(json.dumps({"jobs": [NEW]}).encode()) == wanted
    assert read_queue(queue_json(wanted)) == wanted
    unlimited = {**NEW, "time_limit": {"set": False, "infinite": True, "number": 0}}
    assert read_queue(json.dumps({"jobs": [unlimited]}))[0].limit_s == UNLIMITED_S


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], 'found no list under "jobs"'),
        ({"jobs": [3]}, r"jobs\[0\]: found no object"),
        ({"jobs": [{**OLD, "job_state": []}]}, "job_state"),
        ({"jobs": [{**OLD, "node_count": "two"}]}, "node_count: found"),
        ({"jobs": [{**OLD, "priority": -1}]}, "priority: found -1"),
        ({"jobs": [{**OLD, "submit_time": None}]}, "submit_time: found none"),
    ],
)
def test_a_bad_queue_ends_in_one_line(document: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_queue(json.dumps(document))
    with pytest.raises(InputError):
        read_queue("{")


# The governor's plan, without a cluster


class FirstOnly:
    """Chooses the first job of the queue."""

    def choose(self, queue: list[Waiting], running: list[Running], free_nodes: int, capacity: float) -> list[int]:
        assert all(isinstance(job, Running) for job in running)
        return [job.job for job in queue[:1]]


class AllWrite:
    """Everything but "solver" writes."""

    def io(self, user: str, executable: str, nodes: int) -> tuple[float, float]:
        return (0.0, 0.0) if executable == "solver" else (0.5, 1e9)


def test_a_governor_holds_io_jobs_that_are_not_chosen_and_touches_no_one_elses() -> None:
    def job(number: int, **more: Any) -> SlurmJob:
        return SlurmJob(**{"job": number, "state": "PENDING", "submit_s": number, "start_s": None, "limit_s": 60.0, "nodes": 1,
                           "priority": 50, "name": "writer", **more})  # fmt: skip

    queue = [
        job(1, state="RUNNING", start_s=5.0), job(6, name="solver"), job(2, comment=MARK, priority=0), job(3), job(4, priority=0),
        job(5, reason="Dependency"), job(7, priority=0, comment=MARK),
    ]  # fmt: skip
    plan = Governor(FirstOnly(), Slurm(), history=AllWrite()).plan(queue, 4, 100.0)
    assert [(a.kind, a.job, a.value) for a in plan] == [
        ("hold", 3, 0), ("release", 2, 0), ("priority", 2, TOP), ("priority", 6, TOP - 2)
    ]  # fmt: skip


def test_jobs_are_checked_when_they_are_made() -> None:
    jobs = Jobs.of([5, 1], [10, 20], [1, 2], machine_nodes=2)
    assert jobs.job.tolist() == [2, 1]
    assert len(jobs.take([True, False])) == 1
    assert read_back(Swf.of(jobs)).run_s.tolist() == [20, 10]
    for bad, said in (([-1], "run time -1"), ([np.nan], "run time nan"), ([1e12], "run time")):
        with pytest.raises(InputError, match=f"job 1: found the {said}"):
            Jobs.of([0], bad, [1])
    with pytest.raises(InputError, match="expected at most the machine's 2"):
        Jobs.of([0], [1], [3], machine_nodes=2)
    with pytest.raises(InputError, match="one value for each of 2 jobs"):
        Jobs.of([0, 1], [1], [1, 1])


def read_back(swf: Swf) -> Jobs:
    return swf.jobs()


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_texts_are_read_or_refused_and_nothing_else(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = bytearray(data.draw(st.sampled_from([LOG, SACCT, JOBCOMP.format(more=""), json.dumps({"jobs": [OLD, NEW]})])).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        damage = data.draw(st.sampled_from([b"", b"9" * 18, b"-", b"|", b"\n", b"=", b"\xff", b" ", b"1e300", b"{", b"Unknown"]))
        text[at : at + data.draw(st.integers(0, 8))] = damage
    path = tmp_path_factory.mktemp("damaged") / "log"
    path.write_bytes(bytes(text))
    for read in (lambda: read_jobs(path), lambda: read_queue(bytes(text))):
        try:
            read()
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
