"""The job folder: the files through which a run and the processes of its ranks tell each other what they need to know.

The run writes the task (`task`). Each rank writes its process id (`pid.R`) and, at the end, its failure (`failed.R`) or its answer
(`value.R`). If a process ends without an answer, its guard writes how it ended (`ended.PID`). A file appears whole or not at all.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from armillary.comm.communicator import Communicator
from armillary.comm.counters import Counters
from armillary.comm.failures import CommError, RankFailed
from armillary.comm.jobs.program import found
from armillary.comm.jobs.program import named as name_of
from armillary.comm.jobs.values import dump, load
from armillary.comm.result import Ran
from armillary.comm.task import Task
from armillary.errors import one_line

#: The option of prctl(2) that sets the signal which a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


def encoded(task: Task, **more: Any) -> bytes:
    """Encode a task for other processes: the program and the algorithms by name, the arguments, the module path, and `more`."""
    whole = {
        "program": name_of(task.program),
        "args": list(task.args),
        "named": dict(task.named),
        "seed": task.seed,
        "choice": {call: what if isinstance(what, str) else {"program": name_of(what)} for call, what in task.choice.items()},
        "path": [p for p in sys.path if p],
        **more,
    }
    return dump(whole, "argument")


def begin(folder: Path, rank: int) -> dict[str, Any]:
    """Write down the process of this rank, and read the task."""
    leave(folder, f"pid.{rank}", json.dumps([socket.gethostname(), os.getpid()]).encode())
    given: dict[str, Any] = load((folder / "task").read_bytes())
    sys.path[:] = [*given["path"], *(p for p in sys.path if p not in given["path"])]
    return given


def perform(given: dict[str, Any], comm: Communicator) -> bytes:
    """Run the task on this rank and return its encoded answer."""
    comm.choose(**{name: found(what["program"]) if isinstance(what, dict) else what for name, what in given["choice"].items()})
    value = found(given["program"])(comm, *given["args"], **given["named"])
    return answer(comm, value)


def answer(comm: Communicator, value: Any) -> bytes:
    """Encode what a rank returned, with its counters."""
    counters = {name: list(astuple(counters)) for name, counters in comm.counters.items()}
    return dump({"value": value, "counters": counters}, "result")


def ran(answers: Sequence[bytes]) -> Ran:
    """Decode the answers of all ranks."""
    told = [load(data) for data in answers]
    try:
        counters = [{name: Counters(*numbers) for name, numbers in one["counters"].items()} for one in told]
        return Ran([one["value"] for one in told], counters, [])
    except (TypeError, KeyError, AttributeError) as error:
        raise CommError(f"the answer of a rank is damaged ({type(error).__name__}: {one_line(str(error))})") from error


def leave(folder: Path, name: str, data: bytes) -> None:
    """Write a file that appears whole or not at all."""
    part = folder / f".{name}"
    part.write_bytes(data)
    part.replace(folder / name)


def leave_failure(folder: Path, rank: int, error: BaseException) -> None:
    """Write down the exception that is being handled on this rank."""
    said = {"error": f"{type(error).__name__}: {one_line(str(error), 2000)}", "trace": traceback.format_exc(), "at": time.time()}
    leave(folder, f"failed.{rank}", json.dumps(said).encode())


def collect(folder: Path, ranks: int, how_ended: Callable[[list[int]], tuple[int, str]]) -> Ran:
    """Return the answers of all ranks, or raise `RankFailed`.

    The error names the first failure that a rank wrote down. If ranks are missing without one, `how_ended(missing)` gives the rank that
    ended first and how it ended.
    """
    failures = sorted(((_failure(file), file) for file in folder.glob("failed.*")), key=lambda one: (one[0]["at"], one[1].name))
    if failures:
        told, file = failures[0]
        raise RankFailed(int(file.suffix[1:]), CommError(told["error"]), told["trace"])
    missing = [rank for rank in range(ranks) if not answered(folder, rank)]
    if missing:
        rank, how = how_ended(missing)
        raise RankFailed(rank, CommError(how))
    return ran([(folder / f"value.{rank}").read_bytes() for rank in range(ranks)])


def _failure(file: Path) -> dict[str, Any]:
    """Return what a rank wrote down about its failure."""
    try:
        said = json.loads(file.read_text())
        return {"error": str(said["error"]), "trace": str(said["trace"]), "at": float(said["at"])}
    except (OSError, ValueError, TypeError, KeyError):
        return {"error": "it failed, and what it wrote down about that cannot be read", "trace": "", "at": math.inf}


def failed(folder: Path) -> bool:
    """Return whether a rank has written down a failure."""
    return any(folder.glob("failed.*"))


def answered(folder: Path, rank: int) -> bool:
    """Return whether the rank has written its answer."""
    return (folder / f"value.{rank}").exists()


def lost(folder: Path, ranks: int) -> list[int]:
    """Return the ranks that failed, or whose process on this host has gone without an answer."""
    gone = []
    for rank in range(ranks):
        if answered(folder, rank):
            continue
        if (folder / f"failed.{rank}").exists():
            gone.append(rank)
            continue
        pid = process(folder, rank)
        if pid is not None and not alive(pid):
            gone.append(rank)
    return [rank for rank in gone if not answered(folder, rank)]


def process(folder: Path, rank: int) -> int | None:
    """Return the process id of a rank if it is known and on this host, else None."""
    try:
        host, pid = json.loads((folder / f"pid.{rank}").read_text())
        return int(pid) if host == socket.gethostname() else None
    except (OSError, ValueError, TypeError):
        return None


def alive(pid: int) -> bool:
    """Return whether the process runs. One that has ended and that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def how(code: int) -> str:
    """Return in words how a process with this exit code ended."""
    said = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    return f"its process {said} without an answer"


def end_with(parent: int) -> None:
    """End this process when its parent ends, so that no rank is left behind. Where the system cannot do that, the run's watch does it."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)
