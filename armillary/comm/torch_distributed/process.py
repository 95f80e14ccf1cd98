"""One rank of a torch.distributed group, run as `python -m armillary.comm.torch_distributed.process RANK RANKS PARENT END`.

PARENT is the process of the run, and END is the descriptor of a pipe that the run closes when all ranks may leave.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from armillary.comm.failures import Aborted
from armillary.comm.jobs.folder import begin, end_with, leave, leave_failure, perform

#: Seconds for which a rank that lost another one waits to be ended, so that the run names the rank that was lost.
_AFTERMATH_S = 8.0


def world(backend: str, folder: Path, rank: int, ranks: int, seed: int) -> Any:
    """Make torch's default group and return its ranks."""
    import torch

    from armillary.comm.torch_distributed.adoption import ranks_of
    from armillary.comm.torch_distributed.library import dist
    from armillary.comm.torch_distributed.post import FOREVER

    store = dist.FileStore(str(folder / "meeting"), ranks)
    named = {}
    if backend == "nccl":
        torch.cuda.set_device(rank)
        named["device_id"] = torch.device("cuda", rank)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=FOREVER, **named)
    return ranks_of(dist.group.WORLD, seed)


def main() -> None:
    """Read the task, run it, leave the answer, and stay until the run closes the pipe, because others may still need this process."""
    rank, ranks, parent, end = (int(word) for word in sys.argv[1:])
    end_with(parent)
    folder = Path(os.environ["ARMILLARY_JOB"])
    try:
        given = begin(folder, rank)
        comm = world(given["backend"], folder, rank, ranks, given["seed"])
        mine = perform(given, comm)
    except Aborted as error:
        time.sleep(_AFTERMATH_S)
        leave_failure(folder, rank, error)
        _leave_at_once(1)
    except BaseException as error:
        leave_failure(folder, rank, error)
        _leave_at_once(1)
    leave(folder, f"value.{rank}", mine)
    os.read(end, 1)
    _leave_at_once(0)


def _leave_at_once(status: int) -> None:
    # Threads of the library may wait for ranks that have gone, so the interpreter is not shut down in the ordinary way.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
