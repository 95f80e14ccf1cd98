"""Processes that talk through Gloo: the checks of every backend, the bits of threads, and what happens when one is gone.

Each job is started once and runs all that is checked on its number of ranks; importing PyTorch is what a start costs.
"""

from __future__ import annotations

import comm_checks
import comm_programs
import coordinator_checks
import process_jobs
import pytest
from process_jobs import Job, alike, exact, none_left, once

from armillary import comm
from armillary.comm import CommError, RankFailed
from armillary.errors import InputError

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(comm.backends()["gloo"]), reason=comm.backends()["gloo"] or "Gloo is here")

#: What runs on each number of ranks. A rank has no window here, and cannot post to itself.
PARTS = {
    1: (["checks", "programs", "modes"], ["windows", "coordinated"]),
    2: (["checks", "programs"], ["windows"]),
    3: (["checks", "programs", "pair", "coordinator", "in pieces", "natively", "adopts torch", "devices"], ["windows"]),
}


@once
def job(ranks):
    return Job(*PARTS[ranks], ranks, backend="gloo", timeout=120)


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow), 3])
def test_gloo_gives_the_bits_and_counters_of_threads(ranks):
    found = job(ranks)
    assert found.result.backend == "gloo"
    threads = comm.run(process_jobs.parts, ["checks", "programs"], PARTS[ranks][1], ranks=ranks)
    for part in ("checks", "programs"):
        assert alike(found.part(part), [values[part] for values in threads.values])
    phases = ["messages", "collectives", "exchange", "programs"]
    assert exact(found.result, phases) == exact(threads, phases)


def test_a_sub_communicator_gives_the_bits_of_threads():
    zero, one = comm.run(comm_checks.everything, ["windows", *process_jobs.PAIR_SKIPS], ranks=2).values
    # The keys put the ranks in the reverse order.
    assert alike(job(3).part("pair"), [one, zero, None])


def test_coordinators_give_the_bits_of_threads():
    assert alike(job(3).part("coordinator"), comm.run(coordinator_checks.everything, ranks=3).values)


def test_device_modes_are_refused():
    assert job(1).part("modes") == [None]


def test_what_gloo_does_natively_and_what_it_keeps():
    """The library's own calls are made, tensors come back as tensors, and sub-communicators keep the order of their keys."""
    assert job(3).part("natively") == [[2, 1, 0]] * 3
    assert job(3).printed == "from rank 1\n"


def test_an_adopted_group_keeps_its_order():
    assert job(3).part("adopts torch") == [[0, 2], None, [0, 2]]


def test_the_layer_over_nccl_on_tensors_in_main_memory():
    """What a call means does not depend on the device; `benchmarks/gpu/comm_nccl.py` runs it on one."""
    # A message of 96 bytes; its payload once; two blocks of 32 bytes.
    assert job(3).part("devices") == [(4, 3, 96 + 96 + 64, 2)] * 3


@pytest.mark.parametrize(
    ("program", "args", "ranks"),
    [("torch_programs:fails", (), 2), ("torch_programs:leaves", (0,), 2), ("comm_programs:killed_while_others_wait", (), 3)],
)
def test_a_rank_that_fails_is_named_and_none_is_left(program, args, ranks, monkeypatch):
    with none_left(monkeypatch, program), pytest.raises(RankFailed) as caught:
        comm.run(program, *args, ranks=ranks, backend="gloo", timeout=60)
    assert caught.value.rank == 1
    if program.endswith("fails"):
        assert "no such key" in str(caught.value)
        assert "torch_programs.py" in caught.value.trace


def test_ranks_that_never_end_are_ended(monkeypatch):
    with none_left(monkeypatch, "gloo"), pytest.raises(CommError, match="within 3 seconds"):
        comm.run(comm_programs.all_receive_first, ranks=2, backend="gloo", timeout=3)


def test_a_program_without_a_name_does_not_go_to_processes():
    with pytest.raises(InputError, match="import by name"):
        comm.run(lambda ranks: None, backend="gloo")


def test_nccl_says_why_it_cannot():
    import torch

    gpus = torch.cuda.device_count()
    with pytest.raises(InputError, match="one rank per GPU" if gpus else "no NVIDIA GPU"):
        comm.run(comm_programs.sample_sort, ranks=gpus + 1, backend="nccl")
    with pytest.raises(InputError, match="NCCL's own"):
        comm.run(comm_programs.sample_sort, backend="nccl", collectives={"allreduce": "ring"})


@pytest.mark.parametrize("kills", [[(3, 1)], pytest.param([(2, 2), (2, 0), (4, 2)], marks=pytest.mark.slow)])
def test_another_process_takes_the_place_of_a_killed_one(kills):
    found = comm.run("torch_programs:survives", kills, 6, ranks=3, backend="gloo", timeout=120, restarts=len(kills))
    total = sum(10.0 * step + rank for step in range(6) for rank in range(3))
    assert found.values == [[6.0, total, len(kills)]] * 3


def test_no_more_processes_are_replaced_than_allowed():
    with pytest.raises(RankFailed, match="rank 1: its process was killed by signal 9"):
        comm.run("torch_programs:survives", [(0, 1)], 2, ranks=2, backend="gloo", timeout=120)
    with pytest.raises(InputError, match="restarts: found -1"):
        comm.run("torch_programs:survives", [], 2, ranks=2, backend="gloo", restarts=-1)
