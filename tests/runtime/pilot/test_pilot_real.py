"""The real pilot: processes, functions, errors, kills, order, gangs and places, with real children of this process."""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pilot_bodies as bodies
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.runtime.pilot import Lost, NeverRan, Pilot, Task
from armillary.runtime.pilot.agent.scheduler import Instance, Scheduler
from armillary.runtime.pilot.agent.task import Live
from armillary.runtime.pilot.backends.backend import Backend

STATES = ("NEW", "SCHEDULING", "SCHEDULED", "LAUNCHING", "RUNNING", "ended")


@pytest.fixture(scope="module")
def pilot() -> Iterator[Pilot]:
    with Pilot(2, ["local", "pool"], cores=2) as made:
        made.wait_ready(60)
        yield made


def children() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    found.add(int(entry.name))
            except (OSError, IndexError):
                pass
    return found


def test_fifty_executables_have_fifty_processes_their_statuses_and_their_output(pilot: Pilot) -> None:
    futures = [pilot.launch(["sh", "-c", f"echo out {i}; echo err {i} >&2; exit {i % 3}"]) for i in range(50)]
    found = [future.result(30) for future in futures]
    assert len({one.pid for one in found}) == 50
    assert [one.returncode for one in found] == [i % 3 for i in range(50)]
    assert [one.stdout for one in found] == [f"out {i}\n".encode() for i in range(50)]
    assert [one.stderr for one in found] == [f"err {i}\n".encode() for i in range(50)]
    with pytest.raises(RuntimeError, match="exit status 2"):
        found[2].check()


def test_a_killed_executable_says_its_signal_and_is_failed(pilot: Pilot) -> None:
    future = pilot.launch(["sh", "-c", "kill -9 $$"])
    found = future.result(30)
    assert (found.signal, found.returncode) == (signal.SIGKILL, 0)
    assert pilot.states["state"][-1] == "FAILED"


def test_a_program_that_is_not_there_is_the_futures_error(pilot: Pilot) -> None:
    with pytest.raises(FileNotFoundError):
        pilot.launch(["/no/such/program"]).result(30)
    with pytest.raises(FileNotFoundError, match="no such program"):
        pilot.launch(["no-such-program-anywhere"]).result(30)
    assert pilot.launch(["true"]).result(30).returncode == 0


def test_functions_give_results_and_raise_with_their_own_traceback(pilot: Pilot) -> None:
    assert pilot.submit(bodies.add, 2, b=3).result(30) == 5
    with pytest.raises(ValueError, match="of its own") as caught:
        pilot.submit(bodies.fails, "of its own").result(30)
    assert "pilot_bodies.py" in "".join(caught.value.__notes__)
    with pytest.raises(RuntimeError, match="Unpicklable: 1"):
        pilot.submit(bodies.odd_error).result(30)
    with pytest.raises(Exception, match="pickle"):
        pilot.submit(bodies.no_pickle).result(30)
    assert pilot.submit(lambda x: x + 1, 2).result(30) == 3
    assert len({pilot.submit(bodies.pid).result(30) for _ in range(20)}) <= 4, "interpreters are warm and used again"


def test_results_larger_than_a_socket_and_arguments_too(pilot: Pilot) -> None:
    assert len(pilot.submit(bodies.large, 30_000_000).result(30)) == 30_000_000
    assert pilot.submit(len, bytes(20_000_000)).result(30) == 20_000_000


def test_output_beyond_the_limit_is_dropped_and_nobody_stands_still() -> None:
    with Pilot(1, ["local"], cores=1, output_bytes=1000) as pilot:
        found = pilot.launch(["head", "-c", "5000000", "/dev/zero"]).result(30)
        assert (len(found.stdout), found.dropped, found.returncode) == (1000, 4_999_000, 0)


def test_a_killed_worker_fails_its_task_or_repeats_it_and_loses_nothing(tmp_path: Path) -> None:
    with Pilot(1, ["pool"], cores=2) as pilot:
        with pytest.raises(Lost, match="signal 9"):
            pilot.submit(bodies.kills_itself).result(30)
        again = pilot.run(Task(function=bodies.dies_once, args=(str(tmp_path / "mark"),), retries=1))
        assert again.result(30) == "alive"
        rows = pilot.states.filter(pilot.states["task"] == 1)
        assert rows["attempt"].to_list() == [1, 2]
        assert rows["state"].to_list() == ["FAILED", "DONE"]
        assert pilot.submit(bodies.add, 1).result(30) == 1


