"""Functions on warm interpreters, one per core: the backend `pool`.

A worker holds its core while it has something to do. It gets one task of a function until that function's durations are known, and then as
many as fit `BUDGET_S`; the slowest recent call decides, so a function that is sometimes long goes out one by one. If a chunk takes longer
than expected all the same, and somebody is idle, what the worker has not begun is called back and given to others: exactly once, because a
task leaves the worker's queue either to be run or to be given back.

The workers of this machine have a socket pair each. Those of other nodes of a Slurm allocation are kept by one process per node, which a
single `srun` starts, and whose frames pass that `srun`'s standard input and output: nothing listens anywhere, so nobody else can send work.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from armillary.runtime.pilot.agent.task import Live, Lost

from . import pool_worker
from .backend import FUNCTION, Backend
from .pool_worker import HEAD, MOST, start_worker

if TYPE_CHECKING:
    from armillary.runtime.pilot.agent.agent import Agent
    from armillary.runtime.pilot.agent.scheduler import Instance

#: Seconds of work that a worker has in hand at most, if more than one task.
BUDGET_S = 0.004
#: The most tasks of a chunk.
LONGEST = 512
#: Seconds without news after which a worker's queue is called back while others are idle.
PATIENCE_S = 0.003
#: What a remembered longest duration keeps with each shorter call.
FADES = 0.98
#: Functions whose durations are remembered.
REMEMBERED = 10_000
#: Deaths of one worker in a row, without a result between them, after which its place is given up.
DEATHS = 5


class Pool(Backend):
    """Warm interpreters on the nodes of one instance; `steps` are the `srun` commands that keep other nodes' workers, or None for here."""

    name: ClassVar[str] = "pool"
    kinds: ClassVar[frozenset[int]] = frozenset({FUNCTION})

    def __init__(
        self, python: str = sys.executable, steps: list[list[str]] | None = None, environment: dict[str, str] | None = None
    ) -> None:  # fmt: skip
        self._python = python
        self._steps = steps
        self._environment = environment
        self._workers: dict[tuple[int, int], Worker] = {}
        self._keepers: list[Keeper] = []
        self._slowest: OrderedDict[Any, float] = OrderedDict()
        self._filled: list[Worker] = []
        self._looking = False
        self._number = 0

    def start(self, agent: Agent, instance: Instance) -> None:
        """Starts one worker per core; the instance is up when all have said so."""
        self.agent, self.instance = agent, instance
        cores = agent.scheduler.cores
        for node in range(instance.low, instance.high):
            for slot in range(cores):
                self._workers[node, slot] = Worker(self, node, slot)
        if self._steps is None:
            for worker in self._workers.values():
                worker.link = Link(self, worker)
        else:
            for i, command in enumerate(self._steps):
                mine = [self._workers[instance.low + i, slot] for slot in range(cores)]
                self._keepers.append(Keeper(self, command, mine))

    def said_hello(self) -> None:
        """A worker is up."""
        if not self.instance.up and all(worker.up for worker in self._workers.values()):
            self.agent.up(self.instance)

    # Giving out

    def launch(self, live: Live) -> None:
        """Gives a task to the worker of its first core, and further ones of its line with it if they are short."""
        node, slots, _ = live.place[0]
        worker = self._workers[node, slots[0]]
        worker.lease = live.place
        self._give(worker, live)
        self.top_up(worker, live.shape, live.key)

    def top_up(self, worker: Worker, shape: Any, key: Any) -> None:
        """More tasks of the same line, as many as fit, shared out among all workers."""
        expected = self._slowest.get(key)
        if expected is None or expected > BUDGET_S:
            return
        scheduler = self.agent.scheduler
        if len(scheduler.shapes()) > 1:
            return
        room = min(LONGEST, int(BUDGET_S / max(expected, 1e-7)), scheduler.waiting // len(self._workers) + 1) - len(worker.given)
        for live in scheduler.more(shape, room) if room > 0 else ():
            if live.key != key:
                scheduler.add(live, first=True)
                break
            live.backend, live.place = self.instance, worker.lease
            if self.agent.admit(live):
                self._give(worker, live)

    def _give(self, worker: Worker, live: Live) -> None:
        self._number += 1
        live.sequence = self._number
        live.worker = worker
        self.agent.launching(live)
        worker.given[live.sequence] = live
        if not worker.outgoing:
            self._filled.append(worker)
        worker.outgoing.append((live.sequence, live.call, ",".join(map(str, worker.lease[0][2]))))

    def flush(self) -> None:
        """One frame per worker with all that it was given in this pass."""
        for worker in self._filled:
            chunk, worker.outgoing = worker.outgoing, []
            if worker.link is not None:
                worker.link.send(pickle.dumps(chunk, 5))
        self._filled.clear()
        if not self._looking and any(len(worker.given) > 1 for worker in self._workers.values()):
            self._looking = True
            self.agent.later(PATIENCE_S, self._look)

    def _look(self) -> None:
        """Calls back what waits behind a long call, if somebody else could run it now."""
        self._looking = False
        now = time.monotonic()
        idle = self.agent.scheduler.waiting == 0 and any(not worker.given and worker.up for worker in self._workers.values())
        long = [worker for worker in self._workers.values() if len(worker.given) > 1]
        for worker in long if idle else ():
            if now - worker.heard > PATIENCE_S and worker.link is not None:
                worker.heard = now
                worker.link.recall()
        if long:
            self._looking = True
            self.agent.later(PATIENCE_S, self._look)

    # Hearing

    def heard(self, worker: Worker, frame: bytes) -> None:
        """Results, and tasks that come back."""
        finished, back = pickle.loads(frame)  # noqa: S301
        worker.heard = time.monotonic()
        if not worker.up:
            worker.up = True
            self.said_hello()
        agent = self.agent
        last: Live | None = None
        for number, ok, result, began, ended in finished:
            live = worker.given.pop(number)
            worker.deaths = 0
            place, live.place = worker.lease, []
            agent.running(live, began)
            self._remember(live.key, (ended - began) * 1e-9)
            try:
                value = pickle.loads(result)  # noqa: S301
            except Exception as error:
                ok, value = False, error
            if ok:
                agent.done(live, value, ended, place)
            else:
                agent.failed(live, value, ended, place=place)
            last = live
        for number in reversed(back):
            live = worker.given.pop(number)
            live.worker, live.place = None, []
            agent.scheduler.add(live, first=True)
        if worker.given:
            if last is not None and not back and len(worker.given) * 2 < LONGEST:
                self.top_up(worker, last.shape, last.key)
        else:
            self._free(worker)

    def _free(self, worker: Worker) -> None:
        if worker.lease:
            lease, worker.lease = worker.lease, []
            self.agent.scheduler.release(lease)

    def _remember(self, key: Any, seconds: float) -> None:
        known = self._slowest.get(key, 0.0)
        self._slowest[key] = max(seconds, known * FADES)
        if len(self._slowest) > REMEMBERED:
            self._slowest.popitem(last=False)

    def worker_died(self, worker: Worker, begun: int, code: int) -> None:
        """What it had begun has failed, what it had not goes back, and another worker takes its place."""
        given, worker.given = worker.given, {}
        worker.outgoing = []
        worker.up, worker.link = False, None
        worker.deaths += 1
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        now = time.monotonic_ns()
        place = worker.lease
        again = []
        for number, live in given.items():
            live.place = []
            if number <= begun:
                self.agent.running(live)
                self.agent.failed(live, Lost(f"the worker that ran it ended with {how}"), now, again=True, place=place)
            else:
                again.append(live)
        for live in reversed(again):
            self.agent.scheduler.add(live, first=True)
        # Its core stays taken until there is a worker for it again.
        if worker.deaths >= DEATHS:
            self.agent.died(self.instance, f"a worker died {DEATHS} times without a result, at last with {how}")
        elif self._steps is None:
            self.agent.later(0.0, lambda: self._again(worker))

    def _again(self, worker: Worker) -> None:
        if self.instance.dead:
            return
        with contextlib.suppress(OSError):
            worker.link = Link(self, worker)
        self._free(worker)

    def lost(self) -> list[Live]:
        """All that any worker has."""
        found = [live for worker in self._workers.values() for live in worker.given.values()]
        for live in found:
            live.place = []
        for worker in self._workers.values():
            self._free(worker)
            worker.given, worker.outgoing = {}, []
        self._filled.clear()
        self.stop()
        return found

    def stop(self) -> None:
        """Ends all workers."""
        for worker in self._workers.values():
            if worker.link is not None:
                worker.link.close()
        for keeper in self._keepers:
            keeper.close()


class Worker:
    """One warm interpreter and what it has in hand."""

    def __init__(self, pool: Pool, node: int, slot: int) -> None:
        self.node, self.slot = node, slot
        self.link: Link | Remote | None = None
        self.up = False
        #: The place that it holds; it is in use while there is something in hand.
        self.lease: list[tuple[int, list[int], list[int]]] = []
        #: By number, in the order in which they will run.
        self.given: dict[int, Live] = {}
        self.outgoing: list[tuple[int, bytes, str]] = []
        self.heard = 0.0
        self.deaths = 0


class Link:
    """A worker of this machine: its process and its sockets."""

    def __init__(self, pool: Pool, worker: Worker) -> None:
        self._pool, self._worker = pool, worker
        self._process, self._data, self._control, self._cell = start_worker(pool._python, pool._environment)
        self._data.setblocking(False)
        self._control.setblocking(False)
        self._out, self._in = bytearray(), bytearray()
        pool.agent.watch(self._data.fileno(), self._ready)
        self.send(pickle.dumps(sys.path, 5))

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def send(self, frame: bytes) -> None:
        """Sends a frame, now or as soon as there is room."""
        waiting = bool(self._out)
        self._out += HEAD.pack(len(frame))
        self._out += frame
        if not waiting:
            self._push()

    def _push(self) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._out:
                del self._out[: self._data.send(memoryview(self._out)[: 1 << 20])]
        events = select.EPOLLIN | (select.EPOLLOUT if self._out else 0)
        self._pool.agent.watch(self._data.fileno(), self._ready, events)

    def _ready(self, what: int) -> None:
        if what & select.EPOLLOUT:
            self._push()
        if not what & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            piece = self._data.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            piece = b""
        if not piece:
            self._died()
            return
        self._in += piece
        for frame in frames(self._in):
            self._pool.heard(self._worker, frame)

    def _died(self) -> None:
        begun = self._cell[0]
        self._close()
        self._process.kill()
        self._pool.worker_died(self._worker, begun, self._process.wait())

    def recall(self) -> None:
        """Asks for what it has not begun."""
        with contextlib.suppress(OSError):
            self._control.send(b"r")

    def _close(self) -> None:
        self._pool.agent.unwatch(self._data.fileno())
        self._data.close()
        self._control.close()

    def close(self) -> None:
        """Ends the worker."""
        if self._data.fileno() >= 0:
            self._close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def frames(buffer: bytearray) -> list[bytes]:
    """Takes the whole frames out of a buffer."""
    found, at = [], 0
    while len(buffer) - at >= 4:
        (size,) = HEAD.unpack_from(buffer, at)
        if size > MOST:
            raise struct.error(f"a frame of {size} bytes")
        if len(buffer) - at - 4 < size:
            break
        found.append(bytes(memoryview(buffer)[at + 4 : at + 4 + size]))
        at += 4 + size
    del buffer[:at]
    return found


class Remote:
    """A worker of another node, by its number at the node's keeper."""

    def __init__(self, keeper: Keeper, number: int) -> None:
        self._keeper, self._number = keeper, number

    def send(self, frame: bytes) -> None:
        """Sends a frame."""
        self._keeper.say(b"%d d %s\n" % (self._number, base64.b64encode(frame)))

    def recall(self) -> None:
        """Asks for what it has not begun."""
        self._keeper.say(b"%d r -\n" % self._number)

    def close(self) -> None:
        """The keeper ends it."""


class Keeper:
    """The process that keeps the workers of one node, behind an `srun`."""

    def __init__(self, pool: Pool, command: list[str], workers: list[Worker]) -> None:
        self._pool, self._workers = pool, workers
        words = [*command, pool._python, str(Path(pool_worker.__file__)), "--node", str(len(workers))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True, env=pool._environment)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._out, self._in = bytearray(), bytearray()
        self._open = True
        for fd in (self._to, self._from):
            os.set_blocking(fd, False)
        pool.agent.watch(self._from, self._ready)

    def say(self, line: bytes) -> None:
        """Sends a line, now or as soon as there is room."""
        self._out += line
        self._push()

    def _push(self) -> None:
        if not self._open:
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._out:
                del self._out[: os.write(self._to, memoryview(self._out)[: 1 << 16])]
        if self._out:
            self._pool.agent.watch(self._to, lambda _: self._push(), select.EPOLLOUT)
        else:
            self._pool.agent.unwatch(self._to)

    def _ready(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self._from, 1 << 20)
            if not piece:
                self.close()
                if not self._pool.instance.dead:
                    reason = f"the keeper of a node's workers ended with exit status {self._process.wait()}"
                    self._pool.agent.died(self._pool.instance, reason)
                return
            self._in += piece
            *lines, rest = bytes(self._in).split(b"\n")
            self._in = bytearray(rest)
            for line in lines:
                self._line(line)

    def _line(self, line: bytes) -> None:
        number, dead, text = line.split(b" ", 2)
        if int(number) == len(self._workers):
            for i, worker in enumerate(self._workers):
                worker.link = Remote(self, i)
                worker.link.send(pickle.dumps(sys.path, 5))
            return
        worker = self._workers[int(number)]
        if dead == b"-":
            self._pool.heard(worker, base64.b64decode(text))
            return
        begun, code = map(int, dead.split(b","))
        self._pool.worker_died(worker, begun, code)
        worker.link = Remote(self, int(number))
        worker.link.send(pickle.dumps(sys.path, 5))
        self._pool._free(worker)

    def close(self) -> None:
        """Ends the node's workers, which end with their keeper's input."""
        if self._open:
            self._open = False
            self._pool.agent.unwatch(self._to)
            self._pool.agent.unwatch(self._from)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.stdout.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
