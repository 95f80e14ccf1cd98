"""All four engines on one battery: after any operations, what their bytes say is the tree; and the simulation by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from random_operations import add_random

from armillary.errors import InputError
from armillary.storage.metadata import Device, WorkBuilder, device, generate, read_work, simulate
from armillary.storage.metadata.arena import metadata
from armillary.storage.metadata.simulation.engine import ENOENT, Engine, plain_batch
from armillary.storage.metadata.workload import CREATE, MKDIR, READDIRPLUS, RENAME, RMDIR, SETATTR, SIZE, STAT, UNLINK

ENGINES = ("ext4", "nova", "kv", "mdsec")
NAMES = [b"a", b"\xff\xfe", b"c" * 140, b"d" * 141, *(b"n%d" % i for i in range(30))]
#: How often each operation is drawn.
SHARES = {CREATE: 0.4, MKDIR: 0.05, UNLINK: 0.2, RMDIR: 0.02, RENAME: 0.13, SETATTR: 0.1, STAT: 0.05, READDIRPLUS: 0.05}


@pytest.mark.parametrize("name", ENGINES)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=6731, steps=687)  # a directory's log is cleaned after its attributes were set
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 1500))
def test_the_bytes_hold_the_tree(name, seed, steps):
    builder, directories, rng = WorkBuilder(), [1], np.random.default_rng(seed)
    while len(builder) < steps:
        add_random(builder, directories, rng, NAMES, SHARES)
    work = builder.build()
    sizes = {op[3]: int(work.attributes[op[7], SIZE]) for op in work.ops.tolist() if op[0] in (CREATE, MKDIR, SETATTR)}
    engine = metadata.make(name).start(work, 1 << 16)
    engine.do(0, len(work.ops))
    assert not engine.status.any()
    expected = {key: (number, sizes[number]) for key, number in builder.expected().items()}
    assert {key: (number, size) for key, (number, _, size) in engine.tree().items()} == expected


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", ["mixed", "loader", "mdtest", "checkpoint"])
def test_all_engines_agree_on_built_in_work(name, kind):
    work = generate(kind, np.random.default_rng(2), 4000, 8000)
    engine = metadata.make(name).start(work, 1 << 16)
    engine.load()
    found = simulate(engine, work, device().sized(1 << 16), handlers=16)
    assert not engine.status.any(), "every built-in operation is possible"
    reference = {}
    for op in work.ops.tolist():
        if op[0] in (CREATE, MKDIR):
            reference[op[1], op[2]] = op[3]
        elif op[0] in (UNLINK, RMDIR):
            del reference[op[1], op[2]]
        elif op[0] == RENAME:
            del reference[op[1], op[2]]
            reference[op[4], op[5]] = op[3]
    expected = {(directory, work.name(named)): number for (directory, named), number in reference.items()}
    assert {key: found[0] for key, found in engine.tree().items()} == expected
    assert len(found.latency_us) == len(found.kind)
    assert (found.latency_us >= 10).all(), "two trips over the network at least"


@pytest.mark.parametrize("name", ENGINES)
def test_missing_names_are_errors_and_change_nothing(name):
    builder = WorkBuilder()
    builder.add(CREATE, 1, b"a")
    builder.add(STAT, 1, b"a")
    work = builder.build()
    work.ops[1, 2] = 0
    engine = metadata.make(name).start(work, 1 << 16)
    engine.do(0, 2)
    assert engine.status.tolist() == [0, ENOENT]


class _Scripted(Engine):
    """An engine that plays back given accesses, (offset, length, kind) for each operation."""

    def __init__(self, work, script, **job):
        super().__init__(work)
        self.space = np.zeros(1 << 22, np.uint8)
        self.script, self.job = script, {"home": -1, "lock": -1, "software_us": 0.0, "serial_us": 0.0, **job}

    def step(self, first, last):
        rows = [(offset, length | kind << 32) for op in self.script[first:last] for offset, length, kind in op]
        ends = np.cumsum([len(op) for op in self.script[first:last]])
        job = (self.job[k] for k in ("home", "lock", "software_us", "serial_us"))
        return last, np.array(rows, np.int64).reshape(-1, 2), plain_batch(ends, first, *job)


def _played(script, *, clients=1, handlers=1, cache=16, fills=16, **job):
    builder = WorkBuilder(clients=clients)
    for _ in script:
        builder.add(READDIRPLUS, 1)
    work = builder.build()
    hardware = Device(granule=4096, cache_bytes=cache * 4096, fills=fills, write_back_bytes_per_s=4096e6)
    return simulate(_Scripted(work, script, **job), work, hardware, handlers=handlers, warm=0.0)


def test_a_miss_a_hit_and_further_lines_by_hand():
    found = _played([[(0, 64, 0)], [(64, 256, 0)], [(0, 64, 3)]])
    # 5 + 25 + 0.7 + 5; then a hit with four lines; then a store with a fence.
    assert found.latency_us.tolist() == pytest.approx([35.7, 10.76, 11.0])
    assert found.hit_ratio == pytest.approx(2 / 3)
    assert found.device_bytes_written == 4096


def test_the_least_recently_used_granule_leaves():
    found = _played([[(4096 * g, 64, 0)] for g in (0, 1, 0, 2, 0, 1)], cache=2)
    assert (found.latency_us > 30).tolist() == [True, True, False, True, False, True]


def test_a_dirty_granule_is_written_back_before_its_frame_is_used():
    found = _played([[(0, 64, 1)], [(4096, 4096, 1)]], cache=1)
    # The second store covers its granule: no fill, but 1 µs until the first is written back.
    assert found.latency_us.tolist() == pytest.approx([35.7, 10 + 1 + 0.7 + 63 * 0.02])
    assert found.device_bytes_written == 8192


def test_fills_wait_for_a_slot_and_readers_for_a_fill_under_way():
    apart, same = [[(4096 * i, 64, 0)] for i in range(3)], [[(0, 64, 0)]] * 3
    for script, fills, expected in ((apart, 1, [35.7, 60.7, 85.7]), (apart, 3, [35.7] * 3), (same, 1, [35.7] * 3)):
        assert sorted(_played(script, clients=3, handlers=3, fills=fills).latency_us) == pytest.approx(expected)


def test_hints_overlap_fills():
    plain = [[(4096 * i, 64, 0) for i in range(4)]]
    hinted = [[*[(4096 * i, 64, 4) for i in range(4)], *plain[0]]]
    assert _played(plain).latency_us[0] == pytest.approx(10 + 4 * 25.7)
    assert _played(hinted).latency_us[0] == pytest.approx(10 + 25 + 4 * 0.7)


def test_handlers_locks_and_the_global_lock_serialise():
    free = [[] for _ in range(4)]
    together = {"clients": 4, "handlers": 4, "software_us": 2.0}
    assert _played(free, **together).latency_us.max() == pytest.approx(12)
    assert _played(free, clients=4, handlers=1, software_us=2.0).latency_us.max() == pytest.approx(18)
    assert _played(free, **{**together, "home": 2}).latency_us.max() == pytest.approx(18)
    assert _played(free, **together, serial_us=3.0).latency_us.max() == pytest.approx(10 + 2 + 4 * 3)
    assert _played([[(0, 64, 0)]] * 4, **together, lock=0).latency_us.max() == pytest.approx(10 + 2 + 25 + 4 * 0.7)


def test_a_handoff_moves_the_operation():
    found = _played([[(1, 0, 8), (0, 0, 8)], []], clients=2, handlers=2, home=0, software_us=1.0)
    # The first leaves handler 0 for 0.4 µs, then waits behind the second.
    assert sorted(found.latency_us) == pytest.approx([12.0, 12.0])


def test_closed_loop_obeys_littles_law():
    work = generate("mixed", np.random.default_rng(1), 2000, 20000)
    engine = metadata.make("nova").start(work, 1 << 17)
    engine.load()
    found = simulate(engine, work, device().sized(1 << 17), handlers=16, warm=0.0)
    assert found.ops_per_s * found.latency_us.mean() / 1e6 == pytest.approx(work.clients, rel=0.1)


def test_the_module_without_flash_never_fills():
    assert device("cxl-dram").cache_bytes == 0
    work = generate("mixed", np.random.default_rng(1), 500, 2000)
    engine = metadata.make("mdsec").start(work, 1 << 17)
    engine.load()
    assert simulate(engine, work, device("cxl-dram"), handlers=16).device_bytes_written == 0
    with pytest.raises(InputError, match="unknown device"):
        device("cxl-tape")


def test_find_output_is_read(tmp_path):
    path = tmp_path / "tree.txt"
    path.write_bytes(b"d\tsrv\t4096\t755\t1.5\nf\tsrv/a\tb\t10\t644\t2.25\nf\tsrv/sub/c\xff\t11\t600\t3\n")
    work = read_work(path, ops=50)
    engine = metadata.make("mdsec").start(work, 1 << 16)
    engine.load()
    tree = {name: (mode, size) for (_, name), (_, mode, size) in engine.tree().items()}
    assert tree[b"a\tb"] == (0o644, 10)
    assert tree[b"c\xff"] == (0o600, 11)
    assert set(tree) == {b"srv", b"sub", b"a\tb", b"c\xff"}
    assert len(work.ops) - work.loaded == 50


@pytest.mark.parametrize(
    ("line", "message"),
    [("f\ta\t10\t644", "3 tabs"), ("ff\ta\t1\t644\t1", "type"), ("f\ta\t-1\t644\t1", "size"), ("f\ta\t1\t9z\t1", "mode"), ("f\ta\t1\t644\tnan", "time"),
     ("f\ta\t1\t644\t1\nf\ta\t1\t644\t1", "twice"), ("f\t" + "x" * 256 + "\t1\t644\t1", "256 bytes"), ("f\ta\t1\t644\t1\nf\ta/b\t1\t644\t1", "directory"),
     ("", "no files")],
)  # fmt: skip
def test_bad_find_output_is_named_by_its_line(tmp_path, line, message):
    path = tmp_path / "tree.txt"
    path.write_text("d\tok\t1\t755\t1\n" + line + "\n")
    with pytest.raises(InputError, match=message) as caught:
        read_work(path)
    assert str(path) in str(caught.value)


def _trace(tmp_path, text):
    path = tmp_path / "ops.csv"
    path.write_text("time_s,client,op,path,path2\n" + text)
    return path


def test_a_trace_is_read(tmp_path):
    rows = "0,a,stat,/data/x,\n1,b,create,/data/new/y,\n1,b,rename,/data/new/y,/data/z\n2,a,readdirplus,/data,\n3,a,unlink,/data/x,\n"
    work = read_work(_trace(tmp_path, rows))
    engine = metadata.make("kv").start(work, 1 << 16)
    engine.do(0, len(work.ops))
    assert not engine.status.any()
    assert {name for _, name in engine.tree()} == {b"data", b"new", b"z"}


@pytest.mark.parametrize(
    ("text", "message"),
    [("0,a,unlink,/x,\n1,a,stat,/x,\n", "ops.csv:3: stat .*no such file"), ("0,a,fly,/x,\n", 'column "op": found "fly"; expected one of lookup'),
     ("0,a,stat,/a/../b,\n", "neither"), ("0,a,rename,/a,\n", "path2"), ("0,a,create,/x,\n1,a,create,/x,\n", "exists"), ("0,a,stat,/,\n", "root"),
     ("0,a,stat,/" + "y" * 256 + ",\n", "256 bytes")],
)  # fmt: skip
def test_bad_traces_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_work(_trace(tmp_path, text))


def test_lenient_counts_missing_paths(tmp_path):
    work = read_work(_trace(tmp_path, "0,a,unlink,/x,\n1,a,stat,/x,\n2,a,stat,/y,\n"), lenient=True)
    assert work.missing == 1
    assert len(work.ops) - work.loaded == 2


def test_mdtest_descriptions(tmp_path):
    path = tmp_path / "run.mdtest"
    path.write_text("mdtest -I 10 -z 2 -b 3")
    work = read_work(path)
    assert len(work.directories) == 1 + 3 + 9
    assert not np.array_equal(work.ops, read_work(path, seed=1).ops)
    assert (work.ops[:, 0] == CREATE).sum() == 120
    wrong = {"mdtest -q 3": "unknown option", "mdtest -n": "whole number", "mdtest -n 0": "items", "-I 9 -z 20 -b 9": "directories"}
    for text, message in wrong.items():
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_work(path)


def test_a_folder_is_read(tmp_path):
    (tmp_path / "t" / "sub").mkdir(parents=True)
    (tmp_path / "t" / "sub" / "file").write_text("abc")
    cases = metadata.from_file(tmp_path / "t", {"ops": "20"})
    outcome = metadata.execute(metadata.make("mdsec"), cases[0])
    # Twenty operations end with the warm-up, so that all of them count: a microsecond each at the very least.
    assert 0 < outcome.values["ops_per_s"] < 20e6
    with pytest.raises(InputError, match="--cache: found 0"):
        metadata.from_file(tmp_path / "t", {"cache": "0"})


def test_repeats_on_a_tree_meet_other_operations(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / "t" / folder).mkdir(parents=True)
        for i in range(20):
            (tmp_path / "t" / folder / f"file{i}").write_text("")
    case = metadata.from_file(tmp_path / "t", {"ops": "2000"})[0]
    assert {"stats", "lists", "creates"} <= case.kinds
    works = [case.at(0, repeat).workload for repeat in (0, 0, 1)]
    assert np.array_equal(works[0].ops, works[1].ops)
    assert not np.array_equal(works[0].ops, works[2].ops)
    for name in ENGINES:
        engine = metadata.make(name).start(works[2], 1 << 16)
        engine.do(0, len(works[2].ops))
        assert not engine.status.any()
    # Some files were renamed or created, and the names are those of the tree otherwise.
    assert all(name.startswith((b"file", b"new.")) for _, name in engine.tree() if name not in (b"a", b"b"))


def test_listings_in_the_warm_up_are_counted_where_no_others_are(tmp_path):
    """A loader lists its directories first, so all of its listings lie in the first tenth."""
    work = generate("loader", np.random.default_rng(0), 2000, 6000)
    engine = metadata.make("mdsec").start(work, 1 << 16)
    engine.load()
    found = simulate(engine, work, device().sized(1 << 16), handlers=16)
    assert not (found.kind == READDIRPLUS).any()
    assert found.mean_latency_us((READDIRPLUS,)) > 10
    assert np.isnan(found.mean_latency_us((MKDIR,)))
