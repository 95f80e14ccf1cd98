"""The extender's documents as bytes. Nodes of a request stay unread until somebody asks for one, since most have not changed since the last
request, and those that suit go back as the bytes that came.
"""

from __future__ import annotations

from typing import Any

import msgspec

from armillary.errors import InputError

from .objects import UnreadNode


class _Metadata(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata


class SentNode(UnreadNode):
    """The bytes of a Node object."""

    __slots__ = ("_named", "raw")
    _head = msgspec.json.Decoder(_Head)
    _whole = msgspec.json.Decoder()

    def __init__(self, raw: msgspec.Raw) -> None:
        self.raw = raw
        self._named: tuple[str, str] | None = None

    def head(self, where: str = "Node") -> tuple[str, str]:
        """Its name and version."""
        if self._named is None:
            try:
                found = self._head.decode(self.raw).metadata
            except msgspec.DecodeError as problem:
                raise InputError(f"found no Node object ({problem})", where=where) from None
            self._named = found.name, found.resourceVersion
        return self._named

    def whole(self, where: str = "Node") -> Any:
        """The JSON object."""
        try:
            return self._whole.decode(self.raw)
        except msgspec.DecodeError as problem:
            raise InputError(f"found no Node object ({problem})", where=where) from None


def read(body: bytes) -> Any:
    """The document of a request, in which each item of a NodeList is a `SentNode`; raises ValueError for what is not JSON."""
    body.decode("utf-8")  # what is passed over below is not looked at
    try:
        document = _fields.decode(body)
    except msgspec.ValidationError:
        return msgspec.json.decode(body)  # no object: the protocol says what was expected
    return {key: _nodes(raw) if key.lower() == "nodes" else msgspec.json.decode(raw) for key, raw in document.items()}


def written(document: Any) -> bytes:
    """A document as JSON."""
    return msgspec.json.encode(document, enc_hook=_sent)


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])


def _nodes(raw: msgspec.Raw) -> Any:
    try:
        around: dict[str, Any] = dict(_fields.decode(raw))
        items = [SentNode(item) for item in _items.decode(around.pop("items", b"[]"))]
    except msgspec.ValidationError:
        return msgspec.json.decode(raw)
    return {**{key: msgspec.json.decode(value) for key, value in around.items()}, "items": items}


def _sent(found: Any) -> Any:
    if isinstance(found, SentNode):
        return found.raw
    raise NotImplementedError(type(found))
