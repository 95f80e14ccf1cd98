"""A server of the explorer for tests: in a process of its own, because some tests kill it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass
class Served:
    """A server that answers at `url`; `entrance` is the printed address with the token."""

    process: subprocess.Popen[str]
    url: str
    entrance: str

    @contextlib.contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """A client that was let in."""
        with httpx.Client(base_url=self.url, follow_redirects=True, timeout=120) as client:
            assert client.get(self.entrance).status_code == 200
            yield client

    def kill(self) -> None:
        """Ends it as a power cut would."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(20)


def csrf(page: str) -> str:
    """The word that the forms of a page carry."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Iterator[Served]:
    """A running server with its store in `folder`."""
    folder.mkdir(exist_ok=True, parents=True)
    command = [sys.executable, "-m", "armillary.cli", "web", "--port", "0", "--store", str(folder / "s.db"), *options]
    with (folder / "web.log").open("a+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = re.search(r"(http://[\d.:]+)/\?token=\S+", line)
            assert found is not None, f"{line}\n{(folder / 'web.log').read_text()}"
            yield Served(process, found[1], found[0])
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()
            process.stdout.close()
