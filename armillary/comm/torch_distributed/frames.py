"""Frames: what processes of a Gloo group tell each other before, instead of, or after a message.

A frame has a fixed length, because Gloo matches a send only with a receive of the same length. Its numbers come from another process, so
all of them are checked here before anything else looks at them.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import numpy as np

from armillary.comm.failures import CommError
from armillary.comm.messages.buffers import Bytes
from armillary.comm.messages.envelope import MOST_TAG

#: The bytes of a frame, of the longest message inside one, and of the longest message that does not wait for its receiver.
FRAME = 512
_HEAD = struct.Struct("<BBQiiqQ")
SHORT = FRAME - _HEAD.size
EAGER = 16384
#: The most bytes of one message.
MOST_BYTES = 1 << 40
#: The kinds of frames: a message, the report that a long message has arrived, and the end.
MESSAGE, ARRIVED, END = 0, 1, 2
#: The flags of a message: it has the same envelope and length as the one before, and its sender wants a report of its arrival.
SAME, REPORTED = 1, 2
_FLAGS = SAME | REPORTED
#: The numbers of messages to one process begin again after this many.
ROUND = 1 << 26


#: What a frame says: (kind, flags, context, source, tag, nbytes, number). The source is a rank of the communicator of that context.
Frame: TypeAlias = tuple[int, int, int, int, int, int, int]


def encode(frame: Frame, data: Bytes | None = None) -> Bytes:
    """Return the bytes of a frame, with a short message inside."""
    made = np.empty(FRAME, np.uint8)
    _HEAD.pack_into(made.data, 0, *frame)
    if data is not None:
        made[_HEAD.size : _HEAD.size + data.nbytes] = data
    return made


def decode(received: Bytes, size: int) -> tuple[Frame, Bytes | None]:
    """Return what a frame says, and the message inside it if there is one; `size` is the number of processes in the group.

    Raises `CommError` for a frame that no process of the group would send.
    """
    if received.nbytes != FRAME:
        raise CommError(f"frame: found {received.nbytes} bytes; expected {FRAME}")
    frame: Frame = _HEAD.unpack_from(received.data)
    kind, flags, _, source, tag, nbytes, number = frame
    if kind == MESSAGE:
        sound = flags <= _FLAGS and 0 <= source < size and 0 <= tag <= MOST_TAG and 0 <= nbytes <= MOST_BYTES and number <= ROUND
    else:
        sound = kind in (ARRIVED, END) and number <= ROUND
    if not sound:
        raise CommError(_unsound(frame, size))
    if kind != MESSAGE or nbytes > SHORT:
        return frame, None
    return frame, received[_HEAD.size : _HEAD.size + nbytes]


def _unsound(frame: Frame, size: int) -> str:
    kind, flags, _, source, tag, nbytes, number = frame
    limits = [("kind", kind, END), ("number", number, ROUND)]
    if kind == MESSAGE:
        limits += [("flags", flags, _FLAGS), ("source", source, size - 1), ("tag", tag, MOST_TAG), ("a length of", nbytes, MOST_BYTES)]
    what, found, most = next(one for one in limits if not 0 <= one[1] <= one[2])
    return f"frame: found {what} {found}; expected 0 to {most}"
