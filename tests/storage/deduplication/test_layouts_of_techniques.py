"""Techniques by hand, their shared invariants, the generator, and the read model against the event engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine import Resource, Simulation, closed_loop
from armillary.errors import InputError
from armillary.storage.deduplication import Arrival, Capping, Devices, Har, Hashed, PerFile, Reodedup, ReodedupAppend, Smr
from armillary.storage.deduplication.layouts.layout import runs_per_file
from armillary.storage.deduplication.relocation.similarity import as_rows
from armillary.storage.deduplication.simulation.reading import node_of, read_all, simulate
from armillary.storage.deduplication.workload import Updates, Workload, generate

ALL = [Arrival(), Hashed(), PerFile(), Capping(), Capping(containers=1, segment_MiB=1), Har(), Smr(containers=2, segment_MiB=1), Reodedup(),
       Reodedup(mode="cosine"), Reodedup(between=1), ReodedupAppend()]  # fmt: skip
MIB = 1 << 20


def work_of(files: list, stream: list | None = None, *, chunk: int = MIB, previous: list | None = None, updates: tuple = ()) -> Workload:
    """Work whose containers hold four chunks of 1 MiB."""
    rows = as_rows(files)
    top = max([max(f, default=-1) for f in files] + [int(u.chunks.max()) for u in updates]) + 1
    order = np.arange(len(rows.values)) if stream is None else np.array(stream)
    return Workload(rows, np.full(top, chunk), order, chunk, np.array(previous or [-1] * len(files)), updates)


def runs(work: Workload, layout) -> list[int]:  # type: ignore[no-untyped-def]
    return runs_per_file(work.files.starts, layout.place, layout.slots).tolist()


def test_arrival_interleaves_and_per_file_does_not() -> None:
    work = work_of([[0, 1, 2, 3], [4, 5, 6, 7]], [0, 4, 1, 5, 2, 6, 3, 7])
    assert Arrival().lay(work).place.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert PerFile().lay(work).place.tolist() == list(range(8))
    assert PerFile().lay(work).buffer_bytes == 7 * MIB  # all of the first file and three chunks of the second
    assert runs(work, Hashed().lay(work)) == [4, 4]
    assert runs(work, Reodedup(budget=1.0, slack=0.0).lay(work)) == [1, 1]


def test_capping_keeps_the_containers_with_most_duplicates() -> None:
    # Containers: {0..3}, {4..7}; the third file has three duplicates in the first and one in the second.
    work = work_of([[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 4]])
    assert Capping(containers=2).lay(work).place.tolist()[8:] == [0, 1, 2, 4]
    one = Capping(containers=1).lay(work)
    assert one.place.tolist()[8:] == [0, 1, 2, 8]
    assert one.physical_bytes(work.sizes) == 9 * MIB
    assert Capping(containers=0).lay(work).place.tolist()[8:] == [8, 9, 10, 11]


def test_smr_counts_every_copy_and_only_what_is_not_covered() -> None:
    # Chunks 0 and 1 lie in container 0 and, rewritten, in container 2; 8 and 9 beside the copies.
    files = [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 0, 1, 8, 9], [0, 1, 2, 8, 9]]
    work = work_of(files)
    found = Smr(containers=1).lay(work)
    assert found.place.tolist()[8:15] == [4, 5, 6, 8, 9, 10, 11]
    # One container: {8: 0, 9: 1, 10: 8, 11: 9} covers four of five, the first one three; capping by newest copy agrees here.
    assert found.place.tolist()[15:] == [8, 9, 12, 10, 11]
    two = Smr(containers=2).lay(work)
    assert two.place.tolist()[8:15] == [4, 5, 6, 0, 1, 8, 9]


def test_har_rewrites_out_of_containers_the_last_version_hardly_used() -> None:
    # Version 1 (file 2) uses one of four of container 0 and all of container 1.
    files = [[0, 1, 2, 3], [4, 5, 6, 7], [0, 4, 5, 6, 7], [0, 4, 5]]
    work = work_of(files, previous=[-1, -1, -1, 2])
    assert Har().lay(work).place.tolist()[13:] == [8, 4, 5]
    assert Har(sparse=0.25).lay(work).place.tolist()[13:] == [0, 4, 5]
    assert Har().lay(work_of(files)).place.tolist() == Arrival().lay(work_of(files)).place.tolist()


def test_remapping_keeps_a_private_chunk_in_its_slot_and_appending_does_not() -> None:
    updates = (Updates(np.array([1]), np.array([8])),)
    work = work_of([[0, 1, 2], [3, 4]], updates=updates)
    kept = Reodedup(budget=1.0, slack=0.0).lay(work)
    assert (kept.place.tolist(), runs(work, kept)) == ([0, 1, 2, 3, 4], [1, 2])
    moved = Reodedup(budget=1.0, slack=0.0, remap=False).lay(work)
    assert runs(work, moved) == [3, 2]


def test_remapping_of_a_shared_chunk_takes_the_nearest_free_slot() -> None:
    # Container 0 holds 0 1 2 and a free slot; the chunk shared with the second file stays.
    work = work_of([[0, 1, 2], [1]], updates=(Updates(np.array([1]), np.array([5])),))
    layout = Reodedup(rounds=0).lay(work)
    assert layout.place.tolist() == [0, 3, 2, 1]
    assert layout.chunks.tolist() == [0, 5, 2, 1]


def test_an_update_with_known_content_refers_to_it() -> None:
    work = work_of([[0, 1], [2, 3]], updates=(Updates(np.array([1]), np.array([3])),))
    for technique in ALL:
        layout = technique.lay(work)
        assert layout.place[1] == layout.place[3]


@given(seed=st.integers(0, 10**6), flavour=st.sampled_from(["vm", "home", "registry", "checkpoints"]), writers=st.integers(1, 20),
       rounds=st.integers(0, 2))  # fmt: skip
@settings(max_examples=25)
def test_every_technique_gives_every_reference_its_chunk(seed: int, flavour: str, writers: int, rounds: int) -> None:
    work = generate(flavour, np.random.default_rng(seed), references=300, writers=writers, rounds=rounds, chunk=262144)
    least = int(work.sizes[np.unique(work.final())].sum())
    for technique in ALL:
        layout = technique.lay(work)
        assert (layout.place >= 0).all()
        assert layout.chunks.tolist() == work.final().tolist()
        # A place holds one chunk.
        order = np.lexsort((layout.chunks, layout.place))
        same = np.diff(layout.place[order]) == 0
        assert (np.diff(layout.chunks[order])[same] == 0).all()
        physical = layout.physical_bytes(work.sizes)
        assert physical >= least
        if not isinstance(technique, Capping | Har | Smr):
            assert physical == least


def test_the_generator_keeps_its_word() -> None:
    work = generate("vm", np.random.default_rng(0), references=60_000, rounds=2)
    assert sorted(work.stream.tolist()) == list(range(work.references))
    assert 1.7 < generate("vm", np.random.default_rng(0), references=60_000).dedup_ratio() < 2.6
    assert [len(u.refs) / work.references for u in work.updates] == pytest.approx([0.05, 0.05], rel=0.02)
    kept = generate("checkpoints", np.random.default_rng(1), references=60_000)
    later = [kept.files.row(f) == kept.files.row(f - 8) for f in range(8, len(kept.files))]
    assert np.concatenate(later).mean() == pytest.approx(0.3, abs=0.03)
    # Files are written in their own order, and sixteen are open at once.
    file = work.file_of()[work.stream]
    assert len(np.unique(file[:200])) == 16
    for f in range(len(work.files)):
        assert (np.diff(work.stream[file == f]) > 0).all()
    with pytest.raises(InputError):
        generate("tape", np.random.default_rng(0))
    with pytest.raises(InputError):
        generate("vm", np.random.default_rng(0), writers=0)


def test_one_request_by_hand() -> None:
    devices = Devices(nodes=1, rtt_s=0.2, seek_s=1.0, disk_bytes_per_s=10.0, nic_bytes_per_s=20.0)
    assert simulate(np.array([0, 1]), np.array([0]), np.array([40]), np.array([0]), devices).tolist() == [pytest.approx(0.2 + 1 + 4 + 2)]


def test_readers_on_one_disk_are_the_engines_closed_loop() -> None:
    rng = np.random.default_rng(1)
    size = rng.integers(1, 100, 200)
    devices = Devices(nodes=1, rtt_s=0.5, seek_s=0.1, disk_bytes_per_s=50.0, nic_bytes_per_s=1e300, depth=1, readers=7)
    ours = simulate(np.arange(201), np.zeros(200, np.int64), size, np.arange(200), devices)
    arrive, depart = closed_loop(0.1 + size / 50, np.full(200, 0.5), 7)
    assert ours == pytest.approx(depart - arrive + 0.5)


def test_files_on_many_nodes_are_what_the_event_loop_gives() -> None:
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 9, 30)
    first = np.concatenate(([0], np.cumsum(counts)))
    node, size = rng.integers(0, 3, first[-1]), rng.integers(1, 1000, first[-1])
    devices = Devices(nodes=3, rtt_s=0.13, seek_s=0.31, disk_bytes_per_s=700.0, nic_bytes_per_s=900.0, depth=3, readers=4)
    simulation = Simulation()
    disks, nics = ([Resource(simulation) for _ in range(3)] for _ in range(2))
    waiting, took = list(range(30)), {}

    def request(i: int):  # type: ignore[no-untyped-def]
        yield simulation.timeout(0.065)
        for queue, seconds in ((disks[node[i]], 0.31 + size[i] / 700), (nics[node[i]], size[i] / 900)):
            place = queue.request()
            yield place
            yield simulation.timeout(float(seconds))
            place.release()
        yield simulation.timeout(0.065)

    def stream(left: list[int]):  # type: ignore[no-untyped-def]
        while left:
            yield simulation.process(request(left.pop(0)))

    def reader():  # type: ignore[no-untyped-def]
        while waiting:
            f, start = waiting.pop(0), simulation.now
            left = list(range(first[f], first[f + 1]))
            yield from [simulation.process(stream(left)) for _ in range(3)]
            took[f] = simulation.now - start

    for _ in range(4):
        simulation.process(reader())
    simulation.run()
    assert simulate(first, node, size, np.arange(30), devices) == pytest.approx([took[f] for f in range(30)])


def test_containers_spread_over_nodes_and_stay_when_one_joins() -> None:
    containers = np.arange(20_000)
    eight, nine = node_of(containers, 8), node_of(containers, 9)
    assert np.bincount(eight) / 20_000 == pytest.approx(np.full(8, 1 / 8), abs=0.01)
    assert (eight[nine != 8] == nine[nine != 8]).all()


def test_fewer_runs_read_faster() -> None:
    work = generate("registry", np.random.default_rng(0), references=4000)
    slow, fast = (read_all(work, technique.lay(work), np.random.default_rng(1)) for technique in (Arrival(), Reodedup()))
    assert fast.throughput.mean() > 1.2 * slow.throughput.mean()
    assert fast.bytes.sum() == work.references * work.chunk
