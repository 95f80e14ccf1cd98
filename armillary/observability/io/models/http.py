"""A language model behind an HTTP server that speaks OpenAI's chat completions, chosen by the user.

Nothing is contacted before `complete` is called, and nothing but the address that the user gave: no proxy, and no redirection.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from armillary.errors import InputError, one_line
from armillary.files import parse_json

from .model import ModelError, Said

#: Bytes of an answer.
MOST_BYTES = 1 << 20
#: Characters of text per token, where the server does not count them.
CHARACTERS = 4


@dataclass(frozen=True)
class HttpModel:
    """`HttpModel("http://localhost:8000/v1", "name")`: the base address of the server and the model's name there.

    `key` is sent as a bearer token if it is given. An answer may take `timeout_s` seconds in all.
    """

    url: str
    name: str
    key: str = field(default="", repr=False)
    timeout_s: float = 60.0
    tokens: int = 2_000

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            fine = False
        if not fine:
            raise InputError(f'found "{one_line(self.url, 80)}"; expected an address such as http://localhost:8000/v1', where="url")
        if not self.name:
            raise InputError("found no name; expected the model's name at the server", where="model")
        if not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise InputError("found a blank or a character that is not ASCII; expected a key that fits into one header", where="key")

    def complete(self, prompt: str) -> Said:
        """The model's answer to a prompt, at temperature 0."""
        exchange = _Exchange(self, prompt)
        # A thread of its own bounds the whole exchange, however slowly names are resolved or bytes trickle in.
        worker = threading.Thread(target=exchange.run, daemon=True, name="armillary-model")
        worker.start()
        worker.join(self.timeout_s)
        if worker.is_alive():
            exchange.cut()
            raise ModelError(f"the model took more than {self.timeout_s:g} seconds to answer")
        if exchange.error is not None:
            raise exchange.error
        return _said(exchange.status, exchange.data, prompt)


class _Exchange:
    """One question and its answer, which may be cut from another thread."""

    def __init__(self, model: HttpModel, prompt: str) -> None:
        parts = urlsplit(model.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=model.timeout_s)
        self._path = f"{parts.path.rstrip('/')}/chat/completions"
        question = [{"role": "user", "content": prompt}]
        self._body = json.dumps({"model": model.name, "messages": question, "temperature": 0, "max_tokens": model.tokens})
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        if model.key:
            self._headers["Authorization"] = f"Bearer {model.key}"
        self.status, self.data = 0, b""
        self.error: ModelError | None = None

    def run(self) -> None:
        """Sends the question and reads the answer, or says in `error` why that failed."""
        try:
            self._connection.request("POST", self._path, self._body, self._headers)
            answer = self._connection.getresponse()
            self.status, self.data = answer.status, _bounded(answer)
        except ModelError as error:
            self.error = error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = ModelError(f"the model cannot be reached ({one_line(str(error) or type(error).__name__, 100)})")
        finally:
            self._connection.close()

    def cut(self) -> None:
        """Ends the connection, so that `run` ends, too."""
        connected = self._connection.sock
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)


def _bounded(answer: http.client.HTTPResponse) -> bytes:
    """The body of an answer, bounded in bytes."""
    parts, total = list[bytes](), 0
    while piece := answer.read1(1 << 16):
        parts.append(piece)
        total += len(piece)
        if total > MOST_BYTES:
            raise ModelError(f"the model answered with more than {MOST_BYTES:,} bytes")
    return b"".join(parts)


def _said(status: int, data: bytes, prompt: str) -> Said:
    """What the server answered, as text."""
    if status != 200:
        raise ModelError(f"the model's server answered with status {status}")
    try:
        found = parse_json(data, "the model's answer")
        text = found["choices"][0]["message"]["content"]
        used = (found.get("usage") or {}).get("prompt_tokens")
    except (InputError, KeyError, IndexError, TypeError, AttributeError):
        raise ModelError("the model's server answered with something that is no chat completion") from None
    if not isinstance(text, str):
        raise ModelError("the model's server answered without text")
    counted = isinstance(used, int) and not isinstance(used, bool) and 0 <= used < 1 << 40
    return Said(text, int(used or 0) if counted else len(prompt) // CHARACTERS)
