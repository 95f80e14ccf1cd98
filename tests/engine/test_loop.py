"""The loop: order, time, waiting, failing, interrupting; each exact, then properties, then the same from process to process."""

from __future__ import annotations

import gc
import heapq
import itertools
import math
import os
import random
import subprocess
import sys
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine import Deadlock, Interrupted, Simulation, SimulationError
from armillary.errors import InputError


def test_calls_come_by_time_then_priority_then_insertion():
    sim, seen = Simulation(), []
    for name, delay, priority in [("c", 1.0, 0), ("late", 1.0, 5), ("d", 1.0, 0), ("early", 1.0, -1), ("a", 0.0, 0), ("b", 0.0, 0)]:
        sim.after(delay, seen.append, name, priority=priority)
    sim.run()
    assert seen == ["a", "b", "early", "c", "d", "late"]
    assert sim.now == 1.0


def test_a_call_of_lower_priority_number_made_at_this_instant_goes_first():
    sim, seen = Simulation(), []

    def first():
        seen.append("first")
        sim.after(0, seen.append, "urgent", priority=-3)

    sim.after(1.0, first)
    sim.after(1.0, seen.append, "second")
    sim.run()
    assert seen == ["first", "urgent", "second"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(-2, 2), st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2)), max_size=3)),
        max_size=25,
    )
)
def test_order_is_that_of_a_sorted_list(calls):
    """Against the plainest loop there is: a list, sorted anew each time."""
    sim = Simulation()
    ours: list = []
    number = iter(range(10_000))

    def fire(name, children):
        ours.append((sim.now, name))
        for delay, priority in children:
            sim.after(delay * 0.5, fire, next(number), (), priority=priority)

    for delay, priority, children in calls:
        sim.after(delay * 0.5, fire, next(number), tuple(children), priority=priority)
    sim.run()

    theirs: list = []
    waiting: list = []
    numbers = iter(range(10_000))
    now = 0.0
    for delay, priority, children in calls:
        n = next(numbers)
        waiting.append((delay * 0.5, priority, n, tuple(children)))
    while waiting:
        waiting.sort(key=lambda x: x[:3])
        now, _, n, children = waiting.pop(0)
        theirs.append((now, n))
        for delay, priority in children:
            waiting.append((now + delay * 0.5, priority, next(numbers), ()))
    assert ours == theirs


@pytest.mark.parametrize("spread", ["ties", "even", "exponential", "far"])
@pytest.mark.parametrize("count", [1, 5, 63, 64, 65, 130, 700])
def test_sleepers_and_timers_come_in_the_order_of_one_heap(count, spread):
    """The loop sorts some times and keeps others in a heap; a plain heap of (time, insertion) knows nothing of that."""
    draws = {
        "ties": lambda rng: rng.randrange(0, 4) * 0.5,
        "even": lambda rng: 1.0 + rng.randrange(0, 1000) * 1e-3,
        "exponential": lambda rng: rng.expovariate(1.0),
        "far": lambda rng: rng.choice([1e-9, 1e-3, 1.0, 1e6]) * rng.random(),
    }
    draw = draws[spread]

    def happens(at, sleep):
        """Let `count` sleepers wake 12 times each; every third sets a timer on waking, and every sixth takes it back again."""
        seen, left = [], [12] * count
        rngs = [random.Random(1000 * count + i) for i in range(count)]

        def wake(i):
            seen.append((at(), i))
            if i % 3 == 0:
                sleep(draw(rngs[i]), seen.append, ("timer", i), cancelled=i % 6 == 0)
            left[i] -= 1
            return draw(rngs[i]) if left[i] else None

        return seen, wake

    heap, order, now = [], itertools.count(), 0.0

    def later(delay, call, argument, cancelled=False):
        if not cancelled:
            heapq.heappush(heap, (now + delay, next(order), call, argument))

    expected, expected_wake = happens(lambda: now, later)

    def turn(i):
        delay = expected_wake(i)
        if delay is not None:
            later(delay, turn, i)

    for i in range(count):
        later(0.0, turn, i)
    while heap:
        now, _, call, argument = heapq.heappop(heap)
        call(argument)

    sim = Simulation()

    def timer(delay, call, argument, cancelled=False):
        handle = sim.after(delay, call, argument)
        if cancelled:
            handle.cancel()

    seen, wake = happens(lambda: sim.now, timer)

    def sleeper(i):
        while (delay := wake(i)) is not None:
            yield delay

    for i in range(count):
        sim.process(sleeper(i))
    sim.run()
    assert seen == expected
    assert sim.now == now


