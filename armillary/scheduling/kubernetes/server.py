"""The extender as an HTTP server (uvicorn): POST /filter and /prioritize, GET /healthz and /metrics, with limits on all that clients send.

Malformed JSON is answered with 400 and what the technique raises with HTTP 200 and `Error`, as the protocol wants it; /prioritize has no
place for an error and answers 500, which a scheduler logs and passes over. One thread judges, so a technique need not be thread-safe.
Requests with an `Origin` come from a web page, which no scheduler is, and are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from armillary import extras
from armillary.errors import InputError, one_line
from armillary.listening import (
    Receive,
    Refused,
    Scope,
    Send,
    ThreadedServer,
    headers_of,
    json_type_only,
    read_body,
    serve_until_interrupted,
)

from .protocol import Extender, TooMany

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


class ExtenderServer(ThreadedServer):
    """Serves an extender in a thread of its own, from entering the context to leaving it.

    host: the loopback unless told otherwise. port: 0 takes any that is free; `url` says which.
    """

    def __init__(self, extender: Extender, *, host: str = "127.0.0.1", port: int = 0, limits: Limits | None = None) -> None:
        self.extender, self.limits, self._waiting = extender, limits or Limits(), 0
        super().__init__(self._answer, host=host, port=port, connections=self.limits.connections, headers_s=self.limits.read_s)
        extras.need("msgspec")
        extender.most_nodes = min(extender.most_nodes, self.limits.nodes)

    def __enter__(self) -> Self:
        self._judging = ThreadPoolExecutor(1, "extender")
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, problem, trace)
        self._judging.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        from .wire import written

        try:
            content: object = await self._content(scope, receive)
            status = 200
        except Refused as refused:
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

    async def _content(self, scope: Scope, receive: Receive) -> object:
        headers = headers_of(scope)
        verb, method = scope["path"].rstrip("/").rpartition("/")[2], scope["method"]
        limits = self.limits
        body = await read_body(headers, receive, largest=limits.body_bytes, discarded=limits.discarded_bytes, seconds=limits.read_s)
        if b"origin" in headers:
            raise Refused(403, "a web page asks; expected a scheduler")
        if verb == "healthz" and method in ("GET", "HEAD"):
            return {"ok": True}
        if verb == "metrics" and method in ("GET", "HEAD") and self.extender.metrics is not None:
            return await self._asked(METRICS_BYTES, self._told)
        if verb not in ("filter", "prioritize"):
            raise Refused(404, f'found "{one_line(scope["path"], 60)}"; expected /filter, /prioritize, /healthz or /metrics')
        if method != "POST":
            raise Refused(405, f"found {one_line(method, 20)}; expected POST")
        json_type_only(headers)
        return await self._asked(len(body), self._judged, verb, body)

    async def _asked(self, size: int, call: Callable[..., object], *arguments: object) -> object:
        """What a call in the judging thread returns; `size` bytes count as waiting until it is over."""
        if self._waiting + size > self.limits.waiting_bytes:
            raise Refused(503, f"requests of {self._waiting:,} bytes wait for the technique")
        self._waiting += size
        working = asyncio.get_running_loop().run_in_executor(self._judging, call, *arguments)
        # A request that is no longer waited for stays in the queue until the technique comes to it.
        working.add_done_callback(lambda done: self._done(done, size))
        try:
            return await asyncio.wait_for(asyncio.shield(working), self.limits.answer_s)
        except TimeoutError:
            raise Refused(504, f"the technique took more than {self.limits.answer_s:g} s") from None

    def _told(self) -> str:
        try:
            return self.extender.metrics() if self.extender.metrics else ""
        except Exception as problem:
            raise Refused(500, f"{type(problem).__name__}: {problem}") from None

    def _done(self, judged: asyncio.Future[Any], size: int) -> None:
        self._waiting -= size
        if not judged.cancelled():
            judged.exception()  # is looked at, although its client may be gone

    def _judged(self, verb: str, body: bytes) -> object:
        from .wire import read

        try:
            document = read(body)
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not JSON") from None
        try:
            return self.extender.filter(document) if verb == "filter" else self.extender.prioritize(document)
        except TooMany as problem:
            raise Refused(413, str(problem)) from None
        except InputError as problem:
            raise Refused(400, str(problem)) from None
        except Exception as problem:
            raise Refused(500, f"{type(problem).__name__}: {problem}") from None


def serve(
    extender: Extender, *, host: str = "127.0.0.1", port: int = 8888, limits: Limits | None = None, said: Callable[[str], Any] | None = None
) -> None:
    """Serves until it is interrupted; `said` is called with the address as soon as requests are accepted."""
    serve_until_interrupted(ExtenderServer(extender, host=host, port=port, limits=limits), said)
