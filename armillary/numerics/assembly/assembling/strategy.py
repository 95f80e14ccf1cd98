"""The methods of every way to assemble: it is prepared once for a mesh and then run with new coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.arena import Technique

from ..elements.elements import Element, Work

if TYPE_CHECKING:
    from .symbolic import Symbolic

#: The strategies by name, in the order of every table and of the network's outputs.
STRATEGIES = {
    "coo-sort": ".coo_sort:CooSort",
    "scatter-atomic": ".scatter_atomic:ScatterAtomic",
    "coloured": ".coloured:Coloured",
    "row-gather": ".row_gather:RowGather",
    "blocked": ".blocked:Blocked",
}


@dataclass(frozen=True)
class Problem:
    """A checked mesh with its element and physics; `work` is what the kernels read, at unit coefficients."""

    element: Element
    physics: str
    work: Work
    map_bytes: int = 1 << 32

    @property
    def nodes(self) -> int:
        """Nodes of the mesh, unused ones included."""
        return int(self.work.points.shape[1])

    @property
    def elements(self) -> int:
        """Elements of the mesh."""
        return int(self.work.cells.shape[0])

    def part(self, chosen: np.ndarray) -> Problem:
        """Returns the same problem on some of its elements."""
        stored = self.work.stored[:, chosen] if self.work.stored.shape[1] else self.work.stored
        work = self.work._replace(cells=np.ascontiguousarray(self.work.cells[chosen]), stored=np.ascontiguousarray(stored))
        return Problem(self.element, self.physics, work, self.map_bytes)


@dataclass(frozen=True)
class Prepared:
    """A strategy ready to run: `numeric(coefficients)` gives (data, indices, indptr) of the matrix in CSR."""

    numeric: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
    #: Facts about the preparation: colours, parts, …
    facts: dict[str, Any]


class Strategy(Technique):
    """One way to assemble; a frozen dataclass."""

    name: ClassVar[str] = ""
    #: Whether the same matrix comes out bit for bit whatever the number of threads.
    deterministic: ClassVar[bool] = True
    #: Whether it needs the symbolic phase.
    symbolic: ClassVar[bool] = True

    def prepare(self, problem: Problem, symbolic: Symbolic | None = None) -> Prepared:
        """Returns everything that depends on the mesh alone; `symbolic` is made where it is needed and not given."""
        raise NotImplementedError


def structure(problem: Problem, given: Symbolic | None) -> Symbolic:
    """Returns the symbolic phase of a problem, made unless it is given."""
    from .symbolic import symbolic

    return given or symbolic(problem.work.cells, problem.nodes, problem.work.dofs, problem.map_bytes)


def strategy(name: str) -> Strategy:
    """Returns the strategy of this name at its default parameters."""
    import importlib

    from armillary.errors import unknown

    if name not in STRATEGIES:
        raise unknown("strategy", str(name), (*STRATEGIES, "auto"))
    module, _, attribute = STRATEGIES[name].partition(":")
    return getattr(importlib.import_module(module, __package__.rpartition(".")[0]), attribute)()
