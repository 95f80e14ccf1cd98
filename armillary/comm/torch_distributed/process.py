"""One rank of a torch.distributed group, run as `python -m armillary.comm.torch_distributed.process RANK RANKS PARENT END GENERATION`.

PARENT is the process of the run, END is the descriptor of a pipe that the run closes when all ranks may leave, and GENERATION is the number
of processes that were replaced before this one.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from armillary.comm.failures import Aborted
from armillary.comm.jobs.folder import begin, end_with, leave, leave_failure, perform
from armillary.comm.torch_distributed import renewal

#: Seconds for which a rank that lost another one waits to be ended, so that the run names the rank that was lost.
_AFTERMATH_S = 8.0


def main() -> None:
    """Read the task, run it, leave the answer, and stay until the run closes the pipe, because others may still need this process."""
    rank, ranks, parent, end, generation = (int(word) for word in sys.argv[1:])
    end_with(parent)
    folder = Path(os.environ["ARMILLARY_JOB"])
    try:
        given = begin(folder, rank)
        comm = renewal.world(given["backend"], folder, rank, ranks, given["seed"], generation)
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
