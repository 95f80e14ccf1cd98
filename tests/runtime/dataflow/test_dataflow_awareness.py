"""Launches, streams, polling, chains and cancelled runs, on a device whose kernels the test ends by hand."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.runtime.dataflow import Apis, DeviceError, Kernel, Sim, launch
from armillary.runtime.dataflow.awareness.poller import Lane, Pending, Poller
from armillary.tasks import Graph, Threads

NOTHING = Kernel("nothing", {"sim": None, "blas": lambda *args: None})
GIVE_UP_S = 20.0


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that must happen; the time only guards against a hang."""
    end = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0)


class InBackground:
    """A graph that runs while the test plays the device."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._go, args=(run,), daemon=True)
        self._thread.start()

    def _go(self, run: Callable[[], Any]) -> None:
        try:
            self.result = run()
        except BaseException as error:
            self.error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> Any:
        self._thread.join(GIVE_UP_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


@pytest.fixture
def by_hand() -> Iterator[Sim]:
    sim = Sim(concurrency=1000, manual=True)
    yield sim
    sim.close()


def finish(sim: Sim, background: InBackground) -> Any:
    """Ends kernels one by one until the run is over."""
    end = time.monotonic() + GIVE_UP_S
    while background.running:
        assert time.monotonic() < end
        with sim.changed:
            ready = bool(sim.running)
        if ready:
            sim.complete()
        time.sleep(0)
    return background.join()


def test_all_kernels_are_out_before_the_first_ends_where_blocking_has_one(by_hand: Sim) -> None:
    with Apis(by_hand, pool=40) as apis:
        graph = Graph()
        for i in range(40):
            apis.add(graph, "sim", NOTHING, key=f"k{i}")
        run = InBackground(lambda: apis.run(graph, Threads(1)))
        until(lambda: by_hand.outstanding == 40)
        assert run.running
        finish(by_hand, run)
    blocked, most = Graph(), [0]
    with Apis(by_hand) as apis:

        def body() -> None:
            apis.sim.wait(NOTHING, ())

        for _ in range(40):
            blocked.add(body)
        run = InBackground(lambda: blocked.run(Threads(1)))
        for _ in range(40):
            until(lambda: by_hand.outstanding > 0)
            most[0] = max(most[0], by_hand.outstanding)
            by_hand.complete()
        run.join()
    assert most == [1]


@pytest.mark.parametrize("chain", [False, True])
def test_a_device_of_four_places_runs_four_and_a_chain_runs_one(chain: bool) -> None:
    sim = Sim(latency=1e-4, concurrency=4)
    with Apis(sim, chain=chain) as apis:
        graph = Graph()
        for _ in range(30):
            apis.add(graph, "sim", NOTHING)
        apis.run(graph, Threads(1)).raise_first()
        assert sim.most_running == 4
    slow = Sim(latency=1e-4, concurrency=4)
    with Apis(slow, chain=chain) as apis:
        graph = Graph()
        value = graph.data("x", np.zeros(1))
        order: list[int] = []
        kernels = [Kernel(f"k{i}", {"sim": lambda i=i: order.append(i)}) for i in range(10)]
        for kernel in kernels:
            apis.add(graph, "sim", kernel, updates=[value])
        run = apis.run(graph, Threads(2)).raise_first()
        assert slow.most_running == 1
        assert order == list(range(10))
        run.trace.check(graph)


def test_a_queued_kernel_of_a_full_device_starts_in_order(by_hand: Sim) -> None:
    by_hand.concurrency = 4
    with Apis(by_hand, pool=12) as apis:
        graph = Graph()
        for i in range(12):
            apis.add(graph, "sim", Kernel(f"k{i}", {"sim": None}))
        run = InBackground(lambda: apis.run(graph, Threads(1)))
        until(lambda: by_hand.outstanding == 12)
        assert len(by_hand.running) == 4
        finish(by_hand, run)
    assert [event.kernel.name for event in by_hand.started] == [f"k{i}" for i in range(12)]
    assert by_hand.most_running == 4


@pytest.mark.parametrize(("notify", "chain"), list(itertools.product(("poll", "callback"), (False, True))))
def test_a_successor_starts_after_the_device_is_done(notify: str, chain: bool) -> None:
    sim = Sim(latency=2e-3)
    with Apis(sim, notify=notify, chain=chain) as apis:
        graph = Graph()
        a, b = graph.data("a", np.zeros(1)), graph.data("b", np.zeros(1))
        first = apis.add(graph, "sim", NOTHING, updates=[a])
        second = apis.add(graph, "sim", NOTHING, reads=[a], updates=[b])
        last = graph.add(lambda: None, reads=[b])
        run = apis.run(graph, Threads(2)).raise_first()
    run.trace.check(graph)
    rows = {int(task): row for row, task in enumerate(run.trace["task"])}
    for before, after in ((first, second), (second, last)):
        assert run.trace["started"][rows[after.id]] >= run.trace["ended"][rows[before.id]]
    assert run.trace["ended"][rows[first.id]] > run.trace["body_ended"][rows[first.id]]


def test_a_task_waits_for_both_of_its_launches(by_hand: Sim) -> None:
    with Apis(by_hand, pool=2) as apis:
        graph = Graph()
        value = graph.data("x", np.zeros(1))

        def body() -> None:
            launch(apis.sim, NOTHING)
            launch(apis.sim, NOTHING)

        graph.add(body, updates=[value], key="two")
        seen: list[int] = []
        graph.add(lambda: seen.append(1), reads=[value], key="after")
        run = InBackground(lambda: apis.run(graph, Threads(1)))
        until(lambda: by_hand.outstanding == 2)
        by_hand.complete()
        until(lambda: apis.sim.poller.completed == 1)
        assert not seen
        by_hand.complete()
        run.join()
    assert seen == [1]


def test_one_failed_launch_fails_the_task_and_the_other_is_drained(by_hand: Sim) -> None:
    with Apis(by_hand, pool=2) as apis:
        graph = Graph()
        value = graph.data("x", np.zeros(1))

        def body() -> None:
            launch(apis.sim, NOTHING)
            launch(apis.sim, NOTHING)

        graph.add(body, updates=[value], key="two")
        graph.add(lambda: None, reads=[value], key="after")
        run = InBackground(lambda: apis.run(graph, Threads(1)))
        until(lambda: by_hand.outstanding == 2)
        by_hand.fail(ArithmeticError("overflow"))
        until(lambda: apis.sim.poller.completed == 1)
        assert run.running, "the other kernel still uses the data"
        by_hand.complete()
        done = run.join()
        assert isinstance(done.failed["two"], DeviceError)
        assert "overflow" in str(done.failed["two"])
        assert done.cancelled == ["after"]
        assert apis.outstanding == 0
        # The stream of the failed kernel stays usable.
        again = Graph()
        for _ in range(4):
            apis.add(again, "sim", NOTHING)
        finish(by_hand, InBackground(lambda: apis.run(again, Threads(1)).raise_first()))


@pytest.mark.parametrize("chain", [False, True])
def test_a_chain_is_released_once_by_the_host_and_gives_the_same(chain: bool) -> None:
    sim = Sim(latency=1e-5)
    value = np.ones(1)

    def step(array: np.ndarray) -> None:
        array[0] = array[0] * 1.5 - 0.25

    kernel = Kernel("step", {"sim": step})
    with Apis(sim, chain=chain) as apis:
        graph = Graph()
        handle = graph.data("x", value)
        for _ in range(100):
            apis.add(graph, "sim", kernel, value, updates=[handle])
        run = apis.run(graph, Threads(2)).raise_first()
        run.trace.check(graph)
        counted = (apis.chains.released, apis.chains.chained) if apis.chains is not None else None
        asked = apis.sim.poller.completed
    expected = 1.0
    for _ in range(100):
        expected = expected * 1.5 - 0.25
    assert value[0] == expected
    assert asked == 100
    assert counted == ((1, 99) if chain else None)


def test_without_chains_the_host_releases_each_kernel(by_hand: Sim) -> None:
    with Apis(by_hand, chain=False) as apis:
        graph = Graph()
        handle = graph.data("x", np.zeros(1))
        for _ in range(100):
            apis.add(graph, "sim", NOTHING, updates=[handle])
        run = InBackground(lambda: apis.run(graph, Threads(2)))
        for number in range(100):
            until(lambda: by_hand.outstanding == 1)
            assert len(by_hand.started) == number + 1
            by_hand.complete()
        run.join()


def test_a_chain_stops_where_another_stream_or_the_host_comes_between(by_hand: Sim) -> None:
    with Apis(by_hand, pool=4) as apis:
        graph = Graph()
        a, b = graph.data("a", np.zeros(1)), graph.data("b", np.zeros(1))
        apis.add(graph, "sim", NOTHING, updates=[a], key="a")
        apis.add(graph, "sim", NOTHING, updates=[b], key="b")
        apis.add(graph, "sim", NOTHING, reads=[a], updates=[b], key="joined")
        graph.add(lambda: None, updates=[b], key="host")
        apis.add(graph, "sim", NOTHING, updates=[b], key="last")
        run = InBackground(lambda: apis.run(graph, Threads(1)))
        until(lambda: by_hand.outstanding == 2)
        done = finish(by_hand, run)
        done.trace.check(graph)
        assert apis.chains is not None
        assert apis.chains.chained == 0
        assert apis.chains.released == 4


def test_a_failed_kernel_cancels_what_was_chained_behind_it(by_hand: Sim) -> None:
    with Apis(by_hand) as apis:
        graph = Graph()
        handle = graph.data("x", np.zeros(1))
        for i in range(5):
            apis.add(graph, "sim", NOTHING, updates=[handle], key=f"k{i}")
        run = InBackground(lambda: apis.run(graph, Threads(1)))
        until(lambda: by_hand.outstanding == 5)
        by_hand.fail(ArithmeticError("no"))
        done = finish(by_hand, run)
        assert list(done.failed) == ["k0"]
        assert sorted(done.cancelled) == ["k1", "k2", "k3", "k4"]
        assert apis.outstanding == 0


def test_a_retried_kernel_is_enqueued_again_and_carries_nobody_along(by_hand: Sim) -> None:
    with Apis(by_hand) as apis:
        graph = Graph()
        handle = graph.data("x", np.zeros(1))
        apis.add(graph, "sim", NOTHING, updates=[handle], key="first", retries=1)
        apis.add(graph, "sim", NOTHING, updates=[handle], key="second")
        run = InBackground(lambda: apis.run(graph, Threads(1)))
        until(lambda: by_hand.outstanding == 1)
        by_hand.fail(ArithmeticError("once"))
        until(lambda: len(by_hand.started) == 2)
        done = finish(by_hand, run)
        assert not done.failed
    assert len(by_hand.started) == 3


def test_a_cancelled_run_leaves_nothing_pending(by_hand: Sim) -> None:
    with Apis(by_hand, pool=8) as apis:
        graph = Graph()
        for i in range(8):
            apis.add(graph, "sim", NOTHING, key=f"k{i}")

        def fails() -> None:
            raise ValueError("the body failed")

        graph.add(fails, key="fails")
        run = InBackground(lambda: apis.run(graph, Threads(1)))
        until(lambda: by_hand.outstanding == 8)
        done = finish(by_hand, run)
        assert list(done.failed) == ["fails"]
        assert apis.outstanding == 0


def test_an_interrupted_process_ends() -> None:
    script = """
