"""What a call needs of mpi4py: persistent requests for the messages of a step, and memory that the ranks of a node share."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from .ranks import copied


class SharedWindow:
    """Memory of the first rank of a communicator whose ranks are on one host; all of them see it."""

    def __init__(self, native: MPI.Intracomm, nbytes: int) -> None:
        self._win = MPI.Win.Allocate_shared(nbytes if native.rank == 0 else 0, 1, comm=native)
        memory, _ = self._win.Shared_query(0)
        #: The bytes of the window.
        self.memory = np.frombuffer(memory, np.uint8, nbytes)  # type: ignore[call-overload]
        self._win.Lock_all()
        # A process sees what another one wrote before its message, if both synchronise their views of the window.
        self.sync = self._win.Sync

    def close(self) -> None:
        """Free the memory. Every rank calls it."""
        self._win.Unlock_all()
        self.memory = np.empty(0, np.uint8)
        self._win.Free()


class PersistentStep:
    """One step: copies, and requests that were set up once."""

    __slots__ = ("_move", "_requests", "_sync")

    def __init__(self, native: MPI.Comm, window: Any, move: Any, receives: Any, sends: Any) -> None:
        self._move = move
        self._sync = None if window is None else window.sync
        self._requests = [native.Recv_init([view, MPI.BYTE], source, 0) for view, source in receives]
        self._requests += [native.Send_init([view, MPI.BYTE], destination, 0) for view, destination in sends]

    def begin(self) -> None:
        """Copy, and start the messages."""
        if self._move is not None:
            copied(*self._move)
        if self._sync is not None:
            self._sync()
        if self._requests:
            MPI.Prequest.Startall(self._requests)

    def end(self) -> None:
        """Wait for the messages."""
        if self._requests:
            MPI.Request.Waitall(self._requests)
        if self._sync is not None:
            self._sync()

    def close(self) -> None:
        """Free the requests."""
        for request in self._requests:
            request.Free()
        self._requests = []
