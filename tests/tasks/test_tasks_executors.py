"""One graph over every executor: the same result, the same dependencies, one trace schema, and no worker that it cannot lose."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import tasks_bodies as bodies

from armillary.errors import InputError
from armillary.tasks import Graph, OnDask, Processes, Threads, TooManyCompletions, Unfinished, Virtual, WorkerLost, current, external, poll
from armillary.tasks.dask_clients import local_client
from armillary.tasks.processes import _Worker
from armillary.tasks.progress import DONE, FAILED
from armillary.tasks.shapes import cholesky


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No block of shared memory and no child outlives a test."""
    import multiprocessing

    yield
    assert [name for name in os.listdir("/dev/shm") if name.startswith(f"armillary-{os.getpid()}-")] == []
    assert [p for p in multiprocessing.active_children() if p.name.startswith("armillary")] == []


@pytest.fixture(params=["threads", "processes", "dask", "virtual"])
def executor(request: pytest.FixtureRequest) -> Any:
    if request.param == "dask":
        return OnDask(request.getfixturevalue("dask_client"))
    return {"threads": lambda: Threads(2), "processes": lambda: Processes(2), "virtual": lambda: Virtual(2, execute=True)}[request.param]()


def matrix(side: int) -> np.ndarray:
    m = np.random.default_rng(7).normal(size=(side, side))
    return m @ m.T + side * np.eye(side)


def test_one_cholesky_on_every_executor(executor: Any) -> None:
    a = matrix(48)
    g = cholesky(4, a.copy())
    run = g.run(executor, policy="priority").raise_first()
    run.trace.check(g)
    assert np.abs(np.tril(g.handle("A").value) - scipy.linalg.cholesky(a, lower=True)).max() < 1e-12
    assert sorted((t.key, tuple(t.before)) for t in g.tasks) == sorted((t.key, tuple(t.before)) for t in cholesky(4).tasks)
    table = run.trace.table()
    assert list(table.schema.items()) == SCHEMA
    assert sorted(table["key"]) == sorted(t.key for t in g.tasks)
    assert set(table["status"]) == {"done"}
    assert 0 < run.trace.utilisation(2) <= 1 or isinstance(executor, Virtual)
    assert run.trace.path(g).keys[-1] == "potrf/3"


def _schema() -> list[tuple[str, Any]]:
    import polars

    i64, i32, text = polars.Int64, polars.Int32, polars.String
    times = [(c, i64) for c in ("submitted", "ready", "started", "body_ended", "ended")]
    return [
        ("task", i64()), ("key", text()), ("name", text()), ("kind", text()), ("worker", i32()), ("node", text()),
        *[(c, k()) for c, k in times], ("status", text()), ("attempt", i32()), ("bytes_in", i64()), ("bytes_out", i64()), ("cores", i32()),
    ]  # fmt: skip


SCHEMA = _schema()


def test_parts_that_overlap_results_and_plain_values_travel(executor: Any) -> None:
    g = Graph()
    a, letters = g.data("a", np.arange(12.0)), g.data("letters", "")
    g.add(bodies.increment, a[0:8], updates=[a[0:8]])
    g.add(bodies.double, a[2:10:2], updates=[a[2:10:2]])
    g.add(bodies.increment, a, updates=[a])
    total = g.add(np.sum, a[1:9])
    for letter in "abc":
        g.add(bodies.append, letters, letter, updates=[letters])
    seven = g.add(bodies.add, g.add(bodies.add, 1, 2), 4)
    for x in (1.0, 2.0):
        g.add(bodies.accumulate, a[10:12], x, reduces=[a[10:12]])
    for _ in range(3):
        g.add(bodies.increment, a[0:2], commutes=[a[0:2]])
    run = g.run(executor).raise_first()
    run.trace.check(g)
    expected = np.arange(12.0)
    expected[0:8] += 1
    expected[2:10:2] *= 2
    expected += 1
    assert run.result(total) == expected[1:9].sum()
    expected[10:12] += 3
    expected[0:2] += 3
    assert np.array_equal(a.value, expected)
    assert (letters.value, run.result(seven)) == ("abc", 7)


