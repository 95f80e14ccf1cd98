"""One rank's part of a schedule on a communicator: MPI processes, threads or virtual ranks, all by the same code.

On MPI the messages of a step are persistent requests that start and end in one call each. Requests, buffers and lists of copies are
prepared once. A window has two halves that calls use in turn: a rank can begin the next call while a slower one still copies out of the
last, and two calls later all have passed the barrier in between.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from armillary.arena import InputError
from armillary.comm import Communicator, Ghost, waitall
from armillary.kernels import loop

from ..planning.cost import copying
from ..planning.prices import Prices
from ..planning.schedule import RECV, SEND, STAGE, Schedule


def communicator(comm: Any) -> Communicator:
    """The communicator itself, or that of mpi4py's ranks; messages get a space of their own."""
    return comm.dup() if isinstance(comm, Communicator) else Communicator.adopt(comm).dup()


class _Part:
    """What one rank does in one step: the copies, the messages, and the seconds of the copies on virtual ranks."""

    __slots__ = ("copies", "receives", "seconds", "sends")

    def __init__(self) -> None:
        #: (from, at, to, at, bytes) as columns.
        self.copies: np.ndarray[Any, Any] | None = None
        self.receives: list[tuple[int, int, int, int]] = []
        self.sends: list[tuple[int, int, int, int]] = []
        self.seconds = 0.0


