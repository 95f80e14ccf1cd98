"""What a schedule takes, in simulated time: when each action runs, how long ranks wait, and how much memory each of them needs.

A rank does its actions in order. An action starts as soon as its rank is free and its inputs have arrived: the forward pass on a stage
needs the output of the stage before, the backward pass needs the gradient from the stage after, and slices of a sequence need the slice
before (forward) or after (backward) on their own stage. A result that another rank needs travels over the directed link between the two,
which serves its messages first come, first served, and takes latency + bytes/rate for each; with `blocking_sends` the sender waits for it.
A pair runs its halves one after the other and delivers both results at its end.

A stage keeps its activations from the start of the forward pass to the end of the backward pass. Where the backward pass is split, a share
`released` goes at the end of I and the rest at the end of W. The keys and values of a split sequence stay until the backward pass of its
first slice. Recomputation adds its seconds to B (or I) and its workspace while it runs.

Because a rank's order is fixed and every link has one sender, all times follow from a single sweep without a queue of events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop

from .schedule import KINDS, Schedule

FloatArray = npt.NDArray[np.float64]
#: The share of a stage's activations that the gradient of the input no longer needs; the rest waits for the gradient of the weights.
RELEASED = 0.6
#: Bars of a timeline; more would not fit an artifact.
MOST_BARS = 40_000


@dataclass(frozen=True, eq=False)
class Costs:
    """What each stage costs per micro-batch: seconds and bytes, each of shape (stages, micro-batches), or (stages,) if all are equal.

    `kept` are the activations, `keys` the keys and values that stay for later slices, `workspace` what recomputation needs while it
    runs, `sent` the output that goes to the next stage (its gradient has the same size). `static` are the bytes of weights, gradients and
    optimizer per stage, `gradients` those that copies of a stage add up, and `sync_s` the seconds of the all-reduce over data-parallel
    copies.
    """

    forward: FloatArray
    backward_input: FloatArray
    backward_weight: FloatArray
    recompute: FloatArray | float = 0.0
    kept: FloatArray | float = 0.0
    keys: FloatArray | float = 0.0
    workspace: FloatArray | float = 0.0
    sent: FloatArray | float = 0.0
    static: FloatArray | float = 0.0
    gradients: FloatArray | float = 0.0
    sync_s: FloatArray | float = 0.0
    #: Bytes that every rank keeps besides (buffers of libraries), and the share of activations that I releases.
    overhead: float = 0.0
    released: float = RELEASED


@dataclass(frozen=True)
class Links:
    """Links between ranks, all alike: seconds per message and bytes per second."""

    latency_s: float = 0.0
    rate: float = float("inf")
    blocking_sends: bool = False


@dataclass(frozen=True, eq=False)
class Simulated:
    """A schedule after its simulation: `start` and `end` per action, and per rank `busy` and `recomputed` seconds, `peak` bytes."""

    schedule: Schedule = field(repr=False)
    makespan: float
    start: FloatArray = field(repr=False)
    end: FloatArray = field(repr=False)
    peak: FloatArray
    busy: FloatArray
    recomputed: FloatArray
    sent_bytes: float
    transfers: int

    @property
    def bubble_fraction(self) -> float:
        """The share of the ranks' time in which they wait; recomputation counts as work."""
        return 1 - float(self.busy.sum()) / (len(self.busy) * self.makespan) if self.makespan > 0 else 0.0

    @property
    def useful_fraction(self) -> float:
        """The share of the ranks' time that is neither waiting nor recomputation."""
        return float((self.busy - self.recomputed).sum()) / (len(self.busy) * self.makespan) if self.makespan > 0 else 1.0

    def timeline(self) -> list[dict[str, Any]]:
        """The actions as events that Perfetto and Chrome open: one lane per rank, one bar per action."""
        rank = np.repeat(np.arange(self.schedule.ranks), np.diff(self.schedule.offsets))
        chosen = np.argsort(self.start, kind="stable")[:MOST_BARS]
        return [
            {
                "name": str(self.schedule.action(int(i))), "cat": KINDS[self.schedule.kind[i]], "ph": "X", "pid": 0, "tid": int(rank[i]),
                "ts": round(1e6 * float(self.start[i]), 3), "dur": round(1e6 * float(self.end[i] - self.start[i]), 3),
            }
            for i in chosen
        ]  # fmt: skip


def unit_costs(schedule: Schedule, forward: float = 1.0, backward_input: float = 1.0, backward_weight: float = 1.0) -> Costs:
    """Equal seconds for every stage, and one byte of activations: for closed forms and checks."""
    ones = np.ones(schedule.stages)
    return Costs(forward * ones, backward_input * ones, backward_weight * ones, kept=ones, released=0.0)


