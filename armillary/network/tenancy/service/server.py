"""The VNI service as an HTTP server (uvicorn): POST /sync and /finalize, GET /healthz and /version, with limits on all that clients send.

Who may post may take and give back VNIs in any namespace, so the server listens on the loopback unless told otherwise, and elsewhere it
wants a token as the first part of the path, which only the controller's configuration knows. Requests with an `Origin` come from a web
page and are refused, as is a `Host` that a stranger's DNS could point here. One thread talks to the database; it takes all requests that
wait at that moment into one transaction, so that they share one commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import re
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from armillary import extras
from armillary.errors import InputError, one_line
from armillary.listening import bounded_connection, listen

from .hooks import Answer

if TYPE_CHECKING:
    from .vni_service import VniService

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
PORT = 8842
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Domains that are never delegated, and the ends of the names of Kubernetes services.
RESERVED = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
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


class _Refused(Exception):
    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class VniServer:
    """Serves a VNI service in a thread of its own, from entering the context to leaving it.

    host: the loopback unless told otherwise. port: 0 takes any that is free; `url` says which. token: the first part of every path; it is
    needed on other hosts unless `open` says that a network policy keeps others away. hosts: further names by which it may be called.
    """

    def __init__(
        self, service: VniService, *, host: str = "127.0.0.1", port: int = PORT, token: str | None = None, open: bool = False,
        hosts: tuple[str, ...] = HOSTS, limits: Limits | None = None,
    ) -> None:  # fmt: skip
        if not 0 <= port <= 65535:
            raise InputError(f"found {port}; expected 0 to 65535 (0: any that is free)", where="port")
        if token is not None and not _TOKEN.fullmatch(token):
            raise InputError("found something else; expected 16 to 200 letters, digits and . _ ~ -", where="token")
        if host not in LOOPBACK and token is None and not open:
            raise InputError(f"found {one_line(host, 60)} without a token: whoever reaches it could take VNIs; give a token, or open=True")
        for package in ("uvicorn", "h11"):
            extras.need(package)
        self.service, self.host, self.token, self.limits = service, host, token, limits or Limits()
        self.hosts = frozenset(name.lower() for name in (*hosts, host))
        self._port, self._waiting = port, 0
        self._queue: list[tuple[str, bytes, asyncio.Future[Answer]]] = []
        self._working = False

    def __enter__(self) -> VniServer:
        import uvicorn

        self._listener = listen(self.host, self._port)
        self._database = ThreadPoolExecutor(1, "vni")
        settings = uvicorn.Config(
            self._answer, interface="asgi3", http=bounded_connection(self.limits.connections, self.limits.read_s), lifespan="off",
            log_level="warning", log_config=None, access_log=False, ws="none", server_header=False, proxy_headers=False,
            timeout_keep_alive=max(1, int(self.limits.read_s)), timeout_graceful_shutdown=5,
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
        self._database.shutdown(wait=False, cancel_futures=True)
        self._listener.close()

    @property
    def url(self) -> str:
        """Where it answers, the token included."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self._listener.getsockname()[1]}" + (f"/{self.token}" if self.token else "")

    def wait(self) -> None:
        """Returns when the server has ended."""
        self._thread.join()

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request, as ASGI hands it over."""
        if scope["type"] != "http":
            return
        try:
            found = await self._content(scope, receive)
        except _Refused as refused:
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

    async def _content(self, scope: MutableMapping[str, Any], receive: Receive) -> Answer:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        body = await self._body(headers, receive)
        if b"origin" in headers:
            raise _Refused(403, "a web page asks; expected a controller")
        if not self._ours(headers.get(b"host", "")):
            raise _Refused(403, f'Host "{one_line(headers.get(b"host", ""), 60)}" is no name of this service')
        path, method = scope["path"], scope["method"]
        if self.token is not None and path not in ("/healthz", "/version"):
            given, _, rest = path.removeprefix("/").partition("/")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
                raise _Refused(404, "there is nothing here")
            path = f"/{rest}"
        if path in ("/healthz", "/version") and method in ("GET", "HEAD"):
            return Answer(200, {"ok": True, "version": "1.0"})
        if path not in ("/sync", "/finalize"):
            raise _Refused(404, f'found "{one_line(path, 60)}"; expected /sync, /finalize, /healthz or /version')
        if method != "POST":
            raise _Refused(405, f"found {one_line(method, 20)}; expected POST")
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refused(415, f'content-type: found "{one_line(kind, 40)}"; expected application/json')
        return await self._asked(path, body)

    def _ours(self, host: str) -> bool:
        bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](:\d{1,5})?", host)
        name = (bracketed[1] if bracketed else host.rpartition(":")[0] or host).lower().removesuffix(".")
        try:
            ipaddress.ip_address(name)
            return True
        except ValueError:
            written = re.fullmatch(r"[a-z0-9._-]+", name) is not None
            return written and ("." not in name or name in self.hosts or name.endswith(RESERVED))

    async def _asked(self, path: str, body: bytes) -> Answer:
        """What the database's thread answers; requests that wait while it works go together."""
        if self._waiting >= self.limits.waiting:
            raise _Refused(503, f"{self._waiting} requests wait for the database")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        self._queue.append((path, body, answer))
        self._waiting += 1
        if not self._working:
            self._work()
        try:
            return await asyncio.wait_for(asyncio.shield(answer), self.limits.answer_s)
        except TimeoutError:
            raise _Refused(504, f"the database took more than {self.limits.answer_s:g} s") from None

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


def serve(service: VniService, *, port: int = PORT, said: Callable[[str], Any] | None = None, **options: Any) -> None:
    """Serves until it is interrupted; `said` is called with the address as soon as requests are accepted."""
    with VniServer(service, port=port, **options) as server:
        if said is not None:
            said(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.wait()
