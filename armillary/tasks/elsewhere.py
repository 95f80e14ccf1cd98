"""How a body in another process refers to data and tasks of the graph: by name and by number, never by the object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.tasks.data import Reduction

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph, Task


@dataclass(frozen=True)
class Named:
    """A handle of the running graph, or a part of one, which `current().data(name)` returns if the graph is in another process."""

    name: str
    index: Any = None

    def __getitem__(self, index: Any) -> Named:
        if self.index is not None:
            raise InputError(f"data {self.name}: a part has no parts; expected one index")
        return Named(self.name, index)


@dataclass(frozen=True)
class Added:
    """A task that a body added to the running graph, for use as an argument of tasks that it adds later."""

    number: int
    #: The key of the task; empty until the graph has it.
    key: str = ""


@dataclass(frozen=True)
class Request:
    """A request of a body to add a task, with the parameters of `Graph.add`."""

    call: Any
    args: tuple[Any, ...]
    how: dict[str, Any]


def add(graph: Graph, request: Request, known: Mapping[int, Task] | None = None) -> Task:
    """Adds the task that a body in another process requested; `known` are the tasks that its numbers refer to (by default those of the
    graph).
    """

    def found(thing: Any) -> Any:
        if isinstance(thing, Named):
            data = graph.handle(thing.name)
            return data if thing.index is None else data[thing.index]
        if isinstance(thing, Added):
            return graph.tasks[thing.number] if known is None else known[thing.number]
        if isinstance(thing, Reduction):
            return Reduction(found(thing.piece), thing.combine, thing.neutral)
        if isinstance(thing, list | tuple):
            items = [found(item) for item in thing]
            return items if isinstance(thing, list) else tuple(items)
        return thing

    how: dict[str, Any] = {name: found(value) for name, value in request.how.items()}
    if isinstance(how.get("kwargs"), Mapping):
        how["kwargs"] = {name: found(value) for name, value in how["kwargs"].items()}
    return graph.add(request.call, *(found(a) for a in request.args), **how)
