"""Programs of live ranks: exchanges against one whole array that NumPy pads, and what plans promise."""

from __future__ import annotations

import resource

import numpy as np

from armillary.errors import InputError
from armillary.network.halo import Halo, column_type, tune
from armillary.network.halo.exchange.geometry import balanced, share
from armillary.network.halo.exchange.halo import CALLS, METHODS

DTYPES = ("u1", "f4", "f8", "c16")


def against_padding(comm, seed, count):
    """Draw exchanges and compare each with the whole array, padded by NumPy. Returns the number of plans that fell back."""
    rng = np.random.default_rng(seed)
    fallen = 0
    for _ in range(count):
        axes, width = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        dims = balanced(comm.size, axes)
        if rng.random() < 0.5:
            dims = dims[::-1]
        periodic = [bool(x) for x in rng.random(axes) < 0.5]
        whole = [int(n * rng.integers(width, width + 4) + (rng.random() < 0.5 and width > 0)) for n in dims]
        dtype, order = rng.choice(DTYPES), rng.choice(["C", "F"])
        method, call = rng.choice(METHODS), rng.choice(CALLS)
        corners = rng.choice(["none", "diagonal", "phases"])
        how = {"packer": rng.choice(["numpy", "numba"]), "describe": rng.choice(["subarray", "vector"])}
        if (method == "datatype" and call == "partitioned") or (corners == "diagonal" and call.startswith("nei")):
            continue
        fallen += one(comm, axes, width, dims, periodic, whole, str(dtype), order, method, call, corners, how)
    return fallen


def one(comm, axes, width, dims, periodic, whole, dtype, order, method, call, corners, how):
    g = (np.arange(np.prod(whole)) * 7 % 250).reshape(whole).astype(dtype)
    padded = g
    for axis in range(axes):
        pad = [(width, width) if i == axis else (0, 0) for i in range(axes)]
        padded = np.pad(padded, pad, mode="wrap") if periodic[axis] else np.pad(padded, pad, constant_values=np.array(251).astype(dtype))
    at = np.unravel_index(comm.rank, dims)
    spans = [share(n, parts, i) for n, parts, i in zip(whole, dims, at)]
    wanted = padded[tuple(slice(low, high + 2 * width) for low, high in spans)]
    a = np.full(wanted.shape, 251, dtype, order=order)
    a[tuple(slice(width, -width) for _ in spans)] = g[tuple(slice(*span) for span in spans)]
    halo = Halo(a.shape, dtype, width, comm, dims, periodic, corners=corners)
    plan = halo.plan(method, call, **how)
    for _ in range(2):
        plan.exchange(a)
    if corners == "none":
        for axis in range(axes):
            part = tuple(slice(None) if i == axis else slice(width, -width) for i in range(axes))
            assert np.array_equal(a[part], wanted[part]), (dims, periodic, width, dtype, order, method, call, how)
    else:
        assert np.array_equal(a, wanted), (dims, periodic, width, dtype, order, method, call, corners, how)
    plan.free()
    halo.free()
    return int(bool(plan.fault))


def alone(comm):
    """What one rank can check, by hand."""
    a = np.full((6, 6), -1.0)
    a[1:-1, 1:-1] = np.arange(16).reshape(4, 4)
    halo = Halo((6, 6), "f8", 1, comm, (1, 1), True)
    for method in METHODS:
        b = a.copy()
        halo.plan(method).exchange(b)
        assert b[0, 1:-1].tolist() == [12, 13, 14, 15]
        assert b[-1, 1:-1].tolist() == [0, 1, 2, 3]
        assert b[1:-1, 0].tolist() == [3, 7, 11, 15]
        assert b[1:-1, -1].tolist() == [0, 4, 8, 12]
        assert b[0, 0] == -1.0
    halo.free()
    walls_keep_their_halo(comm)
    every_second_column(comm)
    neighbouring_columns(comm)
    swapped_halos_are_found(comm)
    return "right"


def walls_keep_their_halo(comm):
    halo = Halo((5, 5), "f8", 1, comm, (1, 1), (True, False))
    for method in METHODS:
        a = np.full((5, 5), np.nan)
        a[1:-1, 1:-1] = 1.0
        halo.plan(method).exchange(a)
        assert np.isnan(a[:, 0]).all()
        assert np.isnan(a[:, -1]).all()
        assert (a[:, 1:-1] == 1.0).all()
    halo.free()


def every_second_column(comm):
    """A view with gaps is exchanged in place by both methods, and the gaps are not touched."""
    for method in METHODS:
        memory = np.full((6, 12), 99.0)
        a = memory[:, ::2]
        a[...] = -1.0
        a[1:-1, 1:-1] = np.arange(16).reshape(4, 4)
        halo = Halo((6, 6), "f8", 1, comm, (1, 1), True)
        halo.plan(method).exchange(a)
        assert a[1:-1, 0].tolist() == [3, 7, 11, 15]
        assert a[0, 1:-1].tolist() == [12, 13, 14, 15]
        assert (memory[:, 1::2] == 99.0).all()
        halo.free()


