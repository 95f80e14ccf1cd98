"""The guard is the process that a launcher starts for a rank: it starts the rank itself and writes down how that ended.

It writes before the launcher can know and end the other ranks, which is the only way to be certain which rank failed first: launchers may
name a rank that they ended themselves.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Start the rank, pass signals on to it, and end with its exit status."""
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        from armillary.comm.jobs.folder import end_with

        end_with(guard)
        from armillary.comm.mpi.process import main as rank

        rank()
        return

    def pass_on(number: int, frame: Any) -> None:
        os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, pass_on)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    folder = Path(os.environ["ARMILLARY_JOB"])
    answered = any(json.loads(file.read_text())[1] == child and (folder / f"value{file.suffix}").exists() for file in folder.glob("pid.*"))
    if not answered and folder.exists():
        part = folder / f".ended.{child}"
        part.write_text(json.dumps({"pid": child, "code": code, "at": time.time()}))
        part.replace(folder / f"ended.{child}")
    sys.stdout.flush()
    os._exit(128 - code if code < 0 else code if answered else code or 1)


if __name__ == "__main__":
    main()