@pytest.mark.parametrize("on_error", ["stop", "continue"])
def test_a_failure_cancels_what_depends_on_it(executor: Any, on_error: str) -> None:
    g = Graph()
    a, b = g.data("a", np.zeros(2)), g.data("b", np.zeros(2))
    g.add(bodies.fail, a, updates=[a], key="bad")
    g.add(bodies.increment, a, updates=[a], key="after")
    for _ in range(3):
        g.add(bodies.increment, b, updates=[b])
    run = g.run(executor, on_error=on_error)
    run.trace.check(g)
    assert list(run.failed) == ["bad"]
    assert "after" in run.cancelled
    if on_error == "continue":
        assert b.value.tolist() == [3, 3]
        assert run.cancelled == ["after"]
    with pytest.raises(ArithmeticError, match="as asked") as caught:
        run.raise_first()
    assert "raised by task bad" in caught.value.__notes__


def test_a_task_that_ends_after_its_body(executor: Any) -> None:
    g = Graph()
    first = g.add(bodies.later)
    second = g.add(bodies.add, first, 1)
    run = g.run(executor).raise_first()
    run.trace.check(g)
    assert run.result(second) == 6
    g = Graph()
    g.add(bodies.fail_later, key="bad")
    assert list(g.run(executor).failed) == ["bad"]


def test_events_that_nobody_can_complete_end_the_run(executor: Any) -> None:
    g = Graph()
    g.add(bodies.forget, key="lost")
    with pytest.raises(Unfinished, match="lost"):
        g.run(executor)


def test_a_body_may_add_tasks_on_every_executor(executor: Any) -> None:
    g = Graph()
    a = g.data("a", np.array([1.0, 5.0]))
    seven = g.add(bodies.grow, a, updates=[a], key="grow")
    early = g.add(np.sum, a, key="early")
    run = g.run(executor).raise_first()
    run.trace.check(g)
    # What was submitted before the run reads before what was added in it writes.
    assert [t.key for t in g.tasks] == ["grow", "early", "doubled", "total", "more"]
    assert [run.result(t) for t in (seven, early, g.task("total"), g.task("more"))] == [7, 8.0, 4.0, 5.0]
    assert a.value.tolist() == [4.0, 12.0]
    assert sorted(run.trace.table()["key"]) == sorted(t.key for t in g.tasks)
    submitted = dict(zip(run.trace.table()["key"], run.trace["submitted"]))
    assert submitted["grow"] == 0
    assert submitted["doubled"] > 0 or isinstance(executor, Virtual)


def test_many_short_bodies_that_add_tasks() -> None:
    """Tasks are sent ahead of each other, and answers come between them."""
    g = Graph()
    for k in range(60):
        g.add(bodies.add_one, k)
    run = g.run(Processes(1)).raise_first()
    run.trace.check(g)
    assert [run.result(g.task(f"after {k}")) for k in range(60)] == list(range(1, 61))


def test_a_body_that_is_tried_again_adds_once(executor: Any) -> None:
    g = Graph()
    a = g.data("a", np.array([1.0, 5.0]))
    g.add(bodies.grow_and_fail_once, a, updates=[a], key="grow", retries=1)
    run = g.run(executor).raise_first()
    run.trace.check(g)
    assert [t.key for t in g.tasks] == ["grow", "doubled"]
    assert a.value.tolist() == [4.0, 12.0]


@pytest.mark.parametrize("executor", [Threads(2), Processes(1), Virtual(2, execute=True)], ids=["threads", "processes", "virtual"])
def test_an_added_task_that_cannot_run_fails_the_body(executor: Any) -> None:
    g = Graph()
    g.add(bodies.grow_wrongly, key="grow")
    other = g.add(bodies.add, 1, 2)
    run = g.run(executor, on_error="continue")
    run.trace.check(g)
    assert list(run.failed) == ["grow"]
    assert "never needs 5 licence" in str(run.failed["grow"])
    assert run.cancelled == ["never"]
    assert run.result(other) == 3


