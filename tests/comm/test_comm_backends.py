"""One body of checks over every backend, and the same bits from all of them."""

from __future__ import annotations

import os
from pathlib import Path

import comm_checks
import comm_programs
import numpy as np
import pytest

from armillary import comm
from armillary.comm import CommError, Counters, RankFailed
from armillary.errors import InputError

LIBRARIES = {one.name: one for one in comm.libraries()} if not comm.backends()["mpi"] else {}


def library(name):
    if name not in LIBRARIES:
        pytest.skip(f"{name} is not here; list its prefix in ARMILLARY_MPI")
    return name


def alike(a, b):
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    return np.array_equal(a, b) and np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("check", comm_checks.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_threads(check, ranks):
    assert comm.run(check, ranks=ranks).unreceived == []


@pytest.mark.parametrize("check", comm_checks.CHECKS, ids=lambda c: c.__name__)
def test_one(check):
    comm.run(check, ranks=1, backend="one")


@pytest.mark.parametrize("ranks", [5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, pytest.param(64, marks=pytest.mark.slow)])
def test_every_algorithm_on_awkward_numbers_of_ranks(ranks):
    comm.run(comm_checks.every_algorithm, ranks=ranks)
    comm.run(comm_checks.matrices_in_rank_order, ranks=ranks)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_mpi_gives_the_bits_of_threads(name, ranks):
    # Open MPI cuts a message of a rank to itself short and does not say so.
    skip = ["truncated"] if (name, ranks) == ("openmpi", 1) else []
    result = comm.run(comm_checks.everything, skip, ranks=ranks, backend="mpi", library=library(name), timeout=120)
    threads = comm.run(comm_checks.everything, skip, ranks=ranks)
    assert alike(result.values, threads.values)
    programs = comm.run(comm_programs.all_programs, ranks=ranks, backend="mpi", library=name, timeout=120)
    threads = comm.run(comm_programs.all_programs, ranks=ranks)
    assert alike(programs.values, threads.values)

    def exact(result):
        return [{k: (c.calls, c.messages, c.bytes, c.collectives) for k, c in rank.items()} for rank in result.counters]

    assert exact(programs) == exact(threads)


def test_one_gives_the_bits_of_threads():
    one = comm.run(comm_programs.all_programs, backend="one")
    assert alike(one.values, comm.run(comm_programs.all_programs, ranks=1).values)


def test_the_programs_are_right():
    """Against NumPy, on three ranks where the deal is uneven."""
    x = comm.run(comm_programs.conjugate_gradients, 50, ranks=3)[0]
    a = 2.5 * np.eye(50) - np.eye(50, k=1) - np.eye(50, k=-1)
    assert np.allclose(x, np.linalg.solve(a, np.cos(np.arange(50) * 1.3)), atol=1e-9)
    parts = comm.run(comm_programs.sample_sort, ranks=3).values
    whole = np.concatenate(parts)
    assert np.array_equal(whole, np.sort(whole))
    one, four = comm.run(comm_programs.jacobi, ranks=1)[0], comm.run(comm_programs.jacobi, ranks=4).values
    assert np.array_equal(one[0], np.block([[four[0][0], four[1][0]], [four[2][0], four[3][0]]]))


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
@pytest.mark.parametrize(("program", "args"), [("fails", ()), ("leaves", (0,)), ("leaves", (3,)), ("killed", ())])
def test_a_rank_that_fails_on_mpi_is_named(name, program, args):
    with pytest.raises(RankFailed) as caught:
        comm.run(f"comm_programs:{program}", *args, ranks=3, backend="mpi", library=library(name), timeout=30)
    assert caught.value.rank == 1
    if program == "fails":
        assert "no such key" in str(caught.value)
        assert "comm_programs.py" in caught.value.trace


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_a_job_that_never_ends_is_ended(name, monkeypatch):
    mark = f"{os.getpid()}-{name}"
    monkeypatch.setenv("ARMILLARY_TEST_MARK", mark)
    with pytest.raises(CommError, match="within 3 seconds"):
        comm.run(comm_programs.all_receive_first, ranks=2, backend="mpi", library=library(name), timeout=3)
    assert not [file for file in Path("/proc").glob("[0-9]*/environ") if f"ARMILLARY_TEST_MARK={mark}".encode() in content(file)]


def content(file):
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_arguments_and_results_travel_to_mpi():
    args = (
        1,
        2.5,
        float("nan"),
        None,
        True,
        "text",
        b"bytes",
        [1, (2, "x")],
        {"k": np.arange(3)},
        np.float32(1.5),
        1 + 2j,
        np.zeros((2, 0)),
    )
    result = comm.run(comm_programs.returns, *args, named={"more": -0.0}, ranks=2, backend="mpi", library=library("mpich"), timeout=30)
    got, named = result[1]
    assert [type(g) for g in got] == [type(a) for a in args]
    assert alike(got[3:8], args[3:8])
    assert alike(got[8], args[8])
    assert np.isnan(got[2])
    assert str(named["more"]) == "-0.0"
    assert result.counters[0] == {"": Counters()}
    with pytest.raises(RankFailed, match="found object"):
        comm.run(comm_programs.returns_objects, ranks=1, backend="mpi", library="mpich", timeout=30)


def test_what_ranks_print_is_passed_on(capsys):
    comm.run(comm_programs.prints, ranks=2, backend="mpi", library=library("mpich"), timeout=30)
    assert capsys.readouterr().out == "-----\ntable\n-----\n=====\nend\n"


def test_a_run_inside_a_job_uses_its_ranks():
    values = comm.run(comm_programs.inside, ranks=2, backend="mpi", library=library("mpich"), timeout=30).values
    assert sum(values) == 1000


def test_libraries_say_what_they_are():
    name = library("mpich")
    one = LIBRARIES[name]
    assert one.version[0].isdigit()
    assert one.mpi_standard >= "3"
    with pytest.raises(InputError, match="mpich"):
        comm.run(comm_programs.sample_sort, backend="mpi", library="mpitch")


def test_two_libraries_without_a_choice():
    library("openmpi")
    with pytest.raises(InputError, match="openmpi"):
        comm.run(comm_programs.sample_sort, ranks=2, backend="mpi")


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_short_periodic_axes_are_the_librarys_only_when_it_keeps_directions(name):
    natively, trusted, asked_once = comm.run(comm_programs.short_axes, ranks=2, backend="mpi", library=library(name), timeout=60)[0]
    # Open MPI 5.0 swaps the two halos in the persistent form.
    assert natively == [name == "mpich"] * 3
    assert not trusted
    assert asked_once == 1
