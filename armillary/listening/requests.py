"""A request's headers and body, read within limits; what is refused has a status and a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from armillary.errors import one_line

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Refused(Exception):
    """A request that is answered with `status` and a reason."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


def headers_of(scope: Scope) -> dict[bytes, str]:
    """The request's headers by their names in small letters."""
    return {name: value.decode("latin-1") for name, value in scope["headers"]}


def json_type_only(headers: Mapping[bytes, str]) -> None:
    """Raises Refused for a body that says that it is no JSON; a web page cannot send JSON to another site without asking first."""
    kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, f'content-type: found "{one_line(kind, 40)}"; expected application/json')


async def read_body(headers: Mapping[bytes, str], receive: Receive, *, largest: int, discarded: int, seconds: float) -> bytes:
    """The body of at most `largest` bytes, which must arrive within `seconds`.

    Of one that is too large up to `discarded` bytes are read and thrown away, so that a client that still sends gets its answer and no
    reset. Raises Refused, or ConnectionError if the client is gone.
    """
    large = Refused(413, f"the body has more than {largest:,} bytes")
    length = headers.get(b"content-length", "0")
    announced = len(length) > 18 or int(length) > largest
    if announced and headers.get(b"expect", "").lower() == "100-continue":
        raise large  # before it is told to go on
    body, seen, more = bytearray(), 0, True
    try:
        async with asyncio.timeout(seconds):
            while more and seen <= discarded:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionError
                part = message.get("body", b"")
                seen += len(part)
                more = message.get("more_body", False)
                if seen <= largest and not announced:
                    body += part
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {seconds:g} s") from None
    if announced or seen > largest:
        raise large
    return bytes(body)
