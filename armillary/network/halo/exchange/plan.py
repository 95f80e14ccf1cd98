"""Plans: one exchange by packing or by datatypes, through one of five calls.

A plan prepares what it needs for an array at its first exchange, and keeps that for the arrays that it met last, because stencil codes take
several arrays in turn.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

if TYPE_CHECKING:
    from .halo import Halo

Array = np.ndarray[Any, Any]
#: The arrays for which a plan keeps its preparations.
KEPT = 16


class Plan:
    """An exchange of one halo, for any array of its shape and type.

    `packed` takes any strides. `datatype` takes any strides of 0 bytes or more, without a copy. Halos beyond an end that is not periodic
    stay as they are.
    """

    def __init__(self, halo: Halo, method: str, call: str, packer: str, describe: str) -> None:
        self.halo = halo
        self.method = method
        self.call = call
        #: What the library did wrong if the plan uses other calls than it was asked for, or "".
        self.fault = ""
        self._packer = packer
        self._describe = describe
        self._bound: OrderedDict[int, tuple[Array, Any]] = OrderedDict()
        self._last: Array | None = None
        self._run: Any = None

    def exchange(self, a: Array) -> None:
        """Fill the halo of an array on all ranks."""
        if a is not self._last:
            self._bind(a)
        self._run()

    @property
    def datatypes(self) -> dict[tuple[int, ...], tuple[Any, Any]]:
        """The MPI datatypes of what is sent and received, by offset, for the array that was exchanged last; they count from its start."""
        if self.method != "datatype" or self._last is None:
            raise InputError("datatypes: found no exchange yet or a packed plan; expected a datatype plan after its first exchange")
        found: dict[tuple[int, ...], tuple[Any, Any]] = self._bound[id(self._last)][1].types
        return found

    def forget(self, a: Array) -> None:
        """Give back what was prepared for an array."""
        kept = self._bound.pop(id(a), None)
        if kept is not None:
            kept[1].free()
        if self._last is a:
            self._last = self._run = None

    def free(self) -> None:
        """Give back all requests, datatypes and buffers."""
        for array, _ in list(self._bound.values()):
            self.forget(array)

    def _bind(self, a: Array) -> None:
        kept = self._bound.get(id(a))
        if kept is None:
            halo = self.halo
            if not isinstance(a, np.ndarray) or a.shape != halo.shape or a.dtype != halo.dtype:
                found = f"{a.dtype} of shape {list(a.shape)}" if isinstance(a, np.ndarray) else type(a).__name__
                raise InputError(f"array: found {found}; expected {halo.dtype} of shape {list(halo.shape)}")
            if not a.flags.writeable:
                raise InputError("array: found a read-only array; expected one whose halo can be written")
            kept = (a, self._prepared(a))
            self._bound[id(a)] = kept
            while len(self._bound) > KEPT:
                self.forget(next(iter(self._bound.values()))[0])
        self._bound.move_to_end(id(a))
        self._last, self._run = a, kept[1].run

    def _prepared(self, a: Array) -> Any:
        from .in_place import InPlace
        from .packed import Packed

        if self.method == "packed":
            return Packed(self.halo, a, self.call, self._packer)
        return InPlace(self.halo, a, self.call, self._describe)


def make_plan(halo: Halo, method: str, call: str, packer: str, describe: str) -> Plan:
    """Return the plan, or refuse what does not go together."""
    from .packing import packer as find

    find(packer)
    if describe not in ("subarray", "vector"):
        raise InputError(f"describe: found {describe!r}; expected subarray or vector")
    if call.startswith("neighbourhood") and halo.corners == "diagonal":
        raise InputError("corners: found diagonal with a neighbourhood call; expected phases, because a box has no diagonal neighbours")
    if call == "partitioned":
        from mpi4py import MPI

        if method == "datatype":
            raise InputError("call: found partitioned with datatype; expected packed, whose buffers become ready one by one")
        if not hasattr(MPI.Comm, "Psend_init"):
            raise InputError("call: found partitioned; expected a library with MPI_Psend_init (MPI 4)")
    return Plan(halo, method, call, packer, describe)