@pytest.mark.parametrize("count", [200_000, pytest.param(2_000_000, marks=pytest.mark.slow)])
def test_very_many_calls_at_one_instant_run_in_order_and_time_stands(count):
    sim, seen = Simulation(), []
    for i in range(count):
        sim.after(0, seen.append, i)
    sim.run()
    assert sim.now == 0.0
    assert seen == list(range(count))


def test_a_cancelled_call_does_not_happen_nor_move_time():
    sim, seen = Simulation(), []
    handle = sim.after(5.0, seen.append, "never")
    sim.after(1.0, seen.append, "once")
    handle.cancel()
    handle.cancel()
    sim.run()
    assert seen == ["once"]
    assert sim.now == 1.0


def test_cancelled_calls_do_not_pile_up():
    sim = Simulation()
    for i in range(20_000):
        sim.after(1000.0 + i, print).cancel()
    assert sum(map(len, sim._slots.values())) < 200


def test_run_until_a_time_leaves_what_is_due_then():
    sim, seen = Simulation(start=1.0), []
    for t in (1.5, 2.0, 2.5):
        sim.at(t, seen.append, t)
    sim.run(until=2.0)
    assert (sim.now, seen) == (2.0, [1.5])
    sim.run(until=2.0)
    sim.run(until=10.0)
    assert (sim.now, seen) == (10.0, [1.5, 2.0, 2.5])


def test_what_is_due_when_a_run_stops_still_comes_in_order_and_can_be_interrupted():
    sim, log = Simulation(), []

    def sleeper(name):
        try:
            yield 2.0
            log.append(name)
        except Interrupted:
            log.append(f"{name} interrupted")

    first, second = sim.process(sleeper("first")), sim.process(sleeper("second"))
    sim.run(until=2.0)
    assert log == []
    sim.after(0, log.append, "later")
    second.interrupt()
    sim.run()
    assert log == ["first", "later", "second interrupted"]
    assert first.happened
    assert sim.peek() == math.inf


def test_processes_wait_for_seconds_events_and_each_other():
    sim, log = Simulation(), []

    def child(seconds):
        yield seconds
        return f"slept {seconds}"

    def parent():
        one = sim.process(child(2.0))
        value = yield one
        log.append((sim.now, value))
        values = yield sim.all_of(sim.process(child(1.0)), sim.process(child(3)))
        log.append((sim.now, values))
        first = yield sim.any_of(sim.timeout(9.0, "slow"), sim.timeout(4.0, "fast"))
        log.append((sim.now, first.value))
        log.append((sim.now, (yield one)))
        return "done"

    result = sim.run(until=sim.process(parent()))
    assert result == "done"
    assert log == [(2.0, "slept 2.0"), (5.0, ["slept 1.0", "slept 3"]), (9.0, "fast"), (9.0, "slept 2.0")]


def test_spawned_functions_block_at_any_depth():
    sim, log = Simulation(), []
    gate = sim.event("gate")

    def deep(n):
        return deep(n - 1) if n else gate.wait()

    def waiter():
        log.append((deep(20), sim.now))
        sim.sleep(1.5)
        return sim.now

    def opener():
        sim.sleep(2.0)
        gate.succeed("open")

    process = sim.spawn(waiter)
    sim.spawn(opener)
    assert sim.run(until=process) == 3.5
    assert log == [("open", 2.0)]


