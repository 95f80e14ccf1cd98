"""Clients of a Dask scheduler: a local one of our own, or one at an address of the user's.

A Dask scheduler runs whatever reaches it, so the local one speaks TLS with credentials that are made for it, live in memory and end with
it, and has no dashboard: another user of this machine cannot give it work. At an address of the user's own (`tcp://…`, `tls://…`) the
user answers for who may reach it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from armillary import extras
from armillary.errors import InputError

#: A scheduler must answer within this many seconds.
ANSWER_S = 10


@contextmanager
def local_client(workers: int = 2) -> Iterator[Any]:
    """A client of worker processes on this machine, which end with it."""
    dask = extras.need("distributed")
    extras.need("cryptography")
    how: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    security = extras.need("distributed.security").Security.temporary()
    with (
        dask.LocalCluster(n_workers=workers, security=security, **how) as cluster,
        dask.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def client_at(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address, which has to answer soon."""
    dask = extras.need("distributed")
    try:
        client = dask.Client(address, timeout=ANSWER_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"no Dask scheduler answered within {ANSWER_S} s ({type(error).__name__})", where=address) from None
    with client:
        yield client
