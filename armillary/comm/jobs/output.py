"""The output of a job: what its processes print is passed on, and the end of it is kept for error messages."""

from __future__ import annotations

import io
import sys
import threading
from collections import deque
from typing import Any

#: How the lines begin that launchers print when a process died; they go into the error and not to the terminal.
_EDGES = ("=====", "-----")
_FIRST_WORDS = ("=   BAD TERM", "prterun ", "mpirun ", "mpiexec ", "MPI_ABORT ", "Primary job")
_BANNER = ("YOUR APPLICATION TERMINATED", "This typically refers to a problem with your", "Please see the FAQ page for debugging")


class Output(threading.Thread):
    """A thread that passes on what a job prints, without the launchers' banners, and keeps the end of it."""

    def __init__(self, stream: Any) -> None:
        super().__init__(name="job output", daemon=True)
        self._stream = stream
        #: The last lines of the job, banners included.
        self.tail: deque[str] = deque(maxlen=40)
        self.start()

    def run(self) -> None:
        inside, edge = False, ""
        for line in io.TextIOWrapper(self._stream, errors="replace"):
            self.tail.append(line)
            if inside:
                inside = not line.startswith(_EDGES)
            elif edge and line.startswith(_FIRST_WORDS):
                inside, edge = True, ""
            else:
                # A line of dashes belongs to the program unless a launcher's first words follow.
                sys.stdout.write(edge)
                edge = line if line.startswith(_EDGES) else ""
                if not edge and not line.startswith(_BANNER):
                    sys.stdout.write(line)
        sys.stdout.write(edge)
