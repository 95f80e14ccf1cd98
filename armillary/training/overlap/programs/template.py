"""The template: loaders, consumers, storers and communicators (LCSC), over layouts that all devices share.

A compute SM takes the tasks w, w + stride, … and passes each through its loader (global to shared memory), its consumer (tensor cores)
and its storer (shared memory to global memory, here or on another device). Communicators have tasks of their own; they run on SMs that do
nothing else, or, with `comm_sms=0`, as one warp of each compute SM, which can drive TMA but not registers. A layout is one tensor of
the same shape on every device whose addresses all devices know (a parallel global layout).
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.training.overlap.machine.mechanisms import Gpu
from armillary.training.overlap.workload import Operator

from .primitives import Action, Region

ROLES = ("loader", "consumer", "storer", "communicator")
Actions = Iterator[Action]
#: Bytes of one TMA box, and of one access of a warp to registers.
BOX, WARP = 16384, 512


@dataclass(frozen=True)
class Layout:
    """The shape of a tensor that every device has; `filled` says where it begins: "zero", "input" or "nothing"."""

    shape: tuple[int, ...]
    filled: str = "zero"
    dtype: str = "float32"


@dataclass(frozen=True)
class Tile:
    """The output tile of a product and the step along its inner dimension, in elements."""

    m: int = 128
    n: int = 256
    k: int = 64
    #: Steps of the inner dimension that are in shared memory at once.
    stages: int = 3

    def shared_bytes(self, width: int) -> int:
        """Bytes of shared memory: the operands of all stages, and the tile that the storer sends while the next one is computed."""
        return width * (self.stages * self.k * (self.m + self.n) + self.m * self.n)

    def check(self, gpu: Gpu, width: int) -> None:
        """Raises InputError if the tile does not fit the SM."""
        need = self.shared_bytes(width)
        if need > gpu.shared:
            raise InputError(
                f"a tile of {self.m} × {self.n} with {self.stages} stages of {self.k} takes {need} bytes of shared memory; "
                f"{gpu.name} has {gpu.shared} per SM ({gpu.shared // 1024} KB)"
            )  # fmt: skip


@dataclass(frozen=True)
class TileProgram:
    """One operator on all devices. Roles yield actions for (device, task); a role that is not there does nothing."""

    operator: Operator
    tile: Tile = Tile()
    #: Whether communicators have SMs of their own; otherwise storers send, or communicators are warps of compute SMs.
    inter: bool = False

    #: The name of the operator that it computes.
    op: ClassVar[str] = ""
    #: Whether some role needs warps with registers (in-fabric reduction), and so SMs of its own.
    in_registers: ClassVar[bool] = False

    def layouts(self) -> dict[str, Layout]:
        """The tensors of every device."""
        raise NotImplementedError

    def bars(self) -> dict[str, int]:
        """Flags of every device, by name."""
        return {}

    def tasks(self, dev: int) -> int:
        """The number of compute tasks of a device."""
        raise NotImplementedError

    def comm_tasks(self, dev: int) -> int:
        """The number of tasks of its communicators."""
        return 0

    def lane(self, task: int, workers: int) -> int:
        """The compute SM that takes a task."""
        return task % workers

    def loader(self, dev: int, task: int) -> Actions:
        """Waits for, and brings, what the consumer reads."""
        return iter(())

    def consumer(self, dev: int, task: int) -> Actions:
        """Computes the tile."""
        return iter(())

    def storer(self, dev: int, task: int) -> Actions:
        """Puts the tile where it belongs."""
        return iter(())

    def communicator(self, dev: int, task: int) -> Actions:
        """Moves what no consumer holds."""
        return iter(())

    def outputs(self) -> str:
        """The layout that holds the result."""
        raise NotImplementedError

    def inputs(self, rng: np.random.Generator) -> list[dict[str, npt.NDArray[Any]]]:
        """Random input of every device, for checks."""
        raise NotImplementedError

    def expected(self, inputs: list[dict[str, npt.NDArray[Any]]]) -> list[npt.NDArray[Any]]:
        """What NumPy makes of the input, for every device."""
        raise NotImplementedError

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.operator.devices

    @property
    def stored(self) -> bool:
        """Whether tiles pass through a storer."""
        return type(self).storer is not TileProgram.storer

    @classmethod
    def device_lines(cls) -> int:
        """Lines of code of the roles, without docstrings, comments and blank lines, and of what they alone share (`place`, `enter`)."""
        return sum(_lines(getattr(cls, name)) for name in (*ROLES, "place", "enter") if hasattr(cls, name) and name in _own(cls))


def _own(cls: type) -> set[str]:
    return {name for base in cls.__mro__ if base is not TileProgram for name in vars(base)}


def _lines(function: Any) -> int:
    """Lines of a function that hold code."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    lines = {line for node in body for part in ast.walk(node) if isinstance(part, ast.stmt | ast.expr) for line in (part.lineno,)}
    return 1 + len(lines)


@dataclass(frozen=True)
class Grid:
    """Tiles of an m × n matrix, ragged at the edges, that go down `group` rows of tiles before they go right."""

    m: int
    n: int
    tm: int
    tn: int
    group: int = 8

    @cached_property
    def rows(self) -> int:
        """Tiles in a column."""
        return -(-self.m // self.tm)

    @cached_property
    def columns(self) -> int:
        """Tiles in a row."""
        return -(-self.n // self.tn)

    @cached_property
    def count(self) -> int:
        """All tiles."""
        return self.rows * self.columns

    def region(self, number: int) -> Region:
        """Rows and columns of a tile."""
        band, within = divmod(number, self.group * self.columns)
        height = min(self.group, self.rows - band * self.group)
        column, row = divmod(within, height)
        r, c = (band * self.group + row) * self.tm, column * self.tn
        return (r, min(r + self.tm, self.m)), (c, min(c + self.tn, self.n))


def shifted(region: Region, axis: int, by: int) -> Region:
    """The region, `by` further along an axis."""
    start, stop = region[axis]
    return (*region[:axis], (start + by, stop + by), *region[axis + 1 :])