def test_retries_meet_the_data_as_it_was_and_count(executor: Any) -> None:
    g = Graph()
    a = g.data("a", np.zeros(3))
    task = g.add(bodies.fail_twice, a[1:], updates=[a[1:]], retries=2)
    run = g.run(executor).raise_first()
    run.trace.check(g)
    assert (run.result(task), a.value.tolist()) == (3, [0, 1, 1])
    assert list(zip(run.trace["attempt"], run.trace.table()["status"])) == [(1, "failed"), (2, "failed"), (3, "done")]


def test_a_part_looks_as_numpy_shows_it(executor: Any) -> None:
    g = Graph()
    a = g.data("a", np.arange(12.0).reshape(3, 4))
    seen = [
        g.add(bodies.shape_and_first, a[index]) for index in (1, (slice(None), 2), slice(None, None, -1), (..., slice(1, 3)), [2, 0, 2])
    ]
    g.add(bodies.increment, a[::-2, 1], updates=[a[::-2, 1]])
    run = g.run(executor).raise_first()
    assert [run.result(t) for t in seen] == [((4,), 4.0), ((3,), 2.0), ((3, 4), 8.0), ((3, 2), 1.0), ((3, 4), 8.0)]
    assert a.value[:, 1].tolist() == [2, 5, 10]


@pytest.mark.parametrize("seed", [0, 1])
def test_any_executor_gives_what_one_after_the_other_gives(executor: Any, seed: int) -> None:
    def build() -> tuple[Graph, np.ndarray]:
        draws = np.random.default_rng(seed)
        g, value = Graph(), np.arange(40.0)
        a = g.data("a", value)
        for k in range(30):
            start, length, step = (int(draws.integers(*span)) for span in ((0, 30), (1, 10), (1, 4)))
            mode = ("reads", "writes", "updates")[draws.integers(3)]
            piece = a[start : start + length : step]
            g.add(bodies.mix, piece, mode, k, **{mode: [piece]})  # type: ignore[arg-type]
        return g, value

    one, expected = build()
    results = [bodies.mix(t.args[0].of(expected), *t.args[1:]) for t in one.tasks]
    g, value = build()
    run = g.run(executor).raise_first()
    run.trace.check(g)
    assert np.array_equal(value, expected)
    assert [run.result(t) for t in g.tasks] == results


def test_more_than_any_worker_has_is_refused_before_anything_starts(executor: Any) -> None:
    g = Graph()
    g.add(bodies.fail)
    g.add(bodies.nothing, needs={"licence": 1}, key="hungry")
    with pytest.raises(InputError, match="hungry needs 1 licence"):
        g.run(executor)


# Processes


def test_a_worker_killed_in_mid_task_is_survived(tmp_path: Path) -> None:
    g = Graph()
    a, b = g.data("a", np.zeros(4)), g.data("b", np.zeros(4))
    g.add(bodies.die_once, a, str(tmp_path / "m"), updates=[a], retries=1, key="dies")
    g.add(bodies.double, a, updates=[a])
    for _ in range(4):
        g.add(bodies.increment, b, updates=[b])
    run = g.run(Processes(2)).raise_first()
    run.trace.check(g)
    assert a.value.tolist() == [2, 2, 2, 2]
    assert b.value.tolist() == [4, 4, 4, 4]
    rows = run.trace.table().filter(__import__("polars").col("key") == "dies").sort("attempt")
    assert list(zip(rows["attempt"], rows["status"])) == [(1, "failed"), (2, "done")]


def test_a_killed_worker_without_retries_fails_its_task_and_no_other(tmp_path: Path) -> None:
    g = Graph()
    a, b = g.data("a", np.zeros(4)), g.data("b", np.zeros(4))
    g.add(bodies.die_once, a, str(tmp_path / "m"), updates=[a], key="dies")
    g.add(bodies.double, a, updates=[a], key="after")
    for _ in range(4):
        g.add(bodies.increment, b, updates=[b])
    run = g.run(Processes(2), on_error="continue")
    run.trace.check(g)
    assert isinstance(run.failed["dies"], WorkerLost)
    assert run.cancelled == ["after"]
    assert b.value.tolist() == [4, 4, 4, 4]


