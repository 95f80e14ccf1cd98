"""Work that was asked for on the page: each is a folder with the request, and a process of its own that outlives the server.

A run is running until it has ended, is refused or is stopped; a stopped one, or one whose process was killed, goes on when it is asked to.
Whether a process runs is read off the lock that it holds on its folder, which the kernel takes away from a dead one, so nothing has to be
kept up to date, and a server that was killed finds everything again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import InputError

#: Folders of runs that are kept; the oldest that have ended go first.
MOST_RUNS = 500
NAME = re.compile(r"[0-9a-z]{8,32}")
#: `struct flock` of Linux and of macOS as Python's own tests write it: type, whence, start, length, process.
_FLOCK = "hhqqi4x" if sys.platform == "linux" else "qqihh"


@dataclass(frozen=True)
class Run:
    """One request and what became of it."""

    name: str
    #: The request, as plain data.
    asked: Mapping[str, Any]
    created: float
    #: The process that works on it now, or None.
    process: int | None
    #: The identity of its study, once it is planned.
    identity: str
    refused: str
    #: What it left when it ended: the number of the study, or `yes`.
    ended: str

    @property
    def state(self) -> str:
        """running, ended, refused or stopped."""
        if self.process is not None:
            return "running"
        return "ended" if self.ended else "refused" if self.refused else "stopped"


@dataclass(frozen=True)
class Runs:
    """The runs of one kind and store, in a private folder; `module` of `armillary.web.apart` does the work."""

    folder: Path
    store: Path
    module: str

    @classmethod
    def made(cls, folder: Path, store: Path, module: str) -> Runs:
        """The runs in a folder that only its owner may read; it is made when it does not exist."""
        private(folder)
        return cls(folder, store, module)

    def start(self, asked: Mapping[str, Any]) -> Run:
        """A new run, begun."""
        for old in list(self.all())[MOST_RUNS:]:
            if old.process is None:
                shutil.rmtree(self.place(old.name), ignore_errors=True)
        place = self.folder / f"{int(time.time() * 1000):x}{secrets.token_hex(4)}"
        place.mkdir(mode=0o700)
        (place / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        (place / "lock").touch(mode=0o600)
        return self._begun(place)

    def go_on(self, name: str) -> Run:
        """A run that stopped, begun again where it stopped; one that runs already just goes on."""
        run, place = self.run(name), self.place(name)
        if run.process is not None:
            return run
        for left in ("refused", "ended"):
            (place / left).unlink(missing_ok=True)
        return self._begun(place)

    def stop(self, name: str) -> None:
        """Ends the process of a run and those that it started; every finished unit is kept."""
        process = self.run(name).process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGINT)
        for _ in range(50):
            if self.run(name).process is None:
                return
            time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)

    def run(self, name: str) -> Run:
        """One run by its name."""
        place = self.place(name)
        try:
            created = (place / "asked.json").stat().st_mtime
            asked = json.loads(_text(place / "asked.json"))
        except (OSError, ValueError):
            raise InputError(f'there is no run "{name[:40]}"') from None
        left = (_text(place / what) for what in ("identity", "refused", "ended"))
        return Run(name, asked, created, _holder(place / "lock"), *left)

    def all(self) -> Iterator[Run]:
        """Every run, the newest first."""
        for place in sorted(self.folder.iterdir(), reverse=True):
            if NAME.fullmatch(place.name):
                with contextlib.suppress(InputError):
                    yield self.run(place.name)

    def of_study(self, identity: str) -> Run | None:
        """The newest run of a study, by the study's identity."""
        return next((run for run in self.all() if run.identity == identity), None)

    def place(self, name: str) -> Path:
        """The folder of a run."""
        if not NAME.fullmatch(name):
            raise InputError(f'there is no run "{name[:40]}"')
        return self.folder / name

    def _begun(self, place: Path) -> Run:
        with (place / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"armillary.web.apart.{self.module}", str(place), str(self.store)], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, cwd=place,
            )  # fmt: skip
        threading.Thread(target=process.wait, daemon=True).start()  # Nobody else asks how it ended, and it must not stay a zombie.
        until = time.monotonic() + 20
        while process.poll() is None and _holder(place / "lock") is None and time.monotonic() < until:
            time.sleep(0.02)
        return self.run(place.name)


def private(folder: Path) -> None:
    """Makes a folder that only its owner may read; refuses a link and another one's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise InputError("expected a folder of your own", where=str(folder))
    folder.chmod(0o700)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")[: 1 << 20]
    except OSError:
        return ""


def _holder(lock: Path) -> int | None:
    """The process that holds the lock of a run, or None; asking takes nothing."""
    try:
        with lock.open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            found = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return None if found[0] == fcntl.F_UNLCK else int(found[4])
