"""Hardware threads from lscpu, from a cluster file and from this machine, lists of CPUs, and measured pairs."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest

from armillary import cluster
from armillary.errors import InputError
from armillary.scheduling.contention import Fleet, Topology, cpu_list, measure_pairs, parse_cpu_list
from armillary.scheduling.contention.silicon import KERNELS, Pairs, _places

#: `lscpu -p=CPU,CORE,SOCKET,NODE` of a machine with two sockets of two cores of two threads.
LSCPU = """# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket,Node
0,0,0,0
1,1,0,0
2,2,1,1
3,3,1,1
4,0,0,0
5,1,0,0
6,2,1,1
7,3,1,1
"""


def test_lscpu_with_chosen_columns_and_with_caches() -> None:
    found = Topology.of_lscpu(LSCPU)
    regular = Topology.regular(2, 2, 2)
    assert np.array_equal(found.core, regular.core)
    assert np.array_equal(found.socket, regular.socket)
    plain = LSCPU.replace("Node\n", "Node,,L1d,L1i,L2,L3\n").replace("0,0,0,0\n", "0,0,0,0,,0,0,0,0\n")
    assert np.array_equal(Topology.of_lscpu(plain).core, regular.core)


def test_cores_that_are_numbered_anew_on_each_socket_stay_apart() -> None:
    found = Topology.of_lscpu("0,0,0,0\n1,0,1,1\n")
    assert (found.cores, found.sockets) == (2, 2)


def test_an_offline_cpu_is_left_out() -> None:
    assert Topology.of_lscpu("0,0,0,0\n1,,,\n2,1,0,0\n").cpu.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found no CPU"), ("0,0,0,0\n0,1,0,0\n", "CPU 0 twice"), ("0,0\n", "expected CPU,CORE,SOCKET"),
        ("0,x,0,0\n", "expected whole numbers"),
        ("# CPU,Node\n0,0\n", "expected CPU, Core and Socket"), ("0,-1,0,0\n", "expected whole numbers"),
        ("\n".join(f"{i},{i},0,0" for i in range(4097)), "more than 4,096"), ("0,99999999999999999999,0,0\n", "expected whole numbers"),
    ],
)  # fmt: skip
def test_faulty_lscpu_text(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Topology.of_lscpu(text, where="lscpu.txt")


@pytest.mark.skipif(shutil.which("lscpu") is None, reason="lscpu is not here")
def test_this_machine_is_what_lscpu_says() -> None:
    here = Topology.here()
    parsed = Topology.of_lscpu(subprocess.run(["lscpu", "-p=CPU,CORE,SOCKET,NODE"], capture_output=True, text=True, check=True).stdout)
    told = json.loads(subprocess.run(["lscpu", "-J", "-e=CPU,CORE,SOCKET"], capture_output=True, text=True, check=True).stdout)["cpus"]
    rows = {int(r["cpu"]): (int(r["core"]), int(r["socket"])) for r in told}
    for a in range(parsed.threads):
        for b in range(a):
            one, other = rows[int(parsed.cpu[a])], rows[int(parsed.cpu[b])]
            assert (parsed.core[a] == parsed.core[b]) == (one == other)
            assert (parsed.socket[a] == parsed.socket[b]) == (one[1] == other[1])
    if here.threads == parsed.threads:
        assert (here.cores, here.sockets) == (parsed.cores, parsed.sockets)


def test_the_preset_gives_two_kinds_in_turn() -> None:
    fleet = Fleet.of(cluster.preset("smt-2x16x2"), 5)
    assert fleet.kind.tolist() == [0, 1, 0, 1, 0]
    assert fleet.speed.tolist() == [1, 1.25, 1, 1.25, 1]
    assert fleet.topologies[0].cpuset(range(0, 4)) == "0-3"
    assert (fleet.topologies[0].threads, fleet.topologies[0].llc_bytes) == (64, 22 << 20)


def test_lists_of_cpus() -> None:
    assert cpu_list([35, 0, 1, 2, 3, 32, 33, 34, 40]) == "0-3,32-35,40"
    assert parse_cpu_list("0-3, 32-35,40") == [0, 1, 2, 3, 32, 33, 34, 35, 40]
    assert cpu_list([]) == ""
    for bad in ("", "3-1", "0-99999999", "a", "1,1", "0--3", "٣"):
        with pytest.raises(InputError):
            parse_cpu_list(bad)
    with pytest.raises(InputError, match="found CPU 9; expected one of 0-7"):
        Topology.of_lscpu(LSCPU).threads_of([0, 9])


@pytest.mark.parametrize("sizes", [(1, 5000, 1), (0, 1, 1)])
def test_impossible_sizes(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(InputError):
        Topology.regular(*sizes)
    with pytest.raises(InputError, match="in a fleet"):
        Fleet((Topology.regular(2, 32, 2),), np.zeros(40_000, np.int64))


def test_where_pairs_are_measured() -> None:
    assert _places(Topology.regular(2, 2, 2)) == ((0, 4), (0, 1))
    assert _places(Topology.regular(2, 1, 1)) == (None, None)
    assert _places(Topology.regular(1, 3, 1)) == (None, (0, 1))


def test_measured_pairs_on_this_machine() -> None:
    found: Pairs = measure_pairs(("integer", "fp"), seconds=0.005, repeats=1)
    assert (found.alone > 0).all()
    here = Topology.here()
    assert (found.core is None) == (here.members.shape[1] == 1)
    for matrix, there in ((found.core, here.members.shape[1] > 1), (found.socket, here.cores > here.sockets)):
        assert (matrix is not None) == there
        assert matrix is None or (matrix.shape == (2, 2) and (matrix > 0).all())
    with pytest.raises(InputError, match="unknown kernel"):
        measure_pairs(("cinebench",))
    assert len(KERNELS) == 8
