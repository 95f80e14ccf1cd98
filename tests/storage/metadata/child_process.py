"""Runs a part of a test in a forked process, which starts in milliseconds and has everything compiled."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_a_child(act: Callable[[], object]) -> int:
    """Returns 1 where `act` gives something true, 0 where it does not, 2 where it fails, and minus the signal that ended the process."""
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = int(bool(act()))
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