def neighbouring_columns(comm):
    """A count of 2 takes the next column, not what follows the vector in memory."""
    a = np.arange(36.0).reshape(6, 6)
    kind = column_type((6, 6), 1, "f8")
    out = np.zeros(8)
    native = comm.native
    native.Sendrecv([a[1:, 1:].base.ravel()[7:], 2, kind], 0, 0, [out, 8, __import__("mpi4py.MPI").MPI.DOUBLE], 0, 0)
    assert out.tolist() == [7, 13, 19, 25, 8, 14, 20, 26]
    assert kind.Get_extent() == (0, 8)
    kind.Free()


class Swapping:
    """A Cartesian communicator whose neighbourhood call swaps the two halos of every axis."""

    def __init__(self, comm):
        self._comm = comm

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def Neighbor_alltoallw(self, send, recv):
        memory, counts, starts, types = recv
        swapped = [types[i ^ 1] for i in range(len(types))]
        self._comm.Neighbor_alltoallw(send, [memory, counts, starts, swapped])


def swapped_halos_are_found(comm):
    halo = Halo((7, 8), "f8", 1, comm, (1, 1), True)
    halo.comm = Swapping(halo.comm)
    plan = halo.plan("datatype", "neighbourhood")
    assert "wrong side" in plan.fault
    assert halo.right(plan)
    said = refused(lambda: halo.plan("datatype", "neighbourhood", fallback=False))
    assert "halos differ" in said
    halo.comm._comm.Free()


def refusals(comm):
    """What cannot be exchanged is refused on all ranks with the same words."""
    makes = (
        lambda: Halo((3 if comm.rank else 8, 8), "f8", 2, comm, (2, 1)),
        lambda: Halo((5, 9), "f8", 2, comm, (2, 1)),
        lambda: Halo((8, 8), "f8", 1, comm, (2, 2)),
        lambda: Halo((8, 8), "O", 1, comm, (2, 1)),
        lambda: Halo((8, 8 + comm.rank), "f8", 1, comm, (2, 1)),
        lambda: Halo((8, 8), "f8", 1, comm, (2, 1)).plan("datatype").exchange(np.zeros((8, 9))),
        lambda: Halo((8, 8), "f8", 1, comm, (2, 1)).plan("datatype", "partitioned"),
        lambda: Halo((8, 8), "f8", 1, comm, (2, 1), corners="diagonal").plan("packed", "neighbourhood"),
    )
    return [refused(make) for make in makes]


def refused(make):
    try:
        make()
    except InputError as error:
        return str(error)
    return ""


def many_plans(comm, count):
    """The growth of memory in MiB while plans are made, used and freed, after the first fifth of them."""
    halo = Halo((8, 8), "f8", 1, comm, (1, 1), True)
    a = np.zeros((8, 8))
    before = 0
    for i in range(count):
        plan = halo.plan("datatype", CALLS[i % 2])
        plan.exchange(a)
        plan.free()
        if i == count // 5:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def tuned(comm):
    """The table of `tune`, and what "auto" takes before and after it."""
    halo = Halo((12, 10), "f8", 1, comm, (1, comm.size), (False, True))
    before = halo.plan()
    table = tune((12, 10), comm, "f8", 1, (1, comm.size), (False, True), exchanges=3, rounds=3)
    after = halo.plan()
    return (before.method, before.call), (after.method, after.call), [(row["method"], row["call"]) for row in table]


def on_a_cartesian_communicator(comm):
    """A communicator of mpi4py brings its decomposition along; datatypes serve in calls of one's own."""
    from mpi4py import MPI

    box = comm.native.Create_cart([comm.size, 1], [True, False])
    halo = Halo((4, 5), "i4", 1, box)
    a = np.full((4, 5), -1, "i4")
    a[1:-1, 1:-1] = comm.rank
    plan = halo.plan("datatype")
    plan.exchange(a)
    mine = a.copy()
    a[0] = a[-1] = -1
    types = plan.datatypes
    for offset in ((-1, 0), (1, 0)):
        back = tuple(-x for x in offset)
        box.Sendrecv([a, 1, types[offset][0]], halo.neighbour(offset), 5, [a, 1, types[back][1]], halo.neighbour(back), 5)
    assert np.array_equal(a, mine)
    assert halo.decomposition == (comm.size, 1)
    assert halo.neighbour((0, 1)) == MPI.PROC_NULL
    return a[:, 2].tolist()


def broken(comm, works, cells, rounds):
    """The measuring program with plans that exchange nothing."""
    from armillary.network.halo.exchange.plan import Plan
    from armillary.network.halo.measuring.program import measure

    Plan.exchange = lambda self, a: None
    return measure(comm, works, cells, rounds)