def test_workers_killed_in_mid_run_lose_no_task_and_run_none_twice_at_once(tmp_path: Path) -> None:
    with Pilot(1, ["pool"], cores=2, retries=20) as pilot:
        pilot.wait_ready(60)
        futures = [pilot.submit(bodies.notes, str(tmp_path), f"n{i}", 0.002) for i in range(300)]
        for _ in range(4):
            time.sleep(0.1)
            workers = [worker.link.pid for worker in pilot._agent.instances[0].backend._workers.values() if worker.link]
            os.kill(workers[0], signal.SIGKILL)
        assert [future.result(60) for future in futures] == [f"n{i}" for i in range(300)]
        rows = pilot.states
        attempts = Counter(rows["task"].to_list())
    for i in range(300):
        lines = (tmp_path / f"n{i}").read_text().splitlines()
        begun = [line for line in lines if line.startswith("begin")]
        # Every call that was begun is an attempt in the table; one that was killed in the middle left no end.
        assert len(begun) <= attempts[i]
        assert lines[-1].startswith("end")
        for line, then in itertools.pairwise(lines):
            assert int(line.split()[1]) <= int(then.split()[1]), "two attempts overlapped"
    assert sum(attempts.values()) > 300, "somebody was killed in the middle"


def test_what_waits_behind_a_long_call_is_called_back_and_run_once(tmp_path: Path) -> None:
    with Pilot(1, ["pool"], cores=2) as pilot:
        pilot.wait_ready(60)
        for future in [pilot.submit(bodies.notes, str(tmp_path), f"warm{i}") for i in range(400)]:
            future.result(30)
        seconds = [0.0] * 30 + [3.0] + [0.0] * 60
        futures = [pilot.submit(bodies.notes, str(tmp_path), f"n{i}", s) for i, s in enumerate(seconds)]
        concurrent.futures.wait([future for future, s in zip(futures, seconds, strict=True) if not s], 30)
        assert not futures[30].done(), "short calls waited for the long one"
        assert all(future.result(30) for future in futures)
    assert all((tmp_path / f"n{i}").read_text().count("begin") == 1 for i in range(len(seconds)))


def test_states_only_move_forward_and_the_trace_is_sound(pilot: Pilot) -> None:
    for future in [pilot.submit(bodies.add, i) for i in range(200)] + [pilot.launch(["true"], ranks=2) for _ in range(10)]:  # type: ignore[operator]
        future.result(30)
    rows = pilot.states
    good = rows.filter(rows["state"] == "DONE")
    stamps = np.array([good[name].to_numpy() for name in STATES])
    assert np.isfinite(stamps).all()
    assert (np.diff(stamps, axis=0) >= 0).all()
    assert len(set(zip(rows["task"], rows["attempt"], strict=True))) == len(rows)
    trace = pilot.trace
    assert 0 < trace.utilisation() <= 1
    assert (trace.ready <= trace.started).all()
    for worker in np.unique(trace.worker[trace.worker >= 0]):
        mine = trace.worker == worker
        order = np.argsort(trace.started[mine])
        assert (trace.started[mine][order][1:] >= trace.ended[mine][order][:-1]).all(), "a core had two tasks at once"


def test_ranks_know_their_numbers_and_one_that_fails_takes_the_others_with_it(pilot: Pilot) -> None:
    found = pilot.launch(["sh", "-c", "echo $ARMILLARY_RANK of $ARMILLARY_RANKS on $ARMILLARY_NODES"], nodes=2, ranks=4).result(30)
    assert sorted(found.stdout.decode().splitlines()) == [f"{i} of 4 on here0,here1" for i in range(4)]
    began = time.monotonic()
    found = pilot.launch(["sh", "-c", "[ $ARMILLARY_RANK = 1 ] && exit 7; exec sleep 20"], nodes=2, ranks=2).result(30)
    assert found.returncode == 7
    assert time.monotonic() - began < 15


def test_a_task_waits_for_those_before_it_and_never_runs_after_a_failure(pilot: Pilot, tmp_path: Path) -> None:
    first = pilot.launch(["sh", "-c", f"sleep 0.2; echo 1 > {tmp_path}/x"])
    second = pilot.launch(["cat", f"{tmp_path}/x"], after=[first])
    assert second.result(30).stdout == b"1\n"
    failed = pilot.launch(["false"])
    with pytest.raises(NeverRan):
        pilot.run(Task(function=bodies.add, args=(1,), after=[first, failed])).result(30)
    assert pilot.states["state"][-1] == "CANCELED"


