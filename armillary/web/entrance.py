"""Who may come in: requests to this machine by its own name, with the token of the printed address, and from no other site's page.

The token becomes a cookie of this port that scripts cannot read and that no other site's links bring along. Every answer carries a
policy under which a page loads nothing from elsewhere and runs no script that stands in its text.
"""

from __future__ import annotations

import asyncio
import hmac
import html
from collections.abc import MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from armillary.listening import LOOPBACK, Receive, Refused, Scope, Send, headers_of, name_of

if TYPE_CHECKING:
    from .application import Explorer

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
#: Seconds within which the next piece of a body must arrive.
PIECE_S = 30.0


class Entrance:
    """An ASGI application around another one, which only lets its user's requests through."""

    def __init__(self, inside: Any, explorer: Explorer) -> None:
        self.inside, self.explorer = inside, explorer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.inside(scope, receive, send)
            return
        try:
            self._check(headers_of(scope), scope)
        except Refused as refused:
            await _answer(send, refused.status, str(refused))
            return
        except _Enter as enter:
            await _redirect(send, enter.to, enter.cookie)
            return
        limit = self.explorer.most_upload + (1 << 20)
        await self.inside(scope, _Limited(receive, limit), _Guarded(send))

    def _check(self, headers: MutableMapping[bytes, str], scope: Scope) -> None:
        host = headers.get(b"host", "")
        if name_of(host) not in LOOPBACK:
            raise Refused(403, f'found the host "{host[:80]}"; expected this machine by its own name, 127.0.0.1 or localhost')
        origin = headers.get(b"origin")
        if origin is not None and origin != f"http://{host}":
            raise Refused(403, "the request comes from another site's page")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise Refused(405, "expected GET, HEAD or POST")
        if scope["method"] == "POST" and origin is None and headers.get(b"sec-fetch-site") != "same-origin":
            raise Refused(403, "the request does not say which page it comes from")
        length = headers.get(b"content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > 15 or int(length) > self.explorer.most_upload + (1 << 20):
            raise Refused(413, f"expected at most {self.explorer.most_upload >> 20} MiB")
        self._known(headers, scope, host)

    def _known(self, headers: MutableMapping[bytes, str], scope: Scope, host: str) -> None:
        name = f"armillary-{host.rpartition(':')[2] if ':' in host else 80}"
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if given is not None:
            if not _same(given, self.explorer.token):
                raise Refused(403, "the token is not that of the address that `armillary web` printed; it changes with every start")
            rest = urlencode([(key, value) for key, value in query if key != "token"])
            cookie = f"{name}={self.explorer.session}; HttpOnly; SameSite=Strict; Path=/"
            raise _Enter(scope["path"] + (f"?{rest}" if rest else ""), cookie)
        try:
            cookies = SimpleCookie(headers.get(b"cookie", "")[:8192])
        except CookieError:
            cookies = SimpleCookie()
        if name not in cookies or not _same(cookies[name].value, self.explorer.session):
            raise Refused(403, "open the address that `armillary web` printed: it holds the token that lets you in")


class _Enter(Exception):
    """The token was right: go on without it, with a cookie."""

    def __init__(self, to: str, cookie: str) -> None:
        super().__init__(to)
        self.to, self.cookie = to, cookie


class _Limited:
    """What a client sends, of at most `limit` bytes and without long pauses."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left = receive, limit
        self._whole = False

    async def __call__(self) -> Any:
        if self._whole:
            return await self._receive()  # A stream of events waits here until its reader leaves.
        try:
            async with asyncio.timeout(PIECE_S):
                message = await self._receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        self._left -= len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        return {"type": "http.disconnect"} if self._left < 0 else message


class _Guarded:
    """Sends answers with the headers of HEADERS; what a page sets itself stays."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *((name, value) for name, value in HEADERS.items() if name not in own)]
        await self._send(message)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


async def _answer(send: Send, status: int, said: str) -> None:
    text = f"<!DOCTYPE html><html lang=en><title>Armillary</title><h1>Not let in</h1><p>{html.escape(said)}.</p>\n".encode()
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(text)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *HEADERS.items()]})
    await send({"type": "http.response.body", "body": text})


async def _redirect(send: Send, to: str, cookie: str) -> None:
    # A path that begins with two strokes would name another host.
    place = "/" + to.lstrip("/\\")
    headers = [(b"location", place.encode("latin-1", "replace")), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": [*headers, *HEADERS.items()]})
    await send({"type": "http.response.body", "body": b""})
