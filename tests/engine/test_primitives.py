"""Resources, stores, levels, barriers and the rest: who gets what, in which order, and nothing is kept by who is gone."""

from __future__ import annotations

import math
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine import Barrier, Deadlock, Interrupted, Lane, Level, Mailbox, Preempted, Queue, Resource, Semaphore, Simulation, Store
from armillary.errors import InputError


def test_a_resource_serves_as_many_as_it_has_places_in_order():
    sim, log = Simulation(), []
    desk = Resource(sim, 2)

    def customer(i):
        with desk.request() as place:
            yield place
            log.append((sim.now, i))
            yield 3.0

    for i in range(5):
        sim.process(customer(i))
    sim.run()
    assert log == [(0.0, 0), (0.0, 1), (3.0, 2), (3.0, 3), (6.0, 4)]
    assert (desk.used, desk.waiting) == (0, 0)


def test_the_more_urgent_go_first_and_equals_in_order():
    sim, log = Simulation(), []
    desk = Resource(sim, 1, "priority")

    def customer(name, priority):
        with desk.request(priority) as place:
            yield place
            log.append(name)
            yield 1.0

    for name, priority in (("first", 0), ("low", 5), ("high", 1), ("high too", 1), ("highest", -2)):
        sim.process(customer(name, priority))
    sim.run()
    assert log == ["first", "highest", "high", "high too", "low"]


def test_preemption_takes_the_place_of_the_least_urgent():
    sim, log = Simulation(), []
    cpu = Resource(sim, 2, "priority")

    def job(name, priority, start, preempt=False):
        yield start
        with cpu.request(priority, preempt=preempt) as place:
            yield place
            try:
                yield 10.0
                log.append((sim.now, name, "done"))
            except Interrupted as interrupted:
                log.append((sim.now, name, interrupted.cause))

    sim.process(job("urgent", 0, 0.0))
    sim.process(job("idle", 9, 1.0))
    sim.process(job("polite", 1, 2.0))
    boss = sim.process(job("boss", 1, 3.0, preempt=True), name="boss")
    sim.run()
    # The idle one loses its place to the polite one, which asked first among equals; then the boss waits for the urgent one.
    assert log[0] == (3.0, "idle", Preempted(boss, 1.0))
    assert [entry[1] for entry in log] == ["idle", "urgent", "polite", "boss"]
    assert boss.happened
    assert cpu.used == 0


def test_nobody_is_preempted_by_an_equal():
    sim = Simulation()
    cpu = Resource(sim, 1, "priority")
    held = cpu.request(1)
    waits = cpu.request(1, preempt=True)
    assert held.happened
    assert not waits.happened
    held.release()
    assert waits.happened


def test_who_is_interrupted_while_waiting_leaves_no_request_behind():
    sim = Simulation()
    desk = Resource(sim, 1)
    got = []

    def impatient():
        with desk.request() as place:
            yield place

    def patient():
        with desk.request() as place:
            yield place
            got.append(sim.now)

    def holder():
        with desk.request() as place:
            yield place
            yield 5.0

    sim.process(holder())
    process = sim.process(impatient())
    sim.process(patient())

    def watcher():
        with pytest.raises(Interrupted):
            yield process

    sim.process(watcher())
    sim.after(1.0, process.interrupt)
    sim.run()
    assert got == [5.0]
    assert (desk.used, desk.waiting) == (0, 0)


def test_a_resource_with_ten_thousand_waiters_serves_them_all():
    sim = Simulation()
    desk = Resource(sim, 3)
    left = []

    def one(i):
        with desk.request() as place:
            yield place
            yield 1.0
        left.append(i)

    for i in range(10_000):
        sim.process(one(i))
    sim.run()
    assert left == list(range(10_000))
    assert sim.now == math.ceil(10_000 / 3)


