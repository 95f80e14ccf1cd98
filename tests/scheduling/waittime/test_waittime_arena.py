"""The arena: logs of every kind, what a bad one says, the answer, and the socket to a Slurm's texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import compare
from armillary.errors import InputError
from armillary.scheduling.swf import Jobs, SlurmJob, Swf, jobcomp_text, queue_json, sacct_text
from armillary.scheduling.waittime import LearnedWait, Scheduler, SlurmAdvisor, WaitWork, built_in, from_slurm
from armillary.scheduling.waittime.arena import Reading, read, waittime
from armillary.streams import stream


@pytest.fixture(scope="module")
def jobs() -> Jobs:
    """300 jobs on 16 nodes with waits, dates and names."""
    made = built_in(stream(2, "waittime", "arena"), "estimates", 300, 16, 0.8)
    users = tuple(f"user{i}" for i in range(61))
    programs = tuple(f"program{i}" for i in range(241))
    zero = np.zeros(len(made), np.int64)
    return replace(
        made, epoch_s=1.7e9, names={"user": users, "executable": programs, "partition": ("batch",)}, partition=zero, status=zero + 1
    )


def reading(path: Path, **options: object) -> WaitWork:
    return read(path, Reading(**options))  # type: ignore[arg-type]


def test_every_kind_of_log_gives_the_same_waits(jobs: Jobs, tmp_path: Path) -> None:
    whole = replace(jobs, submit_s=np.round(jobs.submit_s), wait_s=np.round(jobs.wait_s))
    for name, text in (("log.swf", Swf.of(whole).text()), ("sacct.txt", sacct_text(whole)), ("jobcomp.txt", jobcomp_text(whole))):
        (tmp_path / name).write_text(text)
        work = reading(tmp_path / name, nodes=16)
        assert np.array_equal(work.jobs.wait_s, whole.wait_s)
        assert np.array_equal(Scheduler().predictions(work).point_s, Scheduler().predictions(WaitWork(whole)).point_s)


def test_waits_can_be_simulated_where_a_log_has_none(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(Swf.of(replace(jobs, wait_s=np.full(len(jobs), np.nan))).text())
    with pytest.raises(InputError, match="found a log without waits; expected waits, or --policy easy"):
        reading(path)
    assert np.array_equal(reading(path, policy="easy").jobs.wait_s, jobs.wait_s)
    fast = reading(path, policy="easy", faster=3.0)
    assert fast.jobs.wait_s.mean() > jobs.wait_s.mean()


def test_jobs_without_a_wait_are_left_out_and_counted(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(Swf.of(replace(jobs, wait_s=np.where(jobs.job % 10 == 0, np.nan, jobs.wait_s))).text())
    work = reading(path)
    assert (len(work), work.jobs.dropped) == (270, 30)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,latency\n1,2\n", "expected a log in SWF"),
        ("1 2 3\n", "expected the 18 numbers of SWF"),
        ("1 0 5 -7 4 -1 -1 4 10 -1 1 1 1 1 1 1 -1 -1\n", "field 4"),
        ("; MaxProcs: 4\n1 0 5 10 8 -1 -1 8 10 -1 1 1 1 1 1 1 -1 -1\n", "at most the machine's 4"),
        ("1 0 5 10 4 -1 -1 4 10 -1 1 1 1 1 1 1 -1 -1\n", "found 1 job with known waits; expected at least 200"),
        ("", "expected a log in SWF"),
    ],
)
def test_a_bad_log_says_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        reading(path)
    assert "\n" not in str(caught.value)
    assert "log.swf" in str(caught.value)


def test_a_log_that_would_take_hours_to_plan_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: Jobs) -> None:
    """The bound on the work is counted before any of it is done."""
    from armillary.scheduling.waittime import arena
    from armillary.scheduling.waittime.workload import planning_steps

    path = tmp_path / "log.swf"
    path.write_text(Swf.of(jobs).text())
    monkeypatch.setattr(arena, "MOST_STEPS", 100)
    with pytest.raises(InputError, match="steps of planning; expected at most"):
        reading(path)
    n = 1000
    pile = Jobs.of(np.arange(n, dtype=float), np.full(n, 1e9), np.ones(n, int), machine_nodes=1, wait_s=np.zeros(n))
    assert planning_steps(pile) == pytest.approx(n * n / 2, rel=0.01)
    wall = replace(pile, wait_s=np.full(n, 1e9))
    assert 2e8 < planning_steps(wall) < 5e8


def test_an_end_before_its_start_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    lines = sacct_text(jobs).splitlines()
    cells = lines[5].split("|")
    cells[7], cells[8] = cells[8], cells[7]
    path.write_text("\n".join([*lines[:5], "|".join(cells), *lines[6:]]))
    with pytest.raises(InputError, match="expected Submit, Start and End in this order"):
        reading(path)


def test_a_faster_log_needs_a_policy() -> None:
    with pytest.raises(InputError, match="found --faster without --policy"):
        Reading(faster=2.0).validate()


def test_own_work_is_measured_and_learned_from(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(Swf.of(jobs).text())
    result = compare("scheduling/waittime", work=str(path), techniques=["scheduler", "learned-wait"])
    [case] = result.cases
    assert set(result.on(case, "mae_s")) == {"scheduler", "learned-wait"}
    assert result.on(case, "mae_ratio")["scheduler"] == pytest.approx(1.0)
    assert "errs least on" in result.answer()
    [row] = result.artifact_rows("learned-wait", case, "model")
    assert len(str(row["sha256"])) == 64


# A Slurm's texts


@pytest.fixture(scope="module")
def advisor(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> SlurmAdvisor:
    path = tmp_path_factory.mktemp("slurm") / "sacct.txt"
    path.write_text(sacct_text(jobs))
    return from_slurm(path, machine_nodes=16)


def test_on_another_machine_the_shipped_model_is_not_asked() -> None:
    """Taught on 256 nodes, it errs on 1,024 by up to 2.6 times as much as the best forecast that learns nothing."""
    cluster = armillary.cluster.preset("hpc-256")
    for machine, taught in ((cluster, "estimates"), (cluster.scale(nodes=1024), "")):
        cases = {case.name: case for case in waittime.built_in("tiny", machine)}
        assert cases["load-0.85"].workload.taught == taught
        assert cases["shuffled"].workload.taught == "shuffled"
        assert waittime.execute(LearnedWait(), cases["load-0.85"].at(0, 0)).values["mae_s"] > 0  # type: ignore[union-attr]


def test_a_question_about_a_queue(jobs: Jobs, advisor: SlurmAdvisor) -> None:
    now = 1.7e9 + float(jobs.end_s.max()) + 100
    running = SlurmJob(9001, "RUNNING", now - 50, now - 40, 600.0, 16, 100, "batch", "user3", "program5")
    waiting = SlurmJob(9002, "PENDING", now - 30, None, 1200.0, 16, 99, "batch", "user4", "program7", reason="Resources")
    held = SlurmJob(9003, "PENDING", now - 30, None, 9999.0, 16, 0, "batch", "user4", "program7", reason="JobHeldUser")
    answer = advisor.ask(queue_json([running, waiting, held]), nodes=4, time_limit=300, user="user3", now=now)
    assert answer.planned_s == pytest.approx(560 + 1200, abs=1)
    assert answer.slurm_estimate_s == pytest.approx(560 + 1200, abs=1)
    assert answer.start_s == now + answer.wait_s
    assert 0 <= answer.low_s <= answer.wait_s <= answer.high_s
    idle = advisor.ask(queue_json([]), nodes=4, time_limit=300, now=now)
    assert idle.planned_s == 0
    assert idle.wait_s <= answer.wait_s
    with pytest.raises(InputError, match="running jobs on 32 nodes; expected at most the machine's 16"):
        advisor.ask(queue_json([running, replace(running, job=9004)]), nodes=4, time_limit=300, now=now)
    with pytest.raises(InputError, match="found 17 nodes"):
        advisor.ask(queue_json([]), nodes=17, time_limit=300, now=now)
    with pytest.raises(InputError, match="squeue --json"):
        advisor.ask("{}", nodes=1, time_limit=300)


def test_the_past_of_a_user_counts_by_name(jobs: Jobs, advisor: SlurmAdvisor) -> None:
    now = 1.7e9 + float(jobs.end_s.max()) + 100
    state = advisor.state([SlurmJob(1, "PENDING", now - 5, None, 60.0, 1, 7, "batch", "user3", "nobody-ran-this")], now)
    [seen] = state.queued
    texts = advisor.model.history.names["user"]
    assert (texts[seen.user], seen.executable) == ("user3", -1)


def test_a_history_without_waits_is_refused(jobs: Jobs) -> None:
    with pytest.raises(InputError, match="found a log without waits"):
        from_slurm(replace(jobs, wait_s=np.full(len(jobs), np.nan)))
    with pytest.raises(InputError, match="at most the machine's 4"):
        from_slurm(jobs, machine_nodes=4)
