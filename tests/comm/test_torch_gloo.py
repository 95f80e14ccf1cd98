"""Processes that talk through Gloo: the checks of every backend, the bits of threads, and what happens when one is gone."""

from __future__ import annotations

import os
from pathlib import Path

import comm_programs
import pytest
import torch_programs
from test_comm_backends import alike, content

from armillary import comm
from armillary.comm import CommError, RankFailed
from armillary.errors import InputError

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(comm.backends()["gloo"]), reason="torch is not here")


def exact(result):
    # Outside the programs, refused calls are counted or not, as comes cheaper.
    return [{k: (c.calls, c.messages, c.bytes, c.collectives) for k, c in rank.items() if k} for rank in result.counters]


@pytest.mark.parametrize("ranks", [2, 3])
def test_gloo_gives_the_bits_and_counters_of_threads(ranks):
    # There is memory of other ranks on the others only.
    result = comm.run(torch_programs.checks_and_programs, ["windows"], ranks=ranks, backend="gloo", timeout=60)
    threads = comm.run(torch_programs.checks_and_programs, ["windows"], ranks=ranks)
    assert alike(result.values, threads.values)
    assert exact(result) == exact(threads)
    assert result.backend == "gloo"


def test_one_rank():
    # The coordinator's posts of a rank to itself are its own affair.
    skip = ["windows", "coordinated"]
    threads = comm.run(torch_programs.checks_and_programs, skip, ranks=1)
    assert alike(comm.run(torch_programs.checks_and_programs, skip, backend="gloo", timeout=60).values, threads.values)


@pytest.mark.parametrize(("program", "args"), [("fails", ()), ("leaves", (0,)), ("killed", ())])
def test_a_rank_that_fails_is_named_and_none_is_left(program, args, monkeypatch):
    mark = f"{os.getpid()}-{program}"
    monkeypatch.setenv("ARMILLARY_TEST_MARK", mark)
    with pytest.raises(RankFailed) as caught:
        comm.run(f"torch_programs:{program}", *args, ranks=2, backend="gloo", timeout=60)
    assert caught.value.rank == 1
    if program == "fails":
        assert "no such key" in str(caught.value)
        assert "torch_programs.py" in caught.value.trace
    assert not [file for file in Path("/proc").glob("[0-9]*/environ") if f"ARMILLARY_TEST_MARK={mark}".encode() in content(file)]


def test_ranks_that_never_end_are_ended(monkeypatch):
    mark = f"{os.getpid()}-gloo"
    monkeypatch.setenv("ARMILLARY_TEST_MARK", mark)
    with pytest.raises(CommError, match="within 4 seconds"):
        comm.run(comm_programs.all_receive_first, ranks=2, backend="gloo", timeout=4)
    assert not [file for file in Path("/proc").glob("[0-9]*/environ") if f"ARMILLARY_TEST_MARK={mark}".encode() in content(file)]


def test_what_gloo_does_natively_and_what_it_keeps(capsys):
    """The library's own calls are made, tensors come back as tensors, and sub-communicators keep the order of their keys."""
    result = comm.run(torch_programs.natively, ranks=3, backend="gloo", timeout=60)
    assert result.values == [[2, 1, 0]] * 3
    assert "from rank 1" in capsys.readouterr().out


def test_a_program_without_a_name_does_not_go_to_processes():
    with pytest.raises(InputError, match="import by name"):
        comm.run(lambda ranks: None, backend="gloo")


def test_nccl_says_why_it_cannot():
    import torch

    gpus = torch.cuda.device_count()
    with pytest.raises(InputError, match="one rank a GPU" if gpus else "no NVIDIA GPU"):
        comm.run(comm_programs.sample_sort, ranks=gpus + 1, backend="nccl")
    with pytest.raises(InputError, match="NCCL's own"):
        comm.run(comm_programs.sample_sort, backend="nccl", collectives={"allreduce": "ring"})
