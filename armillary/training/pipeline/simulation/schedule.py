"""A schedule of a pipeline: which rank does which action, in which order.

An action is the forward pass (F), the gradient of the input (I), the gradient of the weights (W) or both gradients at once (B) of one
micro-batch on one stage. A rank does its actions one after another. Stages form chains (one, or two for pipelines that run in both
directions), and every micro-batch passes through all stages of one chain. The micro-batches of a schedule may be slices of longer
sequences: then forward passes go from the first slice to the last, and backward passes from the last to the first.

Everything is kept in flat arrays, so that schedules of millions of actions can be simulated by compiled loops.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

KINDS = "FIWB"
F, I, W, B = range(4)  # noqa: E741 - the letters that the literature uses
#: The most actions, ranks, stages and micro-batches of a schedule, all of which bound what a simulation allocates.
MOST_ACTIONS = 1 << 23
MOST_RANKS = 1 << 12
MOST_STAGES = 1 << 14

IntArray = npt.NDArray[np.int64]


class Action(NamedTuple):
    """One action: `str` writes it as torch does, `0F3` for the forward pass of micro-batch 3 on stage 0."""

    stage: int
    kind: str
    micro: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro}"


class Pair(NamedTuple):
    """A forward and a backward action that run as one: neither delivers its result before both have ended."""

    first: Action
    second: Action

    def __str__(self) -> str:
        return f"({self.first};{self.second})OVERLAP_F_B"


@dataclass(frozen=True, eq=False)
class Schedule:
    """The actions of all ranks. `Schedule.of` makes one from lists, `from_csv` from torch's file; generators are in `orders`.

    The actions of rank r are those from `offsets[r]` to `offsets[r + 1]`. `joined` marks an action that forms a pair with the next one.
    `following` is the next stage of a stage's chain, or −1 at its end. `previous_slice` is the slice before a micro-batch in its sequence,
    or −1. `replica` is the other copy of a stage, whose gradients are added to its own, or −1.
    """

    offsets: IntArray
    stage: IntArray
    kind: IntArray
    micro: IntArray
    joined: npt.NDArray[np.bool_]
    stage_rank: IntArray
    following: IntArray
    previous_slice: IntArray
    replica: IntArray

    @classmethod
    def of(
        cls, orders: Sequence[Iterable[Action | Pair]], *, stage_rank: Sequence[int] | None = None, following: Sequence[int] | None = None,
        previous_slice: Sequence[int] | None = None, replica: Sequence[int] | None = None,
    ) -> Schedule:  # fmt: skip
        """The schedule of these lists, one per rank. The stages form one chain unless `following` says otherwise."""
        flat: list[tuple[int, int, int]] = []
        joined, offsets = [], [0]
        for order in orders:
            for item in order:
                for number, (stage, kind, micro) in enumerate(item if isinstance(item, Pair) else (item,)):
                    flat.append((stage, KINDS.index(kind), micro))
                    joined.append(isinstance(item, Pair) and number == 0)
            offsets.append(len(flat))
        table = np.array(flat, np.int64).reshape(-1, 3)
        columns = [np.ascontiguousarray(table[:, i]) for i in range(3)]
        return cls.of_arrays(
            offsets, *columns, joined=joined, stage_rank=stage_rank, following=following, previous_slice=previous_slice, replica=replica,
        )  # fmt: skip

    @classmethod
    def of_arrays(
        cls, offsets: npt.ArrayLike, stage: npt.ArrayLike, kind: npt.ArrayLike, micro: npt.ArrayLike, *,
        joined: npt.ArrayLike | None = None, stage_rank: npt.ArrayLike | None = None, following: npt.ArrayLike | None = None,
        previous_slice: npt.ArrayLike | None = None, replica: npt.ArrayLike | None = None,
    ) -> Schedule:  # fmt: skip
        """The schedule of flat arrays; what a schedule says about its stages is inferred where it is not given."""
        offset, at, what, which = (np.asarray(each, np.int64) for each in (offsets, stage, kind, micro))
        n = len(at)
        if not n:
            raise InputError("the schedule has no actions")
        stages, micros = int(at.max()) + 1, int(which.max()) + 1
        if at.min() < 0 or which.min() < 0 or what.min() < 0 or what.max() > B:
            raise InputError("the schedule has an action with a negative number or an unknown kind")
        if n > MOST_ACTIONS or len(offset) > MOST_RANKS or stages > MOST_STAGES or 2 * stages * micros > MOST_ACTIONS:
            raise InputError(f"the schedule has {n:,} actions of {stages:,} stages and {micros:,} micro-batches; that is too large")
        if stage_rank is None:
            stage_rank = _ranks_of(offset, at, stages)
        if following is None:
            following = np.append(np.arange(1, stages), -1)
        return cls(
            offset, at, what, which, np.zeros(n, np.bool_) if joined is None else np.asarray(joined, np.bool_),
            np.asarray(stage_rank, np.int64), np.asarray(following, np.int64),
            np.full(micros, -1) if previous_slice is None else np.asarray(previous_slice, np.int64),
            np.full(stages, -1) if replica is None else np.asarray(replica, np.int64),
        )  # fmt: skip

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.offsets) - 1

    @property
    def stages(self) -> int:
        """The number of stages, counting both copies of a stage that runs in two directions."""
        return len(self.stage_rank)

    @property
    def micros(self) -> int:
        """The number of micro-batches, or of slices."""
        return len(self.previous_slice)

    def __len__(self) -> int:
        return len(self.stage)

    @functools.cached_property
    def preceding(self) -> IntArray:
        """The stage before each stage in its chain, or −1."""
        before = np.full(self.stages, -1)
        inner = self.following >= 0
        before[self.following[inner]] = np.flatnonzero(inner)
        return before

    @functools.cached_property
    def next_slice(self) -> IntArray:
        """The slice after each slice in its sequence, or −1."""
        after = np.full(self.micros, -1)
        inner = self.previous_slice >= 0
        after[self.previous_slice[inner]] = np.flatnonzero(inner)
        return after

    @functools.cached_property
    def chain(self) -> IntArray:
        """The first stage of each stage's chain."""
        first = np.arange(self.stages)
        for start in np.flatnonzero(self.preceding < 0):
            at = int(start)
            while self.following[at] >= 0:
                at = int(self.following[at])
                first[at] = start
        return first

    def actions(self, rank: int) -> list[Action | Pair]:
        """The actions of one rank, in order."""
        found: list[Action | Pair] = []
        at, stop = int(self.offsets[rank]), int(self.offsets[rank + 1])
        while at < stop:
            pair = bool(self.joined[at])
            found.append(Pair(self.action(at), self.action(at + 1)) if pair else self.action(at))
            at += 1 + pair
        return found

    def action(self, index: int) -> Action:
        """The action at a place in the flat arrays."""
        return Action(int(self.stage[index]), KINDS[self.kind[index]], int(self.micro[index]))

    def with_slices(self, previous_slice: npt.ArrayLike) -> Schedule:
        """The same actions, whose micro-batches are slices of sequences."""
        return replace(self, previous_slice=np.asarray(previous_slice, np.int64))

    def validate(self) -> Schedule:
        """Returns the schedule, or raises an `InputError` that says what is wrong with it.

        Every micro-batch needs exactly one F and either one B or one I and one W on every stage of one chain, in an order that can be run:
        the message for a deadlock names the action at which each rank is stuck.
        """
        self.check_places()
        where = _check_counts(self)
        _check_order(self, where)
        from .simulator import simulate, unit_costs

        simulate(self, unit_costs(self))
        return self

    def check_places(self) -> None:
        """Raises an `InputError` unless every index of the schedule leads to something that exists; a schedule is looked at once."""
        self._places  # noqa: B018 - computed once

    @functools.cached_property
    def _places(self) -> None:
        _check_places(self)

    def to_csv(self, path: Path | str) -> Path:
        """Writes torch's `compute_only` file, which `_PipelineScheduleRuntime._load_csv` reads: no header, one row per rank."""
        if (self.replica >= 0).any():
            raise InputError("torch's schedule file has one direction; this schedule runs in two")
        rows = [",".join(str(each) for each in self.actions(rank)) for rank in range(self.ranks)]
        target = Path(path)
        target.write_text("\n".join(rows) + "\n")
        return target

    @staticmethod
    def from_csv(path: Path | str) -> Schedule:
        """Reads torch's schedule file, of either dialect, and validates it."""
        from ..readers.schedule_csv import read_schedule

        return read_schedule(Path(path))


