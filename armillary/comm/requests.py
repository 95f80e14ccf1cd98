"""Transfers under way."""

from __future__ import annotations

from collections.abc import Sequence

from armillary.comm.message import PROC_NULL, Status
from armillary.errors import InputError


class Request:
    """A transfer under way: started, then done once, with a status or an error.

    Its buffer belongs to the transfer until `wait` or `test` says that it is done. Waiting again gives the same answer.
    """

    __slots__ = ()

    def wait(self) -> Status:
        """Block until it is done. Raises `Truncated` when the message was longer than the buffer."""
        raise NotImplementedError

    def test(self) -> Status | None:
        """The status when it is done, else None."""
        raise NotImplementedError

    def cancel(self) -> bool:
        """Take back what has not met its other side yet; True when that succeeded, and then `wait` returns at once."""
        raise NotImplementedError

    @classmethod
    def wait_all(cls, requests: Sequence[Request]) -> list[Status]:
        """The statuses of all, in their order."""
        return [request.wait() for request in requests]

    @classmethod
    def wait_any(cls, requests: Sequence[Request]) -> tuple[int, Status]:
        """The index and status of one that is done."""
        raise NotImplementedError


class Done(Request):
    """A transfer that needed nobody else."""

    __slots__ = ("status",)

    def __init__(self, status: Status | None = None) -> None:
        self.status = status if status is not None else Status(PROC_NULL, -1, 0)

    def wait(self) -> Status:
        return self.status

    def test(self) -> Status | None:
        return self.status

    def cancel(self) -> bool:
        return False


def waitall(requests: Sequence[Request]) -> list[Status]:
    """Wait for all of them; the statuses in their order."""
    kinds = {type(request) for request in requests}
    if len(kinds) == 1:
        return kinds.pop().wait_all(requests)
    return [request.wait() for request in requests]


def waitany(requests: Sequence[Request]) -> tuple[int, Status]:
    """Wait for one of them: its index and its status."""
    if not requests:
        raise InputError("waitany: found no requests; expected at least one")
    for i, request in enumerate(requests):
        status = request.test()
        if status is not None:
            return i, status
    open_ones = [(i, request) for i, request in enumerate(requests) if not isinstance(request, Done)]
    found, status = type(open_ones[0][1]).wait_any([request for _, request in open_ones])
    return open_ones[found][0], status
