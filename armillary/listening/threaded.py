"""An ASGI application served by uvicorn in a thread of its own, from entering a context to leaving it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from armillary import extras
from armillary.errors import InputError

from .connections import bounded_connection, listen
from .requests import Receive, Scope, Send


class ThreadedServer:
    """Serves `answer`, an ASGI application that is only asked about HTTP requests.

    host: where it listens. port: 0 takes any that is free; `url` says which. connections: the most that are open; a further one is turned
    away with 503. headers_s: the seconds in which a request's headers must have arrived, and for which an idle connection is kept.
    """

    def __init__(
        self, answer: Callable[[Scope, Receive, Send], Awaitable[None]], *, host: str, port: int, connections: int, headers_s: float
    ) -> None:
        if not 0 <= port <= 65535:
            raise InputError(f"found {port}; expected 0 to 65535 (0: any that is free)", where="port")
        for package in ("uvicorn", "h11"):
            extras.need(package)
        self.host, self._port, self._application, self._connections, self._headers_s = host, port, answer, connections, headers_s

    def __enter__(self) -> Self:
        import uvicorn

        self._listener = listen(self.host, self._port)
        settings = uvicorn.Config(
            self._http_only, interface="asgi3", http=bounded_connection(self._connections, self._headers_s), lifespan="off",
            log_level="warning", log_config=None, access_log=False, ws="none", server_header=False, proxy_headers=False,
            timeout_keep_alive=max(1, int(self._headers_s)), timeout_graceful_shutdown=5,
        )  # fmt: skip
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve(sockets=[self._listener])), daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.002)
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._listener.close()

    @property
    def url(self) -> str:
        """Where it answers."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self._listener.getsockname()[1]}"

    def wait(self) -> None:
        """Returns when the server has ended."""
        self._thread.join()

    async def _http_only(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._application(scope, receive, send)


def serve_until_interrupted(server: ThreadedServer, said: Callable[[str], Any] | None = None) -> None:
    """Serves until it is interrupted; `said` is called with the address as soon as requests are accepted."""
    with server:
        if said is not None:
            said(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.wait()
