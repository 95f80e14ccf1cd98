"""A small client of OpenAI's protocol, which needs the standard library alone; the smoke test and the benchmark use it."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from armillary.errors import InputError, one_line

#: The longest answer and the longest line of a stream that are read, in bytes.
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Reply:
    """A status and a body."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        """The body as JSON, or None if it is not JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class Client:
    """The address of an endpoint (`http://host:port`, with or without `/v1`), and its key."""

    url: str
    key: str | None = None
    timeout_s: float = 120.0

    def _parts(self) -> urllib.parse.SplitResult:
        parts = urllib.parse.urlsplit(self.url)
        try:
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good:
            raise InputError(f"found {one_line(self.url, 120)!r}; expected http://host:port or https://host:port", where="URL")
        return parts

    def _open(self, method: str, path: str, body: Mapping[str, Any] | None, key: str | None) -> http.client.HTTPResponse:
        parts = self._parts()
        assert parts.hostname is not None
        if parts.scheme == "https":
            line: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self.timeout_s, context=ssl.create_default_context()
            )
        else:
            line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.timeout_s)
        headers = {"content-type": "application/json", "connection": "close"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        root = parts.path.rstrip("/").removesuffix("/v1")
        line.request(method, root + path, None if body is None else json.dumps(body), headers)
        return line.getresponse()

    def ask(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> Reply:
        """Sends a request (GET without a body, POST with one) and returns the reply; raises OSError or HTTPException if none comes."""
        with self._open("GET" if body is None else "POST", path, body, self.key if key is None else key) as reply:
            return Reply(reply.status, reply.read(MOST_BYTES).decode("utf-8", "replace"))

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yields the events of a streamed answer, each with its `time.perf_counter`; raises ConnectionError if it ends without [DONE]."""
        with self._open("POST", path, {**body, "stream": True}, self.key) as reply:
            if reply.status != 200:
                raise ConnectionError(f"status {reply.status}: {one_line(reply.read(2000).decode('utf-8', 'replace'), 200)}")
            while line := reply.readline(MOST_BYTES):
                if not line.startswith(b"data:"):
                    continue
                said = line[5:].strip()
                if said == b"[DONE]":
                    return
                event = json.loads(said)
                if "error" in event:
                    raise ConnectionError(one_line(str(event["error"].get("message")), 200))
                yield time.perf_counter(), event
        raise ConnectionError("the stream broke off before [DONE]")
