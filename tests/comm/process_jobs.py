"""Programs that run many parts in one start of processes, and jobs that are started once per session and looked at by many tests."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import time
from pathlib import Path

import comm_checks
import comm_programs
import coordinator_checks
import numpy as np
import torch_programs

from armillary import comm


def checks(ranks, skip):
    return comm_checks.everything(ranks, skip)


def programs(ranks, skip):
    with ranks.phase("programs"):
        return comm_programs.all_programs(ranks)


#: Phases are counted for all communicators of a rank together, so their check holds once in a job; the check of order
#: uses two ranks in any case.
PAIR_SKIPS = ["counted", "messages_do_not_overtake"]


def pair(ranks, skip):
    """The checks on a sub-communicator of two ranks, in the reverse order, and a coordinator on it."""
    two = ranks.split(0 if ranks.rank < 2 else None, -ranks.rank)
    if two is None:
        return None
    answers = comm_checks.everything(two, [*skip, *PAIR_SKIPS])
    for check in (coordinator_checks.in_order, coordinator_checks.two_locations, coordinator_checks.in_place):
        check(two.dup())
    return answers


#: What a job can run, by name: functions of the communicator and of the names of checks to skip.
PARTS = {
    "checks": checks,
    "programs": programs,
    "pair": pair,
    "coordinator": lambda ranks, skip: coordinator_checks.everything(ranks),
    "modes": lambda ranks, skip: coordinator_checks.modes(ranks),
    "one native call": lambda ranks, skip: coordinator_checks.one_native_call(ranks),
    "steady, shared": lambda ranks, skip: coordinator_checks.steady_state(ranks, True),
    "steady, own": lambda ranks, skip: coordinator_checks.steady_state(ranks, False),
    "forgotten": lambda ranks, skip: coordinator_checks.forgotten(ranks),
    "short axes": lambda ranks, skip: comm_programs.short_axes(ranks),
    "inside": lambda ranks, skip: comm_programs.inside(ranks),
    "adopts mpi": lambda ranks, skip: torch_programs.adopts_mpi(ranks),
    "adopts torch": lambda ranks, skip: torch_programs.adopts_torch(ranks),
    "tensors": lambda ranks, skip: torch_programs.tensors(ranks),
    "in pieces": lambda ranks, skip: torch_programs.in_pieces(ranks),
    "natively": lambda ranks, skip: torch_programs.natively(ranks),
    "devices": lambda ranks, skip: torch_programs.devices(ranks),
}


def parts(ranks, names, skip=()):
    """Run these parts one after the other, each on a communicator of its own; what each returned, by name."""
    answers = {}
    for name in names:
        own = ranks if name in ("programs", "inside", "adopts torch", "natively", "devices") else ranks.dup()
        answers[name] = PARTS[name](own, skip)
        ranks.barrier()
    return answers


class Job:
    """A finished job: `part(name)` is what that part returned on each rank, `printed` is what the ranks printed."""

    def __init__(self, names, skip, ranks, **options):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self.result = comm.run(parts, list(names), list(skip), ranks=ranks, **options)
        self.printed = printed.getvalue()

    def part(self, name):
        return [values[name] for values in self.result.values]


def once(start):
    """Start a job at the first call and remember it; also its failure, so that it is not started again for every test."""
    seen = {}

    @functools.wraps(start)
    def started(*args):
        if args not in seen:
            try:
                seen[args] = start(*args), None
            except Exception as error:
                seen[args] = None, error
        job, error = seen[args]
        if error is not None:
            raise error
        return job

    return started


def alike(a, b):
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    return np.array_equal(a, b) and np.asarray(a).tobytes() == np.asarray(b).tobytes()


def exact(result, phases=None):
    """The counters of each rank, without seconds; of these phases, or of all."""
    return [
        {k: (c.calls, c.messages, c.bytes, c.collectives) for k, c in rank.items() if phases is None or k in phases} for rank in result.counters
    ]


@contextlib.contextmanager
def none_left(monkeypatch, name, within_s=0.0):
    """No process that is started inside is left at the end, or this long after it."""
    mark = f"ARMILLARY_TEST_MARK={os.getpid()}-{name}"
    monkeypatch.setenv(*mark.split("="))
    yield
    deadline = time.monotonic() + within_s
    while left := [file for file in Path("/proc").glob("[0-9]*/environ") if mark.encode() in _content(file)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def _content(file):
    try:
        return file.read_bytes()
    except OSError:
        return b""
