"""A socket that listens, and uvicorn's connections with limits on what a client may hold."""

from __future__ import annotations

import asyncio
import socket

from armillary.errors import InputError, one_line


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes any that is free.

    The protocol is named, because asyncio sends small answers at once (TCP_NODELAY) only on sockets that say so.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise InputError(f"cannot listen on {one_line(host, 60)} port {port}: {one_line(str(problem), 100)}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(256)
    except OSError as problem:
        listener.close()
        raise InputError(f"cannot listen on {one_line(host, 60)} port {port}: {one_line(str(problem), 100)}") from None
    return listener


def bounded_connection(connections: int, headers_s: float) -> type:
    """uvicorn's protocol class with a deadline of `headers_s` seconds for the headers; more than `connections` are turned away with 503."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > connections:
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
            self._deadline = self.loop.call_later(headers_s, self._turn_away, "408 Request Timeout")

        def _arrived(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _turn_away(self, status: str) -> None:
            if not self.transport.is_closing():
                self.transport.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
                self.transport.close()

    return Connection
