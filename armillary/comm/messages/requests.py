"""Requests: transfers that were started and are waited for later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.comm.messages.buffers import Array, Bytes, unpack
from armillary.comm.messages.envelope import NOTHING, Status
from armillary.comm.messages.layout import Layout
from armillary.errors import InputError


class Request:
    """A transfer under way: it is started, and later it is done once, with a status or an error.

    The buffer belongs to the transfer until `wait` or `test` reports that it is done. A second `wait` gives the same answer.
    """

    __slots__ = ()

    def wait(self) -> Status:
        """Block until the transfer is done. Raises `Truncated` when the message was longer than the buffer."""
        raise NotImplementedError

    def test(self) -> Status | None:
        """Return the status if the transfer is done, else None."""
        raise NotImplementedError

    def cancel(self) -> bool:
        """Withdraw a transfer that has not been matched yet. Returns True if that succeeded, and then `wait` returns at once."""
        raise NotImplementedError

    @classmethod
    def wait_all(cls, requests: Sequence[Request]) -> list[Status]:
        """Wait for all requests and return their statuses in order."""
        return [request.wait() for request in requests]

    @classmethod
    def wait_any(cls, requests: Sequence[Request]) -> tuple[int, Status]:
        """Wait until one of the requests is done and return its index and its status."""
        raise NotImplementedError


class Done(Request):
    """A transfer that needed nobody else and is done already."""

    __slots__ = ("status",)

    def __init__(self, status: Status = NOTHING) -> None:
        self.status = status

    def wait(self) -> Status:
        return self.status

    def test(self) -> Status | None:
        return self.status

    def cancel(self) -> bool:
        return False


class Matched(Request):
    """A send or receive that this process matches itself; whichever side comes second completes it.

    A backend says in `_until` how a rank blocks.
    """

    __slots__ = ("after", "data", "done", "error", "status")

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.done = False
        self.error: Exception | None = None
        self.status: Status | None = None
        #: The array and the layout to unpack into when a receive is done, if it was given one.
        self.after: tuple[Array, Layout] | None = None

    def _until(self, requests: Sequence[Any]) -> None:
        """Block until one of the requests, which belong to the same rank as this one, is done."""
        raise NotImplementedError

    def wait(self) -> Status:
        if not self.done:
            self._until((self,))
        return self._end()

    @classmethod
    def wait_any(cls, requests: Sequence[Any]) -> tuple[int, Status]:
        requests[0]._until(requests)
        i = next(i for i, request in enumerate(requests) if request.done)
        return i, requests[i]._end()

    def _end(self) -> Status:
        if self.error is not None:
            raise self.error
        assert self.status is not None
        if self.after is not None:
            after, self.after = self.after, None
            unpack(self.data, self.status.nbytes, after)
        return self.status


def waitall(requests: Sequence[Request]) -> list[Status]:
    """Wait for all requests and return their statuses in order."""
    kinds = {type(request) for request in requests}
    if len(kinds) == 1:
        return kinds.pop().wait_all(requests)
    return [request.wait() for request in requests]


def waitany(requests: Sequence[Request]) -> tuple[int, Status]:
    """Wait until one of the requests is done and return its index and its status."""
    if not requests:
        raise InputError("waitany: found no requests; expected at least one")
    for i, request in enumerate(requests):
        status = request.test()
        if status is not None:
            return i, status
    open_ones = [(i, request) for i, request in enumerate(requests) if not isinstance(request, Done)]
    found, status = type(open_ones[0][1]).wait_any([request for _, request in open_ones])
    return open_ones[found][0], status
