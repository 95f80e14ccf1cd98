"""A client's connection, as uvicorn handles it, with a deadline for the headers and a limit on how many there are."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import Limits


def connection(limits: Limits) -> type[H11Protocol]:
    """Returns the protocol class that keeps these limits."""

    class Connection(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                self._turn_away("503 Service Unavailable")
            else:
                self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._arrived()
            elif self._deadline is None:  # the next request on a connection that was kept
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._arrived()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._deadline = self.loop.call_later(limits.headers_s, self._turn_away, "408 Request Timeout")

        def _arrived(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _turn_away(self, status: str) -> None:
            if not self.transport.is_closing():
                self.transport.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
                self.transport.close()

    return Connection
