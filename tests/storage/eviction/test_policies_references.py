"""The kernels against slow and obvious policies, with sizes, insertions, deletions and blocks of any length."""

import numpy as np
import obvious_policies as slow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.storage.eviction import Arc, Belady, Clock, Fifo, FifoMep, Lfu, Lirs, Lru, Random, S3Fifo, Sieve, Slru, TwoQ, WTinyLfu
from armillary.storage.eviction.workload import DELETE, LOOKUP, Trace


def variant(base, **attributes):
    return type(base.__name__, (base,), attributes)


PAIRS = {
    "fifo": (Fifo(), slow.Fifo),
    "lru": (Lru(), slow.Lru),
    "clock": (Clock(), slow.Clock),
    "clock, 3 bits": (Clock(bits=3), variant(slow.Clock, cap=7)),
    "random": (Random(), variant(slow.Random, seed=int(Random().start(1).numbers[3]))),
    "lfu": (Lfu(), slow.Lfu),
    "slru": (Slru(), slow.Slru),
    "slru, 2 segments": (Slru(segments=2), variant(slow.Slru, segments=2)),
    "2q": (TwoQ(), slow.TwoQ),
    "lirs": (Lirs(), slow.Lirs),
    "lirs, demoting": (Lirs(demote=True), variant(slow.Lirs, demote=True)),
    "arc": (Arc(), slow.Arc),
    "w-tinylfu": (WTinyLfu(object_bytes=2**40), variant(slow.WTinyLfu, objects=None)),
    "sieve": (Sieve(), slow.Sieve),
    "s3-fifo": (S3Fifo(), slow.S3Fifo),
    "s3-fifo, threshold 1": (S3Fifo(threshold=1), variant(slow.S3Fifo, threshold=1)),
    "fifo-mep": (FifoMep(), slow.FifoMep),
    "fifo-mep, wide points": (FifoMep(points=(0.3, 0.5, 0.8)), variant(slow.FifoMep, points=(0.3, 0.5, 0.8))),
    "fifo-mep, to the head": (FifoMep(points=(0.4,), reinsert="head"), variant(slow.FifoMep, points=(0.4,), reinsert="head")),
    "fifo-mep, no ghost": (FifoMep(ghost=0.0, cap=1), variant(slow.FifoMep, ghost=0.0, cap=1)),
}
EACH = pytest.mark.parametrize("name", PAIRS)


def pair(name, sized):
    """A policy and its reference; in bytes, both W-TinyLFUs expect a single object."""
    policy, obvious = PAIRS[name]
    return policy, variant(obvious, objects=1) if name == "w-tinylfu" and sized else obvious


@st.composite
def traces(draw, sized):
    objects = draw(st.integers(1, 40))
    requests = draw(st.integers(0, 250))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    ids = np.minimum(rng.geometric(draw(st.sampled_from([0.03, 0.1, 0.3])), requests) - 1, objects - 1).astype(np.int32)
    sizes = rng.integers(1, draw(st.sampled_from([2, 6, 40])), requests) if sized else None
    changes = draw(st.sampled_from([0.0, 0.1, 0.4]))
    operations = rng.choice(3, requests, p=[1 - changes, changes / 2, changes / 2]).astype(np.uint8) if changes else None
    if sized and draw(st.booleans()):
        sizes = rng.integers(1, 20, objects)[ids]
    return Trace(ids, objects, sizes, operations)


def compare(policy, obvious, trace, capacity):
    reference = obvious(capacity)
    sizes = np.ones(len(trace), int) if trace.sizes is None else trace.sizes
    operations = np.full(len(trace), LOOKUP) if trace.operations is None else trace.operations
    expected = []
    for o, size, operation in zip(trace.objects.tolist(), sizes.tolist(), operations.tolist()):
        expected.append(reference.request(o, size, operation))
        assert reference.used <= capacity
    outcome = policy.simulate(trace, capacity)
    assert outcome.hits.tolist() == expected
    assert outcome.evictions.objects.tolist() == reference.evictions
    return reference, outcome


@EACH
@pytest.mark.parametrize("sized", [False, True], ids=["objects", "bytes"])
@settings(max_examples=15)
@given(data=st.data())
def test_the_kernel_agrees_with_the_obvious_policy(name, sized, data):
    trace, capacity = data.draw(traces(sized)), data.draw(st.integers(1, 300 if sized else 30))
    reference, outcome = compare(*pair(name, sized), trace, capacity)
    if name.startswith("fifo-mep"):
        assert outcome.evictions.place.tolist() == reference.place


