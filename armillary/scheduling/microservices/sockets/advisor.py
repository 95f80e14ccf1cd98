"""Advice for a running application: quotas by service from its last window, as the simulator or Prometheus saw it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.scheduling.microservices.application.application import LEAST_CORES, MOST_CORES, Application
from armillary.scheduling.microservices.readers.prometheus import Series
from armillary.scheduling.microservices.simulation.play import Controller
from armillary.scheduling.microservices.simulation.window import Floats, Window

#: Numbers of each service that a window must have, and those that it may have, with what stands for them.
NEEDED = ("used", "quota", "rate")
OPTIONAL = {"queue": 0.0, "occupancy": 0.0, "p50_s": 0.0, "p99_s": 0.0}


class Advisor:
    """`decide(window)` once per second gives cores per replica by service, and `promise` the probability of a violation next."""

    def __init__(self, app: Application, controller: Controller) -> None:
        self.app, self._controller = app, controller
        self.promise: float | None = None

    def decide(self, window: Window | Mapping[str, Any]) -> dict[str, float]:
        """Cores per replica by service.

        window: a `Window`, or `{"services": {name: {used, quota, rate, queue, occupancy, p50_s, p99_s, replicas}}, "p50_slo", "p99_slo"}`
        with cores per replica in `quota`, cores of all replicas in `used`, and end-to-end percentiles over the objective.
        """
        seen = window if isinstance(window, Window) else window_of(self.app, window)
        if len(seen.used) != len(self.app.services):
            raise InputError(f"found {len(seen.used)} services; expected {len(self.app.services)}", where="window")
        decision = self._controller.decide(seen)
        self.promise = decision.promise
        return dict(zip(self.app.names, np.round(decision.quotas, 3).tolist()))


def window_of(app: Application, facts: Mapping[str, Any]) -> Window:
    """A window from numbers by service name."""
    services = facts.get("services")
    if not isinstance(services, Mapping):
        raise InputError("found no services; expected numbers by service", where="window")
    strange = [name for name in services if name not in app.names]
    missing = [name for name in app.names if name not in services]
    if strange or missing:
        raise InputError(f"found {'the unknown' if strange else 'no'} service {one_line(str((strange or missing)[0]), 40)}", where="window")

    def column(key: str, default: float | None = None) -> Floats:
        return np.array([_number(services[name], key, name, default) for name in app.names])

    replicas = np.array([int(_number(services[name], "replicas", name, float(r))) for name, r in zip(app.names, app.replicas)])
    quotas = column("quota")
    if ((quotas < LEAST_CORES) | (quotas > MOST_CORES)).any() or (replicas < 1).any():
        raise InputError(f"found a quota outside {LEAST_CORES:g} to {MOST_CORES:g} cores, or no replica", where="window")
    p50, p99 = (_number(facts, key, "window", None) for key in ("p50_slo", "p99_slo"))
    rest = {key: column(key, default) for key, default in OPTIONAL.items()}
    types = np.zeros(len(app.requests))
    return Window(
        column("used"), quotas * replicas, quotas, replicas, rest["queue"], rest["occupancy"], rest["p50_s"], rest["p99_s"],
        column("rate"), types, types, p50, p99, 0, 0, 0,
    )  # fmt: skip


def _number(facts: Any, key: str, name: str, default: float | None) -> float:
    value = facts.get(key, default) if isinstance(facts, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and 0 <= value <= 1e9):
        raise InputError(f"{key}: found {one_line(repr(value), 40)}; expected a number of at least 0", where=one_line(name, 40))
    return float(value)


def windows_of(app: Application, queries: Mapping[str, Sequence[Series]], label: str = "service") -> list[Window]:
    """Windows from Prometheus' range queries: `used`, `quota`, `rate`, … one series per service; `p50_slo` and `p99_slo` one each.

    label: the label that names the service. A window is made for every time that all series of `used` have; what a query lacks counts as
    in `Advisor.decide`.
    """
    for key in (*NEEDED, "p50_slo", "p99_slo"):
        if not queries.get(key):
            raise InputError(f"found no query {key}; expected {', '.join(NEEDED)}, p50_slo and p99_slo", where="queries")
    by_service: dict[str, dict[str, dict[float, float]]] = {}
    for key in (*NEEDED, *OPTIONAL, "replicas"):
        for one in queries.get(key, ()):
            name = one.labels.get(label, "")
            if name in app.names:
                by_service.setdefault(name, {})[key] = dict(zip(one.times_s.tolist(), one.values.tolist()))
    whole = {key: dict(zip(queries[key][0].times_s.tolist(), queries[key][0].values.tolist())) for key in ("p50_slo", "p99_slo")}
    lacking = [name for name in app.names if any(key not in by_service.get(name, {}) for key in NEEDED)]
    if lacking:
        raise InputError(f'found no series with {label}="{one_line(lacking[0], 40)}" for {", ".join(NEEDED)}', where="queries")
    times = sorted(set.intersection(*(set(by_service[name]["used"]) for name in app.names)))
    return [
        window_of(app, {
            "services": {
                name: {key: known[at] for key, known in by_service[name].items() if known.get(at) == known.get(at) and at in known}
                for name in app.names
            },
            **{key: known.get(at) for key, known in whole.items()},
        })
        for at in times
    ]  # fmt: skip
