"""How long a study takes, what it waits for, and where its repeats go."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from results_by_hand import Made

import armillary
from armillary.errors import InputError
from armillary.study import quiet
from armillary.study.expectation import Expectation
from armillary.study.progress import Progress
from armillary.study.store import Report
from armillary.study.study import unsettled

HOLD = """
import sys
from armillary.study import quiet
with quiet.exclusive():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_nothing_is_promised_where_nothing_is_known() -> None:
    assert Expectation().total([("a", "x")]) is None
    assert Expectation({("a", "x"): 2.0}).total([("a", "x"), ("b", "x"), ("c", "x")]) is None
    assert Expectation({("a", "x"): 2.0}).total([("a", "x"), ("a", "x")]) == 4.0


def test_earlier_runs_are_scaled_by_what_this_one_shows() -> None:
    expected = Expectation({("a", "x"): 1.0, ("b", "x"): 3.0})
    expected.saw("a", "x", 2.0)
    assert expected.total([("b", "x")]) == pytest.approx(6.0)


def test_the_first_run_of_a_case_is_not_typical_of_the_later_ones() -> None:
    expected = Expectation()
    for seconds in (10.0, 1.0, 1.0):
        expected.saw("a", "x", seconds)
    assert expected.total([("a", "x")]) == 1.0


def test_a_new_pair_is_guessed_from_its_technique_and_its_case() -> None:
    expected = Expectation()
    expected.saw("fast", "small", 1.0)
    expected.saw("fast", "large", 3.0)
    expected.saw("slow", "small", 2.0)
    # slow takes 2 / 2 of the mean, large 3 / 2 of it.
    assert expected.total([("slow", "large")]) == pytest.approx(2.0 * 3.0 / 2.0)


def test_who_waits_for_the_machine_says_for_whom() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    said: list[str] = []
    entered = threading.Event()

    def wait() -> None:
        with quiet.exclusive(said.append):
            entered.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not entered.wait(0.3)
    assert said == [f"waiting for process {holder.pid}, which is measuring on this machine"]
    holder.kill()  # However it ends, the lock is free.
    assert entered.wait(5)
    waiting.join()
    holder.wait()
    assert said[1:] == [quiet.TURN]


def test_a_unit_s_time_does_not_run_while_it_waits_for_the_machine(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    release = threading.Timer(6.0, holder.kill)
    release.start()
    result = armillary.compare(
        "outside/clocked", store=tmp_path / "s.db", scale="tiny", repeats=1, engine="processes:1", timeout_s=4.0
    )  # fmt: skip
    assert holder.wait() != 0
    release.join()
    assert not result.failed


def test_waiting_for_the_machine_is_no_part_of_a_units_time(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = armillary.study.study.planned("examples/queueing", repeats=1)
    expected = Expectation()
    progress = Progress(planned, expected, quiet=True)
    now = 1000.0
    monkeypatch.setattr("armillary.study.progress.time.monotonic", lambda: now)
    first, second = planned.units[:2]
    progress.add([first, second])
    progress.started(first)
    now += 500.0
    progress.say(quiet.TURN)
    now += 2.0
    progress.ended(first, Report("done", {}, seconds=2.0))
    assert expected.total([(second.technique, second.case)]) == pytest.approx(2.0)


def test_a_lock_that_is_never_freed_is_not_waited_for_without_end() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    with quiet.exclusive(most_wait_s=0.2):
        pass
    holder.kill()
    holder.wait()


def test_repeats_go_where_they_are_needed() -> None:
    clear, close, tied = [1.0, 1.1, 0.9], [1.0, 1.4, 1.2], [1.0, 1.001, 1.002]
    result = Made({"rate": {"new": {"a": [2.0, 2.1, 2.2], "b": [1.1, 1.3, 1.0], "c": tied}, "old": {"a": clear, "b": close, "c": tied}}})
    assert unsettled(result) == {"b"}


def test_a_measured_comparison_repeats_unsettled_cases_further(tmp_path: Path) -> None:
    result = armillary.compare("outside/clocked", store=tmp_path / "s.db", scale="tiny")
    repeats = {case: {unit["repeat"] for unit in result.units if unit["case"] == case} for case in result.cases}
    assert all(found in ({0, 1, 2}, {0, 1, 2, 3, 4}) for found in repeats.values())


@pytest.mark.parametrize("wrong", [-5, 0, float("nan"), float("inf")])
def test_times_that_make_no_sense_are_refused(wrong: float, tmp_path: Path) -> None:
    for option in ("timeout_s", "seconds"):
        with pytest.raises(InputError, match="seconds above 0"):
            armillary.compare("outside/draws", store=tmp_path / "s.db", **{option: wrong})
    assert not (tmp_path / "s.db").exists()


def test_python_callers_are_checked_as_the_command_line_is(tmp_path: Path) -> None:
    for wrong in ({"repeats": "3"}, {"seed": 1.5}, {"repeats": True}):
        with pytest.raises(InputError, match="whole number"):
            armillary.compare("outside/draws", store=tmp_path / "s.db", **wrong)  # type: ignore[arg-type]
    one = armillary.compare("outside/draws", techniques="plain, twin", cases="draw-1", repeats=1, store=tmp_path / "s.db")
    assert list(one.techniques) == ["plain", "twin"]


def test_a_dead_scheduler_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("armillary.tasks.dask_clients.ANSWER_S", 1)
    with pytest.raises(InputError, match="no Dask scheduler answered"):
        armillary.compare("outside/draws", store=tmp_path / "s.db", engine="tcp://127.0.0.1:1")
    assert not (tmp_path / "s.db").exists()
