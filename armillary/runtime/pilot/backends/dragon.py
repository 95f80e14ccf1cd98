"""Functions and executables on a Dragon runtime: the backend `dragon`, a service under Dragon's launcher that takes batches over a socket.

The socket is in a private folder and takes one peer of the same user; a message has at most 64 MiB and a batch at most 1,024 tasks.
Functions go to a warm pool, executables to one process group per batch. If the service dies, what it has fails or is repeated elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from armillary.errors import InputError, one_line
from armillary.runtime.pilot.agent.task import FAILED, Finished, Live
from armillary.runtime.pilot.peers import dragon_service
from armillary.runtime.pilot.peers.dragon_service import HEAD, MOST

from .backend import EXECUTABLE, FUNCTION, Backend

if TYPE_CHECKING:
    from armillary.runtime.pilot.agent.agent import Agent
    from armillary.runtime.pilot.agent.scheduler import Instance

#: Tasks of one message.
BATCH = 1024
#: Seconds within which the service must have connected.
START_S = 60.0


def _own_paths() -> list[str]:
    """Where this process finds modules that are no installed packages: the service has packages of its own."""
    installed = {"site-packages", "lib-dynload"}
    folders = [Path(path) for path in sys.path if path and Path(path).is_dir()]
    return [str(path) for path in folders if not installed & set(path.parts) and not (path / "os.py").exists()]


class Dragon(Backend):
    """One service with its pool."""

    name: ClassVar[str] = "dragon"
    kinds: ClassVar[frozenset[int]] = frozenset({EXECUTABLE, FUNCTION})

    def __init__(self, python: str, names: list[str], workers: int) -> None:
        self._python, self._names = python or sys.executable, names
        #: They are all on this machine, whatever nodes the pilot has, and spin while they wait: more than the cores would only hinder.
        self.workers = min(workers, len(os.sched_getaffinity(0)))
        self._given: dict[int, Live] = {}
        self._outgoing: list[tuple[int, bytes | list[str]]] = []
        self._out, self._in = bytearray(), bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        self._peer: socket.socket | None = None
        self._folder = ""

    def start(self, agent: Agent, instance: Instance) -> None:
        """Starts the launcher, which may take ten seconds."""
        from armillary.runtime.pilot.running.peers import environment_of

        self.agent, self.instance = agent, instance
        launcher = Path(self._python).parent / "dragon"
        if not launcher.is_file():
            raise InputError("found no `dragon` beside the interpreter; expected the package dragonhpc (Pilot(peers=...))")
        self._folder = tempfile.mkdtemp(prefix="pilot-dragon-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder}/socket")
        self._listener.listen(1)
        self._listener.setblocking(False)
        agent.watch(self._listener.fileno(), self._accept)
        words = [str(launcher), "--single-node-override", dragon_service.__file__, f"{self._folder}/socket", str(self.workers)]
        environment = environment_of(self._python, self._folder) | {"PYTHONPATH": os.pathsep.join(_own_paths())}
        with (Path(self._folder) / "log").open("wb") as log:
            # The launcher hangs in a session of its own, and where its input has ended.
            self._process = subprocess.Popen(words, env=environment, cwd=self._folder, stdin=subprocess.PIPE, stdout=log, stderr=log)
        agent.later(START_S, self._late)

    def _late(self) -> None:
        if not self.instance.up and not self.instance.dead:
            last = (Path(self._folder) / "log").read_text(errors="replace").strip().splitlines()[-1:] or [""]
            self.agent.died(self.instance, f"the service did not start within {START_S:g} s: {one_line(last[0], 200)}")

    def _accept(self, _: int) -> None:
        peer, _address = self._listener.accept()
        _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.getuid() or self._peer is not None:
            peer.close()
            return
        peer.setblocking(False)
        self._peer = peer
        self.agent.watch(peer.fileno(), self._ready)

    def launch(self, live: Live) -> None:
        """Collects it for the next flush."""
        self.agent.launching(live)
        self._given[live.id] = live
        task = live.task
        if live.call:
            self._outgoing.append((live.id, live.call))
            return
        assert task is not None
        words = [os.fspath(word) for word in task.command]
        program = words[0] if "/" in words[0] else shutil.which(words[0])
        if program is None or task.ranks > 1:
            missing = FileNotFoundError(2, "found no such program", words[0])
            self._end(live.id, missing if program is None else InputError("ranks: a task of `dragon` has one rank here"))
            return
        self.agent.running(live)
        self._outgoing.append((live.id, [program, *words[1:]]))

    def _end(self, number: int, error: BaseException) -> None:
        live = self._given.pop(number)
        place, live.place = live.place, []
        self.agent.scheduler.release(place)
        self.agent.end(live, FAILED, error=error, place=place)

    def flush(self) -> None:
        """Sends what was collected, in batches."""
        while self._outgoing:
            batch, self._outgoing = self._outgoing[:BATCH], self._outgoing[BATCH:]
            frame = pickle.dumps(batch, 5)
            if len(frame) > MOST:
                for number, _ in batch:
                    self._end(number, InputError(f"found a batch of {len(frame):,} bytes; expected at most {MOST:,}"))
                continue
            self._out += HEAD.pack(len(frame)) + frame
            self._push()

    def _push(self) -> None:
        if self._peer is None:
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._out:
                del self._out[: self._peer.send(memoryview(self._out)[: 1 << 20])]
        self.agent.watch(self._peer.fileno(), self._ready, select.EPOLLIN | (select.EPOLLOUT if self._out else 0))

    def _ready(self, what: int) -> None:
        assert self._peer is not None
        if what & select.EPOLLOUT:
            self._push()
        try:
            piece = self._peer.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            piece = b""
        if not piece:
            self.agent.died(self.instance, "the service closed its socket")
            return
        self._in += piece
        while len(self._in) >= 4:
            (size,) = HEAD.unpack_from(self._in)
            if size > MOST:
                self.agent.died(self.instance, f"the service sent a message of {size:,} bytes")
                return
            if len(self._in) < 4 + size:
                return
            frame = bytes(memoryview(self._in)[4 : 4 + size])
            del self._in[: 4 + size]
            self._heard(pickle.loads(frame))  # noqa: S301

    def _heard(self, results: list[tuple[int, bool, bytes, int, int]]) -> None:
        if not self.instance.up:
            self.agent.up(self.instance)
        for number, ok, result, began, ended in results:
            live = self._given.pop(number, None)
            if live is None:
                continue
            place, live.place = live.place, []
            self.agent.scheduler.release(place)
            value = pickle.loads(result)  # noqa: S301
            if not live.call:
                code, now = int(value), time.monotonic_ns()
                made = Finished(max(code, 0), max(-code, 0), 0, b"", b"", self._names[place[0][0]], live.attempt)
                if code:
                    self.agent.end(live, FAILED, made, at=now, place=place)
                else:
                    self.agent.done(live, made, now, place)
                continue
            self.agent.running(live, began)
            if ok:
                self.agent.done(live, value, ended, place)
            else:
                self.agent.failed(live, value, ended, place=place)

    def lost(self) -> list[Live]:
        """All that it has."""
        found, self._given = list(self._given.values()), {}
        self._outgoing.clear()
        self.stop()
        return found

    def stop(self) -> None:
        """Ends the service and its launcher."""
        from armillary.runtime.pilot.running.peers import kill_family

        if self._peer is not None:
            self.agent.unwatch(self._peer.fileno())
            self._peer.close()
            self._peer = None
        if self._folder:
            self.agent.unwatch(self._listener.fileno())
            self._listener.close()
            if self._process is not None:
                kill_family(self._process, self._folder)
                self._process.communicate()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""