import threading, _thread
from armillary.runtime.dataflow import Apis, Kernel, Sim
from armillary.tasks import Graph, Threads
sim = Sim(latency=0.05)
apis = Apis(sim)
graph = Graph()
kernel = Kernel("k", {"sim": None})
for _ in range(200):
    apis.add(graph, "sim", kernel)
threading.Timer(0.3, _thread.interrupt_main).start()
try:
    apis.run(graph, Threads(2))
except KeyboardInterrupt:
    print("interrupted", apis.outstanding)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == "interrupted 0", found.stderr


def test_a_stream_is_asked_for_its_first_event_only() -> None:
    class Asked:
        def __init__(self) -> None:
            self.ended, self.asked = False, 0

        def done(self) -> bool:
            self.asked += 1
            return self.ended

        def wait(self) -> None:
            for event in events:
                event.ended = True

    events: list[Asked] = []
    lanes = [Lane(0, None), Lane(1, None)]
    poller = Poller(lanes, period=1.0)
    poller._registered = True  # The test asks.
    events += [Asked() for _ in range(6)]
    for number, event in enumerate(events):
        poller.add(lanes[number % 2], Pending(event))
    assert not poller.ask()
    assert [event.asked for event in events] == [1, 1, 0, 0, 0, 0]
    events[0].ended = events[2].ended = True
    assert not poller.ask()
    assert [event.asked for event in events] == [2, 2, 1, 0, 1, 0]
    assert poller.outstanding == 4
    poller.drain()
    assert poller.outstanding == 0


