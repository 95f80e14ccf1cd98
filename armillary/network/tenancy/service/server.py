"""The VNI service as an HTTP server (uvicorn): POST /sync and /finalize, GET /healthz and /version, with limits on all that clients send.

Who may post may take and give back VNIs in any namespace, so the server listens on the loopback unless told otherwise, and elsewhere it
wants a token as the first part of the path, which only the controller's configuration knows. Requests with an `Origin` come from a web
page and are refused, as is a `Host` that a stranger's DNS could point here. One thread talks to the database; it takes all requests that
wait at that moment into one transaction, so that they share one commit.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from armillary.errors import InputError, one_line
from armillary.listening import (
    LOOPBACK,
    Receive,
    Refused,
    Scope,
    Send,
    ThreadedServer,
    headers_of,
    is_own_name,
    json_type_only,
    read_body,
    serve_until_interrupted,
)

from .hooks import Answer

if TYPE_CHECKING:
    from .vni_service import VniService

PORT = 8842
#: The name by which the published controller calls the service.
HOSTS = ("vni-endpoint-service.vni-management",)
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")


@dataclass(frozen=True)
class Limits:
    """What clients may take."""

    #: The largest body that is read, and how much of a larger one is thrown away so that its sender gets an answer and no reset.
    body_bytes: int = 1 << 20
    discarded_bytes: int = 16 << 20
    #: Nesting of a body.
    depth: int = 64
    #: Open connections; a further one is turned away with 503.
    connections: int = 64
    #: Seconds in which the headers, and then the body, must have arrived, and in which the database must have answered.
    read_s: float = 10.0
    answer_s: float = 10.0
    #: Requests that share one commit, and that may wait for the database; a further one is turned away with 503.
    together: int = 64
    waiting: int = 128


class VniServer(ThreadedServer):
    """Serves a VNI service in a thread of its own, from entering the context to leaving it.

    host: the loopback unless told otherwise. port: 0 takes any that is free; `url` says which. token: the first part of every path; it is
    needed on other hosts unless `open` says that a network policy keeps others away. hosts: further names by which it may be called.
    """

    def __init__(
        self, service: VniService, *, host: str = "127.0.0.1", port: int = PORT, token: str | None = None, open: bool = False,
        hosts: tuple[str, ...] = HOSTS, limits: Limits | None = None,
    ) -> None:  # fmt: skip
        if token is not None and not _TOKEN.fullmatch(token):
            raise InputError("found something else; expected 16 to 200 letters, digits and . _ ~ -", where="token")
        if host not in LOOPBACK and token is None and not open:
            raise InputError(f"found {one_line(host, 60)} without a token: whoever reaches it could take VNIs; give a token, or open=True")
        self.service, self.token, self.limits = service, token, limits or Limits()
        super().__init__(self._answer, host=host, port=port, connections=self.limits.connections, headers_s=self.limits.read_s)
        self.hosts = frozenset(name.lower() for name in (*hosts, host))
        self._waiting = 0
        self._queue: list[tuple[str, bytes, asyncio.Future[Answer]]] = []
        self._working = False

    def __enter__(self) -> Self:
        self._database = ThreadPoolExecutor(1, "vni")
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, problem, trace)
        self._database.shutdown(wait=False, cancel_futures=True)

    @property
    def url(self) -> str:
        """Where it answers, the token included."""
        return super().url + (f"/{self.token}" if self.token else "")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        try:
            found = await self._content(scope, receive)
        except Refused as refused:
            found = Answer(refused.status, {"error": one_line(str(refused))})
        except ConnectionError:
            return  # Nobody is left who could be answered.
        body = json.dumps(found.content).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if found.status in (408, 413):
            headers.append((b"connection", b"close"))
        if found.status == 503:
            headers.append((b"retry-after", b"5"))
        await send({"type": "http.response.start", "status": found.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _content(self, scope: Scope, receive: Receive) -> Answer:
        headers, limits = headers_of(scope), self.limits
        body = await read_body(headers, receive, largest=limits.body_bytes, discarded=limits.discarded_bytes, seconds=limits.read_s)
        if b"origin" in headers:
            raise Refused(403, "a web page asks; expected a controller")
        if not is_own_name(headers.get(b"host", ""), self.hosts):
            raise Refused(403, f'Host "{one_line(headers.get(b"host", ""), 60)}" is no name of this service')
        path, method = scope["path"], scope["method"]
        if self.token is not None and path not in ("/healthz", "/version"):
            given, _, rest = path.removeprefix("/").partition("/")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
                raise Refused(404, "there is nothing here")
            path = f"/{rest}"
        if path in ("/healthz", "/version") and method in ("GET", "HEAD"):
            return Answer(200, {"ok": True, "version": "1.0"})
        if path not in ("/sync", "/finalize"):
            raise Refused(404, f'found "{one_line(path, 60)}"; expected /sync, /finalize, /healthz or /version')
        if method != "POST":
            raise Refused(405, f"found {one_line(method, 20)}; expected POST")
        json_type_only(headers)
        return await self._asked(path, body)

    async def _asked(self, path: str, body: bytes) -> Answer:
        """What the database's thread answers; requests that wait while it works go together."""
        if self._waiting >= self.limits.waiting:
            raise Refused(503, f"{self._waiting} requests wait for the database")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        self._queue.append((path, body, answer))
        self._waiting += 1
        if not self._working:
            self._work()
        try:
            return await asyncio.wait_for(asyncio.shield(answer), self.limits.answer_s)
        except TimeoutError:
            raise Refused(504, f"the database took more than {self.limits.answer_s:g} s") from None

    def _work(self) -> None:
        batch, self._queue = self._queue[: self.limits.together], self._queue[self.limits.together :]
        self._working = bool(batch)
        if not batch:
            return
        working = asyncio.get_running_loop().run_in_executor(self._database, self._together, [one[:2] for one in batch])
        working.add_done_callback(lambda done: self._done(done, [answer for _, _, answer in batch]))

    def _done(self, done: asyncio.Future[list[Answer]], answers: list[asyncio.Future[Answer]]) -> None:
        self._waiting -= len(answers)
        if done.cancelled():
            return
        problem = done.exception()
        said = Answer(500, {"error": one_line(f"{type(problem).__name__}: {problem}")})
        for place, answer in enumerate(answers):
            if not answer.done():
                answer.set_result(said if problem else done.result()[place])
        self._work()

    def _together(self, batch: list[tuple[str, bytes]]) -> list[Answer]:
        """The answers to several requests after their common commit; if it fails, none of them has happened."""
        with self.service.database.together():
            return [self._one(path, body) for path, body in batch]

    def _one(self, path: str, body: bytes) -> Answer:
        from armillary.files import parse_json

        try:
            document = parse_json(body, "the body", depth=self.limits.depth)
        except InputError as problem:
            return Answer(400, {"error": str(problem)})
        return self.service.sync(document) if path == "/sync" else self.service.finalize(document)


def serve(service: VniService, *, port: int = PORT, said: Callable[[str], Any] | None = None, **options: Any) -> None:
    """Serves until it is interrupted; `said` is called with the address as soon as requests are accepted."""
    serve_until_interrupted(VniServer(service, port=port, **options), said)
