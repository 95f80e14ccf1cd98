"""Processes of an MPI job: the checks of every backend, the bits of threads, what is the library's own, and what happens when one is gone.

Each job is started once and runs all that is checked on its number of ranks.
"""

from __future__ import annotations

from importlib.util import find_spec

import comm_checks
import comm_programs
import coordinator_checks
import numpy as np
import process_jobs
import pytest
from process_jobs import Job, alike, exact, none_left, once

from armillary import comm
from armillary.comm import CommError, Counters, RankFailed
from armillary.errors import InputError

pytestmark = pytest.mark.skipif(bool(comm.backends()["mpi"]), reason=comm.backends()["mpi"] or "MPI is here")
LIBRARIES = {one.name: one for one in comm.libraries()} if not comm.backends()["mpi"] else {}

#: What runs on each number of ranks. Memory is measured before anything else has used any.
PARTS = {
    1: ["checks", "programs", "coordinator", "one native call"],
    2: [
        "steady, shared", "steady, own", "checks", "programs", "coordinator", "forgotten", "modes", "one native call", "short axes", "inside",
        *(["tensors"] if find_spec("torch") else []),
    ],
    3: ["coordinator"],
    4: ["checks", "programs", "adopts mpi"],
}  # fmt: skip
both = pytest.mark.parametrize("name", ["mpich", "openmpi"])


def library(name):
    if name not in LIBRARIES:
        pytest.skip(f"{name} is not here; list its prefix in ARMILLARY_MPI")
    return name


def skipped(name, ranks):
    # Open MPI cuts a message of a rank to itself short and does not say so. Between ranks it refuses a message that is too long, but it
    # writes one of more than 4 KiB behind the end of the buffer first (5.0.11, also with mpi4py's own Recv).
    return [] if name != "openmpi" else ["truncated"] if ranks == 1 else ["repeated_long"]


@once
def started(name, ranks):
    return Job(PARTS[ranks], skipped(name, ranks), ranks, backend="mpi", library=name, timeout=120)


def job(name, ranks):
    return started(library(name), ranks)


@both
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_mpi_gives_the_bits_and_counters_of_threads(name, ranks):
    found = job(name, ranks)
    threads = comm.run(comm_checks.everything, skipped(name, ranks), ranks=ranks)
    assert alike(found.part("checks"), threads.values)
    threads = comm.run(process_jobs.parts, ["programs"], ranks=ranks)
    assert alike(found.part("programs"), [values["programs"] for values in threads.values])
    assert exact(found.result, ["programs"]) == exact(threads, ["programs"])


@both
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_coordinators_give_the_bits_of_threads(name, ranks):
    assert alike(job(name, ranks).part("coordinator"), comm.run(coordinator_checks.everything, ranks=ranks).values)


def test_device_modes_are_refused():
    assert job("mpich", 2).part("modes") == [None, None]


@pytest.mark.parametrize("ranks", [1, 2])
def test_one_native_call_for_each_operation(ranks):
    for seen, single in job("mpich", ranks).part("one native call"):
        assert seen == [
            ["Start"], ["Start"], ["Start"], ["Start"], ["Isend"], ["Irecv"], ["Waitall"], ["Allreduce"], ["Allgatherv"], ["Bcast"],
        ]  # fmt: skip
        assert single in ([], [["Send"]], [["Recv"]])


@pytest.mark.parametrize("memory", ["shared", "own"])
def test_nothing_is_kept_in_the_steady_state(memory):
    for kept, peak in job("mpich", 2).part(f"steady, {memory}"):
        # Whole numbers and the list slots of one batch are all that comes and goes.
        assert abs(kept) < 256
        assert peak < 4096


def test_buffers_that_die_are_let_go():
    assert job("mpich", 2).part("forgotten") == [0, 0]


@both
def test_short_periodic_axes_are_the_librarys_only_when_it_keeps_directions(name):
    natively, trusted, asked_once = job(name, 2).part("short axes")[0]
    # Open MPI 5.0 swaps the two halos in the persistent form.
    assert natively == [name == "mpich"] * 3
    assert not trusted
    assert asked_once == 1


def test_a_run_inside_a_job_uses_its_ranks():
    assert sum(job("mpich", 2).part("inside")) == 1000


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not here")
def test_tensors_travel():
    assert all(np.array_equal(value, np.arange(6.0).reshape(2, 3) * 2 + 1) for value in job("mpich", 2).part("tensors"))


def test_an_adopted_sub_communicator_keeps_its_order():
    # Ranks 3 and 1, 2 and 0, in this order, each pair by itself.
    assert job("mpich", 4).part("adopts mpi") == [[2, 0], [3, 1], [2, 0], [3, 1]]


def test_ranks_print_nothing_of_their_own():
    assert job("mpich", 2).printed == ""


@both
@pytest.mark.parametrize(("program", "args"), [("fails", ()), ("leaves", (0,)), ("leaves", (3,)), ("killed_while_others_wait", ())])
def test_a_rank_that_fails_is_named_and_none_is_left(name, program, args, monkeypatch):
    # The launcher has ended, and its processes end with it, not before it.
    with none_left(monkeypatch, f"{name}-{program}", within_s=5), pytest.raises(RankFailed) as caught:
        comm.run(f"comm_programs:{program}", *args, ranks=3, backend="mpi", library=library(name), timeout=30)
    assert caught.value.rank == 1
    if program == "fails":
        assert "no such key" in str(caught.value)
        assert "comm_programs.py" in caught.value.trace


@both
def test_a_job_that_never_ends_is_ended(name, monkeypatch):
    with none_left(monkeypatch, name), pytest.raises(CommError, match="within 2 seconds"):
        comm.run(comm_programs.all_receive_first, ranks=2, backend="mpi", library=library(name), timeout=2)


def test_arguments_results_and_what_is_printed_travel(capsys):
    args = (
        1, 2.5, float("nan"), None, True, "text", b"bytes", [1, (2, "x")], {"k": np.arange(3)}, np.float32(1.5), 1 + 2j, np.zeros((2, 0)),
    )  # fmt: skip
    result = comm.run(comm_programs.returns, *args, named={"more": -0.0}, ranks=2, backend="mpi", library=library("mpich"), timeout=30)
    got, named = result[1]
    assert [type(g) for g in got] == [type(a) for a in args]
    assert alike(got[3:8], args[3:8])
    assert alike(got[8], args[8])
    assert np.isnan(got[2])
    assert str(named["more"]) == "-0.0"
    assert result.counters[0] == {"": Counters()}
    assert capsys.readouterr().out == "-----\ntable\n-----\n=====\nend\n"
    with pytest.raises(RankFailed, match="found object"):
        comm.run(comm_programs.returns_objects, ranks=1, backend="mpi", library="mpich", timeout=30)


def test_a_program_without_a_name_does_not_go_to_processes():
    with pytest.raises(InputError, match="import by name"):
        comm.run(lambda ranks: None, backend="mpi")


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
