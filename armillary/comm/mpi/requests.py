"""Transfers that the MPI library carries, their statuses and their errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from mpi4py import MPI

from armillary.comm.failures import CommError, Truncated
from armillary.comm.messages.envelope import NOTHING, Status
from armillary.comm.messages.requests import Request


class MpiStatus(MPI.Status):
    """The library's own status, with the names of `Status`."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """The number of bytes received."""
        return int(self.Get_count(MPI.BYTE))


class MpiRequest(Request):
    """A transfer that the library carries. `buffers` keeps alive what the transfer uses; `capacity` is the room in bytes."""

    __slots__ = ("_buffers", "_capacity", "_native", "_status")

    def __init__(self, native: Any, buffers: Any, capacity: int) -> None:
        self._native = native
        self._buffers = buffers
        self._capacity = capacity
        self._status: Any = None

    def wait(self) -> Status:
        if self._status is None:
            status: Any = MpiStatus()
            try:
                self._native.Wait(status)
            except MPI.Exception as error:
                explain(error, status, self._capacity)
            self._end(status)
        return self._status

    def test(self) -> Status | None:
        if self._status is None:
            status: Any = MpiStatus()
            try:
                if not self._native.Test(status):
                    return None
            except MPI.Exception as error:
                explain(error, status, self._capacity)
            self._end(status)
        return self._status

    def cancel(self) -> bool:
        if self._status is not None:
            return False
        self._native.Cancel()
        status: Any = MpiStatus()
        self._native.Wait(status)
        if status.Is_cancelled():
            self._end(NOTHING)
            return True
        self._end(status)
        return False

    def _end(self, status: Any) -> None:
        self._status = status
        self._buffers = None

    @classmethod
    def wait_all(cls, requests: Sequence[Any]) -> list[Status]:
        open_ones = [request for request in requests if request._status is None]
        statuses: list[Any] = [MpiStatus() for _ in open_ones]
        try:
            MPI.Request.Waitall([request._native for request in open_ones], statuses)
        except MPI.Exception:
            # The statuses say which of the requests failed, and how.
            for request, status in zip(open_ones, statuses):
                if status.Get_error() not in (MPI.SUCCESS, MPI.ERR_PENDING):
                    explain(MPI.Exception(status.Get_error()), status, request._capacity)
            raise
        for request, status in zip(open_ones, statuses):
            request._end(status)
        return [request._status for request in requests]

    @classmethod
    def wait_any(cls, requests: Sequence[Any]) -> tuple[int, Status]:
        status: Any = MpiStatus()
        i = MPI.Request.Waitany([request._native for request in requests], status)
        requests[i]._end(status)
        return i, status


def explain(error: MPI.Exception, status: Any, capacity: int) -> NoReturn:
    """Raise the error that a refused call of the library means here; `capacity` is the room in bytes of a receive."""
    if error.Get_error_class() == MPI.ERR_TRUNCATE:
        nbytes = status.nbytes if status is not None else 0
        raise Truncated(nbytes if nbytes > capacity else None, capacity) from None
    raise CommError(f"MPI: {error.Get_error_string()}") from error


def starter(native: Any, name: str, args: tuple[Any, ...]) -> Callable[[], Callable[[], Any]]:
    """Prepare a collective call and return the function that starts it, which returns the function that waits for it.

    The call is persistent if the library has that, and otherwise a new nonblocking call at each start.
    """
    try:
        request = getattr(native, f"{name}_init")(*args)
    except (NotImplementedError, MPI.Exception):
        call = partial(getattr(native, f"I{name.lower()}"), *args)
        return lambda: call().Wait

    def start() -> Callable[[], Any]:
        request.Start()
        return request.Wait

    return start