def test_the_period_adapts_within_its_bounds() -> None:
    class Happens:
        happened = False

        def done(self) -> bool:
            return self.happened

        def wait(self) -> None: ...

    lane = Lane(0, None)
    poller = Poller([lane])
    poller._registered = True
    waiting = Happens()
    poller.add(lane, Pending(waiting))
    periods = []
    for _ in range(8):
        poller.ask()
        periods.append(poller.period)
    assert periods[-1] == 1e-3
    assert all(b == min(1e-3, 2 * a) for a, b in itertools.pairwise(periods))
    waiting.happened = True
    poller.ask()
    assert poller.period == 5e-4
    for _ in range(12):
        poller._registered = True
        ended = Happens()
        ended.happened = True
        poller.add(lane, Pending(ended))
        poller.ask()
    assert poller.period == 1e-5


def test_ten_thousand_pending_events_are_all_seen() -> None:
    sim = Sim(latency=0.0, concurrency=64)
    with Apis(sim, pool=16) as apis:
        graph = Graph()
        for _ in range(10_000):
            apis.add(graph, "sim", NOTHING)
        run = apis.run(graph, Threads(1)).raise_first()
        assert apis.sim.poller.completed == 10_000
    assert len(run.trace) == 10_000


def test_nothing_is_polled_while_nothing_is_pending() -> None:
    from armillary.tasks.events import polling

    sim = Sim(latency=1e-4)
    with Apis(sim) as apis:
        graph = Graph()
        apis.add(graph, "sim", NOTHING)
        apis.run(graph, Threads(1)).raise_first()
        until(lambda: not polling())
        calls = apis.sim.poller.calls
        idle = Graph()
        idle.add(lambda: time.sleep(0.01))
        apis.run(idle, Threads(2)).raise_first()
        assert apis.sim.poller.calls == calls