def _ranks_of(offsets: IntArray, stage: IntArray, stages: int) -> IntArray:
    """The rank of each stage, by where its actions are."""
    rank = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    found = np.full(stages, -1)
    found[stage] = rank
    wrong = np.flatnonzero(found[stage] != rank)
    if len(wrong):
        at = int(wrong[0])
        raise InputError(f"stage {stage[at]} is on rank {rank[at]} and on rank {found[stage[at]]}; expected one rank per stage")
    return found


def _check_places(schedule: Schedule) -> None:
    n, stages = len(schedule), schedule.stages
    if any(len(each) != n for each in (schedule.kind, schedule.micro, schedule.joined)):
        raise InputError("the schedule's columns differ in length")
    if len(schedule.following) != stages or len(schedule.replica) != stages:
        raise InputError(f"found {len(schedule.following)} followers and {len(schedule.replica)} replicas of {stages} stages")
    columns = (("stage", schedule.stage, stages), ("kind", schedule.kind, B + 1), ("micro", schedule.micro, schedule.micros))
    for name, values, most in columns:
        if n and (values.min() < 0 or values.max() >= most):
            raise InputError(f"the schedule's {name} names something that does not exist")
    if schedule.ranks < 1 or schedule.offsets[0] != 0 or schedule.offsets[-1] != len(schedule) or (np.diff(schedule.offsets) < 0).any():
        raise InputError("the schedule's ranks do not add up to its actions")
    for name, values, most in (
        ("stage_rank", schedule.stage_rank, schedule.ranks), ("following", schedule.following, schedule.stages),
        ("previous_slice", schedule.previous_slice, schedule.micros), ("replica", schedule.replica, schedule.stages),
    ):  # fmt: skip
        low = 0 if name == "stage_rank" else -1
        if len(values) and (values.min() < low or values.max() >= most):
            missing = np.flatnonzero(values < low)
            if name == "stage_rank" and len(missing):
                raise InputError(f"stage {missing[0]} has no action; expected every stage from 0 to {schedule.stages - 1}")
            raise InputError(f"the schedule's {name} names something that does not exist")
    for name, values in (("following", schedule.following), ("previous_slice", schedule.previous_slice)):
        inner = values[values >= 0]
        if len(np.unique(inner)) != len(inner) or (np.flatnonzero(values >= 0) == inner).any():
            raise InputError(f"the schedule's {name} does not form chains")
    if _loops(schedule.following) or _loops(schedule.previous_slice):
        raise InputError("the schedule's stages or slices form a loop")
    rank = np.repeat(np.arange(schedule.ranks), np.diff(schedule.offsets))
    wrong = np.flatnonzero(schedule.stage_rank[schedule.stage] != rank)
    if len(wrong):
        at = int(wrong[0])
        home = schedule.stage_rank[schedule.stage[at]]
        raise InputError(f"{schedule.action(at)} stands on rank {rank[at]}; stage {schedule.stage[at]} is on rank {home}")
    if schedule.joined.any():
        last = schedule.offsets[1:][np.diff(schedule.offsets) > 0] - 1
        pairs = np.flatnonzero(schedule.joined)
        if schedule.joined[last].any() or schedule.joined[pairs + 1].any():
            raise InputError("a pair lacks its second action")
        if (schedule.kind[pairs] != F).any() or (schedule.kind[pairs + 1] == F).any() or (schedule.kind[pairs + 1] == W).any():
            raise InputError("a pair consists of a forward and a backward action")


