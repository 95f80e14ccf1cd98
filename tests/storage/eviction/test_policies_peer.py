"""Miss counts equal those of libCacheSim, an independent simulator, wherever it decides by the same rules."""

import numpy as np
import pytest

from armillary.storage.eviction import Arc, Belady, Clock, Fifo, FifoMep, Lfu, Lirs, Lru, S3Fifo, Sieve, Slru, TwoQ, WTinyLfu, from_ids
from armillary.storage.eviction.sockets.libcachesim_plugin import plugin_cache

libcachesim = pytest.importorskip("libcachesim")

RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
EXACT = {
    "FIFO": Fifo(), "LRU": Lru(), "Clock": Clock(), "Sieve": Sieve(), "LFU": Lfu(), "Belady": Belady(), "ARC": Arc(), "TwoQ": TwoQ(),
    "SLRU": Slru(), "S3FIFO": S3Fifo(),
}  # fmt: skip


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A skewed trace with loops, drift and sizes up to 50, as a file for the peer and as a trace."""
    return written(tmp_path_factory.mktemp("peer"), 12_000, 10, 8000)


@pytest.fixture(scope="module")
def short_work(tmp_path_factory):
    """A trace of the same kind for the plug-in, whose every request is a call into Python."""
    return written(tmp_path_factory.mktemp("plugin"), 3000, 4, 2000)


def written(folder, first, loops, last):
    rng = np.random.default_rng(11)
    skewed, drifted = np.minimum(rng.zipf(1.2, first), 3000), np.minimum(rng.zipf(1.1, last), 3000) + 700
    ids = np.concatenate([skewed, np.tile(np.arange(5000, 5400), loops), drifted])
    sizes = rng.integers(1, 50, 10_000)[ids]
    trace = from_ids(ids, sizes)
    records = np.zeros(len(ids), RECORD)
    records["id"], records["size"] = ids, sizes
    records["next"] = np.where(trace.next_access() < len(ids), trace.next_access(), -1)
    path = folder / "work.oracleGeneral.bin"
    records.tofile(path)
    return path, from_ids(ids), trace


def peer_misses(cache, path, unit):
    options = libcachesim.ReaderInitParam(ignore_obj_size=unit)
    reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE, options)
    return round(cache.process_trace(reader)[0] * (path.stat().st_size // RECORD.itemsize))


def our_misses(policy, trace, capacity):
    return int(np.count_nonzero(~policy.run(trace, capacity)))


@pytest.mark.parametrize(("unit", "capacity"), [(True, 20), (True, 77), (True, 500), (True, 2000), (False, 1500), (False, 20_011)])
@pytest.mark.parametrize("name", EXACT)
def test_equal_misses(name, unit, capacity, work):
    path, objects, sized = work
    peer = getattr(libcachesim, name)(capacity, hashpower=12)
    assert our_misses(EXACT[name], objects if unit else sized, capacity) == peer_misses(peer, path, unit)


@pytest.mark.parametrize(
    ("policy", "name", "parameters"),
    [
        (S3Fifo(small=0.2, ghost=0.5, threshold=1), "S3FIFO", {"small_size_ratio": 0.2, "ghost_size_ratio": 0.5, "move_to_main_threshold": 1}),
        (Clock(bits=2), "Clock", {"n_bit_counter": 2}), (TwoQ(a1in=0.1, a1out=1.0), "TwoQ", {"a_in_size_ratio": 0.1, "a_out_size_ratio": 1.0}),
    ],
)  # fmt: skip
def test_parameters_of_the_peer_can_be_set(policy, name, parameters, work):
    path, unit, _ = work
    assert our_misses(policy, unit, 300) == peer_misses(getattr(libcachesim, name)(300, hashpower=12, **parameters), path, True)


@pytest.mark.parametrize("capacity", [30, 77, 500, 2000])
def test_lirs_is_within_a_hundredth_and_equal_with_the_peers_rule(capacity, work):
    path, unit, _ = work
    peer = peer_misses(libcachesim.LIRS(capacity, hashpower=12), path, True)
    assert our_misses(Lirs(), unit, capacity) == pytest.approx(peer, rel=0.01)
    if capacity >= 200:  # with a queue of one object the peer holds more than its capacity
        assert our_misses(Lirs(demote=True), unit, capacity) == peer


@pytest.mark.parametrize("policy", [Fifo(), Lru(), Clock(), Sieve(), Lfu(), Arc(), S3Fifo(), FifoMep()], ids=str)
def test_plugin_gives_the_counts_of_the_kernel(policy, short_work):
    path, unit, sized = short_work
    assert peer_misses(plugin_cache(policy, 300, hashpower=12), path, True) == our_misses(policy, unit, 300)
    if not isinstance(policy, S3Fifo):  # refuses objects that the peer takes in
        assert peer_misses(plugin_cache(policy, 3000, hashpower=12), path, False) == our_misses(policy, sized, 3000)


@pytest.mark.parametrize("policy", [Slru(), TwoQ(), Lirs(), WTinyLfu(), S3Fifo()], ids=str)
def test_plugin_stands_policies_that_let_go_early_or_refuse(policy, short_work):
    path, _, sized = short_work
    cache = plugin_cache(policy, 3000, hashpower=12)
    assert 0 < peer_misses(cache, path, False) < len(sized)
    assert cache.get_occupied_byte() <= 3000


def test_plugin_takes_removals():
    cache = plugin_cache(Lru(), 2, hashpower=8)
    ask = lambda key: cache.get(libcachesim.Request(obj_size=1, obj_id=key))  # noqa: E731
    assert [ask(1), ask(2), cache.remove(1), ask(3), ask(2), ask(1)] == [False, False, True, False, True, False]


@pytest.mark.shared_data
@pytest.mark.parametrize("unit", [True, False], ids=["objects", "bytes"])
@pytest.mark.parametrize("name", EXACT)
def test_equal_misses_on_a_real_block_trace(name, unit, shared_data):
    path = shared_data / "cache" / "cloudPhysicsIO.oracleGeneral.bin"
    records = np.fromfile(path, RECORD)
    trace = from_ids(records["id"].astype(np.int64), None if unit else records["size"].astype(np.int64))
    for capacity in (48, 489, 4897) if unit else (2_029_769, 20_297_697, 202_976_972):
        peer = getattr(libcachesim, name)(capacity, hashpower=16)
        assert our_misses(EXACT[name], trace, capacity) == peer_misses(peer, path, unit)