def parts(schedule: Schedule, rank: int, prices: Prices | None = None) -> list[_Part]:
    """The steps of one rank in order, those without any work left out. With `prices`, copies take time."""
    steps: dict[int, _Part] = {}
    for i in np.flatnonzero(schedule.destination == rank):
        part = steps.setdefault(int(schedule.step[i]), _Part())
        part.receives.append((int(schedule.source[i]), int(schedule.to_place[i]), int(schedule.to_at[i]), int(schedule.nbytes[i])))
    for i in np.flatnonzero(schedule.source == rank):
        part = steps.setdefault(int(schedule.step[i]), _Part())
        part.sends.append((int(schedule.destination[i]), int(schedule.from_place[i]), int(schedule.from_at[i]), int(schedule.nbytes[i])))
    mine = schedule.copy_rank == rank
    columns = (schedule.copy_from, schedule.copy_from_at, schedule.copy_to, schedule.copy_to_at, schedule.copy_bytes)
    table = np.stack([column[mine].astype(np.int64) for column in columns], axis=1)
    for step in np.unique(schedule.copy_step[mine]):
        steps.setdefault(int(step), _Part()).copies = np.ascontiguousarray(table[schedule.copy_step[mine] == step])
    if prices is not None:
        keys, seconds = copying(schedule, prices)
        for key, value in zip(keys, seconds):
            if key % schedule.problem.ranks == rank:
                steps[int(key) // schedule.problem.ranks].seconds = float(value)
    return [steps[step] for step in sorted(steps)]


class _Step:
    """One step on threads or virtual ranks: copies, receives and sends; it has begun until `end`."""

    __slots__ = ("_comm", "_move", "_receives", "_requests", "_seconds", "_sends")

    def __init__(self, comm: Any, seconds: float, move: Any, receives: Any, sends: Any) -> None:
        self._comm = comm
        self._seconds = seconds
        self._move = move
        self._receives = receives
        self._sends = sends
        self._requests: list[Any] = []

    def begin(self) -> None:
        """Copy, and start the messages."""
        comm = self._comm
        if self._seconds:
            comm.compute(seconds=self._seconds)
        if self._move is not None:
            copied(*self._move)
        self._requests = [comm.irecv(view, source, 0) for view, source in self._receives]
        self._requests += [comm.isend(view, destination, 0) for view, destination in self._sends]

    def end(self) -> None:
        """Wait for the messages."""
        waitall(self._requests)

    def close(self) -> None:
        """Nothing is held."""


class Allgather:
    """Neighbourhood allgather as a persistent call: `g(send, recv)`, or `g.start(send, recv)` and `g.wait()`.

    It is made by `technique.on(comm, ...)` on every rank, called by all of them together, and closed by all of them.
    """

    def __init__(self, comm: Communicator, schedule: Schedule, prices: Prices | None = None) -> None:
        self.schedule = schedule
        self._comm = comm
        problem = schedule.problem
        rank = comm.rank
        #: The bytes of this rank's block, and of what it receives.
        self.send_bytes = int(problem.block_bytes[rank])
        starts = problem.received_bytes[problem.graph.in_start]
        self.recv_bytes = int(starts[rank + 1] - starts[rank])
        self._parts = parts(schedule, rank, prices)
        self._window: Any = None
        self._halves = self._stages(comm, schedule, rank)
        self._turn = 0
        #: What was prepared for the buffers of earlier calls, by half: (send, recv, steps).
        self._ready: list[Any] = [None] * len(self._halves)
        self._started: Any = None

    def _stages(self, comm: Communicator, schedule: Schedule, rank: int) -> list[Any]:
        if not schedule.shared:
            return [np.empty(int(schedule.stage_bytes[rank]), np.uint8)]
        node = schedule.problem.node_of
        local = comm.split(int(node[rank]), rank)
        assert local is not None
        if local.node_size != local.size:
            raise InputError("nodes: found ranks of one node that share no memory; expected nodes as the communicator has them")
        size = int(schedule.stage_bytes[node[rank]])
        if _is_mpi(comm):
            from .mpi import SharedWindow

            self._window = SharedWindow(local.native, 2 * size)
            whole = self._window.memory
        else:
            self._window = local.window(2 * size if local.rank == 0 else 0)
            whole = self._window.view(0)
        return [whole[:size], whole[size:]]

    def __call__(self, send: Any, recv: Any) -> Any:
        """Send this rank's block to all destinations, receive one from each source, and return `recv`."""
        return self.start(send, recv).wait()

    def start(self, send: Any, recv: Any) -> Allgather:
        """Begin a call, whose buffers belong to it until `wait`."""
        if self._started is not None:
            raise InputError("the call was started already; expected wait() first")
        half = self._turn
        self._turn = (half + 1) % len(self._halves)
        ready = self._ready[half]
        if ready is None or ready[0] is not send or ready[1] is not recv:
            self._forget(half)
            ready = self._ready[half] = (send, recv, self._prepared(send, recv, self._halves[half]))
        steps = ready[2]
        if steps:
            steps[0].begin()
        self._started = (recv, steps)
        return self

    def wait(self) -> Any:
        """End the call that `start` began, and return its `recv`."""
        if self._started is None:
            raise InputError("no call was started; expected start() first")
        (recv, steps), self._started = self._started, None
        for before, following in pairwise(steps):
            before.end()
            following.begin()
        if steps:
            steps[-1].end()
        return recv

    def _prepared(self, send: Any, recv: Any, stage: Any) -> list[Any]:
        """The steps with their views of these buffers."""
        memory = {SEND: _bytes(send, self.send_bytes, "send", False), STAGE: stage, RECV: _bytes(recv, self.recv_bytes, "recv", True)}
        ghost = isinstance(send, Ghost)

        def view(place: int, at: int, nbytes: int) -> Any:
            return Ghost(nbytes) if ghost else memory[place][at : at + nbytes]

        made: list[Any] = []
        for part in self._parts:
            receives = [(view(place, at, nbytes), source) for source, place, at, nbytes in part.receives]
            sends = [(view(place, at, nbytes), destination) for destination, place, at, nbytes in part.sends]
            move = None
            if part.copies is not None and not ghost:
                move = (part.copies, memory[SEND], memory[STAGE], memory[RECV])
            if _is_mpi(self._comm):
                from .mpi import PersistentStep

                made.append(PersistentStep(self._comm.native, self._window, move, receives, sends))
            else:
                made.append(_Step(self._comm, part.seconds, move, receives, sends))
        return made

    def _forget(self, half: int) -> None:
        for step in self._ready[half][2] if self._ready[half] is not None else ():
            step.close()
        self._ready[half] = None

    def explain(self) -> str:
        """What the schedule does and why, in a few sentences."""
        return self.schedule.explain()

    def close(self) -> None:
        """Free the window and the requests. Every rank calls it."""
        for half in range(len(self._ready)):
            self._forget(half)
        if self._window is not None:
            self._window.close()
            self._window = None

    def __enter__(self) -> Allgather:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()


def _is_mpi(comm: Any) -> bool:
    """Whether the ranks are processes of mpi4py."""
    return type(comm.native).__module__.partition(".")[0] == "mpi4py"


def _bytes(buffer: Any, nbytes: int, what: str, writable: bool) -> Any:
    """The bytes of a contiguous buffer, of which there must be exactly so many."""
    if isinstance(buffer, Ghost):
        found, size = None, buffer.nbytes
    else:
        array = np.asarray(buffer)
        if not array.flags.c_contiguous or (writable and not array.flags.writeable) or (writable and array is not buffer):
            raise InputError(f"{what}: found an array that is not contiguous or cannot be written; expected a contiguous NumPy array")
        found = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        size = array.nbytes
    if size != nbytes:
        raise InputError(f"{what}: found {size} bytes; expected {nbytes}")
    return found


def copied(table: Any, send: Any, stage: Any, recv: Any) -> None:
    """Carries out the copies of a step."""
    if len(table) <= 2:
        memory = (send, stage, recv)
        for place, begin, to, put, nbytes in table.tolist():
            memory[to][put : put + nbytes] = memory[place][begin : begin + nbytes]
    else:
        _copy_all(table, send, stage, recv)


@loop
def _copy_all(table, send, stage, recv):  # type: ignore[no-untyped-def]
    for i in range(len(table)):
        place, begin, to, put, nbytes = table[i, 0], table[i, 1], table[i, 2], table[i, 3], table[i, 4]
        if to == 1:
            target = stage[put : put + nbytes]
        else:
            target = recv[put : put + nbytes]
        if place == 0:
            target[:] = send[begin : begin + nbytes]
        elif place == 1:
            target[:] = stage[begin : begin + nbytes]
        else:
            target[:] = recv[begin : begin + nbytes]
