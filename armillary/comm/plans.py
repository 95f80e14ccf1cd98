"""Plans: calls that are prepared once and made many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.comm.failures import CommError

#: Begins the call and returns the function that ends it.
Begin = Callable[[], Callable[[], Any]]
STARTED = "the plan was started already; wait for it first"
NOT_STARTED = "the plan was not started"


class Plan:
    """A prepared call with its buffers; each `start` followed by `wait` makes the call once.

    Transfers, exchanges between neighbours and, on MPI, `barrier`, `bcast` and `allreduce` are under way from `start` on. A collective
    call that runs as an algorithm over messages does its work in `wait`, so no rank may wait for another one between its `start` and its
    `wait`.
    """

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._end: Callable[[], Any] | None = None

    def start(self) -> Plan:
        """Begin the call. The buffers belong to the plan until `wait`."""
        if self._end is not None:
            raise CommError(STARTED)
        self._end = self._begin()
        return self

    def wait(self) -> Any:
        """End the call that `start` began, and return what the call itself would return."""
        if self._end is None:
            raise CommError(NOT_STARTED)
        end, self._end = self._end, None
        return end()