def _loops(following: IntArray) -> bool:
    seen = np.zeros(len(following), np.bool_)
    starts = np.setdiff1d(np.arange(len(following)), following[following >= 0])
    for start in starts:
        at = int(start)
        while at >= 0:
            seen[at] = True
            at = int(following[at])
    return not seen.all()


def _check_counts(schedule: Schedule) -> IntArray:
    """The place of every action by kind, stage and micro-batch, −1 where there is none; raises for missing and doubled ones."""
    shape = (4, schedule.stages, schedule.micros)
    counts = np.zeros(shape, np.int32)
    np.add.at(counts, (schedule.kind, schedule.stage, schedule.micro), 1)
    if counts.max() > 1:
        kind, stage, micro = (int(x[0]) for x in np.nonzero(counts > 1))
        raise InputError(f"{Action(stage, KINDS[kind], micro)} stands in the schedule {counts[kind, stage, micro]} times; expected once")
    chains = [np.flatnonzero(schedule.chain == start) for start in np.flatnonzero(schedule.preceding < 0)]
    meant = np.zeros(shape[1:], np.bool_)
    for stages in chains:
        meant[np.ix_(stages, counts[:, stages].any(axis=(0, 1)))] = True
    several = meant.sum(0) > max(len(stages) for stages in chains)
    if several.any():
        raise InputError(f"micro-batch {int(np.flatnonzero(several)[0])} runs in both directions; expected one")
    if not meant.any(0).all():
        raise InputError(f"micro-batch {int(np.flatnonzero(~meant.any(0))[0])} has no action; expected micro-batches from 0 on")
    for wrong, what in (
        (counts[F] != meant, "F"),
        (counts[B] + counts[I] != meant, "B, or I and W"),
        (counts[I] != counts[W], "W for each I"),
    ):
        if wrong.any():
            stage, micro = (int(x[0]) for x in np.nonzero(wrong))
            raise InputError(f"micro-batch {micro} on stage {stage}: expected exactly one {what}")
    where = np.full(shape, -1)
    where[schedule.kind, schedule.stage, schedule.micro] = np.arange(len(schedule))
    return where


