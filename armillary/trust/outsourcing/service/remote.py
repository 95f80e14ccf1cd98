"""A server that is asked over TCP, in the form of one that is here."""

from __future__ import annotations

import contextlib
import socket
import time
from types import TracebackType
from typing import Any, Self

from armillary.errors import InputError, one_line
from armillary.trust.outsourcing.delegation.server import ANSWER_BYTES
from armillary.trust.outsourcing.group.bases import as_scalars

from .wire import ANSWERED, BUSY, MAGIC, MOST_REASON, REPLY, query


class Refused(Exception):
    """The server gives no answer, and says why."""


class Busy(Refused):
    """The server has as many connections or queries as it takes; ask again later."""


class RemoteServer:
    """Asks the server at `address`; a reply must come within `timeout_s`. Nothing that it says is trusted: Client.verify decides."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float = 60.0) -> None:
        if not timeout_s > 0:
            raise InputError(f"found {timeout_s} seconds for a reply; expected more than 0")
        self.address, self.timeout_s, self._deadline = address, timeout_s, 0.0
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except OSError as problem:
            said = one_line(problem.strerror or str(problem), 100)
            raise InputError(f"cannot connect to {one_line(address[0], 60)} port {address[1]} ({said})") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def answer(self, x: Any) -> bytes:
        """The server's 64 bytes for these scalars.

        Where it refuses or does not reply, the connection is closed, so that no late reply is taken for the answer to the next query.
        """
        scalars = as_scalars(x).astype("<u8").tobytes()
        if self._socket.fileno() < 0:
            raise Refused("the connection was closed after a refusal or a reply that did not come; make another one")
        try:
            return self._answer(scalars)
        except BaseException:
            self._socket.close()
            raise

    def _answer(self, scalars: bytes) -> bytes:
        self._deadline = time.monotonic() + self.timeout_s
        # A server that refuses may close before it has read everything; it has said why.
        with contextlib.suppress(OSError):
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(query(scalars))
        magic, status, length = REPLY.unpack(self._read(REPLY.size))
        most = ANSWER_BYTES if status == ANSWERED else MOST_REASON
        if magic != MAGIC or length > most:
            raise Refused("the reply is no reply of this service")
        body = self._read(length)
        if status == ANSWERED:
            return body
        raise (Busy if status == BUSY else Refused)(one_line(body.decode("utf-8", "replace")))

    def _read(self, count: int) -> bytes:
        found = b""
        try:
            while len(found) < count:
                # The deadline is one for the whole reply, so a server cannot hold its client by a byte now and then.
                self._socket.settimeout(max(1e-3, self._deadline - time.monotonic()))
                more = self._socket.recv(count - len(found))
                if not more:
                    raise Refused(f"the connection was closed after {len(found)} of {count} bytes")
                found += more
        except OSError as problem:
            raise Refused(f"no reply ({one_line(str(problem), 100)})") from None
        return found