def test_the_trace_of_a_killed_attempt_holds_the_time_that_it_ran(tmp_path: Path) -> None:
    g = Graph()
    for k in range(6):
        g.add(bodies.add, k, 1, key=f"before {k}")
    # It is sent ahead, and so waits in the worker behind the others.
    g.add(bodies.die_once_late, str(tmp_path / "m"), retries=1, key="dies")
    g.add(bodies.nothing)
    trace = g.run(Processes(1)).raise_first().trace
    trace.check(g)
    bodies_s = (trace["body_ended"] - trace["started"]).sum() / 1e9
    assert trace.utilisation() == pytest.approx(bodies_s / trace.makespan)
    assert trace.utilisation() <= 1
    assert trace.idle()[0] == pytest.approx(trace.makespan - bodies_s)
    spans = np.array(trace.timeline().frame().sort("start").select("start", "end"))
    assert len(spans) == 9
    assert (spans[:-1, 1] <= spans[1:, 0]).all()
    killed = np.flatnonzero(trace["status"] == FAILED)
    assert (trace["body_ended"] - trace["started"])[killed] >= int((tmp_path / "m").read_text())
    assert trace["started"][killed] >= trace["body_ended"][trace["task"] < 6].max()


def test_a_worker_killed_before_its_task_begins_spends_no_time_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(_Worker):
        started = 0

        def __init__(self, *how: Any) -> None:
            super().__init__(*how)
            if not Killed.started:
                self.process.kill()
            Killed.started += 1

    monkeypatch.setattr("armillary.tasks.processes._Worker", Killed)
    g = Graph()
    g.add(bodies.nothing, retries=1)
    trace = g.run(Processes(1)).raise_first().trace
    trace.check(g)
    assert trace["status"].tolist() == [FAILED, DONE]
    assert trace["started"][0] == trace["body_ended"][0]


def test_workers_that_only_die_end_the_run() -> None:
    g = Graph()
    g.add(bodies.die, retries=9)
    with pytest.raises(WorkerLost, match="3 worker processes died"):
        g.run(Processes(1))


def test_bodies_that_cannot_be_imported_are_refused() -> None:
    g = Graph()
    g.add(lambda: 1, key="here only")
    with pytest.raises(InputError, match="here only cannot be imported"):
        g.run(Processes(1))


# Threads


def test_two_hundred_bodies_return_before_the_first_event() -> None:
    g, pending, order, started = Graph(), [], [], threading.Event()

    def launch() -> None:
        with external() as event:
            pending.append(event)
        if len(pending) == 200:
            started.set()

    for _ in range(200):
        first = g.add(launch)
        g.add(order.append, first.id, after=[first])
    seen: list[Any] = []

    def complete() -> None:
        started.wait()
        seen.append(list(order))
        for event in reversed(pending):
            event.complete()
        try:
            pending[0].complete()
        except TooManyCompletions:
            seen.append("refused")
        pending.clear()

    helper = threading.Thread(target=complete)
    helper.start()
    run = g.run(Threads(1)).raise_first()
    helper.join()
    run.trace.check(g)
    assert seen == [[], "refused"]
    assert order == [2 * i for i in reversed(range(200))]


def test_polling_ends_a_task() -> None:
    asked: list[int] = []

    def ask() -> bool:
        asked.append(1)
        return len(asked) > 3

    g = Graph()
    first = g.add(lambda: poll(ask))
    g.add(lambda: asked.append(100), after=[first])
    g.run(Threads(1)).raise_first()
    assert asked == [1, 1, 1, 1, 100]


def test_commuting_updates_run_one_at_a_time_in_any_order() -> None:
    g, order = Graph(), []
    a, gate = g.data("a", np.zeros(1)), threading.Event()

    def slow(part: np.ndarray, k: int) -> None:
        order.append(k)
        part += 1
        if k == 99:
            gate.set()

    wait = g.add(gate.wait)
    g.add(slow, a, 0, commutes=[a], after=[wait])
    for k in range(1, 100):
        g.add(slow, a, k, commutes=[a])
    run = g.run(Threads(4)).raise_first()
    run.trace.check(g)
    assert a.value[0] == 100
    assert order[-1] == 0