def test_a_full_store_makes_puts_wait():
    sim, log = Simulation(), []
    box = Store(sim, 1)

    def producer():
        for i in range(3):
            yield box.put(i)
            log.append(("put", sim.now, i))

    def consumer():
        for _ in range(3):
            yield 2.0
            item = yield box.get()
            log.append(("got", sim.now, item))

    sim.process(producer())
    sim.process(consumer())
    sim.run()
    assert log == [("put", 0.0, 0), ("got", 2.0, 0), ("put", 2.0, 1), ("got", 4.0, 1), ("put", 4.0, 2), ("got", 6.0, 2)]
    assert len(box) == 0


def test_a_filtered_get_takes_its_own_and_lets_others_pass():
    sim = Simulation()
    box = Store(sim)
    even = box.get(lambda x: x % 2 == 0)
    any_ = box.get()
    box.put(1)
    assert (even.happened, any_.value) == (False, 1)
    box.put(3)
    box.put(4)
    assert even.value == 4
    assert list(box.items) == [3]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 9)),
            st.tuples(st.just("get"), st.integers(0, 3)),
            st.tuples(st.just("drop"), st.integers(0, 30)),
        ),
        max_size=30,
    ),
)
def test_a_store_is_a_bounded_queue_with_filters(capacity, steps):
    """Against plain lists, served from scratch after each step."""
    sim = Simulation()
    box = Store(sim, capacity)
    wants, puts, gets, items, got = [], deque(), deque(), [], {}
    for kind, value in steps:
        if kind == "put":
            wants.append(box.put(value))
            puts.append((len(wants) - 1, value))
        elif kind == "get":
            wants.append(box.get(None if value == 3 else lambda x, v=value: x % 3 == v))
            gets.append((len(wants) - 1, value))
        elif value < len(wants) and not wants[value].happened:
            wants[value].cancel()
            puts = deque(x for x in puts if x[0] != value)
            gets = deque(x for x in gets if x[0] != value)
        moved = True
        while moved:
            moved = False
            while puts and len(items) < capacity:
                number, item = puts.popleft()
                items.append(item)
                got[number] = None
                moved = True
            for number, want in list(gets):
                fits = [i for i, x in enumerate(items) if want == 3 or x % 3 == want]
                if fits:
                    got[number] = items.pop(fits[0])
                    gets.remove((number, want))
                    moved = True
        assert list(box.items) == items
        assert {i: w.value for i, w in enumerate(wants) if w.happened} == got


def test_a_get_that_was_given_up_takes_nothing():
    sim = Simulation()
    box = Store(sim)

    def impatient():
        with box.get() as item:
            yield sim.any_of(item, sim.timeout(1.0))

    sim.process(impatient())
    sim.after(2.0, box.put, "kept")
    sim.run()
    assert list(box.items) == ["kept"]


def test_a_queue_costs_nothing_and_serves_in_order():
    sim, got = Simulation(), []
    queue = Queue(sim)

    def reader(i):
        item = yield queue.get()
        got.append((i, item, sim.now))

    for i in range(2):
        sim.process(reader(i))
    sim.after(1.0, queue.put, "a")
    sim.after(1.0, queue.put, "b")
    sim.after(1.0, queue.put, "c")
    sim.run()
    assert got == [(0, "a", 1.0), (1, "b", 1.0)]
    assert len(queue) == 1


def test_a_level_waits_for_room_and_for_amounts():
    sim, log = Simulation(), []
    tank = Level(sim, 10.0, 2.0)

    def car():
        yield tank.get(6.0)
        log.append(("got", sim.now, tank.amount))

    def truck():
        yield 3.0
        yield tank.put(8.0)
        log.append(("put", sim.now, tank.amount))
        yield tank.put(7.0)
        log.append(("put", sim.now, tank.amount))

    sim.process(car())
    sim.process(truck())
    with pytest.raises(Deadlock, match=r"put 7 at level \(holds 4 of 10\)"):
        sim.run()
    assert log == [("put", 3.0, 4.0), ("got", 3.0, 4.0)]


