"""What a body is given, and what becomes of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.tasks.data import Data, Piece, copy_of

if TYPE_CHECKING:
    from armillary.tasks.graph import Task


def resolve(thing: Any, data: Callable[[Data], Any], results: Any) -> Any:
    """An argument as the body sees it: a handle as its value, a part as a view, a task as its result; lists and tuples inside too."""
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
    """Call a task's body in this process on the values that its handles hold."""
    if task.call is None:
        return None
    if task.plain:
        return task.call(*task.args, **task.kwargs) if task.kwargs else task.call(*task.args)
    args = [resolve(a, value_of, results) for a in task.args]
    kwargs = {k: resolve(v, value_of, results) for k, v in (task.kwargs or {}).items()}
    return task.call(*args, **kwargs)


def keep_written(task: Task, result: Any) -> None:
    """Give handles that hold no array their new value: what the body returned (one item each when it writes several)."""
    replaced = [a.data for a in task.accesses if a.mode != "reads" and not a.data.in_place]
    if len(replaced) == 1:
        replaced[0].value = result
    elif replaced:
        if not isinstance(result, tuple) or len(result) != len(replaced):
            raise InputError(f"task {task.key} writes {len(replaced)} handles that hold no array; expected a tuple of as many results")
        for data, value in zip(replaced, result):
            data.value = value


def snapshot(task: Task, data: Callable[[Data], Any]) -> list[tuple[Any, Any]]:
    """Copies of the parts that a task updates in place, so that another attempt meets what the first one met."""
    parts = [a.piece.of(data(a.data)) for a in task.accesses if a.mode in ("updates", "commutes", "writes") and a.data.in_place]
    return [(part, copy_of(part)) for part in parts]


def restore(saved: list[tuple[Any, Any]]) -> None:
    """Undo what an attempt did to the parts of a `snapshot`."""
    for part, copy in saved:
        part[...] = copy
