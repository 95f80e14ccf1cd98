"""Small applications and works for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.scheduling.microservices import Application, MicroservicesWork, RequestType, Service, tree


def single(threads: int, cores: float, cpu_ms: float = 10.0, slo_ms: float = 1000.0, cv: float = 1.0) -> Application:
    """One service."""
    services = (Service("only", threads, cpu_ms, cv, quota=cores),)
    return Application("single", services, (RequestType("ask", 1.0, tree("only")),), slo_ms, 50.0)


def pair(threads: tuple[int, int] = (8, 8), quotas: tuple[float, float] = (2.0, 2.0), slo_ms: float = 400.0) -> Application:
    """A calls B."""
    services = (Service("a", threads[0], 8.0, quota=quotas[0]), Service("b", threads[1], 12.0, quota=quotas[1]))
    return Application("pair", services, (RequestType("ask", 1.0, tree("a", tree("b"))),), slo_ms, 80.0)


def given(app: Application, arrival_s: Any, demand_s: Any, seconds: int) -> MicroservicesWork:
    """A work of one request type whose calls take exactly these CPU seconds, [requests, calls]."""
    demand = np.atleast_2d(np.asarray(demand_s))
    many, calls = demand.shape
    assert calls == app.flat.root[1]
    return MicroservicesWork(
        app, np.asarray(arrival_s, np.float64), np.zeros(many, np.int64), np.arange(many, dtype=np.int64) * calls,
        np.ascontiguousarray(demand.ravel(), np.float32), seconds, np.zeros(seconds),
    )  # fmt: skip
