"""Records of a Paraver trace as bytes, made in one compiled pass over columns.

A record is put together from texts that are stored once (the object that it belongs to, pairs of type and value that repeat) and numbers
that are written digit by digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop

Array = npt.NDArray[Any]

EVENT, STATE, LINE = 0, 1, 2
#: Records at one moment stand in this order; a span without length ends after it starts.
ENDS, STATES, STARTS, LINES, ENDS_OF_MOMENTS = range(5)
NUMBERS = 3


class Texts:
    """Texts that records are put together from, numbered from 0 on."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._bounds = [0]
        self._numbers: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The number of a text."""
        if text not in self._numbers:
            self._numbers[text] = len(self._bounds) - 1
            self._bytes += text.encode()
            self._bounds.append(len(self._bytes))
        return self._numbers[text]

    def many(self, texts: Any) -> npt.NDArray[np.int32]:
        """The numbers of several texts."""
        return np.array([self.add(text) for text in texts], np.int32)

    @property
    def arrays(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """All bytes, and where each text begins and the last one ends."""
        return np.frombuffer(bytes(self._bytes), np.uint8), np.array(self._bounds, np.int64)


@dataclass(frozen=True)
class Records:
    """Records in any order. `first` and `second` are texts (-1: none), `labels` the texts before each of `values` (-1: none).

    For a state, values are its end and number. For a line, `second` is the text of the receiving thread, and values are the time of
    receipt and the size; `first` is the text of the tag.
    """

    time: npt.NDArray[np.int64]
    order: npt.NDArray[np.int8]
    mode: npt.NDArray[np.int8]
    thread: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    values: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, time: Array, order: Array | int, thread: Array, first: Array | int, second: Array | int = -1, mode: int = EVENT,
        numbers: tuple[tuple[Any, Array], ...] = (),
    ) -> Records:  # fmt: skip
        """Records of one sort; `numbers` are (text before it, values)."""
        many = len(time)
        labels, values = np.full((NUMBERS, many), -1, np.int32), np.zeros((NUMBERS, many), np.int64)
        for k, (label, column) in enumerate(numbers):
            labels[k], values[k] = label, column
        one, two = (np.broadcast_to(np.asarray(text, np.int32), many) for text in (first, second))
        orders = np.broadcast_to(np.asarray(order, np.int8), many)
        return cls(time, orders, np.full(many, mode, np.int8), thread.astype(np.int32), one, two, labels, values)

    @classmethod
    def joined(cls, parts: list[Records]) -> Records:
        """Records of several sorts."""
        names = ("time", "order", "mode", "thread", "first", "second")
        columns: list[Any] = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
        return cls(*columns, *(np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("labels", "values")))

    def lines(self, texts: Texts, buffer: npt.NDArray[np.uint8]) -> Any:
        """The lines of all records in the order of their times, in pieces of bytes that are valid until the next piece."""
        base = int(self.time.min()) if len(self.time) else 0
        place = np.argsort((self.time - base) * 8 + self.order, kind="stable")
        data, bounds = texts.arrays
        longest = int(np.diff(bounds).max(initial=0)) * (3 + NUMBERS) + 24 * (NUMBERS + 3)
        if longest > len(buffer):
            buffer = np.empty(4 * longest, np.uint8)
        at = 0
        while at < len(place):
            at, size = _write(
                place, at, self.time, self.mode, self.thread, self.first, self.second, self.labels, self.values, data, bounds, buffer,
                len(buffer) - longest,
            )  # fmt: skip
            yield buffer[:size].data


@loop
def _text(number: int, data: Array, bounds: Array, out: Array, at: int) -> int:
    for k in range(bounds[number], bounds[number + 1]):
        out[at] = data[k]
        at += 1
    return at


@loop
def _digits(value: int, out: Array, at: int) -> int:
    if value < 0:
        out[at] = 45
        at += 1
        value = -value
    end = at
    rest = value
    while True:
        end += 1
        rest //= 10
        if rest == 0:
            break
    k = end
    while k > at:
        k -= 1
        out[k] = 48 + value % 10
        value //= 10
    return end


@loop
def _write(
    place: Array, first_place: int, time: Array, mode: Array, thread: Array, first: Array, second: Array, labels: Array, values: Array,
    data: Array, bounds: Array, out: Array, most: int,
) -> Any:  # fmt: skip
    """(place reached, bytes written). Invariant: a record takes no more than the room beyond `most`."""
    at = np.int64(0)
    for p in range(first_place, len(place)):
        if at > most:
            return p, at
        k = place[p]
        out[at] = 51 if mode[k] == LINE else 49 if mode[k] == STATE else 50
        out[at + 1] = 58
        at = _text(thread[k], data, bounds, out, at + 2)
        at = _digits(time[k], out, at)
        if mode[k] == EVENT:
            if first[k] >= 0:
                at = _text(first[k], data, bounds, out, at)
            if second[k] >= 0:
                at = _text(second[k], data, bounds, out, at)
            for n in range(NUMBERS):
                if labels[n, k] >= 0:
                    at = _text(labels[n, k], data, bounds, out, at)
                    at = _digits(values[n, k], out, at)
        elif mode[k] == STATE:
            out[at] = 58
            at = _digits(values[0, k], out, at + 1)
            out[at] = 58
            at = _digits(values[1, k], out, at + 1)
        else:
            out[at] = 58
            at = _digits(time[k], out, at + 1)
            out[at] = 58
            at = _text(second[k], data, bounds, out, at + 1)
            at = _digits(values[0, k], out, at)
            out[at] = 58
            at = _digits(values[0, k], out, at + 1)
            out[at] = 58
            at = _digits(values[1, k], out, at + 1)
            at = _text(first[k], data, bounds, out, at)
        out[at] = 10
        at += 1
    return len(place), at