def test_generators_and_spawned_functions_meet_in_insertion_order():
    sim, log = Simulation(), []

    def generator(name):
        for _ in range(3):
            yield 1.0
            log.append((sim.now, name))

    def function(name):
        for _ in range(3):
            sim.sleep(1.0)
            log.append((sim.now, name))

    sim.process(generator("a"))
    sim.spawn(function, "b")
    sim.process(generator("c"))
    sim.run()
    assert log == [(t, n) for t in (1.0, 2.0, 3.0) for n in "abc"]


def test_processes_that_sleep_equally_long_keep_their_order():
    sim, log = Simulation(), []

    def sleeper(i):
        for _ in range(4):
            yield 0.5
            log.append(i)

    for i in range(3):
        sim.process(sleeper(i))
    sim.run()
    assert log == [0, 1, 2] * 4


def test_a_cancelled_timeout_never_happens():
    sim = Simulation()
    timeout = sim.timeout(5.0)
    timeout.cancel()
    sim.run()
    assert not timeout.happened
    assert sim.now == 0.0


def test_waiters_go_on_in_the_order_of_asking():
    sim, log = Simulation(), []
    event = sim.event()

    def waiter(i):
        yield event
        log.append(i)

    for i in range(5):
        sim.process(waiter(i))
    sim.after(1.0, event.succeed)
    sim.run()
    assert log == [0, 1, 2, 3, 4]


def test_an_event_happens_once():
    sim = Simulation()
    event = sim.event("gate").succeed()
    with pytest.raises(SimulationError, match="gate has already happened"):
        event.succeed()
    with pytest.raises(SimulationError, match="gate has already happened"):
        event.fail(ValueError())


class Boom(Exception):
    pass


def test_a_failure_that_nobody_waits_for_ends_the_run():
    sim = Simulation()
    sim.after(1.0, sim.event().fail, Boom("heard by nobody"))
    with pytest.raises(Boom, match="heard by nobody"):
        sim.run()


@pytest.mark.parametrize("kind", ["process", "spawn"])
def test_a_process_that_fails_ends_the_run_or_whoever_waits_hears_of_it(kind):
    def fails(sim):
        if kind == "spawn":

            def function():
                sim.sleep(1.0)
                raise Boom

            return sim.spawn(function)

        def generator():
            yield 1.0
            raise Boom

        return sim.process(generator())

    sim = Simulation()
    fails(sim)
    with pytest.raises(Boom):
        sim.run()

    sim, heard = Simulation(), []

    def parent():
        try:
            yield fails(sim)
        except Boom:
            heard.append(sim.now)

    sim.process(parent())
    sim.run()
    assert heard == [1.0]


def test_what_fails_after_any_of_has_happened_is_not_swallowed():
    sim = Simulation()
    late = sim.event()
    sim.after(2.0, late.fail, Boom())

    def waiter():
        yield sim.any_of(sim.timeout(1.0), late)

    sim.process(waiter())
    with pytest.raises(Boom):
        sim.run()
    assert sim.now == 2.0


def test_all_of_fails_with_the_first_failure():
    sim, heard = Simulation(), []

    def waiter(bad):
        try:
            yield sim.all_of(sim.timeout(5.0), bad)
        except Boom:
            heard.append(sim.now)

    bad = sim.event()
    sim.after(1.0, bad.fail, Boom())
    sim.process(waiter(bad))
    sim.run(until=2.0)
    assert heard == [1.0]


