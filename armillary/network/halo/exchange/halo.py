"""A halo exchange on live MPI ranks, planned once and then called for every step.

    halo = Halo(a.shape, a.dtype, 1, comm, (2, 2), periodic=(True, False))
    plan = halo.plan("datatype", "p2p-persistent")
    for step in range(1000):
        plan.exchange(a)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, unknown

from .geometry import CORNERS, balanced, check_local, phases_of
from .stamps import expected, same_bits, stamped

if TYPE_CHECKING:
    from .plan import Plan

METHODS = ("packed", "datatype")
CALLS = ("p2p", "p2p-persistent", "neighbourhood", "neighbourhood-persistent", "partitioned")


class Halo:
    """The halo of width `width` around a local array of `shape` (halo included) on each rank of a communicator.

    `comm` is an `mpi4py` communicator or one of `armillary.comm` on MPI. A Cartesian one brings its own decomposition and periodicity; for
    others they are given, or balanced and not periodic. Ranks are numbered row by row. All ranks make it together. It owns a Cartesian
    communicator; `free()` gives it back.
    """

    def __init__(
        self, shape: Sequence[int], dtype: Any, width: int, comm: Any, decomposition: Sequence[int] | None = None,
        periodic: Sequence[bool] | bool | None = None, *, corners: str = "none",
    ) -> None:  # fmt: skip
        from mpi4py import MPI

        native = getattr(comm, "native", comm)
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.width = int(width)
        if self.dtype.kind not in "biufc":
            raise InputError(f"dtype: found {self.dtype}; expected numbers, because objects have no bytes to send")
        if corners not in CORNERS:
            raise unknown("way to exchange corners", corners, CORNERS)
        self.corners = corners
        axes = len(self.shape)
        if native.Get_topology() == MPI.CART and decomposition is None:
            dims, wraps, _ = native.Get_topo()
        else:
            dims = balanced(native.size, axes) if decomposition is None else tuple(decomposition)
            wraps = [False] * axes if periodic is None else [periodic] * axes if isinstance(periodic, bool) else list(periodic)
        self.decomposition = tuple(int(n) for n in dims)
        self.periodic = tuple(bool(p) for p in wraps)
        if len(self.decomposition) != axes or len(self.periodic) != axes:
            raise InputError(f"decomposition: found {list(self.decomposition)} with {len(self.periodic)} axes; expected {axes} numbers")
        if math.prod(self.decomposition) != native.size or min(self.decomposition) < 1:
            raise InputError(f"decomposition: found {list(self.decomposition)}; expected a product of {native.size} ranks")
        #: The shapes of all ranks' arrays. All ranks see them, so that all refuse what one of them cannot do.
        self.shapes: list[tuple[int, ...]] = [tuple(int(n) for n in one) for one in native.allgather(self.shape)]
        for rank, one in enumerate(self.shapes):
            if len(one) != axes:
                raise InputError(f"rank {rank}: found {len(one)} dimensions; expected {axes}, as on rank 0")
            check_local(one, self.width, rank)
        self.comm = native.Create_cart(self.decomposition, self.periodic, False)
        self.rank = int(self.comm.rank)
        self.coordinates = self._coordinates(self.rank)
        self.phases = phases_of(self.shape, self.width, corners)
        self._check_sections()

    def neighbour(self, offset: Sequence[int], of: int | None = None) -> int:
        """Return the rank at an offset from this rank, or `MPI.PROC_NULL` beyond an end."""
        from mpi4py import MPI

        found = 0
        base = self.coordinates if of is None else self._coordinates(of)
        for at, x, n, wraps in zip(base, offset, self.decomposition, self.periodic):
            place = at + x
            if not 0 <= place < n and not wraps:
                return int(MPI.PROC_NULL)
            found = found * n + place % n
        return found

    @property
    def short_axes(self) -> tuple[int, ...]:
        """The periodic axes of length 1 or 2, where both neighbours are one rank and some libraries swap the halos."""
        return tuple(i for i, (n, wraps) in enumerate(zip(self.decomposition, self.periodic)) if wraps and n <= 2)

    def plan(
        self, method: str = "auto", call: str = "p2p", *, packer: str = "numpy", describe: str = "subarray", fallback: bool = True,
        verify: bool = False,
    ) -> Plan:  # fmt: skip
        """Return a plan of the exchange.

        `method` is `packed` or `datatype`; `auto` takes what `tune` found for this library, shape, type and number of ranks, and packed
        messages if it found nothing. `call` is one of `CALLS`. On short periodic axes a neighbourhood call is tried on stamps first: if the
        library puts them elsewhere, the plan says so in `fault` and uses messages, or with `fallback=False` it is refused. `verify`
        tries any plan.
        """
        from .plan import make_plan

        if method == "auto":
            from .tuning import known

            method, call = known(self) or ("packed", call)
        if method not in METHODS:
            raise unknown("method", method, ("auto", *METHODS))
        if call not in CALLS:
            raise unknown("call", call, CALLS)
        made = make_plan(self, method, call, packer, describe)
        if not (verify or (call.startswith("neighbourhood") and self.short_axes)) or self.right(made):
            return made
        made.free()
        fault = f"{call} of this library delivers halos to the wrong side where a periodic axis has 1 or 2 ranks"
        if not (call.startswith("neighbourhood") and self.short_axes):
            raise RuntimeError(f"halos differ: {method} with {call}")
        if not fallback:
            raise InputError(f"halos differ: {fault}; expected another call, such as p2p", where=f"{method}, {call}")
        return self._fallen_back(method, call, packer, describe, fault)

    def _fallen_back(self, method: str, call: str, packer: str, describe: str, fault: str) -> Plan:
        from .plan import make_plan

        made = make_plan(self, method, "p2p-persistent" if call.endswith("persistent") else "p2p", packer, describe)
        made.fault = fault
        if not self.right(made):
            raise RuntimeError(f"halos differ: {method} with p2p")
        return made

    def right(self, plan: Plan) -> bool:
        """Exchange stamps by a plan and return whether every rank's halo is what it must be, bit for bit."""
        a = stamped(self.rank, self.shape, self.width, self.dtype)
        plan.exchange(a)
        wanted = expected(self.rank, self.shapes, self.neighbour, self.width, self.dtype, self.phases)
        plan.forget(a)
        from mpi4py import MPI

        return bool(self.comm.allreduce(int(same_bits(a, wanted)), MPI.MIN))

    def free(self) -> None:
        """Give the communicator back."""
        self.comm.Free()

    def _coordinates(self, rank: int) -> tuple[int, ...]:
        found = []
        for n in reversed(self.decomposition):
            found.append(rank % n)
            rank //= n
        return tuple(reversed(found))

    def _check_sections(self) -> None:
        """Refuse neighbours whose faces differ in size."""
        for rank, shape in enumerate(self.shapes):
            for axis in range(len(shape)):
                other = self.neighbour([int(i == axis) for i in range(len(shape))], rank)
                if other >= 0:
                    theirs = self.shapes[other]
                    if shape[:axis] + shape[axis + 1 :] != theirs[:axis] + theirs[axis + 1 :]:
                        raise InputError(
                            f"rank {rank}, dimension {axis}: found local arrays of {list(shape)} and, on rank {other}, {list(theirs)}; "
                            "expected faces of one size"
                        )