def test_a_body_may_add_tasks() -> None:
    g, seen = Graph(), []
    a = g.data("a", np.zeros(2))

    def grow(part: np.ndarray) -> None:
        part += 1
        current().add(bodies.double, a, updates=[a], key="new")
        seen.append(current().key)

    g.add(grow, a, updates=[a], key="grow")
    last = g.add(np.sum, a)
    run = g.run(Threads(2)).raise_first()
    run.trace.check(g)
    assert (len(g), run.result(last), a.value.tolist(), seen) == (3, 2.0, [2, 2], ["grow"])


def test_resources_are_never_over_used() -> None:
    g = Graph()
    for k in range(30):
        g.add(bodies.nothing, needs={"cores": 1 + k % 3, "licence": k % 2})
    run = g.run(Threads(3, resources={"licence": 1})).raise_first()
    run.trace.check(g)


def test_arrays_of_pytorch_on_threads() -> None:
    torch = pytest.importorskip("torch")
    g = Graph()
    a = g.data("a", torch.zeros(6))
    g.add(bodies.fail_twice, a[0:3], updates=[a[0:3]], retries=2)
    for x in (1.0, 2.0):
        g.add(bodies.accumulate, a[3:6], x, reduces=[a[3:6]])
    total = g.add(torch.sum, a)
    run = g.run(Threads(2)).raise_first()
    run.trace.check(g)
    assert float(run.result(total)) == 3 + 9
    with pytest.raises(InputError, match="processes share NumPy arrays"):
        g.run(Processes(1))


def test_an_idle_worker_asks_and_a_thread_does_when_none_is_idle() -> None:
    gate = threading.Event()
    asked: set[str] = set()

    def ask() -> bool:
        asked.add(threading.current_thread().name)
        if "armillary-polls" in asked:
            gate.set()
        return "armillary-polls" in asked

    def ask_idle() -> bool:
        asked.add(threading.current_thread().name)
        return "armillary-0" in asked

    g = Graph()
    g.add(lambda: poll(ask_idle))
    g.run(Threads(1)).raise_first()
    asked.clear()
    g = Graph()
    g.add(lambda: poll(ask))
    g.add(gate.wait)  # the only worker is busy until the poll has happened
    g.run(Threads(1)).raise_first()
    assert "armillary-polls" in asked


def test_events_may_happen_before_the_body_returns() -> None:
    g = Graph()
    order: list[str] = []

    def body() -> None:
        with external(2) as event:
            event.complete()
            event.complete()
            with pytest.raises(TooManyCompletions):
                event.complete()
        order.append("body")

    first = g.add(body)
    g.add(order.append, "after", after=[first])
    g.run(Threads(2)).raise_first()
    assert order == ["body", "after"]


def test_a_policy_that_breaks_ends_the_run() -> None:
    class Broken:
        def push(self, task: Any) -> None:
            return None

        def pop(self, worker: int) -> Any:
            raise ZeroDivisionError

        def on_finish(self, task: Any, worker: int, seconds: float) -> None:
            return None

    g = Graph()
    g.add(bodies.nothing)
    with pytest.raises(ZeroDivisionError):
        g.run(Threads(1), policy=Broken())
    with pytest.raises(InputError, match="no push"):
        g.run(Threads(1), policy=object())
    with pytest.raises(InputError, match="virtual workers"):
        g.run(Threads(1), policy="heft")


def test_a_dask_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("armillary.tasks.dask_clients.ANSWER_S", 0.5)
    g = Graph()
    g.add(bodies.nothing)
    with pytest.raises(InputError, match="no Dask scheduler answered"):
        g.run(OnDask("tcp://127.0.0.1:9"))


