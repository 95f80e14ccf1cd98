"""The extender as an HTTP server (uvicorn): POST /filter and /prioritize, GET /healthz and /metrics, with limits on all that clients send.

Malformed JSON is answered with 400 and what the technique raises with HTTP 200 and `Error`, as the protocol wants it; /prioritize has no
place for an error and answers 500, which a scheduler logs and passes over. One thread judges, so a technique need not be thread-safe.
Requests with an `Origin` come from a web page, which no scheduler is, and are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from armillary import extras
from armillary.errors import InputError, one_line
from armillary.listening import bounded_connection, listen

from .protocol import Extender, TooMany

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


#: What a request for /metrics counts among those that wait.
METRICS_BYTES = 4096


@dataclass(frozen=True)
class Limits:
    """What clients may take."""

    #: The largest body that is read, and how much of a larger one is thrown away so that its sender gets an answer and no reset.
    body_bytes: int = 16 << 20
    discarded_bytes: int = 64 << 20
    #: Bytes of requests that may wait for the technique; further requests are turned away with 503.
    waiting_bytes: int = 64 << 20
    #: Nodes in one request.
    nodes: int = 5000
    #: Open connections; a further one is turned away with 503.
    connections: int = 64
    #: Seconds in which the headers, and then the body, must have arrived, and in which the technique must have answered.
    read_s: float = 10.0
    answer_s: float = 10.0


class _Refused(Exception):
    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class ExtenderServer:
    """Serves an extender in a thread of its own, from entering the context to leaving it.

    host: the loopback unless told otherwise. port: 0 takes any that is free; `url` says which.
    """

    def __init__(self, extender: Extender, *, host: str = "127.0.0.1", port: int = 0, limits: Limits | None = None) -> None:
        self.extender, self.limits = extender, limits or Limits()
        if not 0 <= port <= 65535:
            raise InputError(f"found {port}; expected 0 to 65535 (0: any that is free)", where="port")
        for package in ("uvicorn", "h11", "msgspec"):
            extras.need(package)
        self.host, self._port, self._waiting = host, port, 0
        extender.most_nodes = min(extender.most_nodes, self.limits.nodes)

    def __enter__(self) -> ExtenderServer:
        import uvicorn

        self._listener = listen(self.host, self._port)
        self._judging = ThreadPoolExecutor(1, "extender")
        settings = uvicorn.Config(
            self._answer, interface="asgi3", http=bounded_connection(self.limits.connections, self.limits.read_s), lifespan="off",
            log_level="warning", log_config=None,
            access_log=False, ws="none", server_header=False, proxy_headers=False, timeout_keep_alive=max(1, int(self.limits.read_s)),
            timeout_graceful_shutdown=5,
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
        self._judging.shutdown(wait=False, cancel_futures=True)
        self._listener.close()

    @property
    def url(self) -> str:
        """Where it answers."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self._listener.getsockname()[1]}"

    def wait(self) -> None:
        """Returns when the server has ended."""
        self._thread.join()

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        from .wire import written

        if scope["type"] != "http":
            return
        try:
            content: object = await self._content(scope, receive)
            status = 200
        except _Refused as refused:
            status, content = refused.status, {"Error": one_line(str(refused))}
        except ConnectionError:
            return  # Nobody is left who could be answered.
        text = isinstance(content, str)  # of /metrics; all else is JSON
        body = content.encode() if isinstance(content, str) else written(content)
        kind = b"text/plain; version=0.0.4; charset=utf-8" if text else b"application/json"
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        if status in (408, 413):
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _content(self, scope: MutableMapping[str, Any], receive: Receive) -> object:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        verb, method = scope["path"].rstrip("/").rpartition("/")[2], scope["method"]
        body = await self._body(headers, receive)
        if b"origin" in headers:
            raise _Refused(403, "a web page asks; expected a scheduler")
        if verb == "healthz" and method in ("GET", "HEAD"):
            return {"ok": True}
        if verb == "metrics" and method in ("GET", "HEAD") and self.extender.metrics is not None:
            return await self._asked(METRICS_BYTES, self._told)
        if verb not in ("filter", "prioritize"):
            raise _Refused(404, f'found "{one_line(scope["path"], 60)}"; expected /filter, /prioritize, /healthz or /metrics')
        if method != "POST":
            raise _Refused(405, f"found {one_line(method, 20)}; expected POST")
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refused(415, f'content-type: found "{one_line(kind, 40)}"; expected application/json')
        return await self._asked(len(body), self._judged, verb, body)

    async def _asked(self, size: int, call: Callable[..., object], *arguments: object) -> object:
        """What a call in the judging thread returns; `size` bytes count as waiting until it is over."""
        if self._waiting + size > self.limits.waiting_bytes:
            raise _Refused(503, f"requests of {self._waiting:,} bytes wait for the technique")
        self._waiting += size
        working = asyncio.get_running_loop().run_in_executor(self._judging, call, *arguments)
        # A request that is no longer waited for stays in the queue until the technique comes to it.
        working.add_done_callback(lambda done: self._done(done, size))
        try:
            return await asyncio.wait_for(asyncio.shield(working), self.limits.answer_s)
        except TimeoutError:
            raise _Refused(504, f"the technique took more than {self.limits.answer_s:g} s") from None

    def _told(self) -> str:
        try:
            return self.extender.metrics() if self.extender.metrics else ""
        except Exception as problem:
            raise _Refused(500, f"{type(problem).__name__}: {problem}") from None

    def _done(self, judged: asyncio.Future[Any], size: int) -> None:
        self._waiting -= size
        if not judged.cancelled():
            judged.exception()  # is looked at, although its client may be gone

    def _judged(self, verb: str, body: bytes) -> object:
        from .wire import read

        try:
            document = read(body)
        except (ValueError, RecursionError):
            raise _Refused(400, "the body is not JSON") from None
        try:
            return self.extender.filter(document) if verb == "filter" else self.extender.prioritize(document)
        except TooMany as problem:
            raise _Refused(413, str(problem)) from None
        except InputError as problem:
            raise _Refused(400, str(problem)) from None
        except Exception as problem:
            raise _Refused(500, f"{type(problem).__name__}: {problem}") from None

    async def _body(self, headers: dict[bytes, str], receive: Receive) -> bytes:
        """The body; one that is too large is thrown away, so that a client that still sends gets its answer."""
        large = _Refused(413, f"the body has more than {self.limits.body_bytes:,} bytes")
        length = headers.get(b"content-length", "0")
        announced = len(length) > 18 or int(length) > self.limits.body_bytes
        if announced and headers.get(b"expect", "").lower() == "100-continue":
            raise large  # before it is told to go on
        body, seen, more = bytearray(), 0, True
        try:
            async with asyncio.timeout(self.limits.read_s):
                while more and seen <= self.limits.discarded_bytes:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionError
                    part = message.get("body", b"")
                    seen += len(part)
                    more = message.get("more_body", False)
                    if seen <= self.limits.body_bytes and not announced:
                        body += part
        except TimeoutError:
            raise _Refused(408, f"the body did not arrive within {self.limits.read_s:g} s") from None
        if announced or seen > self.limits.body_bytes:
            raise large
        return bytes(body)


def serve(
    extender: Extender, *, host: str = "127.0.0.1", port: int = 8888, limits: Limits | None = None, said: Callable[[str], Any] | None = None
) -> None:
    """Serves until it is interrupted; `said` is called with the address as soon as requests are accepted."""
    with ExtenderServer(extender, host=host, port=port, limits=limits) as server:
        if said is not None:
            said(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.wait()
