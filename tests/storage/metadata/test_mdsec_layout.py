"""MDSec's groups and records: where things lie, counted by hand."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from armillary.storage.metadata import Ext4, Mdsec, Nova, WorkBuilder, device, generate, granules, simulate
from armillary.storage.metadata.record_groups.groups import DEPTH
from armillary.storage.metadata.record_groups.inspection import Reader, check, directories
from armillary.storage.metadata.record_groups.records import crc, hash_names, name_hash
from armillary.storage.metadata.workload import CREATE, MKDIR, READDIRPLUS, STAT, UNLINK

GRANULE = 4096


def _directory_of(files: int, others: int = 0) -> tuple[WorkBuilder, int]:
    """Builds a directory of this many files, which are created in turn with those of other directories, each by the next client."""
    builder = WorkBuilder()
    top = builder.add(MKDIR, 1, b"top")
    folders = [builder.add(MKDIR, top, b"d%d" % i) for i in range(1 + others)]
    for k in range(files):
        for d, folder in enumerate(folders):
            builder.add(CREATE, folder, b"file.%06d" % k, client=k + d, size=k)
    builder.load_ends()
    builder.add(READDIRPLUS, folders[0])
    return builder, folders[0]


def _listing(technique, builder):
    work = builder.build()
    engine = technique.start(work, 1 << 20)
    engine.load()
    return engine, engine.do(work.loaded)


def test_the_checksum_is_crc32():
    data = np.arange(64, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert int(crc(data, 0, 64, -1)) == zlib.crc32(data.tobytes())
    without = data.copy()
    without.view(np.uint32)[7] = 0
    assert int(crc(data, 0, 64, 7)) == zlib.crc32(without.tobytes())


def test_150_files_are_ten_granules_and_scattered_in_nova():
    builder, _ = _directory_of(150, others=15)
    assert len(granules(_listing(Mdsec(), builder)[1], GRANULE)) == 10
    # Sixteen CPUs fill sixteen directories in turn, so each page of an inode table holds two inodes of a directory.
    assert len(granules(_listing(Nova(cpus=16), builder)[1], GRANULE)) >= 60


def test_150_files_are_two_blocks_and_ten_inode_blocks_in_ext4():
    work = _directory_of(150)[0].build()
    engine = Ext4(page_cache=0.01).start(work, 1 << 20)
    engine.load()
    engine.state.frame_of[:] = 0
    engine.state.m[2] = 0
    engine.state.m[3] = engine.state.m[4] = -1
    blocks = {a.offset // 4096 for a in engine.do(work.loaded) if a.kind == "read"}
    base = int(engine.state.m[1])
    tables = {b for b in blocks if b >= base and 2 <= (b - base) % 2050 < 514}
    entries = {b for b in blocks if b >= base and (b - base) % 2050 >= 514}
    assert len(tables) >= 10
    assert 1 <= len(entries) <= 2


def test_the_sixteenth_child_opens_a_second_group_of_the_same_extent():
    fifteen, sixteen = (sorted(granules(_listing(Mdsec(), _directory_of(files)[0])[1], GRANULE)) for files in (15, 16))
    assert len(fifteen) == 1
    assert len(sixteen) == 2
    assert sixteen[1] - sixteen[0] == 1


@pytest.mark.parametrize("in_turn", [False, True])
def test_forty_tiny_directories_share_ten_granules(in_turn):
    builder = WorkBuilder()
    folders = [builder.add(MKDIR, 1, b"d%02d" % i) for i in range(40)]
    order = [(f, k) for k in range(3) for f in folders] if in_turn else [(f, k) for f in folders for k in range(3)]
    for folder, k in order:
        builder.add(CREATE, folder, b"f%d" % k)
    builder.load_ends()
    for folder in folders:
        builder.add(READDIRPLUS, folder)
    work = builder.build()
    engine = Mdsec().start(work, 1 << 20)
    engine.load()
    touched = granules(engine.do(work.loaded, len(work.ops)), GRANULE)
    assert len(touched) <= 10
    assert check(engine.space, 4096, int(engine.layout.m[0]), 16) == []


def _holding(names):
    """Creates files of these names in one directory, looks each of them up, and returns the engine and the directory."""
    builder = WorkBuilder()
    folder = builder.add(MKDIR, 1, b"d")
    ids = {name: builder.add(CREATE, folder, name) for name in names}
    builder.load_ends()
    for name in names:
        builder.add(STAT, folder, name)
    work = builder.build()
    engine = Mdsec().start(work, 1 << 20)
    engine.load()
    engine.do(work.loaded, len(work.ops))
    assert not engine.status.any()
    assert {name: found[0] for (directory, name), found in engine.tree().items() if directory == folder} == ids
    assert check(engine.space, 4096, int(engine.layout.m[0]), 16) == []
    return engine, folder


@pytest.mark.parametrize("length", [1, 139, 140, 141, 255])
def test_names_of_every_length(length):
    _holding([bytes([200 + i]) * length for i in range(20)])


def test_equal_fingerprints_are_told_apart():
    candidates = [b"%07d" % i for i in range(1_290_000)]
    text = np.frombuffer(bytearray(b"".join(candidates)), np.uint8)
    hashes = np.zeros(len(candidates), np.uint64)
    hash_names(text, np.arange(len(candidates) + 1) * 7, 0, 0, hashes)
    names = [candidates[i] for i in np.flatnonzero((hashes & np.uint64(255)) == 0x5A)[:5000]]
    assert len(names) == 5000
    assert int(name_hash(text, 0, 7, 0, 0)) == int(hashes[0])
    engine, folder = _holding(names)
    assert engine.layout.dirs[engine.layout.row[folder], DEPTH] >= 4


def test_one_handler_and_sixteen_give_the_same_tree():
    work = generate("mixed", np.random.default_rng(5), 3000, 6000)
    trees = []
    for handlers in (1, 16):
        engine = Mdsec(handlers=handlers).start(work, 1 << 20)
        engine.load()
        engine.do(work.loaded, len(work.ops))
        assert not engine.status.any()
        trees.append(engine.tree())
    assert trees[0] == trees[1]


def test_on_small_granules_the_advantage_is_gone():
    work = generate("mixed", np.random.default_rng(5), 5000, 10000)
    found = {}
    for name, technique in (("nova", Nova()), ("mdsec", Mdsec())):
        for granule in (256, 4096):
            engine = technique.start(work, 1 << 18, granule=granule)
            engine.load()
            found[name, granule] = simulate(engine, work, device().sized(1 << 18, granule), handlers=16).granules_per_op
    assert found["nova", 256] / found["mdsec", 256] <= 1.2
    assert found["nova", 4096] / found["mdsec", 4096] > 2


def test_a_lookup_reads_one_header_line_and_one_record():
    builder, folder = _directory_of(150)
    builder.add(STAT, folder, b"file.000099")
    work = builder.build()
    engine = Mdsec().start(work, 1 << 20)
    engine.load()
    engine.do(work.loaded)
    accesses = engine.do(work.loaded + 1)
    assert [(a.length, a.kind) for a in accesses] == [(64, "read"), (256, "read")]
    assert len(granules(accesses, GRANULE)) == 1


def test_a_create_is_two_fences_and_an_unlink_one():
    builder, folder = _directory_of(20)
    builder.add(CREATE, folder, b"new")
    builder.add(UNLINK, folder, b"new")
    work = builder.build()
    engine = Mdsec().start(work, 1 << 20)
    engine.load()
    engine.do(work.loaded)
    created, removed = ([(a.length, a.fence) for a in engine.do(work.loaded + i) if a.kind == "write"] for i in (1, 2))
    assert created == [(256, True), (64, True)]
    assert removed == [(64, True)]


def test_splits_leave_full_groups():
    """A hashed directory's listing reads few more granules than its records fill."""
    builder, folder = _directory_of(3000)
    engine, accesses = _listing(Mdsec(), builder)
    assert 200 <= len(granules(accesses, GRANULE)) <= 280
    reader = Reader(engine.space, 4096, int(engine.layout.m[0]))
    sizes = {d.id: len(records) for d, _, records in directories(reader, 16)}
    assert sizes[folder] == 3000


def test_damage_is_found():
    builder, _ = _directory_of(30)
    engine, _ = _listing(Mdsec(), builder)
    high = int(engine.layout.m[0])
    assert check(engine.space, 4096, high, 16) == []
    place = int(engine.layout.place[5])
    at = 4096 * (place >> 6) + 256 * ((place & 63) + 1)
    for byte in (0, 60, 100, 200):
        engine.space[at + byte] ^= 1
        assert check(engine.space, 4096, high, 16), byte
        engine.space[at + byte] ^= 1
    assert check(engine.space, 4096, high, 16) == []
