"""A program as kernels in program order, with the data that each reads and updates.

The order of the list is that of the sequential program, and the accesses give the data flow. Every technique runs the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from armillary.runtime.dataflow.apis.api import Kernel


@dataclass(frozen=True)
class Operation:
    """One kernel call: which API runs it, on which arguments, and the names of the data that it reads and updates."""

    kernel: Kernel
    api: str
    args: tuple[Any, ...]
    reads: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()


@dataclass
class Application:
    """A program with its data in memory; `reset` brings the data back to the start."""

    name: str
    operations: list[Operation]
    #: The data by name, changed in place; several names may stand for parts of one array.
    data: Mapping[str, np.ndarray]
    #: The arrays that `reset` restores, each with its content at the start.
    initial: list[tuple[np.ndarray, np.ndarray]]
    #: How far the result is from the right one, relative to what rounding explains; at most 1 is right.
    error: Callable[[], float]
    #: Names of APIs that have a variant of every kernel.
    everywhere: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        kernels = {operation.kernel.name: operation.kernel for operation in self.operations}.values()
        shared = [set(kernel.variants) for kernel in kernels]
        names = set.intersection(*shared) if shared else set()
        self.everywhere = tuple(sorted(names))

    @property
    def label(self) -> str:
        """The application with its size and mix, in a word."""
        return f"{self.name} {sum(array.nbytes for array, _ in self.initial)} {'+'.join(self.apis)}"

    @property
    def apis(self) -> tuple[str, ...]:
        """The APIs that the program uses, sorted."""
        return tuple(sorted({operation.api for operation in self.operations}))

    def reset(self) -> None:
        """Puts the data of the start back."""
        for array, content in self.initial:
            array[...] = content

    def on(self, api: str) -> list[Operation]:
        """The same program with every kernel on one API."""
        return [replace(operation, api=api) for operation in self.operations]


def stages(operations: Iterable[Operation]) -> list[list[Operation]]:
    """The operations by depth in their data flow: those of one stage do not depend on each other."""
    found: list[list[Operation]] = []
    written: dict[str, int] = {}
    used: dict[str, int] = {}
    for operation in operations:
        names = (*operation.reads, *operation.updates)
        depth = max([written.get(name, 0) for name in names] + [used.get(name, 0) for name in operation.updates], default=0)
        if depth == len(found):
            found.append([])
        found[depth].append(operation)
        for name in operation.reads:
            used[name] = max(used.get(name, 0), depth + 1)
        for name in operation.updates:
            written[name] = used[name] = depth + 1
    return found
