"""What must hold in a FIFO-MEP queue after every single request."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.storage.eviction import Clock, FifoMep
from armillary.storage.eviction.fifo_mep import GHOST_SIZE, POINTED
from armillary.storage.eviction.workload import Trace

DISTINCT = 40
IDS = st.lists(st.integers(0, DISTINCT - 1), max_size=200)
POINTS = st.sampled_from([(), (0.1,), (0.1, 0.2), (0.25, 0.5, 0.75), (0.9,)])


def steps(policy, ids, capacity):
    """The state after each request."""
    state = policy.start(capacity)
    for o in ids:
        state.feed(Trace(np.array([o], np.int32), DISTINCT))
        yield o, state


@settings(max_examples=40)
@given(ids=IDS, points=POINTS, capacity=st.integers(1, 30))
def test_once_full_every_segment_has_its_size_and_ghost_and_cache_are_disjoint(ids, points, capacity):
    policy = FifoMep(points=points)
    ends = [0, *policy.positions(capacity), capacity]
    shares = np.diff(ends).tolist()
    seen = set()
    for o, state in steps(policy, ids, capacity):
        seen.add(o)
        queues = [state.queue(q).tolist() for q in range(len(shares))]
        cached = [v for queue in queues for v in queue]
        assert len(cached) == len(set(cached)) <= capacity
        assert o in cached
        full = len(cached) == capacity
        assert full == (len(seen) >= capacity)
        if full:
            assert [len(queue) for queue in queues] == shares
        stamps = state.table("stamp")
        ghost = {v for v in range(DISTINCT) if stamps[v] and state.numbers[POINTED] - stamps[v] < state.numbers[GHOST_SIZE]}
        assert not ghost & set(cached)
        assert len(ghost) <= int(0.9 * capacity)
        for q, queue in enumerate(queues):
            assert all(state.table("where")[v] >> 4 == q + 1 for v in queue)


@settings(max_examples=30)
@given(ids=IDS, points=st.sampled_from([(0.1,), (0.1, 0.2), (0.3, 0.6)]), capacity=st.integers(4, 30), ghost=st.sampled_from([0.0, 0.9]))
def test_an_object_never_hit_leaves_after_exactly_the_first_point_many_insertions(ids, points, capacity, ghost):
    policy = FifoMep(points=points, ghost=ghost)
    first = policy.positions(capacity)[0]
    trace = Trace(np.array(ids, np.int32), DISTINCT)
    outcome = policy.simulate(trace, capacity)
    if not ids:
        return
    # Misses that are not remembered are inserted into segment 0. A replay shows which objects go to the body.
    young = np.zeros(len(ids), bool)
    filled = len(ids)
    for at, (o, state) in enumerate(steps(policy, ids, capacity)):
        young[at] = not outcome.hits[at] and state.queue(0)[:1].tolist() == [o]
        if filled == len(ids) and sum(len(state.queue(q)) for q in range(len(policy.positions(capacity)) + 1)) == capacity:
            filled = at
    evictions = outcome.evictions
    for inserted, evicted, never_hit, place in zip(evictions.inserted, evictions.evicted, evictions.never_hit, evictions.place):
        if never_hit and inserted > filled and young[inserted]:
            assert place == 0
            assert young[inserted + 1 : evicted + 1].sum() == first


@settings(max_examples=40)
@given(ids=IDS, capacity=st.integers(1, 30), sized=st.booleans(), seed=st.integers(0, 99))
def test_without_points_it_is_clock_with_a_two_bit_counter(ids, capacity, sized, seed):
    sizes = np.random.default_rng(seed).integers(1, 6, DISTINCT)[ids].astype(np.int64) if sized else None
    trace = Trace(np.array(ids, np.int32), DISTINCT, sizes)
    mep, clock = FifoMep(points=()).simulate(trace, capacity), Clock(bits=2).simulate(trace, capacity)
    assert mep.hits.tolist() == clock.hits.tolist()
    assert mep.evictions.objects.tolist() == clock.evictions.objects.tolist()


def test_points_in_a_tiny_cache_are_dropped():
    assert FifoMep().positions(1) == []
    assert FifoMep().positions(2) == [1]
    assert FifoMep().positions(3) == [1, 2]
    assert FifoMep().positions(1000) == [100, 200]


def test_a_large_object_is_not_pushed_out_by_its_own_insertion():
    # 90 of 100 bytes go straight to the body, whose share is 80; the small ones before it have to make room.
    hits = FifoMep().run([1, 2, 3, 9, 9, 1], 100, [8, 8, 8, 90, 90, 8])
    assert hits.tolist() == [False, False, False, False, True, False]
