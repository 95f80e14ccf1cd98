"""The parts that need no other rank: layouts, matching, values, programs by name, and what `run` refuses."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import comm_programs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary import comm
from armillary.comm import ANY_SOURCE, ANY_TAG, Aborted, CommError, Deadlock, Layout, Op, RankFailed
from armillary.comm.jobs.values import dump, load
from armillary.comm.messages.matching import Matcher
from armillary.comm.mpi import libraries
from armillary.comm.torch_distributed import gpus
from armillary.errors import InputError

#: The module, whose name the function has in the package.
run = importlib.import_module("armillary.comm.run")

# Layouts


def test_a_column_by_hand():
    array = np.arange(12).reshape(3, 4)
    layout = Layout.vector(3, 1, 4, 1)
    assert layout.pack(array).tolist() == [1, 5, 9]
    assert (layout.count, layout.extent, layout.nbytes(array.dtype)) == (3, 10, 24)
    layout.unpack(np.array([-1, -5, -9]), array)
    assert array[:, 1].tolist() == [-1, -5, -9]
    assert array[:, 0].tolist() == [0, 4, 8]


def test_a_struct_takes_bytes_of_several_types():
    record = np.array([(7, 2.5), (8, 3.5)], np.dtype([("a", "i4"), ("b", "f8")]))
    layout = Layout.struct([(4, "f8", Layout.vector(1, 1, 1)), (12, "i4", Layout.contiguous(1))])
    packed = layout.pack(record)
    assert packed.dtype == np.uint8
    assert packed[:8].view("f8")[0] == 2.5
    assert packed[8:].view("i4")[0] == 8


@st.composite
def boxes(draw):
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    starts = [draw(st.integers(0, n)) for n in shape]
    sizes = [draw(st.integers(0, n - a)) for n, a in zip(shape, starts)]
    return shape, sizes, starts


@given(boxes())
def test_a_box_is_a_slice(box):
    shape, sizes, starts = box
    array = np.arange(float(np.prod(shape))).reshape(shape)
    layout = Layout.subarray(shape, sizes, starts)
    part = array[tuple(slice(a, a + n) for a, n in zip(starts, sizes))]
    assert np.array_equal(layout.pack(array), part.reshape(-1))
    other = np.zeros_like(array)
    layout.unpack(layout.pack(array), other)
    assert np.array_equal(layout.pack(other), part.reshape(-1))
    assert np.count_nonzero(other) == np.count_nonzero(part)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20)), max_size=6))
def test_blocks_are_taken_in_their_order(blocks):
    array = np.arange(25)
    layout = Layout.indexed([n for n, _ in blocks], [a for _, a in blocks])
    assert layout.pack(array).tolist() == [a + i for n, a in blocks for i in range(n)]
    assert layout.extent == max((a + n for n, a in blocks if n), default=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Layout.contiguous(-1),
        lambda: Layout.vector(2, 3, 2),
        lambda: Layout.subarray((3,), (2,), (2,)),
        lambda: Layout.subarray((3, 3), (2,), (0,)),
        lambda: Layout.indexed([1], [1, 2]),
        lambda: Layout.contiguous(5).pack(np.zeros(4)),
        lambda: Layout.contiguous(2).pack(np.zeros((3, 3))[:, 0]),
        lambda: Layout.contiguous(2).unpack(np.zeros(1), np.zeros(4)),
    ],
)
def test_layouts_that_cannot_be(make):
    with pytest.raises(InputError):
        make()


# Matching


def test_the_earliest_of_exact_and_wildcard_receives_wins():
    m = Matcher()
    assert m.post(0, ANY_SOURCE, 5, "first") is None
    assert m.post(0, 1, 5, "second") is None
    assert m.arrive(0, 1, 5, "a") == "first"
    assert m.arrive(0, 1, 5, "b") == "second"
    assert m.arrive(0, 1, 5, "c") is None
    assert m.arrive(1, 1, 5, "other context") is None
    assert m.peek(0, ANY_SOURCE, ANY_TAG) == "c"
    assert m.post(0, ANY_SOURCE, ANY_TAG, "third") == "c"
    assert list(m.unreceived()) == ["other context"]


operations = st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.sampled_from([-1, 0, 1]), st.sampled_from([-1, 0, 1])), max_size=40)


@given(operations)
def test_matching_equals_a_search_through_two_lists(operations):
    m, arrived, posted = Matcher(), [], []

    def fits(receive, message):
        return receive[0] == message[0] and receive[1] in (-1, message[1]) and receive[2] in (-1, message[2])

    for i, (is_post, context, source, tag) in enumerate(operations):
        if is_post:
            entry = (context, source, tag, i)
            expected = next((a for a in arrived if fits(entry, a)), None)
            assert m.peek(context, source, tag) == expected
            assert m.post(context, source, tag, entry) == expected
            arrived.remove(expected) if expected else posted.append(entry)
        else:
            entry = (context, max(source, 0), max(tag, 0), i)
            expected = next((p for p in posted if fits(p, entry)), None)
            assert m.arrive(*entry[:3], entry) == expected
            posted.remove(expected) if expected else arrived.append(entry)
    assert sorted(m.unreceived()) == sorted(arrived)
    for receive in posted:
        assert m.withdraw(*receive[:3], receive)
        assert not m.withdraw(*receive[:3], receive)


# Values


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
        lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_values_come_back_as_they_were(value):
    assert repr(load(dump(value))) == repr(value)


def test_objects_do_not_travel():
    for value in (object(), {1: 2}, np.array([None]), {"x": [set()]}):
        with pytest.raises(InputError):
            dump(value)


# Runs


def test_every_backend_says_what_it_lacks(monkeypatch, tmp_path):
    assert list(comm.backends()) == ["one", "threads", "mpi", "nccl", "gloo", "virtual"]
    assert [comm.backends()[name] for name in ("one", "threads", "virtual")] == ["", "", ""]
    found = find_spec
    missing = []
    monkeypatch.setattr(run, "find_spec", lambda name: None if name in missing else found(name) or found("numpy"))
    # Nothing is installed.
    missing[:] = ["mpi4py", "torch"]
    assert comm.backends()["mpi"] == 'mpi4py is not installed (pip install "armillary[mpi]")'
    assert comm.backends()["gloo"] == comm.backends()["nccl"] == 'PyTorch is not installed (pip install "armillary[learn]")'
    with pytest.raises(InputError, match=r'^backend mpi: mpi4py is not installed \(pip install "armillary\[mpi\]"\)$'):
        comm.run(comm_programs.sample_sort, backend="mpi")
    # mpi4py without a library; inside a job there is one.
    missing.clear()
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "ARMILLARY_MPI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(libraries.sys, "prefix", str(tmp_path))
    assert comm.backends()["mpi"].startswith('found no MPI library with a launcher (pip install "armillary[mpi]" mpich')
    monkeypatch.setenv("PMI_RANK", "0")
    assert comm.backends()["mpi"] == ""
    monkeypatch.delenv("PMI_RANK")
    for file in ("bin/mpiexec", "lib/libmpi.so.12"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert comm.backends()["mpi"] == ""


@pytest.mark.parametrize(
    ("devices", "driver", "cuda", "loaded", "said"),
    [
        (None, 0, True, None, "found no NVIDIA GPU that PyTorch can use"),
        (None, 2, False, None, "found an NVIDIA GPU, but PyTorch is built without CUDA"),
        ("", 2, True, None, "found no NVIDIA GPU, because CUDA_VISIBLE_DEVICES hides all of them"),
        (None, 2, True, None, ""),
        (None, None, True, None, ""),
        (None, 2, True, 0, "found no NVIDIA GPU that PyTorch can use"),
        ("0", 2, True, 1, ""),
    ],
)
def test_nccl_says_which_gpu_it_lacks(devices, driver, cuda, loaded, said, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if devices is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    monkeypatch.setattr(gpus, "_driver_gpus", lambda: driver)
    monkeypatch.setattr(gpus, "_has_cuda", lambda: cuda)
    torch = None if loaded is None else SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: loaded))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert gpus.lacks_gpu() == said


def test_the_build_of_pytorch_is_read_from_its_files(monkeypatch, tmp_path):
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(gpus, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    assert gpus._has_cuda()
    for line, has in (("cuda: Optional[str] = None", False), ("cuda = None", False), ("cuda: Optional[str] = '12.8'", True)):
        (tmp_path / "version.py").write_text(f"debug = False\n{line}\nhip: Optional[str] = None\n")
        assert gpus._has_cuda() == has


def test_what_cannot_be_run():
    for named, words in [
        ({"backend": "mpj"}, "did you mean"),
        ({"ranks": 0}, "found 0"),
        ({"ranks": 2_000_000}, "found 2000000"),
        ({"ranks": 2, "backend": "one"}, "at most 1"),
        ({"ranks": 5000}, "at most 4096"),
        ({"backend": "nccl"}, "nccl"),
        ({"collectives": {"allreduce": "rings"}}, "ring"),
        ({"library": "mpich"}, "unknown option"),
    ]:
        with pytest.raises(InputError, match=words):
            comm.run(comm_programs.sample_sort, **named)
    for program in ("nothing", "no_such_module:f", "comm_programs:nothing"):
        with pytest.raises(InputError):
            comm.run(program)


def test_ranks_that_wait_for_each_other_are_named():
    with pytest.raises(Deadlock, match=r"rank 0: recv\(source=1, tag=7\); rank 1: recv\(source=ANY_SOURCE, tag=7\)"):
        comm.run(lambda c: c.recv(np.empty(1), 1 if c.rank == 0 else ANY_SOURCE, 7), ranks=2)
    with pytest.raises(Deadlock, match="send"):
        comm.run(lambda c: c.send(np.zeros(1 << 20), 1 - c.rank), ranks=2)
    with pytest.raises(Deadlock, match="rank 2"):
        comm.run(lambda c: c.barrier() if c.rank == 2 else None, ranks=3)
    with pytest.raises(Deadlock):
        comm.run(lambda c: c.recv(np.empty(1), 0), backend="one")


def test_short_messages_do_not_wait_for_their_receiver():
    left = comm.run(lambda c: c.send(np.zeros(1), 1 - c.rank, 3), ranks=2).unreceived
    assert sorted(left) == ["from rank 0 to rank 1, tag 3, 8 bytes", "from rank 1 to rank 0, tag 3, 8 bytes"]


def test_the_first_failure_is_told_and_the_others_end():
    ended = []

    def program(c):
        if c.rank == 1:
            raise KeyError("no such key")
        try:
            c.recv(np.empty(1), 1)
        except Aborted:
            ended.append(c.rank)
            raise

    with pytest.raises(RankFailed, match="no such key") as caught:
        comm.run(program, ranks=4)
    assert caught.value.rank == 1
    assert isinstance(caught.value.exception, KeyError)
    assert "test_comm_parts.py" in caught.value.trace
    assert sorted(ended) == [0, 2, 3]


def test_a_killed_rank_is_told():
    with pytest.raises(RankFailed, match="killed") as caught:
        comm.run(comm_programs.killed, ranks=3)
    assert caught.value.rank == 1


def test_a_plan_is_started_before_it_is_waited_for():
    def program(c):
        plan = c.barrier_init()
        with pytest.raises(CommError):
            plan.wait()
        plan.start()
        with pytest.raises(CommError):
            plan.start()
        plan.wait()

    comm.run(program, ranks=2)


def test_a_collective_is_replaced_by_a_function():
    used = []

    def slow(ranks, send, recv, op):
        used.append(ranks.rank)
        recv[...] = op.function.reduce(ranks.allgather(send), axis=0)

    def program(c):
        return int(c.split(0).allreduce(np.array(c.rank)))

    assert comm.run(program, ranks=4, collectives={"allreduce": slow}).values == [6] * 4
    assert sorted(used) == [0, 1, 2, 3]


def test_rank_order_is_a_fold_from_the_left():
    """Bits of ((x0 + x1) + x2) ..., whether the buffer is cut into blocks or not."""
    values = np.random.default_rng(0).normal(size=(7, 40)) * 10.0 ** np.random.default_rng(1).integers(-8, 8, (7, 40))
    expected = values[0]
    for row in values[1:]:
        expected = expected + row
    for count in (40, 3):
        got = comm.run(lambda c, n=count: c.allreduce(values[c.rank, :n].copy(), order="rank"), ranks=7).values
        assert all(g.tobytes() == expected[:count].tobytes() for g in got)
    assert np.add.reduce(values[::-1], axis=0).tobytes() != expected.tobytes()


def test_user_operations_see_lower_ranks_first():
    keep_lower = Op(lambda lower, higher: lower)
    keep_higher = Op(lambda lower, higher: higher)

    def program(c):
        mine = np.array([c.rank])
        return int(c.allreduce(mine, op=keep_lower)[0]), int(c.allreduce(mine, op=keep_higher)[0])

    assert comm.run(program, ranks=6).values == [(0, 5)] * 6


def test_importing_comm_is_light():
    code = "import sys, armillary.comm as c; c.backends; bad = [m for m in ('numba', 'scipy', 'mpi4py', 'cupy', 'torch') if m in sys.modules]; sys.exit(str(bad) if bad else 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
