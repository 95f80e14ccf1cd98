"""First-come, first-served queues over whole arrays, with the results of the event loop at millions of items per second.

`servers` equal servers take items in the order of arrival, with ties broken by index. Times are in seconds.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop


def fifo(arrivals: np.ndarray, service: np.ndarray, servers: int = 1) -> np.ndarray:
    """When each item leaves: the k-th free server takes the next item at max(its arrival, the server's last departure).

    `arrivals` must not decrease, and `service` is in seconds of 0 or more.
    """
    at, takes = _checked(arrivals, "arrivals"), _checked(service, "service")
    if len(at) != len(takes):
        raise InputError(f"{len(at)} arrivals and {len(takes)} service times; expected the same number")
    if (np.diff(at) < 0).any():
        raise InputError(f"arrivals: item {int(np.argmax(np.diff(at) < 0)) + 1} arrives before the one before it")
    return _fifo(at, takes, _servers(servers))


def closed_loop(service: np.ndarray, think: np.ndarray, clients: int, servers: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(arrivals, departures) if each of `clients` sends its next item `think` seconds after its last one left.

    The k-th item to arrive takes `service[k]`, and its client then thinks for `think[k]`; all clients arrive at 0.
    """
    takes, thinks = _checked(service, "service"), _checked(think, "think")
    if len(takes) != len(thinks):
        raise InputError(f"{len(takes)} service and {len(thinks)} think times; expected the same number")
    return _closed(takes, thinks, _servers(clients, "clients"), _servers(servers))


def _checked(values: np.ndarray, what: str) -> np.ndarray:
    found = np.ascontiguousarray(values, np.float64)
    if found.ndim != 1 or not np.isfinite(found).all() or (found < 0).any():
        raise InputError(f"{what}: expected a list of seconds of 0 or more")
    return found


def _servers(count: int, what: str = "servers") -> int:
    if isinstance(count, bool) or not hasattr(count, "__index__") or not 1 <= count.__index__() <= 10_000_000:
        raise InputError(f"{what}: found {count!r}; expected a whole number from 1 to 10,000,000")
    return int(count)


@loop
def _fifo(arrivals, service, servers):  # type: ignore[no-untyped-def]
    n = len(arrivals)
    out = np.empty(n)
    if servers == 1:
        free = 0.0
        for i in range(n):
            free = max(arrivals[i], free) + service[i]
            out[i] = free
        return out
    # The times at which the servers become free, as a binary heap.
    free_at = np.zeros(servers)
    for i in range(n):
        done = max(arrivals[i], free_at[0]) + service[i]
        out[i] = done
        _replace_top(free_at, done)
    return out


@loop
def _replace_top(heap, value):  # type: ignore[no-untyped-def]
    place, size = 0, len(heap)
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@loop
def _closed(service, think, clients, servers):  # type: ignore[no-untyped-def]
    # Clients are equal, so only the times of their next arrivals are kept.
    n = len(service)
    arrive, depart = np.empty(n), np.empty(n)
    next_at, free_at = np.zeros(clients), np.zeros(servers)
    for i in range(n):
        arrive[i] = next_at[0]
        depart[i] = max(next_at[0], free_at[0]) + service[i]
        _replace_top(free_at, depart[i])
        _replace_top(next_at, depart[i] + think[i])
    return arrive, depart
