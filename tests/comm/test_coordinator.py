"""The coordinator on threads, on one rank and on virtual ranks: the same meaning, exact signals, nothing kept.

`test_mpi` and `test_torch_gloo` run the same checks on processes.
"""

from __future__ import annotations

import comm_programs
import coordinator_checks as checks
import numpy as np
import pytest
from process_jobs import alike

from armillary import comm
from armillary.comm import Coordinator, Deadlock, RankFailed


@pytest.mark.parametrize(("check", "args"), checks.EVERYWHERE, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_threads(check, args, ranks):
    assert comm.run(check, *args, ranks=ranks).unreceived == []


@pytest.mark.parametrize("backend", ["one", "virtual"])
def test_the_other_backends_give_the_bits_of_threads(backend):
    ranks = 1 if backend == "one" else 3
    found = comm.run(checks.everything, ranks=ranks, backend=backend)
    assert found.unreceived == []
    assert alike(found.values, comm.run(checks.everything, ranks=ranks).values)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("backend", ["threads", "virtual"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_two_posts_before_one_acknowledgement(backend, shared, ranks):
    comm.run(checks.signals, shared, ranks=ranks, backend=backend)


@pytest.mark.parametrize("backend", ["one", "threads"])
def test_device_modes_are_refused_with_what_there_is(backend):
    comm.run(checks.modes, ranks=1, backend=backend)


def test_nothing_is_kept_in_the_steady_state_on_threads():
    result = comm.run(checks.steady_state, True, ranks=2)
    kept, peak = result[0]
    # Threads share one heap, and where each one stands when it is read differs by a few kilobytes: less than the smallest object a round.
    assert abs(kept) < 8 * checks.STEADY_ROUNDS
    assert peak < 8 * checks.STEADY_ROUNDS


def test_buffers_that_die_are_let_go():
    assert comm.run(checks.forgotten, ranks=2).values == [0, 0]


def test_a_killed_rank_ends_the_wait_of_the_others():
    with pytest.raises(RankFailed) as caught:
        comm.run(comm_programs.killed_while_others_wait, ranks=3)
    assert caught.value.rank == 1


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("backend", ["threads", "virtual"])
def test_waiting_for_what_is_never_posted_is_named(backend, shared):
    with pytest.raises(Deadlock) as caught:
        comm.run(checks.never_posted, shared, ranks=2, backend=backend)
    assert "rank 0: " in str(caught.value)
    assert "source=1" in str(caught.value)


def test_a_collective_call_that_not_all_make_is_named():
    with pytest.raises(Deadlock, match="collective call of the coordinator"):
        comm.run(checks.collectives_do_not_match, ranks=2)


def unacknowledged(comm, count):
    coord = Coordinator(comm)
    if comm.rank == 0:
        with coord.batch():
            coord.post(np.zeros(count), np.zeros(count), count, None, 1, 1)


def test_a_post_that_nobody_acknowledges_is_named_on_virtual_ranks():
    assert comm.run(unacknowledged, 4, ranks=2, backend="virtual").unreceived == ["from rank 0 to rank 1, tag 0, 32 bytes"]
    with pytest.raises(Deadlock, match="rank 0"):
        comm.run(unacknowledged, 1_000_000, ranks=2, backend="virtual")


def exchange(comm, mode, rounds):
    """One sweep and one halo a round, in the three modes; the simulated seconds and what came."""
    coord = Coordinator(comm, mode=mode)
    other = 1 - comm.rank
    data, got, signal = np.full(1000, comm.rank + 1.0), np.zeros(1000), np.zeros(1, np.int64)

    def compute():
        comm.compute(seconds=1e-5)

    def partial(device):
        comm.compute(seconds=1e-5)
        device.put(data, got, 1000, other)

    def full(device, turn):
        comm.compute(seconds=1e-5)
        device.post(data, got, 1000, signal, turn[0], other)
        device.acknowledge(got, 1000, signal, turn[0], other)

    turn = [0]
    coord.bind(compute, grid=8, block=256, mode="host")
    coord.bind(partial, grid=8, block=256, mode="partial-device")
    coord.bind(full, grid=8, block=256, args=(turn,), mode="full-device")
    for i in range(1, rounds + 1):
        turn[0] = i
        coord.launch()
        with coord.batch():
            coord.post(data, got, 1000, signal, i, other)
            coord.acknowledge(got, 1000, signal, i, other)
        assert (got == other + 1).all()
        assert signal[0] == i
        got[:] = 0
    coord.wait()
    return comm.now()


def test_device_modes_are_a_cost_model_on_virtual_ranks():
    seconds = {}
    for mode in ("host", "partial-device", "full-device"):
        found = comm.run(exchange, mode, 10, ranks=2, backend="virtual")
        assert found.unreceived == []
        seconds[mode] = found.seconds
    # A launch and a synchronisation less in each of ten rounds, less what the second launch costs more.
    assert seconds["host"] - seconds["full-device"] == pytest.approx(10 * (4e-6 + 6e-6 - 8e-6))
    assert seconds["partial-device"] < seconds["host"]


def test_memory_is_the_same_on_all_ranks_or_refused():
    def differs(comm):
        Coordinator(comm).alloc(3 + comm.rank)

    with pytest.raises(RankFailed, match="expected the same shape"):
        comm.run(differs, ranks=2)

    def given_back(comm):
        coord = Coordinator(comm)
        memory = coord.alloc((2, 3), np.float32)
        assert memory.dtype == np.float32
        coord.free(memory)
        checks.refuses("alloc did not give", coord.free, memory)

    comm.run(given_back, ranks=2)
