"""An application: services with threads and CPU demands, and request types, each of which is a tree of calls.

A call computes, and then makes its own calls in sequential groups; the calls of one group run in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_SERVICES, MOST_CALLS, MOST_TYPES, MOST_THREADS, MOST_REPLICAS = 10_000, 1_000, 1_000, 100_000, 1_000
#: The cores that a replica may have.
LEAST_CORES, MOST_CORES = 0.1, 16.0
#: The share of the owner's cores that the nominal rate keeps busy.
OWNER_USE = 1 / 3


@dataclass(frozen=True)
class Service:
    """A service: threads per replica, mean CPU time of a call in ms, its coefficient of variation, replicas, and where it runs."""

    name: str
    threads: int
    cpu_ms: float
    cv: float = 1.0
    replicas: int = 1
    #: Cores per replica that its owner asks for; None for what keeps a third of them busy at the nominal rate.
    quota: float | None = None
    #: The machine that it runs on, if that is known.
    node: str = ""


@dataclass(frozen=True)
class Call:
    """A call of a service, with the groups of calls that it makes one after the other."""

    service: str
    groups: tuple[tuple[Call, ...], ...] = ()

    def walk(self) -> Iterator[Call]:
        """This call and all below it."""
        waiting = [self]
        while waiting:
            one = waiting.pop()
            yield one
            waiting += [call for group in one.groups for call in group]


@dataclass(frozen=True)
class RequestType:
    """A type of request: its share of all requests, its tree, and its latency objective in ms (None for the application's)."""

    name: str
    share: float
    tree: Call
    slo_ms: float | None = None


@dataclass(frozen=True, eq=False)
class Flat:
    """The trees as arrays. Calls are numbered type after type, and within a type parents come before their children."""

    service: Ints
    #: Groups of call c are `first_group[c] : first_group[c + 1]`, and calls of group g are `calls[first_call[g] : first_call[g + 1]]`.
    first_group: Ints
    first_call: Ints
    calls: Ints
    #: The first call of each type, and how many there are in all at the end.
    root: Ints
    depth: Ints
    #: Whether service a calls service b.
    calls_to: npt.NDArray[np.bool_]
    fan: int


@dataclass(frozen=True)
class Application:
    """Services and request types with a latency objective, checked."""

    name: str
    services: tuple[Service, ...]
    requests: tuple[RequestType, ...]
    slo_ms: float
    #: Requests per second for which the owner sized the services.
    rate: float = 100.0

    def __post_init__(self) -> None:
        check(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The services' names."""
        return tuple(service.name for service in self.services)

    @cached_property
    def flat(self) -> Flat:
        """The trees as arrays."""
        return _flattened(self)

    @cached_property
    def shares(self) -> Floats:
        """The share of each request type."""
        return np.array([request.share for request in self.requests])

    @cached_property
    def slo_s(self) -> Floats:
        """The objective of each request type, in seconds."""
        return np.array([1e-3 * (self.slo_ms if one.slo_ms is None else one.slo_ms) for one in self.requests])

    @cached_property
    def cpu_s(self) -> Floats:
        """The mean CPU seconds of a call of each service."""
        return np.array([1e-3 * service.cpu_ms for service in self.services])

    @cached_property
    def visits(self) -> Floats:
        """Calls of each service per request."""
        flat = self.flat
        found = np.zeros(len(self.services))
        for r, share in enumerate(self.shares):
            found += share * np.bincount(flat.service[flat.root[r] : flat.root[r + 1]], minlength=len(found))
        return found

    @cached_property
    def replicas(self) -> Ints:
        """Replicas of each service at the start."""
        return np.array([service.replicas for service in self.services], np.int64)

    @cached_property
    def threads(self) -> Ints:
        """Threads of one replica of each service."""
        return np.array([service.threads for service in self.services], np.int64)

    @cached_property
    def quotas(self) -> Floats:
        """Cores per replica that owners ask for."""
        need = self.rate * self.visits * self.cpu_s / OWNER_USE / self.replicas
        asked = [need[i] if service.quota is None else service.quota for i, service in enumerate(self.services)]
        return np.clip(np.round(np.array(asked), 3), LEAST_CORES, MOST_CORES)

    @cached_property
    def levels(self) -> Ints:
        """How many calls a service is below the entry, at most, [services]."""
        flat, found = self.flat, np.zeros(len(self.services), np.int64)
        np.maximum.at(found, flat.service, flat.depth)
        return found

    @cached_property
    def kinds(self) -> Ints:
        """0 for services that requests enter, 2 for those that call no other, 1 for the rest."""
        flat = self.flat
        found = np.where(flat.calls_to.any(1), 1, 2)
        found[flat.service[flat.root[:-1]]] = 0
        return found

    @cached_property
    def edges(self) -> Ints:
        """How services are related, [services, services]: 0 calls, 1 is called by, 2 on one node, 3 and 4 both; −1 none."""
        calls = self.flat.calls_to
        nodes = np.array([service.node for service in self.services])
        near = (nodes[:, None] == nodes[None, :]) & (nodes != "")[:, None] & ~np.eye(len(nodes), dtype=bool)
        found = np.where(near, 2, -1)
        found = np.where(calls, np.where(near, 3, 0), found)
        return np.where(calls.T & ~calls, np.where(near, 4, 1), found).astype(np.int64)

    def critical_s(self, type_: int) -> float:
        """The mean time of a request of this type on idle services: the sum of service times on the critical path."""
        means = dict(zip(self.names, self.cpu_s.tolist()))
        order = list(self.requests[type_].tree.walk())
        took: dict[int, float] = {}
        for call in reversed(order):
            took[id(call)] = means[call.service] + sum(max((took[id(one)] for one in group), default=0.0) for group in call.groups)
        return took[id(order[0])]


def check(app: Application) -> None:
    """Raises InputError, with the key as its place, for an application that cannot be played."""
    if not 1 <= len(app.services) <= MOST_SERVICES:
        raise InputError(f"found {len(app.services):,} services; expected 1 to {MOST_SERVICES:,}", where="services")
    if not 1 <= len(app.requests) <= MOST_TYPES:
        raise InputError(f"found {len(app.requests):,} request types; expected 1 to {MOST_TYPES:,}", where="requests")
    for i, service in enumerate(app.services):
        _check_service(service, f"services[{i}]")
    names = set(app.names)
    if len(names) < len(app.services):
        twice = next(name for name in app.names if app.names.count(name) > 1)
        raise InputError(f'found "{one_line(twice, 40)}" twice; expected different names', where="services")
    _number("slo_ms", app.slo_ms, 1e-3, 1e7)
    _number("rate", app.rate, 1e-6, 1e7)
    for r, request in enumerate(app.requests):
        _check_tree(request, names, f"requests[{r}]")
        _number(f"requests[{r}].share", request.share, 0.0, 1.0)
    total = sum(request.share for request in app.requests)
    if abs(total - 1) > 1e-6:
        raise InputError(f"found shares that sum to {total:.6g}; expected 1 within 1e-6", where="requests")
    for r, request in enumerate(app.requests):
        if request.slo_ms is not None:
            _number(f"requests[{r}].slo_ms", request.slo_ms, 1e-3, 1e7)
        bound = 1e3 * app.critical_s(r)
        if 1e3 * app.slo_s[r] < bound:
            said = f"found an objective of {1e3 * app.slo_s[r]:g} ms for {one_line(request.name, 40)}"
            raise InputError(f"{said}; expected at least {bound:.4g} ms, the service times on its critical path", where=f"requests[{r}]")


def _check_service(service: Service, at: str) -> None:
    if not service.name:
        raise InputError("found an empty name; expected one", where=f"{at}.name")
    for key, value, most in (("threads", service.threads, MOST_THREADS), ("replicas", service.replicas, MOST_REPLICAS)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InputError(f"found {one_line(repr(value), 40)}; expected a whole number from 1 to {most:,}", where=f"{at}.{key}")
    _number(f"{at}.cpu_ms", service.cpu_ms, 1e-3, 1e6)
    _number(f"{at}.cv", service.cv, 0.0, 100.0)
    if service.quota is not None:
        if not service.quota > 0:
            raise InputError(f"found {service.quota:g}; expected a quota above 0", where=f"{at}.quota")
        _number(f"{at}.quota", service.quota, LEAST_CORES, MOST_CORES)


def _check_tree(request: RequestType, names: set[str], at: str) -> None:
    many = 0
    waiting: list[tuple[Call, tuple[str, ...]]] = [(request.tree, ())]
    while waiting:
        call, above = waiting.pop()
        many += 1
        if many > MOST_CALLS:
            raise InputError(f"found more than {MOST_CALLS:,} calls; expected at most that many per request", where=f"{at}.tree")
        if call.service not in names:
            raise InputError(f'found the service "{one_line(call.service, 40)}"; expected one that is declared', where=f"{at}.tree")
        if call.service in above:
            ring = " → ".join((*above[above.index(call.service) :], call.service))
            raise InputError(f"found a cycle, {one_line(ring, 120)}; expected no service below itself", where=f"{at}.tree")
        waiting += [(one, (*above, call.service)) for group in call.groups for one in group]


def _number(where: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InputError(f"found {one_line(repr(value), 40)}; expected a number from {least:g} to {most:g}", where=where)


def _flattened(app: Application) -> Flat:
    number = {name: i for i, name in enumerate(app.names)}
    service: list[int] = []
    depth: list[int] = []
    first_group, first_call, calls, root = [0], [0], [], [0]
    between = np.zeros((len(number), len(number)), bool)
    fan = 1
    for request in app.requests:
        start = len(service)
        order: list[tuple[Call, int]] = [(request.tree, 0)]
        at = 0
        while at < len(order):
            call, level = order[at]
            at += 1
            service.append(number[call.service])
            depth.append(level)
            for group in call.groups:
                for one in group:
                    calls.append(start + len(order))
                    order.append((one, level + 1))
                    between[number[call.service], number[one.service]] = True
                first_call.append(len(calls))
                fan = max(fan, len(group))
            first_group.append(len(first_call) - 1)
        root.append(len(service))
    made = [np.array(a, np.int64) for a in (service, first_group, first_call, calls, root, depth)]
    return Flat(made[0], made[1], made[2], made[3], made[4], made[5], between, fan)


def tree(service: str, *groups: Sequence[Call] | Call) -> Call:
    """A call with groups of calls; a single call is a group of its own."""
    return Call(service, tuple((one,) if isinstance(one, Call) else tuple(one) for one in groups))