def _check_order(schedule: Schedule, where: IntArray) -> None:
    """Raises where an action of a stage stands before one that it needs on the same stage."""
    back = np.maximum(where[I], where[B])
    has = where[F] >= 0
    for late, early, kinds in ((back, where[F], "IBF"), (where[W], where[I], "WI")):
        wrong = has & (late >= 0) & (late < early)
        if wrong.any():
            stage, micro = (int(x[0]) for x in np.nonzero(wrong))
            first, second = schedule.action(int(late[stage, micro])), schedule.action(int(early[stage, micro]))
            raise InputError(f"{first} stands before {second} on rank {schedule.stage_rank[stage]}; {kinds[-1]} comes first")
    for micro in np.flatnonzero(schedule.previous_slice >= 0).tolist():
        before = int(schedule.previous_slice[micro])
        on = has[:, micro]
        if not np.array_equal(on, has[:, before]):
            raise InputError(f"slices {before} and {micro} of one sequence run in different directions")
        if (where[F][on, before] > where[F][on, micro]).any():
            raise InputError(f"the forward pass of slice {micro} stands before that of slice {before}, which precedes it")
        if (back[on, before] < back[on, micro]).any():
            raise InputError(f"the backward pass of slice {before} stands before that of slice {micro}, which follows it")
