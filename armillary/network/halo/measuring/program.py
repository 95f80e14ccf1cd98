"""What every rank does in a measurement: check halos and the code against one rank, and time each strategy beside the reference.

All strategies of a code are measured in one set of ranks. Each round times strategy and reference directly after each other, and the order
of the two alternates, so that whatever disturbs the machine disturbs both.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.network.halo.applications.codes import alone, code
from armillary.network.halo.exchange.by_hand import by_hand
from armillary.network.halo.exchange.geometry import share
from armillary.network.halo.exchange.halo import Halo
from armillary.network.halo.exchange.stamps import same_bits, stamped

Array = np.ndarray[Any, Any]


def measure(comm: Any, works: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, str]], rounds: int) -> list[list[dict[str, Any]]]:
    """Return the figures of each strategy (method, call, packer, describe) on each work, in seconds; the same on all ranks."""
    return [_measured(comm.native, work, cells, rounds) for work in works]


@dataclass(frozen=True)
class Setup:
    """One rank's part of a work: how its arrays are made, what they need of an exchange, and what their halos are for."""

    periodic: tuple[bool, ...]
    corners: str
    width: int
    #: Returns (arrays that are exchanged, a step that runs after the exchange of array i % 2 or None, what is right afterwards or None).
    make: Callable[[], tuple[Sequence[Array], Callable[[int], None] | None, Array | None]]


def _measured(native: Any, work: Mapping[str, Any], cells: Sequence[Mapping[str, str]], rounds: int) -> list[dict[str, Any]]:
    shape, dims = work["shape"], work["decomposition"]
    periodic = code(work["application"]).periodic if "application" in work else work["periodic"]
    box = native.Create_cart(dims, periodic, False)
    spans = [share(n, parts, at) for n, parts, at in zip(shape, dims, box.Get_coords(box.rank))]
    setup = _of_code(work, spans) if "application" in work else _of_arrays(work, spans)
    found = [_cell(box, setup, cell, work, rounds) for cell in cells]
    box.Free()
    return found


def _of_code(work: Mapping[str, Any], spans: Sequence[tuple[int, int]]) -> Setup:
    one = code(work["application"], work.get("dtype", ""))
    whole = one.start(work["shape"])
    wanted = alone(one, work["shape"], work["steps"])[tuple(slice(*span) for span in spans)]
    part = whole[tuple(slice(low, high + 2) for low, high in spans)]

    def make() -> tuple[Sequence[Array], Callable[[int], None] | None, Array | None]:
        pair, step = one.prepare(part.copy(), [low for low, _ in spans])
        return pair, step, wanted

    return Setup(one.periodic, one.corners, 1, make)


def _of_arrays(work: Mapping[str, Any], spans: Sequence[tuple[int, int]]) -> Setup:
    width, dtype = work["halo"], np.dtype(work["dtype"])
    shape = [high - low + 2 * width for low, high in spans]

    def make() -> tuple[Sequence[Array], Callable[[int], None] | None, Array | None]:
        return [np.zeros(shape, dtype, order=work["order"]) for _ in range(work["fields"])], None, None

    return Setup(tuple(work["periodic"]), "diagonal" if work["stencil"] == "faces+corners" else "none", width, make)


def _cell(box: Any, setup: Setup, cell: Mapping[str, str], work: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    arrays, step, wanted = setup.make()
    corners = setup.corners
    if corners == "diagonal" and (cell["call"].startswith("neighbourhood") or cell["corners"] == "phases"):
        corners = "phases"
    named = f"{work.get('application', 'arrays')}, {cell['method']}, {cell['call']}"
    halo = Halo(arrays[0].shape, arrays[0].dtype, setup.width, box, corners=corners)
    plan = halo.plan(cell["method"], cell["call"], packer=cell["packer"], describe=cell["describe"], verify=True)
    seconds = np.array([_steps(box, plan, arrays, step, work["steps"])])
    # Every rank asks, also one that knows that its own part is wrong.
    inside = arrays[work["steps"] % 2][1:-1, 1:-1] if wanted is not None else None
    if not _everywhere(box, wanted is None or inside is None or np.array_equal(inside, wanted)):
        raise RuntimeError(f"halos differ: {named}, after {work['steps']} steps")
    if wanted is None:
        arrays = [_stamped(box.rank, i, a, setup.width) for i, a in enumerate(arrays)]
    else:
        arrays = arrays[:1]
    others = [a.copy(order="K") for a in arrays]
    references = [by_hand(box, a, setup.corners == "diagonal", setup.width) for a in others]
    for a, reference in zip(arrays, references):
        plan.exchange(a)
        reference()
    if not _everywhere(box, all(_same_halo(a, b, setup) for a, b in zip(arrays, others))):
        raise RuntimeError(f"halos differ: {named} and the loop by hand")

    def own() -> None:
        for a in arrays:
            plan.exchange(a)

    def theirs() -> None:
        for reference in references:
            reference()

    first = arrays[0]
    bodies = (lambda: plan.exchange(first), references[0]) if len(arrays) == 1 else (own, theirs)
    each = _rounds(box, bodies, rounds, work["exchanges"]) / work["exchanges"]
    slowest = np.empty_like(seconds)
    box.Allreduce(seconds, slowest, _max())
    plan.free()
    halo.free()
    return {"own": each[0].tolist(), "reference": each[1].tolist(), "step": float(slowest[0] / work["steps"]), "fault": plan.fault}


def _steps(box: Any, plan: Any, arrays: Sequence[Array], step: Callable[[int], None] | None, steps: int) -> float:
    """Return the seconds of some steps of the code, each after its exchange; without a code all arrays are exchanged in each."""
    box.Barrier()
    began = time.perf_counter()
    for i in range(steps):
        if step is not None:
            plan.exchange(arrays[i % 2])
            step(i)
        else:
            for a in arrays:
                plan.exchange(a)
    return time.perf_counter() - began


def _stamped(rank: int, field: int, a: Array, width: int) -> Array:
    a[...] = stamped(1000 * field + rank, a.shape, width, a.dtype)
    return a


def _same_halo(a: Array, b: Array, setup: Setup) -> bool:
    """Return whether two arrays agree in what a code may read: all cells, or without corners those that have at most one index outside."""
    if setup.corners != "none":
        return same_bits(a, b)
    w = setup.width
    for axis in range(a.ndim):
        part = tuple(slice(None) if i == axis else slice(w, -w) for i in range(a.ndim))
        if not same_bits(a[part], b[part]):
            return False
    return True


def _rounds(box: Any, bodies: Sequence[Any], rounds: int, exchanges: int) -> Array:
    """Return the seconds of each body in each round, on the slowest rank; two rounds before do not count."""
    seconds = np.zeros((len(bodies), rounds))
    clock = time.perf_counter
    collected = gc.isenabled()
    gc.disable()
    try:
        for turn in range(-2, rounds):
            for k in range(len(bodies)) if turn % 2 else reversed(range(len(bodies))):
                body = bodies[k]
                box.Barrier()
                began = clock()
                for _ in range(exchanges):
                    body()
                if turn >= 0:
                    seconds[k, turn] = clock() - began
    finally:
        if collected:
            gc.enable()
    slowest = np.empty_like(seconds)
    box.Allreduce(seconds, slowest, _max())
    return slowest


def _everywhere(box: Any, right: bool) -> bool:
    from mpi4py import MPI

    return bool(box.allreduce(int(right), MPI.MIN))


def _max() -> Any:
    from mpi4py import MPI

    return MPI.MAX
