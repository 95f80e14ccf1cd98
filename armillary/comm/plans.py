"""Calls prepared once and made many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.comm.failures import CommError

#: Begins the call and gives what ends it.
Begin = Callable[[], Callable[[], Any]]


class Plan:
    """A call with its buffers, made each time by `start` and `wait`; a batch of transfers that stays the same.

    Transfers, exchanges between neighbours and, on MPI, all collective calls are under way from `start` on. A collective that runs as an
    algorithm over messages (on threads, or chosen by name) does its work in `wait`: no rank may then wait for another between its `start`
    and its `wait`.
    """

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._end: Callable[[], Any] | None = None

    def start(self) -> Plan:
        """Begin; the buffers belong to the plan until `wait`."""
        if self._end is not None:
            raise CommError("the plan was started already; wait for it first")
        self._end = self._begin()
        return self

    def wait(self) -> Any:
        """End what `start` began; what the call itself would return."""
        if self._end is None:
            raise CommError("the plan was not started")
        end, self._end = self._end, None
        return end()
