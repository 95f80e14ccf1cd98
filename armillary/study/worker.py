"""A worker process of the `processes:N` engine: units in, reports out, until the coordinator closes the pipe or is gone.

A line of text before a report is something to tell the user, such as whom the unit waits for.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection

from armillary.study.execute import execute


def serve(pipe: Connection, said: int) -> None:
    """Runs units as they come; `said` is the file that takes what is printed, emptied before each unit."""
    try:
        recipe = pipe.recv()
        while True:
            unit = pipe.recv()
            os.ftruncate(said, 0)
            os.lseek(said, 0, os.SEEK_SET)
            pipe.send(execute(unit, recipe, pipe.send))
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; the coordinator decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
