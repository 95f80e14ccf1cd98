"""Stands between the network and the routes, and refuses what a browser of somebody else, a slow client or an endless body would do.

Without an API key the endpoint answers only requests whose `Host` no stranger can point at this machine by DNS (an address, a name without
a dot, a name under a reserved domain, a name that `--allow-host` gives), and whose `Origin`, if a browser sends one, is the endpoint itself
or such a name. A body must be JSON by its content type, so that no web page can send one without asking first, and must arrive in time.
"""

from __future__ import annotations

import asyncio
import time
import urllib.parse
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from armillary.listening import is_own_name, name_of

from .protocol import Refused


@dataclass(frozen=True)
class Limits:
    """What one client may take. The figures are ours."""

    #: The largest body that is read.
    body_bytes: int = 1 << 20
    #: Bytes of a refused body that are still read and thrown away, so that a client that is still sending gets its answer and no reset.
    discarded_bytes: int = 64 << 20
    #: Seconds in which the headers, the body and the whole answer must have passed.
    headers_s: float = 10.0
    body_s: float = 30.0
    answer_s: float = 600.0
    #: Open connections.
    connections: int = 512


class Guard:
    """An ASGI application around another one. `hosts` are further names of the endpoint; `keyed` says that a key protects it already."""

    def __init__(self, app: ASGIApp, limits: Limits, *, hosts: frozenset[str] = frozenset(), keyed: bool = False) -> None:
        self.app, self.limits, self.hosts, self.keyed = app, limits, hosts, keyed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = _Body(receive, headers, self.limits)
        begun = False

        async def send_after_the_body(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                await body.discard()
                begun = True
            await send(message)

        try:
            async with asyncio.timeout(self.limits.answer_s):
                refused = self._refusal(scope["method"], headers)
                answer = self.app if refused is None else answer_of(refused)
                await answer(scope, body.receive, send_after_the_body)
        except ClientDisconnect:
            pass  # Nobody is left who could be answered.
        except TimeoutError:
            if not begun:
                late = Refused(504, f"the answer took more than {self.limits.answer_s:g} s")
                await answer_of(late)(scope, body.receive, send_after_the_body)

    def _refusal(self, method: str, headers: dict[str, str]) -> Refused | None:
        host = headers.get("host")
        if not self.keyed and host is not None and not is_own_name(host, self.hosts):
            said = f"Host {host!r}: not a name of this endpoint; serve with --allow-host, or with a key"
            return Refused(403, said, code="host_not_allowed")
        origin = headers.get("origin")
        if not self.keyed and origin is not None:
            place = urllib.parse.urlsplit(origin).netloc
            if place != host and name_of(place) not in self.hosts:
                return Refused(403, f"Origin {origin!r}: web pages of other sites are not served", code="origin_not_allowed")
        if method == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return Refused(415, f"content-type {kind or 'missing'}: expected application/json", code="unsupported_media_type")
            length = headers.get("content-length", "0")
            if len(length) > 18 or int(length) > self.limits.body_bytes:
                return too_large(self.limits)
        return None


class _Body:
    """The body of a request on its way in: whether all of it has come, and whether it came in time."""

    def __init__(self, receive: Receive, headers: dict[str, str], limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._end = time.monotonic() + limits.body_s
        self._left = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        # Such a client sends its body only after it was told to go on, which `receive` does.
        self._held = headers.get("expect", "").lower() == "100-continue"

    async def receive(self) -> Message:
        """Returns the next message; raises Refused if the body is late."""
        if not self._left:
            return await self._receive()
        self._held = False
        try:
            message = await asyncio.wait_for(self._receive(), max(self._end - time.monotonic(), 0.0))
        except TimeoutError:
            self._left = False
            raise Refused(408, f"the body did not arrive within {self._limits.body_s:g} s") from None
        self._left = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def discard(self) -> None:
        """Reads what is left of the body, within the limits, and throws it away."""
        seen = 0
        while self._left and not self._held and seen < self._limits.discarded_bytes:
            try:
                seen += len((await self.receive()).get("body", b""))
            except Refused:
                return


def too_large(limits: Limits) -> Refused:
    """Returns the refusal of a body that is too large."""
    return Refused(413, f"the body has more than {limits.body_bytes:,} bytes", code="request_too_large")


def answer_of(refused: Refused) -> JSONResponse:
    """Returns a refusal as an HTTP response."""
    headers = {"www-authenticate": "Bearer"} if refused.status == 401 else {"retry-after": "1"} if refused.status in (429, 503) else None
    return JSONResponse(refused.body, refused.status, headers=headers)