def test_a_barrier_lets_all_go_at_once_and_again():
    sim, log = Simulation(), []
    barrier = Barrier(sim, 3)

    def generator(i):
        for _ in range(2):
            yield float(i + 1)
            number = yield barrier.arrive()
            log.append((sim.now, i, number))

    def function(i):
        for _ in range(2):
            sim.sleep(i + 1)
            log.append((sim.now, i, barrier.wait()))

    sim.process(generator(0))
    sim.process(generator(1))
    sim.spawn(function, 2)
    sim.run()
    assert [entry[2] for entry in log] == [0, 0, 0, 1, 1, 1]
    assert {entry[0] for entry in log if entry[1] != 2} == {3.0, 6.0}


def test_a_barrier_that_is_one_short_is_a_deadlock():
    sim = Simulation()
    barrier = Barrier(sim, 3, "step")

    def one():
        yield barrier.arrive()

    sim.process(one())
    sim.process(one())
    with pytest.raises(Deadlock, match=r"one waits for step \(2 of 3 have arrived\)"):
        sim.run()


def test_a_semaphore_counts_and_keeps_order():
    sim = Simulation()
    slots = Semaphore(sim, 4)
    first, large, small = slots.acquire(3), slots.acquire(3), slots.acquire(1)
    assert (first.happened, large.happened, small.happened) == (True, False, False)
    slots.release(2)
    assert (large.happened, small.happened, slots.free) == (True, False, 0)
    slots.release()
    assert small.happened
    waits = slots.acquire(2)
    waits.cancel()
    slots.release(5)
    assert (waits.happened, slots.free) == (False, 5)


def test_a_mailbox_needs_both_sides():
    sim, log = Simulation(), []
    post = Mailbox(sim)

    def sender():
        yield 1.0
        yield post.put("a-b", "letter")
        log.append(("sent", sim.now))

    def receiver():
        yield 4.0
        letter = yield post.get("a-b")
        log.append(("got", sim.now, letter))

    sim.process(sender())
    sim.process(receiver())
    sim.run()
    assert sorted(log) == [("got", 4.0, "letter"), ("sent", 4.0)]
    assert not post._puts
    assert not post._gets


def test_a_lane_serves_one_after_the_other():
    sim, ends = Simulation(timeline=True), []
    link = Lane(sim, rate=100.0, latency=0.5, name="link")

    def sender(start, work):
        yield start
        yield link.serve(work, "send")
        ends.append(sim.now)

    for start, work in ((0.0, 100.0), (1.0, 50.0), (10.0, 0.0)):
        sim.process(sender(start, work))
    sim.run()
    assert ends == [1.5, 2.5, 10.5]
    assert link.busy_s == 3.0
    assert sim.timeline is not None
    assert sim.timeline.spans["start"].tolist() == [0.0, 1.5, 10.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda sim: Resource(sim, 0),
        lambda sim: Resource(sim, 1.5),
        lambda sim: Resource(sim, 1, "lifo"),
        lambda sim: [desk.request(priority=1) for desk in [Resource(sim, 1)] for _ in range(2)],
        lambda sim: Store(sim, 0),
        lambda sim: Store(sim, math.nan),
        lambda sim: Level(sim, -1.0),
        lambda sim: Level(sim, 1.0, 2.0),
        lambda sim: Level(sim, 1.0).get(2.0),
        lambda sim: Level(sim, 1.0).put(math.nan),
        lambda sim: Barrier(sim, 0),
        lambda sim: Semaphore(sim, -1),
        lambda sim: Semaphore(sim, 1).acquire(0),
        lambda sim: Lane(sim, 0.0),
        lambda sim: Lane(sim, 1.0).serve(-1.0),
    ],
)
def test_bad_sizes_are_input_errors(call):
    with pytest.raises(InputError):
        call(Simulation())
