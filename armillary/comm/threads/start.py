"""Run a program on threads of this process, and find deadlocks between them."""

from __future__ import annotations

import threading
import traceback
from typing import Any

from armillary.comm.counters import Tally
from armillary.comm.failures import Aborted, Deadlock, RankFailed
from armillary.comm.messages.envelope import unreceived_in_words
from armillary.comm.result import Ran
from armillary.comm.task import Task
from armillary.comm.threads.ranks import ThreadRanks, World

#: Seconds between two looks for a deadlock.
_LOOK_S = 0.25


def run_threads(task: Task) -> Ran:
    """Run the program on every rank."""
    ranks = task.ranks
    program: Any = task.program
    world = World(ranks)
    values: list[Any] = [None] * ranks
    tallies = [Tally() for _ in range(ranks)]
    ended = threading.Semaphore(0)

    def body(rank: int) -> None:
        try:
            comm = ThreadRanks(world, range(ranks), rank, "world", tallies[rank], task.seed)
            comm.choose(**task.choice)
            values[rank] = program(comm, *task.args, **task.named)
        except BaseException as error:
            with world.lock:
                if world.failure is None and not isinstance(error, Aborted):
                    world.failure = (rank, error, traceback.format_exc())
            world.abort()
        finally:
            world.boxes[rank].ended = True
            ended.release()

    threads = [threading.Thread(target=body, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    try:
        stuck = _watch(world, ended, ranks)
    except BaseException:
        world.abort()
        raise
    for thread in threads:
        thread.join()
    if stuck is not None:
        raise Deadlock(stuck)
    if world.failure is not None:
        rank, error, trace = world.failure
        raise RankFailed(rank, error, trace) from error
    left = [unreceived_in_words(m.comm.rank, m.peer, m.tag, m.data.nbytes) for box in world.boxes for m in box.matcher.unreceived()]
    return Ran(values, [tally.phases for tally in tallies], left)


def _watch(world: World, ended: threading.Semaphore, ranks: int) -> str | None:
    """Wait for the ranks to end. Returns what they wait for if they all wait for each other, else None."""
    before: tuple[Any, ...] | None = None
    missing = ranks
    while missing:
        if ended.acquire(timeout=_LOOK_S):
            missing -= 1
            continue
        now = world.deadlock()
        if now is not None and before is not None and len(now) == len(before) and all(a is b for a, b in zip(now, before)):
            said = world.pending()
            world.abort()
            return said
        before = now
    return None
