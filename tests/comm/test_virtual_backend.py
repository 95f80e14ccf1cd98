"""Virtual ranks mean what the other backends mean: the same checks, the same bits."""

from __future__ import annotations

import comm_checks
import comm_programs
import numpy as np
import pytest
from process_jobs import alike, exact

from armillary import comm
from armillary.comm import LogGP

#: Each is a machine, a model and a way to progress; the answers are the same on all.
MACHINES = {
    "one node": {},
    "two nodes": {"cluster": "slingshot-200", "placement": "round-robin"},
    "flows": {"cluster": "infiniband-hdr100", "placement": "round-robin", "model": "flow"},
    "nic": {"constants": LogGP(1e-6, 1e-7, 1e-7, gap=1e-8, byte_gap=1e-10, get=True), "progress": "nic"},
    "single copy": {"shm": "single-copy", "progress": comm.interrupt(1e-6), "shuffle": 3},
}


#: Virtual ranks offer the device modes of a coordinator, which the check of host ranks wants refused; it has a test of its own below.
CHECKS = [check for check in comm_checks.CHECKS if check.__name__ != "coordinated"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_every_check_on_one_node(check, ranks):
    assert comm.run(check, ranks=ranks, backend="virtual").unreceived == []


@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "one node"])
@pytest.mark.parametrize("check", [c for c in CHECKS if c.__name__ != "groups_of_ranks"], ids=lambda c: c.__name__)
def test_every_check_on_other_machines(check, machine):
    assert comm.run(check, ranks=4, backend="virtual", **MACHINES[machine]).unreceived == []


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_programs_give_the_bits_of_threads(machine, ranks):
    virtual = comm.run(comm_programs.all_programs, ranks=ranks, backend="virtual", **MACHINES[machine])
    threads = comm.run(comm_programs.all_programs, ranks=ranks)
    assert alike(virtual.values, threads.values)
    assert exact(virtual) == exact(threads)
    assert virtual.seconds > 0 or ranks == 1


def test_a_coordinator_posts_in_both_directions():
    def program(c):
        right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
        coord = comm.Coordinator(c)
        signal = np.zeros(1, np.int64)
        big, got = np.full(30000, float(c.rank)), np.empty(30000)
        for turn in range(1, 4):
            with coord.batch():
                coord.post(big, got, 30000, signal, turn, right)
                coord.acknowledge(got, 30000, signal, turn, left)
            assert signal[0] == turn
            assert (got == left).all()
        return coord.allreduce(np.array([1.0])).tolist()

    for options in MACHINES.values():
        assert comm.run(program, ranks=4, backend="virtual", **options).values == [[4.0]] * 4