def test_streams_are_taken_in_turn_and_then_the_shortest(by_hand: Sim) -> None:
    with Apis(by_hand, pool=3) as apis:
        lanes = [apis.sim.enqueue(NOTHING, ()).lane.number for _ in range(7)]  # type: ignore[union-attr]
        assert lanes[:3] == [0, 1, 2]
        assert sorted(lanes[3:6]) == [0, 1, 2]
        by_hand.complete(1000)
        by_hand.complete(1000)
        by_hand.complete(1000)
        apis.drain()


def test_wrong_uses_are_one_sentence(by_hand: Sim) -> None:
    with pytest.raises(InputError, match='"openncl"'):
        Apis("openncl")
    with pytest.raises(InputError, match="expected 1e-6 to 1"):
        Apis(by_hand, period=0.0)
    with pytest.raises(InputError, match="notify"):
        Apis(by_hand, notify="shout")
    with Apis(by_hand, tokens=2) as apis:
        with pytest.raises(InputError, match="outside a task"):
            launch(apis.sim, NOTHING)
        with pytest.raises(InputError, match="has no opencl variant"):
            NOTHING.variant("opencl")
        with pytest.raises(InputError, match="width 3; expected 1 to 2"):
            apis.add(Graph(), "sim", NOTHING, width=3)
        with pytest.raises(InputError, match="blas"):
            apis["blas"]
        with pytest.raises(AttributeError, match="blas"):
            _ = apis.blas


def test_a_host_kernel_runs_in_the_body_and_returns_its_result() -> None:
    with Apis("blas", "numba") as apis:
        graph = Graph()
        double = Kernel("double", {"blas": lambda a: a * 2})
        task = graph.add(lambda: launch(apis.blas, double, np.arange(3)))
        assert apis.run(graph, Threads(1)).result(task).tolist() == [0, 2, 4]


def test_nothing_is_left_behind() -> None:
    before = threading.active_count()
    for _ in range(3):
        with Apis(Sim(latency=1e-5)) as apis:
            graph = Graph()
            for _ in range(20):
                apis.add(graph, "sim", NOTHING)
            apis.run(graph, Threads(2)).raise_first()
    gc.collect()
    until(lambda: threading.active_count() <= before + 1)