def simulate(schedule: Schedule, costs: Costs, links: Links = Links()) -> Simulated:  # noqa: B008 - frozen
    """Runs a schedule. Raises an `InputError` for costs that are negative or not finite, and for a schedule that comes to a standstill."""
    schedule.check_places()
    shape = (schedule.stages, schedule.micros)
    tables = {
        name: _table(name, getattr(costs, name), shape)
        for name in ("forward", "backward_input", "backward_weight", "recompute", "kept", "keys", "workspace", "sent")
    }
    static, gradients, sync_s = (_row(name, getattr(costs, name), schedule.stages) for name in ("static", "gradients", "sync_s"))
    if not (links.latency_s >= 0 and links.rate > 0 and 0 <= costs.released <= 1 and costs.overhead >= 0):
        raise InputError("expected a latency of at least 0, a rate above 0, an overhead of at least 0 and a released share from 0 to 1")
    fixed = np.full(schedule.ranks, float(costs.overhead))
    np.add.at(fixed, schedule.stage_rank, static)
    n = len(schedule)
    start, end = np.zeros(n), np.zeros(n)
    peak, stuck = fixed.copy(), np.zeros(schedule.ranks, np.int64)
    done, sent_bytes, transfers = _sweep(
        schedule.offsets, schedule.stage, schedule.kind, schedule.micro, schedule.joined, schedule.stage_rank, schedule.following,
        schedule.preceding, schedule.previous_slice, schedule.next_slice, *tables.values(), costs.released, links.latency_s, links.rate,
        links.blocking_sends, start, end, fixed, peak, stuck,
    )  # fmt: skip
    if done < n:
        raise InputError(_standstill(schedule, stuck))
    rank = np.repeat(np.arange(schedule.ranks), np.diff(schedule.offsets))
    again = np.where((schedule.kind == 1) | (schedule.kind == 3), tables["recompute"][schedule.stage, schedule.micro], 0.0)
    busy: FloatArray = np.bincount(rank, end - start, schedule.ranks).astype(np.float64)
    recomputed: FloatArray = np.bincount(rank, again, schedule.ranks).astype(np.float64)
    makespan, moved = _gradients(schedule, end, gradients, sync_s, links)
    return Simulated(schedule, makespan, start, end, peak, busy, recomputed, float(sent_bytes) + moved, int(transfers))


def _table(name: str, values: FloatArray | float, shape: tuple[int, int]) -> FloatArray:
    given = np.asarray(values, np.float64)
    if given.ndim == 1:
        given = given[:, None]
    try:
        table = np.ascontiguousarray(np.broadcast_to(given, shape))
    except ValueError:
        raise InputError(f"{name}: found shape {np.shape(values)} for {shape[0]} stages and {shape[1]} micro-batches") from None
    _check(name, table)
    return table


def _row(name: str, values: FloatArray | float, stages: int) -> FloatArray:
    row = np.ascontiguousarray(np.broadcast_to(np.asarray(values, np.float64), (stages,)))
    _check(name, row)
    return row


def _check(name: str, values: FloatArray) -> None:
    if not np.isfinite(values).all() or (values < 0).any():
        wrong = values[~np.isfinite(values) | (values < 0)].flat[0]
        raise InputError(f"{name}: found {wrong}; expected finite values of at least 0")


def _standstill(schedule: Schedule, stuck: npt.NDArray[np.int64]) -> str:
    waits = []
    for rank, at in enumerate(stuck):
        if at < schedule.offsets[rank + 1]:
            waits.append(f"rank {rank} at {schedule.action(int(at))}")
    more = f" and {len(waits) - 8} more" if len(waits) > 8 else ""
    return f"the schedule comes to a standstill: {', '.join(waits[:8])}{more}"


def _gradients(schedule: Schedule, end: FloatArray, gradients: FloatArray, sync_s: FloatArray, links: Links) -> tuple[float, float]:
    """(makespan, bytes): the end of the last action, or of the last sum of gradients over copies, each begun when its stages are done."""
    last = np.zeros(schedule.stages)
    np.maximum.at(last, schedule.stage, end)
    finish, moved = float(end.max()), 0.0
    if not (sync_s.any() or (schedule.replica >= 0).any()):
        return finish, moved
    lane = np.zeros(schedule.ranks)
    ready = np.where(schedule.replica >= 0, np.maximum(last, last[schedule.replica]), last)
    for stage in np.lexsort((np.arange(schedule.stages), ready)):
        other, rank = int(schedule.replica[stage]), int(schedule.stage_rank[stage])
        if other > stage and schedule.stage_rank[other] != rank:
            # Two copies exchange halves: each sends the whole size once.
            peers = [rank, int(schedule.stage_rank[other])]
            done = max(float(ready[stage]), float(lane[peers].max())) + 2 * links.latency_s + float(gradients[stage]) / links.rate
            lane[peers] = done
            moved += 2 * float(gradients[stage])
            finish = max(finish, done)
        if sync_s[stage] > 0:
            lane[rank] = max(float(ready[stage]), float(lane[rank])) + float(sync_s[stage])
            finish = max(finish, float(lane[rank]))
    return finish, moved


