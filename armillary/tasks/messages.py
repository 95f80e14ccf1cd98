"""Messages between a run and its own worker processes, as pickle protocol 5 with large buffers out of band.

Only pipes that this process made for its own children are read like this, never a file or a socket.
"""

from __future__ import annotations

import pickle
from multiprocessing.connection import Connection
from typing import Any


def send(pipe: Connection, message: Any) -> None:
    """Sends one message; arrays in it are not copied into the pickle."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    pipe.send_bytes(len(buffers).to_bytes(4, "little") + head)
    for buffer in buffers:
        pipe.send_bytes(buffer.raw())


def receive(pipe: Connection) -> Any:
    """Receives the next message; raises an `EOFError` if the other side is gone."""
    head = pipe.recv_bytes()
    buffers = [bytearray(pipe.recv_bytes()) for _ in range(int.from_bytes(head[:4], "little"))]
    return pickle.loads(memoryview(head)[4:], buffers=buffers)  # noqa: S301 (from our own child)
