"""Reads a Dask graph as a graph of tasks.

In its plain form, `{key: (call, argument…)}`, an argument that is a key stands for that task's result, and one that is itself a call
becomes a task of its own. In the form that collections have had since 2024, `{key: node}`, a node names the keys that it needs and is
called with their results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from armillary.errors import InputError
from armillary.tasks.graph import Graph, Task

_HASH = re.compile(r"-(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$")


def from_dask(dsk: Any) -> Graph:
    """The graph of a Dask graph or collection; each task has the text of its Dask key as its key."""
    if hasattr(dsk, "__dask_graph__"):
        dsk = dsk.__dask_graph__()
    dsk = dict(dsk)
    graph = Graph("dask")
    made: dict[Any, Task] = {}
    for key in _ordered(dsk):
        value = dsk[key]
        if _is_node(value):
            needed = sorted(value.dependencies, key=str)
            made[key] = graph.add(call_node, value, needed, *(made[k] for k in needed), key=str(key), name=_name(key))
        elif _is_call(value):
            made[key] = graph.add(value[0], *(_swap(a, dsk, made, graph) for a in value[1:]), key=str(key))
        else:
            made[key] = graph.add(same, _swap(value, dsk, made, graph), key=str(key))
    return graph


def call_node(node: Any, keys: list[Any], *values: Any) -> Any:
    """Calls a node of a newer Dask graph with the results that it needs."""
    return node(dict(zip(keys, values)))


def _is_node(value: Any) -> bool:
    return hasattr(value, "dependencies") and callable(value)


def _is_call(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and callable(value[0])


def _name(key: Any) -> str:
    """A key without its hash: ("sum-0123456789abcdef0123456789abcdef", 0) is named "sum"."""
    return _HASH.sub("", str(key[0] if isinstance(key, tuple) and key else key))


def same(value: Any) -> Any:
    """Returns the value itself."""
    return value


def _is_key(thing: Any, dsk: Mapping[Any, Any]) -> bool:
    try:
        return thing in dsk
    except TypeError:
        return False


def _parents(thing: Any, dsk: Mapping[Any, Any]) -> list[Any]:
    if _is_node(thing):
        return list(thing.dependencies)
    if _is_key(thing, dsk):
        return [thing]
    return [p for item in thing for p in _parents(item, dsk)] if isinstance(thing, list | tuple) else []


def _swap(thing: Any, dsk: Mapping[Any, Any], made: dict[Any, Task], graph: Graph) -> Any:
    if _is_key(thing, dsk):
        return made[thing]
    if _is_call(thing):
        return graph.add(thing[0], *(_swap(a, dsk, made, graph) for a in thing[1:]))
    if isinstance(thing, list | tuple):
        items = [_swap(item, dsk, made, graph) for item in thing]
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
