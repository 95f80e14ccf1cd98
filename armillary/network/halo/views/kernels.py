"""The kernels of CloverLeaf for the arrays at hand: compiled loops on the host, Triton's on GPUs, and formulas on whole arrays for both.

The formulas share no code with the others, which are held against them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from armillary.arrays import namespace

from .streams import Call

Array = Any
_SWEEPS = ("cell_flux", "cell_update", "node_masses", "momentum_flux", "momentum_update")


class Kernels:
    """Where kernels come from, and the form in which they take arrays, rectangles and the clock."""

    def find(self, name: str) -> Callable[..., Any]:
        """The kernel of this name."""
        raise NotImplementedError

    def array(self, field: Array) -> Array:
        """A field as the kernels take it."""
        raise NotImplementedError

    def rects(self, rects: Any) -> Any:
        """Rectangles as the kernels take them."""
        raise NotImplementedError

    def numbers(self, *values: float) -> list[Any]:
        """Numbers such as dx as the kernels take them."""
        return list(values)

    def reflections(self, rows: np.ndarray[Any, Any], fields: Sequence[Array]) -> list[Call]:
        """The calls that mirror fields at walls; `rows` are those of `clover.walls`."""
        return [(self.find("reflect"), (rows, tuple(fields)))]

    def clock(self, first: float) -> Array:
        """(time step, time, limit) before the first step, where the fields lie."""
        raise NotImplementedError

    def least(self, comm: Any, clock: Array) -> list[Call]:
        """The calls that replace the limit by the least of all ranks."""
        raise NotImplementedError


class Compiled(Kernels):
    """Compiled loops over NumPy views of fields of any library on the host."""

    def find(self, name: str) -> Callable[..., Any]:
        from armillary.network.halo.clover import loops, sweeps

        module = sweeps if name in _SWEEPS else loops
        found: Callable[..., Any] = getattr(module, name)
        return found

    def array(self, field: Array) -> Array:
        return np.from_dlpack(field)

    def rects(self, rects: Any) -> Any:
        return np.array(rects, np.int64)

    def clock(self, first: float) -> Array:
        return np.array([first, 0.0, 0.0])

    def least(self, comm: Any, clock: Array) -> list[Call]:
        native: Any = getattr(comm, "native", None)
        limit = clock[2:3]
        if hasattr(native, "Allreduce"):
            from mpi4py import MPI

            return [(native.Allreduce, (MPI.IN_PLACE, limit, MPI.MIN))]
        from armillary.comm import IN_PLACE, MIN

        return [(comm.allreduce, (IN_PLACE, limit, MIN))]


class Formulas(Kernels):
    """Formulas on whole arrays of NumPy, PyTorch or CuPy; `like` is one of the fields."""

    def __init__(self, like: Array) -> None:
        self._like = like

    def find(self, name: str) -> Callable[..., Any]:
        from armillary.network.halo.clover import formulas

        found: Callable[..., Any] = getattr(formulas, name)
        return found

    def array(self, field: Array) -> Array:
        return namespace(self._like).from_dlpack(field)

    def rects(self, rects: Any) -> Any:
        return [[int(x) for x in row] for row in rects]

    def reflections(self, rows: np.ndarray[Any, Any], fields: Sequence[Array]) -> list[Call]:
        return super().reflections(self.rects(rows), fields)

    def clock(self, first: float) -> Array:
        from armillary.arrays import device_of

        return namespace(self._like).asarray([first, 0.0, 0.0], dtype=self._like.dtype, device=device_of(self._like))

    def least(self, comm: Any, clock: Array) -> list[Call]:
        from armillary.comm import IN_PLACE, MIN

        return [(comm.allreduce, (IN_PLACE, clock[2:3], MIN))]


class Launched(Formulas):
    """Triton's kernels on tensors of a GPU. Tables of rectangles and of numbers lie on the device, made once for each content."""

    def __init__(self, like: Array) -> None:
        super().__init__(like)
        self._stride = int(like.stride(0))
        self._tables: dict[Any, Array] = {}

    def _table(self, rows: Any, dtype: Any) -> Array:
        if rows not in self._tables:
            self._tables[rows] = namespace(self._like).asarray(rows, dtype=dtype, device=self._like.device)
        return self._tables[rows]

    def find(self, name: str) -> Callable[..., Any]:
        from armillary.network.halo.clover import device_loops

        launch, stride, begin = getattr(device_loops, name), self._stride, device_loops.begin

        def advanced(clock: Array, limits: Array) -> None:
            launch[1,](clock, limits)

        def limited(rects: tuple[Array, tuple[int, int]], *arguments: Any) -> None:
            begin[1,](arguments[-1])
            launch[rects[1]](rects[0], *arguments, stride)

        def launched(rects: tuple[Array, tuple[int, int]], *arguments: Any) -> None:
            launch[rects[1]](rects[0], *arguments, stride)

        found: dict[str, Callable[..., Any]] = {"advance": advanced, "time_step": limited}
        return found.get(name, launched)

    def rects(self, rects: Any) -> tuple[Array, tuple[int, int]]:
        """The table and the grid of a launch."""
        from armillary.network.halo.clover.device_loops import BLOCK

        rows = tuple(tuple(int(x) for x in row) for row in rects)
        most = max((high - low) * (right - left) for low, high, left, right in rows)
        return self._table(rows, namespace(self._like).int64), (-(-most // BLOCK), len(rows))

    def numbers(self, *values: float) -> list[Any]:
        return [self._table(values, self._like.dtype)]

    def reflections(self, rows: np.ndarray[Any, Any], fields: Sequence[Array]) -> list[Call]:
        from armillary.network.halo.clover.device_loops import BLOCK, reflect

        calls: list[Call] = []
        for batch in _side_by_side(rows.tolist()):
            lines = []
            for number, axis, to, of, low, high, sign in batch:
                field = fields[number]
                across = self._stride if axis == 0 else 1
                along = 1 if axis == 0 else self._stride
                item = field.element_size()
                start, ahead = field.data_ptr() + item * along * low, item * across
                lines.append((start + ahead * to, start + ahead * of, along, high - low, sign))
            grid = (-(-max(line[3] for line in lines) // BLOCK), len(lines))
            calls.append((reflect[grid], (self._table(tuple(lines), namespace(self._like).int64), self._like)))
        return calls


def _side_by_side(rows: list[list[int]]) -> list[list[list[int]]]:
    """Rows of mirrors in batches that may be made at once: none reads or writes a line that another row of its batch writes."""
    batches: list[list[list[int]]] = []
    for axis in (0, 1):
        here = [row for row in rows if row[1] == axis]
        first = len(batches)
        for row in here:
            if len(batches) == first or any(
                one[0] == row[0] and {row[2], row[3]} & {one[2]} | {one[3]} & {row[2]} for one in batches[-1]
            ):
                batches.append([])
            batches[-1].append(row)
    return batches


def owned(fields: dict[str, np.ndarray[Any, Any]], library: str, device: str = "cpu") -> dict[str, Array]:
    """Return fields as arrays that a library owns, each in memory of its own."""
    if library == "numpy":
        return {name: field.copy() for name, field in fields.items()}
    from armillary import extras

    if library == "cupy":
        cupy = extras.need("cupy")
        return {name: cupy.asarray(field) for name, field in fields.items()}
    torch = extras.need("torch")
    return {name: torch.tensor(field, device=device) for name, field in fields.items()}


def hosted(fields: dict[str, Array], names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return some fields on the host."""
    from armillary.arrays import to_host

    return {name: np.asarray(to_host(fields[name])) for name in names}
