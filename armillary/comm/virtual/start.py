"""Run a program on virtual ranks."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from armillary.comm.counters import Tally
from armillary.comm.failures import Aborted, Deadlock, RankFailed
from armillary.comm.messages.envelope import unreceived_in_words
from armillary.comm.result import Ran
from armillary.comm.task import Task
from armillary.comm.virtual.costs import SHM, LogGP
from armillary.comm.virtual.placement import machine, places
from armillary.comm.virtual.progress import Policy, Progress, policy_of, progress_of
from armillary.comm.virtual.rank import SOURCE, Rank
from armillary.comm.virtual.ranks import VirtualRanks
from armillary.comm.virtual.record import tracks
from armillary.comm.virtual.world import Failed, World
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster import Cluster
    from armillary.comm.virtual.protocols import Choice

MODELS = ("loggp", "flow")
PAYLOADS = ("real", "ghost")
#: The number of objects that are made before the next search for garbage, during a run.
_SELDOM = 200_000


def run_virtual(
    task: Task,
    *,
    cluster: Cluster | str | None = None,
    placement: Any = "block",
    model: str = "loggp",
    progress: Progress | Policy | str = "in-calls",
    protocol: Choice | None = None,
    payload: str = "real",
    timeline: bool = False,
    constants: LogGP | None = None,
    shm: str = "two-copy",
    collectives: str | None = None,
    speed_ratio: float = 1.0,
    shuffle: int | None = None,
) -> Ran:
    """Run the program on every rank in simulated time. The options are described in `armillary.comm.run` and docs/virtual-ranks.md."""
    for what, value, known in (("model", model, MODELS), ("payload", payload, PAYLOADS), ("shm", shm, SHM)):
        if value not in known:
            raise unknown(what, str(value), known)
    if collectives not in (None, "modelled"):
        raise unknown("collectives", str(collectives), ("modelled",))
    if constants is not None and not isinstance(constants, LogGP):
        raise InputError(f"constants: found {type(constants).__name__}; expected LogGP(...)")
    if not isinstance(speed_ratio, int | float) or not 0.0 < speed_ratio < float("inf"):
        raise InputError(f"speed_ratio: found {speed_ratio!r}; expected a number above 0")
    ranks = task.ranks
    program: Any = task.program
    policy: Policy | None = None
    if isinstance(progress, Policy):
        policy = progress if protocol is None else replace(progress, protocol=protocol)
        progress = Progress("nic")
    elif protocol is not None:
        policy = policy_of(progress_of(progress), protocol)
    computer = machine(cluster, ranks)
    where = places(computer, placement, ranks)
    world = World(
        computer,
        where,
        model=model,
        progress=progress_of(progress),
        policy=policy,
        seed=task.seed,
        constants=constants,
        shm=shm,
        ghosts=payload == "ghost",
        timeline=bool(timeline),
        modelled=collectives == "modelled",
        shuffle=shuffle,
        speed_ratio=float(speed_ratio),
    )
    values: list[Any] = [None] * ranks
    tallies = [Tally() for _ in range(ranks)]

    kind = VirtualRanks
    if policy is not None:
        from armillary.comm.virtual.paced.ranks import PacedRanks

        kind = PacedRanks

    def body(rank: Rank) -> None:
        try:
            comm = kind(rank, world.group, rank.number, 0, tallies[rank.number], task.seed)
            if task.choice:
                comm.choose(**task.choice)
            values[rank.number] = program(comm, *task.args, **task.named)
            rank.finish()
        except Exception as error:
            if not world.aborted:
                world.fail(rank, error, traceback.format_exc())
        rank.ended = True

    world.context("world")
    _start(world, body)
    # The objects of the ranks live long, and searching all of them again and again would cost more than the run.
    often = gc.get_threshold()
    gc.set_threshold(max(often[0], _SELDOM), *often[1:])
    try:
        world.sim.run()
    except Failed:
        _abort(world)
        _, number, error, trace = min(world.failures, key=lambda f: f[:2])
        raise RankFailed(number, error, trace) from error
    except BaseException:
        _abort(world)
        raise
    finally:
        gc.set_threshold(*often)
    stuck = world.pending()
    if stuck:
        _abort(world)
        raise Deadlock(stuck)
    seconds = max(rank.clock for rank in world.ranks)
    for rank in world.ranks:
        rank.close(seconds)
    line = None
    if world.record is not None:
        names = {node: computer.node(node).name for node in set(world.group.nodes)}
        line = world.record.timeline(tracks(names, world.group.nodes))  # type: ignore[arg-type]
    return Ran(values, [tally.phases for tally in tallies], _unreceived(world), seconds, line)


def _start(world: World, body: Callable[[Rank], None]) -> None:
    from greenlet import greenlet  # type: ignore[import-untyped]

    hub = world.hub

    for rank in world.ranks:
        rank.greenlet = made = greenlet(body, hub)
        rank.entry = (made.switch, rank)
        world.wake(rank, 0.0)


def _abort(world: World) -> None:
    """End every rank that has not ended, so that its `finally` and `with` blocks run."""
    world.aborted = True
    for rank in world.ranks:
        made = rank.greenlet
        if made is None or rank.ended:
            continue
        if made:
            # An error of a rank on its way out must not hide the first failure.
            with suppress(BaseException):
                made.throw(Aborted("another rank failed"))
        rank.ended = True


def _unreceived(world: World) -> list[str]:
    left = []
    for rank in world.ranks:
        if rank.arrived:
            messages = [m for queue in rank.arrived.values() for m in (queue if not isinstance(queue, tuple) else (queue,))]
            messages.sort(key=lambda m: m[:3])
            left += [unreceived_in_words(m[3] & SOURCE, rank.number, m[4], m[5]) for m in messages]
    return left