@loop
def _sweep(
    offsets: Any, stage: Any, kind: Any, micro: Any, joined: Any, stage_rank: Any, following: Any, preceding: Any, previous_slice: Any,
    next_slice: Any, forward: Any, backward_input: Any, backward_weight: Any, recompute: Any, kept: Any, keys: Any, workspace: Any,
    sent: Any, released: Any, latency: Any, rate: Any, blocking: Any, start: Any, end: Any, held: Any, peak: Any, stuck: Any,
) -> Any:  # fmt: skip
    # Invariants: every number in the arrays was checked to lie within its range; `arrived` is −1 until an input is there; a rank is on the
    # stack, at work, finished or blocked, so the stack never holds a rank twice.
    ranks, stages, micros = offsets.shape[0] - 1, forward.shape[0], forward.shape[1]
    arrived_f = np.full((stages, micros), -1.0)
    arrived_b = np.full((stages, micros), -1.0)
    for s in range(stages):
        if preceding[s] < 0:
            arrived_f[s, :] = 0.0
        if following[s] < 0:
            arrived_b[s, :] = 0.0
    done_f = np.zeros((stages, micros), np.bool_)
    done_b = np.zeros((stages, micros), np.bool_)
    link = np.zeros((ranks, ranks))
    free = np.zeros(ranks)
    memory = held.copy()
    at = offsets[:-1].copy()
    blocked = np.zeros(ranks, np.bool_)
    stack = np.empty(ranks, np.int64)
    for r in range(ranks):
        stack[r] = ranks - 1 - r
    top = ranks
    finished = 0
    transfers = 0
    total = 0.0
    while top > 0:
        top -= 1
        r = stack[top]
        while at[r] < offsets[r + 1]:
            first = at[r]
            count = 2 if joined[first] else 1
            begin = free[r]
            ready = True
            for a in range(first, first + count):
                s, k, what = stage[a], micro[a], kind[a]
                if what == 0:
                    before = previous_slice[k]
                    if arrived_f[s, k] < 0 or (before >= 0 and not done_f[s, before]):
                        ready = False
                    elif arrived_f[s, k] > begin:
                        begin = arrived_f[s, k]
                elif what == 2:
                    if not done_b[s, k]:
                        ready = False
                else:
                    after = next_slice[k]
                    if arrived_b[s, k] < 0 or not done_f[s, k] or (after >= 0 and not done_b[s, after]):
                        ready = False
                    elif arrived_b[s, k] > begin:
                        begin = arrived_b[s, k]
            if not ready:
                break
            now = begin
            for a in range(first, first + count):
                s, k, what = stage[a], micro[a], kind[a]
                start[a] = now
                if what == 0:
                    memory[r] += kept[s, k] + keys[s, k]
                    peak[r] = max(peak[r], memory[r])
                    now += forward[s, k]
                    done_f[s, k] = True
                elif what == 2:
                    now += backward_weight[s, k]
                    memory[r] -= (1 - released) * kept[s, k]
                else:
                    peak[r] = max(peak[r], memory[r] + workspace[s, k])
                    now += recompute[s, k] + backward_input[s, k]
                    if what == 3:
                        now += backward_weight[s, k]
                        memory[r] -= kept[s, k]
                    else:
                        memory[r] -= released * kept[s, k]
                    if previous_slice[k] < 0:
                        each = k
                        while each >= 0:
                            memory[r] -= keys[s, each]
                            each = next_slice[each]
                    done_b[s, k] = True
                end[a] = now
                finished += 1
            at[r] = first + count
            free[r] = now
            for a in range(first, first + count):
                s, k, what = stage[a], micro[a], kind[a]
                if what == 2:
                    continue
                to = following[s] if what == 0 else preceding[s]
                if to < 0:
                    continue
                q = stage_rank[to]
                there = now
                if q != r:
                    size = sent[s, k] if what == 0 else sent[to, k]
                    there = max(free[r] if blocking else now, link[r, q]) + latency + size / rate
                    link[r, q] = there
                    if blocking:
                        free[r] = there
                    transfers += 1
                    total += size
                if what == 0:
                    arrived_f[to, k] = there
                else:
                    arrived_b[to, k] = there
                if q != r and blocked[q]:
                    blocked[q] = False
                    stack[top] = q
                    top += 1
        if at[r] < offsets[r + 1]:
            blocked[r] = True
    for r in range(ranks):
        stuck[r] = at[r]
    return finished, total, transfers
