"""Which kind of file it is: an application, Jaeger's traces, or a call graph of Alibaba's trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from armillary.errors import InputError
from armillary.files import read_json
from armillary.scheduling.microservices.application.application import Application

from .alibaba import read_alibaba
from .documents import Read, _rates, application_of
from .jaeger import traces_of
from .prometheus import read_rates
from .traces import application_from


def read_any(path: Path, how: Any) -> Read:
    """The application in a file, with an objective and rates of the user's where they are given."""
    where = str(path)
    options = {"threads": how.threads, "replicas": how.replicas, "slo_ms": how.slo_ms or None}
    if path.suffix.lower() == ".json":
        document = read_json(path)
        if isinstance(document, dict) and "data" in document and "services" not in document:
            traces, dropped = traces_of(document, where)
            found = application_from(traces, where, dropped=dropped, **options)
        else:
            app = application_of(document, where)
            found = Read(app, _rates(document, where) if "rates" in document else None)
            if how.slo_ms:
                found = replace(found, application=with_objective(app, how.slo_ms, where))
    else:
        found = read_alibaba(path, **options)
    if how.rates:
        found = replace(found, rates=read_rates(how.rates))
    return found


def with_objective(app: Application, slo_ms: float, where: str) -> Application:
    """The application with one objective for all requests."""
    requests = tuple(replace(request, slo_ms=None) for request in app.requests)
    try:
        return Application(app.name, app.services, requests, slo_ms, app.rate)
    except InputError as error:
        raise InputError(f"{error.where}: {error.message}", where=where) from None