@pytest.mark.parametrize("kind", ["process", "spawn"])
def test_an_interrupted_process_goes_on_and_the_event_stays_valid(kind):
    sim, log = Simulation(), []
    event = sim.event("shared")

    def generator():
        try:
            yield event
        except Interrupted as error:
            log.append((sim.now, error.cause))
        yield 1.0
        value = yield event
        log.append((sim.now, value))

    def function():
        try:
            event.wait()
        except Interrupted as error:
            log.append((sim.now, error.cause))
        sim.sleep(1.0)
        value = event.wait()
        log.append((sim.now, value))

    def other():
        value = yield event
        log.append((sim.now, "other", value))

    process = sim.process(generator()) if kind == "process" else sim.spawn(function)
    sim.process(other())
    sim.after(2.0, process.interrupt, "why")
    sim.after(5.0, event.succeed, "it")
    sim.run()
    assert log == [(2.0, "why"), (5.0, "other", "it"), (5.0, "it")], "the one that asked again asked later"


@pytest.mark.parametrize("kind", ["process", "spawn"])
def test_two_interruptions_at_one_instant_both_arrive(kind):
    sim, log = Simulation(), []

    def generator():
        for _ in range(2):
            try:
                yield 10.0
            except Interrupted as error:
                log.append((sim.now, error.cause))

    def function():
        for _ in range(2):
            try:
                sim.sleep(10.0)
            except Interrupted as error:
                log.append((sim.now, error.cause))

    process = sim.process(generator()) if kind == "process" else sim.spawn(function)
    sim.after(1.0, process.interrupt, 1)
    sim.after(1.0, process.interrupt, 2)
    sim.run()
    assert log == [(1.0, 1), (1.0, 2)]
    assert sim.now == 1.0, "sleeps that were cut short do not move time"


def test_who_ended_or_runs_cannot_be_interrupted():
    sim = Simulation()

    def quick():
        yield None

    def selfish():
        yield 1.0
        process.interrupt()

    ended = sim.process(quick())
    sim.run()
    with pytest.raises(SimulationError, match="has ended"):
        ended.interrupt()
    process = sim.process(selfish())
    with pytest.raises(SimulationError, match="cannot interrupt itself"):
        sim.run()


def test_a_deadlock_names_who_waits_for_what():
    sim = Simulation()

    def stuck(i):
        yield sim.event(f"answer {i}")

    for i in range(25):
        sim.process(stuck(i), name=f"rank {i}")
    sim.process(stuck("x"), daemon=True)
    with pytest.raises(Deadlock) as error:
        sim.run()
    text = str(error.value)
    assert "rank 3 waits for answer 3" in text
    assert "rank 19" in text
    assert "rank 20" not in text
    assert text.endswith("and 5 more")


def test_waiting_for_what_can_no_longer_happen_is_a_deadlock():
    sim = Simulation()
    with pytest.raises(Deadlock, match="hope can no longer happen"):
        sim.run(until=sim.event("hope"))


def test_a_daemon_may_wait_for_ever():
    sim = Simulation()

    def server():
        yield sim.event()

    sim.process(server(), daemon=True)
    sim.run()


@pytest.mark.parametrize("kind", ["process", "spawn"])
def test_closing_ends_processes_and_runs_their_finally_blocks(kind):
    log = []
    with Simulation() as sim:

        def generator():
            try:
                yield 100.0
            finally:
                log.append("closed")

        def function():
            try:
                sim.sleep(100.0)
            finally:
                log.append("closed")

        process = sim.process(generator()) if kind == "process" else sim.spawn(function)
        sim.run(until=1.0)
    assert log == ["closed"]
    assert not process.alive
    assert not sim._processes


def test_a_process_may_end_another_that_was_spawned():
    sim, log = Simulation(), []

    def victim():
        try:
            sim.sleep(100.0)
        finally:
            log.append("ended")

    def killer(process):
        sim.sleep(1.0)
        process.kill()
        sim.sleep(1.0)
        log.append(sim.now)

    sim.spawn(killer, sim.spawn(victim))
    sim.run()
    assert log == ["ended", 2.0]


