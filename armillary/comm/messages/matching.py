"""Matching: MPI's rule for which message goes to which receive, as a state machine that neither waits nor does I/O.

Messages with the same (context, source, tag) are received in the order in which they were sent. A receive takes the earliest message that
fits, and a message takes the earliest receive that fits. An exact match costs O(1), whatever the number of waiting messages. A wildcard
receive looks through the distinct pairs (source, tag) that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG

_Key = tuple[Any, int, int]


class Matcher:
    """The messages of one rank that arrived before their receive, and its receives that wait for their message."""

    __slots__ = ("_arrived", "_order", "_posted", "_wild")

    def __init__(self) -> None:
        self._arrived: dict[_Key, deque[tuple[int, Any]]] = {}
        self._posted: dict[_Key, deque[tuple[int, Any]]] = {}
        self._order = 0
        #: The number of wildcard receives posted so far. While it is zero, only the exact key is looked up.
        self._wild = 0

    def arrive(self, context: Any, source: int, tag: int, message: Any) -> Any | None:
        """Take in a message. Returns the receive that it goes to, or None if the message has to wait for one."""
        key = (context, source, tag)
        posted = self._posted
        if posted:
            best = key if key in posted else None
            if self._wild:
                for other in ((context, ANY_SOURCE, tag), (context, source, ANY_TAG), (context, ANY_SOURCE, ANY_TAG)):
                    if other in posted and (best is None or posted[other][0][0] < posted[best][0][0]):
                        best = other
            if best is not None:
                return _first(posted, best)
        self._order += 1
        waiting = self._arrived.get(key)
        if waiting is None:
            waiting = self._arrived[key] = deque()
        waiting.append((self._order, message))
        return None

    def post(self, context: Any, source: int, tag: int, receive: Any) -> Any | None:
        """Take in a receive. Returns the message that it gets, or None if the receive has to wait for one."""
        key = self._find(context, source, tag)
        if key is not None:
            return _first(self._arrived, key)
        self._order += 1
        if source == ANY_SOURCE or tag == ANY_TAG:
            self._wild += 1
        self._posted.setdefault((context, source, tag), deque()).append((self._order, receive))
        return None

    def peek(self, context: Any, source: int, tag: int) -> Any | None:
        """Return the message that such a receive would get, or None. The message stays where it is."""
        key = self._find(context, source, tag)
        return None if key is None else self._arrived[key][0][1]

    def withdraw(self, context: Any, source: int, tag: int, receive: Any) -> bool:
        """Withdraw a receive. Returns False if it already has its message."""
        return _remove(self._posted, (context, source, tag), receive)

    def recall(self, context: Any, source: int, tag: int, message: Any) -> bool:
        """Withdraw a message. Returns False if it was already received."""
        return _remove(self._arrived, (context, source, tag), message)

    def unreceived(self) -> Iterator[Any]:
        """Yield the messages that nobody received, grouped by (context, source, tag)."""
        for waiting in self._arrived.values():
            for _, message in waiting:
                yield message

    def _find(self, context: Any, source: int, tag: int) -> _Key | None:
        if source != ANY_SOURCE and tag != ANY_TAG:
            key = (context, source, tag)
            return key if key in self._arrived else None
        best = None
        for key, waiting in self._arrived.items():
            fits = key[0] == context and source in (ANY_SOURCE, key[1]) and tag in (ANY_TAG, key[2])
            if fits and (best is None or waiting[0][0] < self._arrived[best][0][0]):
                best = key
        return best


def _first(table: dict[_Key, deque[tuple[int, Any]]], key: _Key) -> Any:
    waiting = table[key]
    found = waiting.popleft()[1]
    if not waiting:
        del table[key]
    return found


def _remove(table: dict[_Key, deque[tuple[int, Any]]], key: _Key, wanted: Any) -> bool:
    waiting = table.get(key, ())
    for entry in waiting:
        if entry[1] is wanted:
            table[key].remove(entry)
            if not table[key]:
                del table[key]
            return True
    return False