def test_places_are_cores_and_no_more_run_at_once_than_there_are() -> None:
    with Pilot(1, ["local"], cores=3) as pilot:
        for future in [pilot.launch(["sleep", "0.05"]) for _ in range(9)]:
            future.result(30)
        trace = pilot.trace
        times = np.sort(trace.started)
        assert max(((trace.started <= t) & (trace.ended > t)).sum() for t in times) <= 3
        assert set(trace.worker) == {0, 1, 2}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two cores")
def test_tasks_are_bound_to_their_cores() -> None:
    here = sorted(os.sched_getaffinity(0))
    with Pilot(1, ["local"], cores=2) as pilot:
        told = {pilot.launch(["sh", "-c", "sleep 0.05; grep Cpus_allowed_list /proc/self/status"]) for _ in range(2)}
        assert {int(future.result(30).stdout.split()[-1]) for future in told} == set(here[:2])


def test_ten_thousand_tasks_before_anything_is_up_start_in_order_and_none_is_dropped() -> None:
    with Pilot(1, ["pool"], cores=1) as pilot:
        futures = [pilot.submit(bodies.add, i) for i in range(10_000)]
        assert [future.result(60) for future in futures] == list(range(10_000))
        rows = pilot.states.sort("task")
        assert (np.diff(rows["RUNNING"].to_numpy()) >= 0).all()
        assert rows["RUNNING"].min() >= pilot.wait_ready(1) - 0.05  # type: ignore[operator]


def test_it_is_an_executor_for_code_that_takes_one() -> None:
    before = children()
    with Pilot(1, ["pool"], cores=2) as pilot:
        assert isinstance(pilot, concurrent.futures.Executor)
        assert list(pilot.map(bodies.add, range(100), range(100))) == [2 * i for i in range(100)]
        assert list(pilot.map(bodies.add, [])) == []
        with pytest.raises(ValueError, match="x"):
            list(pilot.map(bodies.fails, ["x"] * 3, chunksize=1))
        slow = [pilot.submit(bodies.sleeps, 0.2) for _ in range(2)]
        time.sleep(0.1)
        waiting = [pilot.submit(bodies.sleeps, 5) for _ in range(20)]
        pilot.shutdown(cancel_futures=True)
        assert all(future.done() for future in slow)
        assert sum(future.cancelled() for future in waiting) >= 18
    with pytest.raises(RuntimeError, match="shut down"):
        pilot.submit(bodies.add, 1)
    assert children() <= before, "a child was left"


def test_a_cancelled_future_does_not_run(tmp_path: Path) -> None:
    with Pilot(1, ["local"], cores=1) as pilot:
        running = pilot.launch(["sleep", "0.3"])
        second = pilot.launch(["touch", str(tmp_path / "x")])
        assert second.cancel()
        running.result(30)
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_hundred_thousand_functions_do_not_make_it_grow() -> None:
    with Pilot(1, ["pool"], cores=2, rows=10_000) as pilot:

        def batch() -> None:
            futures = [pilot.submit(bodies.add, 1) for _ in range(5000)]
            assert sum(future.result(60) for future in futures) == 5000
            del futures
            gc.collect()

        for _ in range(4):
            batch()
        before = resident()
        for _ in range(16):
            batch()
        assert resident() - before < 8 << 20, "memory grew with the number of tasks"
        assert len(pilot.states) == 10_000
        assert pilot._stamps is not None
        assert pilot._stamps.left_out == 90_000


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_dead_instance_gives_its_tasks_to_another_and_its_nodes_leave() -> None:
    with Pilot(2, ["pool"], cores=1, partitions=2, retries=2) as pilot:
        pilot.wait_ready(60)
        long = [pilot.submit(bodies.sleeps, 0.5) for _ in range(2)]
        time.sleep(0.2)
        first = pilot._agent.instances[0]
        pilot._agent.post(lambda: pilot._agent.died(first, "the test says so"))
        assert [future.result(30) for future in long] == [0.5, 0.5]
        assert pilot.failures == {"pool": "the test says so"}
        rows = pilot.states
        assert rows.filter(rows["attempt"] == 2).height == 1
        assert set(rows.filter(rows["state"] == "DONE")["node"]) == {"here1"}
        second = pilot._agent.instances[1]
        waiting = [pilot.submit(bodies.sleeps, 5.0) for _ in range(3)]
        time.sleep(0.2)
        pilot._agent.post(lambda: pilot._agent.died(second, "this one too"))
        for future in waiting:
            with pytest.raises((Lost, NeverRan)):
                future.result(30)
        with pytest.raises(InputError, match="no backend is left"):
            pilot.submit(bodies.add, 1)