def test_nothing_is_left_of_a_simulation_that_was_closed():
    class Thing:
        pass

    def run():
        thing = Thing()
        with Simulation() as sim:

            def function(held):
                sim.sleep(10.0)

            sim.spawn(function, thing)
            sim.run(until=1.0)
        return weakref.ref(thing)

    gone = run()
    gc.collect()
    assert gone() is None


def test_the_loop_may_move_to_another_greenlet():
    from greenlet import greenlet

    sim, log = Simulation(), []

    def function():
        for _ in range(2):
            sim.sleep(1.0)
            log.append(sim.now)

    process = sim.spawn(function)
    sim.run(until=1.5)
    greenlet(lambda: sim.run(until=process)).switch()
    assert log == [1.0, 2.0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda sim: sim.after(-1.0, print), "after: found -1.0"),
        (lambda sim: sim.after(math.nan, print), "after: found nan"),
        (lambda sim: sim.after(math.inf, print), "after: found inf"),
        (lambda sim: sim.at(0.5, print), "at: found 0.5; expected a time from now on, 1.0"),
        (lambda sim: sim.run(until=0.5), "until: found 0.5"),
        (lambda sim: sim.timeout("soon"), "timeout: found 'soon'"),
        (lambda sim: sim.after(1, print, priority=0.5), "priority"),
        (lambda sim: Simulation(start=-1), "start"),
    ],
)
def test_bad_times_are_input_errors(call, says):
    with pytest.raises(InputError, match=says):
        call(Simulation(start=1.0))


@pytest.mark.parametrize("bad", [-1.0, math.nan, "x", math.inf])
def test_a_process_that_yields_nonsense_is_told(bad):
    sim = Simulation()

    def process():
        yield bad

    sim.process(process())
    with pytest.raises(InputError, match="process yields"):
        sim.run()


def test_blocking_outside_a_spawned_process_is_told():
    sim = Simulation()

    def generator():
        yield 1.0
        sim.sleep(1.0)

    with pytest.raises(SimulationError, match="spawn"):
        sim.sleep(1.0)
    sim.process(generator())
    with pytest.raises(SimulationError, match="spawn"):
        sim.run()
    with pytest.raises(SimulationError, match="takes a generator"):
        sim.process(generator)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="takes a function"):
        sim.spawn(generator())  # type: ignore[arg-type]


PROGRAM = """
import sys
from armillary import cluster
from armillary.engine import Network, Resource, Simulation, Store
sim = Simulation(timeline=True)
net = Network(sim, cluster.preset("slingshot-200"), routing="ecmp", seed=3)
tools, box = Resource(sim, 3, "priority"), Store(sim, 4)
def rank(i):
    for k in range(5):
        with tools.request(priority=(i * 7 + k) % 4) as held:
            yield held
            yield 1e-6 * (i % 3)
        yield net.flow(i, (i * 5 + k + 1) % 64, 1e5 * (1 + (i + k) % 7))
        yield box.put(i)
        yield box.get()
for i in range(64):
    sim.process(rank(i))
sim.run()
sim.timeline.to_chrome(sys.argv[1])
"""


def test_another_process_with_another_hash_seed_writes_the_same_bytes(tmp_path, monkeypatch):
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    other = "4711" if os.environ.get("PYTHONHASHSEED") != "4711" else "0"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(there)], env={**os.environ, "PYTHONHASHSEED": other})
    monkeypatch.setattr(sys, "argv", ["-c", str(here)])
    exec(PROGRAM, {"__name__": "__main__"})
    assert process.wait() == 0
    assert here.read_bytes() == there.read_bytes()
    assert len(here.read_bytes()) > 10_000


def test_importing_the_engine_imports_nothing_heavy():
    code = "import sys, armillary.engine as e; e.Simulation; e.Store; bad = {'numba', 'scipy', 'polars', 'pydantic', 'numpy'} & set(sys.modules); sys.exit(repr(bad) if bad else 0)"
    subprocess.run([sys.executable, "-c", code], check=True)
