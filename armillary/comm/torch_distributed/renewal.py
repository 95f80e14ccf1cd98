"""How the processes of a run meet: at its start, and again when another process has taken the place of one that has gone.

Each meeting has a number, its *generation*, and files of its own in the job's folder. A process that leaves for a new meeting hangs up on
the others, so that whoever still waits for it notices: Gloo closes a connection only when nothing refers to it any more, and threads that
wait do. The processes join torch's group only when all of them are there; if another one is replaced meanwhile, they go on to the next
meeting.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.comm.failures import CommError
from armillary.comm.jobs.folder import process

if TYPE_CHECKING:
    from armillary.comm.torch_distributed.post import Post

#: Seconds between two looks at the folder.
_LOOK_S = 0.01
#: The meeting that this process has come to last.
_here = 0


def generation() -> int:
    """Return the number of the meeting at which this process is."""
    return _here


def world(backend: str, folder: Path, rank: int, ranks: int, seed: int, number: int) -> Any:
    """Meet the other processes, make torch's default group and return its ranks."""
    import torch

    from armillary.comm.torch_distributed.adoption import ranks_of
    from armillary.comm.torch_distributed.library import dist
    from armillary.comm.torch_distributed.post import FOREVER

    global _here
    if number:
        number = _met(folder, rank, ranks, number)
    _here = number
    store = dist.FileStore(str(folder / f"meeting.{number}"), ranks)
    named = {}
    if backend == "nccl":
        torch.cuda.set_device(rank)
        named["device_id"] = torch.device("cuda", rank)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=FOREVER, **named)
    return ranks_of(dist.group.WORLD, seed)


def renewed(post: Post, seed: int) -> Any:
    """Leave the group of this post and return the ranks of the next meeting."""
    from armillary.comm.torch_distributed.adoption import forget
    from armillary.comm.torch_distributed.library import dist

    if "ARMILLARY_JOB" not in os.environ:
        raise CommError("renewed: found a group that was adopted; expected ranks of a run with restarts")
    folder, rank, ranks = Path(os.environ["ARMILLARY_JOB"]), post.place, post.size
    forget(post)
    _hang_up({pid for other in range(ranks) if other != rank and (pid := process(folder, other)) is not None})
    post.abandon()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()
    while _announced(folder) <= _here:
        time.sleep(_LOOK_S)
    return world("gloo", folder, rank, ranks, seed, _announced(folder))


def _met(folder: Path, rank: int, ranks: int, number: int) -> int:
    """Wait until all processes have come to one meeting, this one or a later one, and return its number."""
    while True:
        number = max(number, _announced(folder))
        (folder / f"here.{number}.{rank}").touch()
        if all((folder / f"here.{number}.{other}").exists() for other in range(ranks)):
            return number
        time.sleep(_LOOK_S)


def _announced(folder: Path) -> int:
    """Return the number of the latest meeting that the run has called."""
    try:
        return int((folder / "generation").read_text())
    except FileNotFoundError:
        return 0


def _hang_up(pids: set[int]) -> None:
    """End every connection of this process with one of these processes."""
    theirs = set().union(*map(_ports, pids))
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family != socket.AF_UNIX and one.getpeername()[1] in theirs:
                one.shutdown(socket.SHUT_RDWR)


def _ports(pid: int) -> set[int]:
    """Return the TCP ports of a process on this host; none if it has gone."""
    found = set()
    with contextlib.suppress(OSError):
        sockets = set()
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[9] in sockets:
                    found.add(int(words[1].rpartition(":")[2], 16))
    return found
