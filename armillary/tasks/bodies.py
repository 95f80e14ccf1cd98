"""The arguments that a body receives, and what happens to its return value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.tasks.data import Data, Piece, copy_of

if TYPE_CHECKING:
    from armillary.tasks.graph import Task


def resolve(thing: Any, data: Callable[[Data], Any], results: Any) -> Any:
    """An argument as the body sees it: a handle becomes its value, a part a view, and a task its result, also inside lists and tuples."""
    if isinstance(thing, Data):
        return data(thing)
    if isinstance(thing, Piece):
        return thing.of(data(thing.data))
    if hasattr(thing, "before"):
        return results.get(thing.id)
    if isinstance(thing, list | tuple):
        items = [resolve(item, data, results) for item in thing]
        return items if isinstance(thing, list) else tuple(items)
    return thing


def value_of(data: Data) -> Any:
    """The value that a handle holds in this process."""
    return data.value


def call_here(task: Task, results: Any) -> Any:
    """Calls the body of a task in this process, on the values of its handles."""
    if task.call is None:
        return None
    if task.plain:
        return task.call(*task.args, **task.kwargs) if task.kwargs else task.call(*task.args)
    args = [resolve(a, value_of, results) for a in task.args]
    kwargs = {k: resolve(v, value_of, results) for k, v in (task.kwargs or {}).items()}
    return task.call(*args, **kwargs)


def keep_written(task: Task, result: Any) -> None:
    """Gives handles that hold no array their new value, which is what the body returned (one item per handle if it writes several)."""
    replaced = [a.data for a in task.accesses if a.mode != "reads" and not a.data.in_place]
    if len(replaced) == 1:
        replaced[0].value = result
    elif replaced:
        if not isinstance(result, tuple) or len(result) != len(replaced):
            raise InputError(
                f"task {task.key} writes {len(replaced)} handles that hold no array; expected a tuple with one result per handle"
            )
        for data, value in zip(replaced, result):
            data.value = value


def snapshot(task: Task, data: Callable[[Data], Any]) -> list[tuple[Any, Any]]:
    """Copies the parts that a task updates in place, so that another attempt starts from the same data as the first."""
    parts = [a.piece.of(data(a.data)) for a in task.accesses if a.mode in ("updates", "commutes", "writes") and a.data.in_place]
    return [(part, copy_of(part)) for part in parts]


def restore(saved: list[tuple[Any, Any]]) -> None:
    """Undoes the changes of an attempt to the parts of a `snapshot`."""
    for part, copy in saved:
        part[...] = copy