#: (executor, body, signal, exit code)
SIGNALLED = [
    ("Threads(1)", "never_here", signal.SIGINT, -signal.SIGINT),
    ("Processes(1)", "never", signal.SIGINT, -signal.SIGINT),
    ("Processes(2)", "never", signal.SIGTERM, 128 + signal.SIGTERM),
    ("Processes(1, start='fork')", "never", signal.SIGTERM, 128 + signal.SIGTERM),
]


@dataclass(frozen=True)
class Ended:
    """A program that a signal ended: its process id, exit code, error output, and the file with the body's process id."""

    pid: int
    code: int
    said: str
    body: Path


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """A program per executor, whose body never returns; they run and end at the same time, because each waits for its grace periods."""
    started = []
    for executor, body, number, _ in SIGNALLED:
        folder = tmp_path_factory.mktemp("signalled")
        (folder / "program.py").write_text(
            f"""
import sys, numpy
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tasks_bodies
from armillary.tasks import Graph, Processes, Threads
if __name__ == "__main__":
    g = Graph()
    g.data("a", numpy.zeros(9))
    g.add(tasks_bodies.{body}, {str(folder / "pid")!r})
    g.run({executor})
"""
        )
        command = [sys.executable, str(folder / "program.py")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append((executor, number, process, folder / "pid"))
    for _, number, process, _ in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
    said = [process.communicate(timeout=60)[1] for _, _, process, _ in started]
    return {executor: Ended(p.pid, p.returncode, text, pid) for (executor, _, p, pid), text in zip(started, said, strict=True)}


@pytest.mark.parametrize(("executor", "body", "number", "code"), SIGNALLED)
def test_a_signal_ends_a_run_whose_body_never_returns(executor: str, body: str, number: int, code: int, ended: dict[str, Ended]) -> None:
    """Also a body that does not listen to SIGTERM; and nothing is left: no process, no shared memory."""
    program = ended[executor]
    assert program.code == code
    assert ("KeyboardInterrupt" in program.said) is (number == signal.SIGINT)
    assert "leaked" not in program.said
    if body == "never":
        assert not Path(f"/proc/{program.body.read_text()}").exists()
    assert [name for name in os.listdir("/dev/shm") if name.startswith(f"armillary-{program.pid}-")] == []


def test_a_policy_may_keep_tasks_for_one_worker() -> None:
    class Last:
        """Everything is for worker 1."""

        def __init__(self) -> None:
            self.ready: list[Any] = []
            self.push = self.ready.append

        def pop(self, worker: int) -> Any:
            return self.ready.pop() if self.ready and worker == 1 else None

        def on_finish(self, task: Any, worker: int, seconds: float) -> None:
            return None

    g = Graph()
    last = g.add(bodies.nothing)
    for _ in range(20):
        last = g.add(bodies.nothing, after=[last])
    run = g.run(Threads(3), policy=Last()).raise_first()
    assert set(run.trace["worker"].tolist()) == {1}


def test_a_dask_worker_killed_in_mid_task_is_survived(tmp_path: Path) -> None:
    g = Graph()
    a = g.data("a", np.zeros(4))
    g.add(bodies.die_once, a, str(tmp_path / "m"), updates=[a])
    g.add(bodies.double, a, updates=[a])
    run = g.run(OnDask()).raise_first()
    run.trace.check(g)
    assert a.value.tolist() == [2, 2, 2, 2]


def test_a_run_that_stops_cancels_only_its_own_futures(dask_client: Any) -> None:
    other = dask_client.submit(bodies.add, 1, 2, pure=False)
    g = Graph()
    g.add(bodies.fail, key="bad")
    for _ in range(5):
        g.add(bodies.nothing)
    assert list(g.run(OnDask(dask_client)).failed) == ["bad"]
    assert (other.result(), other.status) == (3, "finished")


def test_a_stranger_cannot_give_work_to_the_local_dask_cluster() -> None:
    distributed = pytest.importorskip("distributed")
    with local_client() as client:
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1")
        for guess in (address, address.replace("tls", "tcp")):
            with pytest.raises((OSError, TypeError)):
                distributed.Client(guess, timeout=3, set_as_default=False)
