"""The Numba parts give what the event loop gives: queues, the heap, one pool, processor sharing."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine import Pool, Resource, Simulation, closed_loop, fifo, max_min
from armillary.engine.compiled import heap, pop, processor_sharing, push, share
from armillary.errors import InputError


def test_two_servers_by_hand():
    assert fifo([0.0, 0.0, 0.0, 5.0], [3.0, 1.0, 1.0, 1.0], 2).tolist() == [3.0, 1.0, 2.0, 6.0]
    assert fifo([0.0, 1.0], [2.0, 2.0]).tolist() == [2.0, 4.0]
    assert fifo([], []).tolist() == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=40), st.integers(1, 5))
def test_a_queue_of_arrays_equals_a_resource(items, servers):
    arrivals = np.cumsum([gap for gap, _ in items]).astype(float)
    service = np.array([took for _, took in items], float)
    sim = Simulation()
    desk = Resource(sim, servers)
    left = np.zeros(len(items))

    def item(i):
        yield float(arrivals[i])
        with desk.request() as place:
            yield place
            yield float(service[i])
            left[i] = sim.now

    for i in range(len(items)):
        sim.process(item(i))
    sim.run()
    assert fifo(arrivals, service, servers).tolist() == left.tolist()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 8.0), st.floats(0.01, 8.0)), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 4))
def test_a_closed_loop_equals_clients_on_the_event_loop(items, clients, servers):
    service, think = (np.array(x) for x in zip(*items, strict=True))
    sim = Simulation()
    desk = Resource(sim, servers)
    number = iter(range(len(items)))
    arrive, depart = np.zeros(len(items)), np.zeros(len(items))

    def client():
        for k in number:
            arrive[k] = sim.now
            with desk.request() as place:
                yield place
                yield float(service[k])
                depart[k] = sim.now
            yield float(think[k])

    for _ in range(clients):
        sim.process(client())
    sim.run()
    found = closed_loop(service, think, clients, servers)
    np.testing.assert_allclose(found[0], arrive, rtol=1e-12)
    np.testing.assert_allclose(found[1], depart, rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 4), st.integers(0, 2))), max_size=60))
def test_the_heap_gives_events_in_order(steps):
    h, theirs, number = heap(64), [], 0
    for step in steps:
        if step is None:
            assert pop(h) == (heapq.heappop(theirs) if theirs else (math.inf, -1, -1))
        else:
            time, kind = step
            assert push(h, float(time), kind, number)
            heapq.heappush(theirs, (float(time), kind, number))
            number += 1


def test_a_full_heap_says_so():
    h = heap(2)
    assert push(h, 1.0, 0, 0)
    assert push(h, 0.0, 0, 1)
    assert not push(h, 2.0, 0, 2)
    assert pop(h) == (0.0, 0, 1)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.1, 50.0),
    st.lists(st.tuples(st.floats(0.1, 5.0), st.one_of(st.just(math.inf), st.floats(0.1, 9.0))), min_size=1, max_size=20),
)
def test_one_pool_is_shared_as_by_the_solver(capacity, activities):
    weights, caps = (np.array(x) for x in zip(*activities, strict=True))
    whole = max_min([capacity], [[0]] * len(weights), weights=weights, caps=caps)
    np.testing.assert_allclose(share(capacity, weights, caps), whole, rtol=1e-9)


def test_processor_sharing_by_hand():
    # One job alone to 1, both at half speed to 3, the first alone again.
    assert processor_sharing([0.0, 1.0], [3.0, 1.0], 1.0).tolist() == [4.0, 3.0]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.01, 9.0)), min_size=1, max_size=25),
    st.floats(0.5, 5.0),
    st.one_of(st.just(math.inf), st.floats(0.2, 3.0)),
)
def test_processor_sharing_equals_a_pool(jobs, rate, most):
    arrivals, works = np.cumsum([gap for gap, _ in jobs]), np.array([work for _, work in jobs])
    sim = Simulation()
    pool = Pool(sim, rate)
    left = np.zeros(len(jobs))
    for i, (at, work) in enumerate(zip(arrivals, works, strict=True)):
        activity = pool.use(work, delay=float(at), cap=None if most == math.inf else most)
        activity.callbacks.append(lambda event, i=i: left.__setitem__(i, sim.now))
    sim.run()
    np.testing.assert_allclose(processor_sharing(arrivals, works, rate, most), left, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fifo([1.0, 0.0], [1.0, 1.0]),
        lambda: fifo([0.0], [1.0, 1.0]),
        lambda: fifo([0.0], [-1.0]),
        lambda: fifo([math.nan], [1.0]),
        lambda: fifo([0.0], [1.0], 0),
        lambda: closed_loop([1.0], [1.0], 0),
        lambda: closed_loop([1.0], [], 1),
        lambda: heap(0),
        lambda: processor_sharing([0.0], [1.0], 0.0),
        lambda: processor_sharing([1.0, 0.0], [1.0, 1.0], 1.0),
        lambda: processor_sharing([0.0], [1.0, 1.0], 1.0),
    ],
)
def test_bad_arrays_are_input_errors(call):
    with pytest.raises(InputError):
        call()
