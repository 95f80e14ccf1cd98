"""A Dask graph as a graph of tasks: `{key: (call, argument…)}`, where an argument that is a key is that task's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armillary.errors import InputError
from armillary.tasks.graph import Graph, Task


def from_dask(dsk: Mapping[Any, Any]) -> Graph:
    """The graph of a Dask graph in its plain form (dicts of tuples); results come by the key's text."""
    graph = Graph("dask")
    made: dict[Any, Task] = {}
    for key in _ordered(dsk):
        value = dsk[key]
        if isinstance(value, tuple) and value and callable(value[0]):
            call, args = value[0], tuple(_swap(a, dsk, made) for a in value[1:])
            made[key] = graph.add(call, *args, key=str(key))
        else:
            made[key] = graph.add(same, _swap(value, dsk, made), key=str(key))
    return graph


def same(value: Any) -> Any:
    """The value itself."""
    return value


def _is_key(thing: Any, dsk: Mapping[Any, Any]) -> bool:
    try:
        return thing in dsk
    except TypeError:
        return False


def _parents(thing: Any, dsk: Mapping[Any, Any]) -> list[Any]:
    if _is_key(thing, dsk):
        return [thing]
    return [p for item in thing for p in _parents(item, dsk)] if isinstance(thing, list | tuple) else []


def _swap(thing: Any, dsk: Mapping[Any, Any], made: dict[Any, Task]) -> Any:
    if _is_key(thing, dsk):
        return made[thing]
    if isinstance(thing, tuple) and thing and callable(thing[0]):
        raise InputError("found a call inside the arguments of another; expected a graph whose calls are all keys", where="Dask graph")
    if isinstance(thing, list | tuple):
        items = [_swap(item, dsk, made) for item in thing]
        return items if isinstance(thing, list) else tuple(items)
    return thing


def _ordered(dsk: Mapping[Any, Any]) -> list[Any]:
    order: list[Any] = []
    state: dict[Any, int] = {}
    for root in dsk:
        stack = [root]
        while stack:
            key = stack[-1]
            if state.get(key, 0) == 2:
                stack.pop()
                continue
            value = dsk[key]
            parents = _parents(list(value) if isinstance(value, tuple) else value, dsk)
            waiting = [p for p in parents if state.get(p, 0) < 2]
            if not waiting:
                state[key] = 2
                order.append(stack.pop())
            elif state.get(key, 0) == 1 and any(state.get(p, 0) == 1 for p in waiting):
                raise InputError(f"cycle: through {key!r}", where="Dask graph")
            else:
                state[key] = 1
                stack += waiting
    return order