class Nowhere(Backend):
    name = "nowhere"
    kinds = frozenset({0, 1})


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=40), st.data())
@settings(max_examples=100)
def test_the_scheduler_overuses_nothing_and_starves_nobody(needs: list[tuple[int, int, int]], data: st.DataObject) -> None:
    made = Scheduler(5, 4, 2, (["nowhere"], ["nowhere"]))
    one = Instance(Nowhere(), 0, 5, frozenset({0, 1}), up=True)
    made.join(one)
    waiting = []
    for i, need in enumerate(needs):
        live = Live(i, None, b"", None, concurrent.futures.Future(), 0, 1)
        live.shape = (0, *need)
        made.add(live)
        waiting.append(live)
    running: list[Live] = []
    order: list[int] = []
    while waiting:
        while (live := made.place()) is not None:
            assert len({node for node, _, _ in live.place}) == live.shape[1]
            running.append(live)
            waiting.remove(live)
            order.append(live.id)
        held: Counter[Any] = Counter()
        for live in running:
            for node, slots, devices in live.place:
                held.update(("core", node, slot) for slot in slots)
                held.update(("gpu", node, device) for device in devices)
        assert not held or max(held.values()) == 1
        if waiting:
            assert running, "tasks wait and nothing runs"
            ended = running.pop(data.draw(st.integers(0, len(running) - 1)))
            made.release(ended.place)
    for live in running:
        made.release(live.place)
    assert one.free == 20


def test_a_wide_task_is_not_passed_for_ever() -> None:
    made = Scheduler(2, 2, 0, (["nowhere"], ["nowhere"]))
    made.join(Instance(Nowhere(), 0, 2, frozenset({0}), up=True))

    def task(number: int, nodes: int, cores: int) -> Live:
        live = Live(number, None, b"", None, concurrent.futures.Future(), 0, 1)
        live.shape = (0, nodes, cores, 0)
        made.add(live)
        return live

    task(0, 1, 1)
    first = made.place()
    assert first is not None
    wide = task(1, 2, 2)
    for i in range(2, 30):
        task(i, 1, 1)
    assert made.place() is None, "both nodes are kept for the wide task"
    made.release(first.place)
    assert made.place() is wide


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Pilot(1, ["lokal"]), 'unknown backend "lokal"'),
        (lambda: Pilot(1, []), "backends: found none"),
        (lambda: Pilot(0, ["local"]), "nodes: found 0"),
        (lambda: Pilot(2, ["local"], partitions=3), "partitions: found 3 of 2 nodes"),
        (lambda: Pilot(1, ["local"], route="magic"), 'unknown route "magic"'),
        (lambda: Task(), "either a command or a function"),
        (lambda: Task(command=["x"], function=len), "either a command or a function"),
        (lambda: Task(command=["x"], nodes=2, ranks=3), "found 3 on 2 nodes"),
        (lambda: Task(command=["x"], nodes=0), "nodes: found 0"),
        (lambda: Task(command=["a\0b"]), "zero bytes"),
        (lambda: Task(function=len, nodes=2, ranks=2), "a function runs on one node"),
    ],
)
def test_wrong_settings_are_one_line(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()


def test_a_task_that_fits_nowhere_is_refused_at_once() -> None:
    with Pilot(4, ["local"], cores=2, partitions=2) as pilot:
        with pytest.raises(InputError, match="expected at most 2, those of the largest partition"):
            pilot.launch(["true"], nodes=3, ranks=3)
        with pytest.raises(InputError, match="found 3 cores"):
            pilot.launch(["true"], cores_per_rank=3)
        with pytest.raises(InputError, match="no backend of this pilot starts functions"):
            pilot.submit(bodies.add, 1)


def test_the_batch_script_asks_for_the_same_nodes(tmp_path: Path) -> None:
    with Pilot(4, ["local"], cores=2) as pilot:
        text = pilot.write_slurm_script(tmp_path / "campaign.sbatch", "my campaign.py").read_text()
    assert "#SBATCH --nodes=4" in text
    assert "exec python3 'my campaign.py'" in text