@EACH
def test_long_traces_that_fill_every_ring_many_times(name):
    rng = np.random.default_rng(5)
    ids = np.minimum(rng.geometric(0.02, 2500) - 1, 299).astype(np.int32)
    operations = rng.choice(3, 2500, p=[0.9, 0.05, 0.05]).astype(np.uint8)
    compare(*pair(name, False), Trace(ids, 300, None, operations), 40)
    compare(*pair(name, True), Trace(ids, 300, rng.integers(1, 12, 300)[ids], operations), 1200)


@settings(max_examples=30)
@given(trace=traces(sized=False), capacity=st.integers(1, 30))
def test_belady_agrees_with_a_search_of_the_future(trace, capacity):
    reference = slow.Belady(capacity)
    reference.future = trace.objects.tolist()
    operations = np.full(len(trace), LOOKUP) if trace.operations is None else trace.operations
    expected = [reference.request(o, 1, operation) for o, operation in zip(trace.objects.tolist(), operations.tolist())]
    assert int(Belady().run(trace, capacity).sum()) == sum(expected)
    heap_is_in_order(trace, capacity)


def test_a_deletion_from_beladys_heap_may_lift_its_last_entry():
    # Entries by next request: 13 / 9 12 / 7 8 11 10. When object 3 (due at 7) is deleted, 10 takes its place below 9.
    objects = np.array([0, 1, 2, 3, 4, 5, 6, 3, 4, 1, 6, 5, 2, 0], np.int32)
    operations = np.zeros(14, np.uint8)
    operations[7] = DELETE
    heap_is_in_order(next(Trace(objects, 7, None, operations).blocks(8)), 10)


def heap_is_in_order(trace, capacity):
    state = Belady().start(capacity)
    state.feed(trace)
    due, who, slot = (state.table(name) for name in ("due", "who", "slot"))
    count = int(np.count_nonzero(slot))
    assert all(due[at] <= due[at // 2] for at in range(2, count + 1))
    assert all(slot[who[at]] == at for at in range(1, count + 1))


@EACH
@settings(max_examples=10)
@given(trace=traces(sized=False), capacity=st.integers(1, 30))
def test_nothing_beats_belady(name, trace, capacity):
    trace = Trace(trace.objects, trace.distinct)
    assert PAIRS[name][0].run(trace, capacity).sum() <= Belady().run(trace, capacity).sum()


@EACH
@settings(max_examples=10)
@given(data=st.data(), sized=st.booleans())
def test_blocks_of_any_length_give_the_same_as_the_whole(name, data, sized):
    trace = data.draw(traces(sized=sized))
    capacity = data.draw(st.integers(1, 60))
    policy = PAIRS[name][0]
    whole = policy.simulate(trace, capacity)
    parts = policy.simulate(trace.blocks(data.draw(st.integers(1, 60))), capacity)
    assert parts.hits.tolist() == whole.hits.tolist()
    assert parts.moves == whole.moves
    for field in ("objects", "inserted", "evicted", "never_hit", "place"):
        assert getattr(parts.evictions, field).tolist() == getattr(whole.evictions, field).tolist()


@EACH
@settings(max_examples=10)
@given(trace=traces(sized=False), capacity=st.integers(1, 30), cut=st.integers(0, 250))
def test_what_comes_later_does_not_change_earlier_hits(name, trace, capacity, cut):
    policy = PAIRS[name][0]
    short = Trace(trace.objects[:cut], trace.distinct, None, None if trace.operations is None else trace.operations[:cut])
    assert policy.run(short, capacity).tolist() == policy.run(trace, capacity)[:cut].tolist()


@EACH
@settings(max_examples=10)
@given(trace=traces(sized=True), capacity=st.integers(1, 200), seed=st.integers(0, 9))
def test_names_of_objects_do_not_matter(name, trace, capacity, seed):
    if name == "w-tinylfu":
        return  # its sketch hashes names
    order = np.random.default_rng(seed).permutation(trace.distinct).astype(np.int32)
    other = Trace(order[trace.objects], trace.distinct, trace.sizes, trace.operations)
    policy = PAIRS[name][0]
    assert policy.run(other, capacity).tolist() == policy.run(trace, capacity).tolist()


@EACH
@settings(max_examples=10)
@given(trace=traces(sized=True), capacity=st.integers(1, 200))
def test_evictions_follow_insertions(name, trace, capacity):
    evictions = PAIRS[name][0].simulate(trace, capacity).evictions
    assert (evictions.inserted <= evictions.evicted).all()
    assert (trace.objects[evictions.inserted] == evictions.objects).all()
    assert (np.diff(evictions.evicted) >= 0).all()
