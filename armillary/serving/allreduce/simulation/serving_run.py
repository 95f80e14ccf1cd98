"""Serves requests with prefill and decode instances, iteration by iteration with every all-reduce, and finds the highest rate that holds.

A prefill instance takes waiting prompts in order, up to a budget of tokens, and its first token ends the wait (TTFT). The KV then moves
to the least loaded decode instance, which adds requests between iterations. The stages of a pipeline work on each batch one after the
other, and a decode instance with several stages keeps as many batches in flight.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from armillary.engine import Agenda
from armillary.errors import InputError

from ..collectives.path import Path
from ..collectives.wires import Wires
from ..planning.phase_cost import MOST_SEQUENCES, MOST_TOKENS, PhaseCost, phase_cost
from ..planning.placement import Instance, Plan, Slo
from .bursts import CALM, Bursts
from .groups import Groups

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: The most rates that `max_rate` tries.
MOST_PROBES = 7
#: The weight of the newest iteration in an instance's estimate of its own speed.
NEWEST = 0.2


@dataclass(frozen=True)
class Served:
    """The times of every request, NaN for what did not happen, and the time in collectives."""

    ttft_s: Floats
    tpot_s: Floats
    sync_s: float
    busy_s: float
    #: Simulated seconds, iterations, and counts from the network.
    seconds: float
    iterations: int
    most_slots: int
    starved: int
    moves: int

    @property
    def sync_share(self) -> float:
        """The seconds in collectives over the seconds of iterations."""
        return self.sync_s / self.busy_s if self.busy_s else 0.0

    def attained(self, slo: Slo) -> float:
        """Returns the share of the requests that met both bounds."""
        with np.errstate(invalid="ignore"):
            return float(np.mean((self.ttft_s <= slo.ttft_s) & (self.tpot_s <= slo.tpot_s)))

    def p90(self) -> tuple[float, float]:
        """Returns (TTFT, TPOT) at the 90th percentile; infinite if more than a tenth never came."""
        return tuple(float(np.quantile(np.where(np.isnan(x), np.inf, x), 0.9, method="higher")) for x in (self.ttft_s, self.tpot_s))  # type: ignore[return-value]


@dataclass
class _Batch:
    """Work on its way through an instance's stages."""

    at: _Instance
    requests: list[int]
    compute_s: float  # of one stage
    nbytes: float
    tokens: int
    send_s: float
    stage: int = 0
    since: float = 0.0


@dataclass
class _Stage:
    """A group, the batch that it works on, and the batches that wait for it."""

    group: int
    batch: _Batch | None = None
    began: float = 0.0
    queue: deque[_Batch] = field(default_factory=deque)


@dataclass
class _Cohort:
    """Requests that decode together, with the iterations done and the iteration after which each one ends."""

    at: _Instance
    done: int = 0
    ends: list[tuple[int, int]] = field(default_factory=list)
    context: int = 0
    working: bool = False


@dataclass
class _Instance:
    """A prefill or decode instance at work."""

    number: int
    what: Instance
    cost: PhaseCost
    stages: list[_Stage]
    decode: bool
    waiting: deque[int] = field(default_factory=deque)
    #: The tokens that wait or run, or for decoding the KV that is taken or promised.
    tokens: int = 0
    #: All tokens of KV, and those not yet taken.
    capacity: int = 0
    room: int = 0
    cohorts: list[_Cohort] = field(default_factory=list)
    #: The recent seconds per token (prefill) or per iteration (decode).
    pace_s: float = 0.0
    repeats: int = 1


class Run:
    """One fleet with one path, from the first request to the last."""

    def __init__(
        self, wires: Wires, plan: Plan, path: Path, model: str, arrival: Floats, prompt: Ints, output: Ints, *, bursts: Bursts = CALM,
        rng: np.random.Generator | None = None, by_finish: bool = False,
    ) -> None:  # fmt: skip
        self.wires, self.path, self.by_finish = wires, path, by_finish
        self.arrival, self.prompt, self.output = arrival, prompt.astype(int).tolist(), output.astype(int).tolist()
        self.net = Groups(wires, plan.groups, path, bursts, rng)
        self.stage_of: list[_Stage] = []
        self.prefill = [self._instance(i, one, model, False) for i, one in enumerate(plan.prefill)]
        self.decode = [self._instance(i, one, model, True) for i, one in enumerate(plan.decode)]
        n = len(arrival)
        self.first, self.last = np.full(n, np.nan), np.full(n, np.nan)
        #: KV on its way to a decode instance.
        self.later = Agenda()
        self.sync_s = self.busy_s = 0.0
        self.iterations = self.ended = 0
        need = int(max(p + o for p, o in zip(self.prompt, self.output, strict=True))) if n else 0
        for one in (*self.prefill, *self.decode):
            if one.room < need:
                raise InputError(
                    f"{model} on TP {one.what.tp} PP {one.what.pp}: {one.room} tokens of KV fit; expected {need}, the longest request"
                )

    def _instance(self, number: int, what: Instance, model: str, decode: bool) -> _Instance:
        cost = phase_cost(model, self.wires.device, what.tp)
        stages = [_Stage(len(self.stage_of) + k) for k in range(what.pp)]
        self.stage_of += stages
        made = _Instance(number, what, cost, stages, decode, repeats=max(1, cost.repeats // what.pp))
        made.room = made.capacity = cost.kv_tokens(what.pp)
        made.cohorts = [_Cohort(made) for _ in range(what.pp)] if decode else []
        return made

    def run(self, *, until_s: float = math.inf, give_up: Callable[[Run], bool] | None = None) -> Served:
        """Serves everything, or stops at `until_s`, or when `give_up` says so."""
        now, n, next_one = 0.0, len(self.arrival), 0
        while self.ended < n:
            due = self.arrival[next_one] if next_one < n else math.inf
            if self.later.next_time < due:
                due = self.later.next_time
            group = self.net.advance(min(due, until_s))
            now = self.net.now
            if group >= 0:
                self._stage_done(self.stage_of[group], now)
                if give_up is not None and self.iterations % 16 == 0 and give_up(self):
                    break
            elif due >= until_s:
                break
            elif self.later.next_time <= due:
                self.later.step()
            else:
                self._arrive(next_one, now)
                next_one += 1
        steps = np.maximum(np.array(self.output) - 1, 1)
        tpot = np.where(np.array(self.output) > 1, (self.last - self.first) / steps, 0.0)
        return Served(
            self.first - self.arrival, np.where(np.isnan(self.last), np.nan, tpot), self.sync_s, self.busy_s, now, self.iterations,
            self.net.most_slots, self.net.starved, self.net.moves,
        )  # fmt: skip

    # Prompts

    def _arrive(self, q: int, now: float) -> None:
        if self.by_finish:
            to = min(self.prefill, key=lambda i: (i.tokens * i.pace_s, i.tokens, i.number))
        else:
            to = min(self.prefill, key=lambda i: (i.tokens, i.number))
        to.waiting.append(q)
        to.tokens += self.prompt[q]
        self._prompts(to, now)

    def _prompts(self, at: _Instance, now: float) -> None:
        """Forms the next batch of prompts when the first stage is free."""
        first = at.stages[0]
        if first.batch is not None or first.queue or not at.waiting:
            return
        taken: list[int] = []
        tokens, pairs = 0, 0.0
        while at.waiting and (not taken or tokens + self.prompt[at.waiting[0]] <= MOST_TOKENS):
            q = at.waiting.popleft()
            taken.append(q)
            tokens += self.prompt[q]
            pairs += self.prompt[q] * (self.prompt[q] + 1) / 2
        compute = at.cost.prefill_s(tokens, pairs, len(taken))
        self._enter(_Batch(at, taken, compute / at.what.pp, tokens * at.cost.token_bytes, tokens, self._send_s(at, tokens), since=now), now)

    def _send_s(self, at: _Instance, tokens: int) -> float:
        """Returns the seconds to send activations to the next stage."""
        if at.what.pp == 1:
            return 0.0
        here, there = at.what.stages[0].servers, at.what.stages[1].servers
        nbytes = tokens * at.cost.token_bytes
        return nbytes / self.wires.nvlink + self.wires.nvlink_s if here == there else nbytes / len(here) / self.wires.nic + self.wires.nic_s

    # Stages

    def _enter(self, batch: _Batch, now: float) -> None:
        stage = batch.at.stages[batch.stage]
        if stage.batch is not None:
            stage.queue.append(batch)
            return
        stage.batch, stage.began = batch, now
        repeats = batch.at.repeats
        compute = batch.compute_s + (batch.send_s if batch.stage else 0.0)
        self.net.start(stage.group, compute / repeats, batch.nbytes if batch.at.what.tp > 1 else 0.0, repeats)

    def _stage_done(self, stage: _Stage, now: float) -> None:
        batch = stage.batch
        assert batch is not None
        stage.batch = None
        self.iterations += 1
        took = now - stage.began
        self.busy_s += took
        self.sync_s += max(took - batch.compute_s - (batch.send_s if batch.stage else 0.0), 0.0)
        batch.stage += 1
        if batch.stage < batch.at.what.pp:
            self._enter(batch, now)
        elif batch.at.decode:
            self._tokens(batch, now)
        else:
            self._first_tokens(batch, now)
        if stage.queue and stage.batch is None:
            self._enter(stage.queue.popleft(), now)
        if not batch.at.decode and stage is batch.at.stages[0]:
            self._prompts(batch.at, now)

    def _first_tokens(self, batch: _Batch, now: float) -> None:
        at = batch.at
        at.tokens -= batch.tokens
        seen = (now - batch.since) / batch.tokens / at.what.pp
        at.pace_s = seen if at.pace_s == 0 else (1 - NEWEST) * at.pace_s + NEWEST * seen
        for q in batch.requests:
            self.first[q] = now
            if self.output[q] == 1:
                self.last[q] = now
                self.ended += 1
                continue
            if self.by_finish:
                to = min(self.decode, key=lambda i: (i.pace_s * (1 + i.tokens / i.capacity), i.tokens, i.number))
            else:
                to = min(self.decode, key=lambda i: (i.tokens, i.number))
            to.tokens += self.prompt[q] + self.output[q]
            # The KV leaves through the NICs of the smaller side.
            lanes = min(at.what.servers, to.what.servers)
            moved = self.prompt[q] * at.cost.kv_bytes / (self.wires.nic * lanes) + self.wires.nic_s
            self.later.at(now + moved, self._handed, q, to)

    # Decoding

    def _handed(self, q: int, to: _Instance) -> None:
        to.waiting.append(q)
        for cohort in to.cohorts:
            if not cohort.working:
                self._decode(cohort, self.net.now)
                return

    def _decode(self, cohort: _Cohort, now: float) -> None:
        """Admits requests that fit and starts the next iteration of a cohort."""
        at = cohort.at
        share = -(-MOST_SEQUENCES // len(at.cohorts))
        while at.waiting and len(cohort.ends) < share:
            q = at.waiting[0]
            need = self.prompt[q] + self.output[q]
            if need > at.room:
                break
            at.waiting.popleft()
            at.room -= need
            heapq.heappush(cohort.ends, (cohort.done + self.output[q] - 1, q))
            cohort.context += self.prompt[q] + 1
        if not cohort.ends:
            cohort.working = False
            return
        cohort.working = True
        n = len(cohort.ends)
        compute = at.cost.decode_s(n, cohort.context) / at.what.pp
        batch = _Batch(at, [], compute, n * at.cost.token_bytes, n, self._send_s(at, n), since=now)
        batch.requests = [at.cohorts.index(cohort)]
        self._enter(batch, now)

    def _tokens(self, batch: _Batch, now: float) -> None:
        at = batch.at
        cohort = at.cohorts[batch.requests[0]]
        seen = now - batch.since
        at.pace_s = seen if at.pace_s == 0 else (1 - NEWEST) * at.pace_s + NEWEST * seen
        cohort.done += 1
        cohort.context += batch.tokens
        while cohort.ends and cohort.ends[0][0] <= cohort.done:
            _, q = heapq.heappop(cohort.ends)
            held = self.prompt[q] + self.output[q]
            cohort.context -= held
            at.room += held
            at.tokens -= held
            self.last[q] = now
            self.ended += 1
        self._decode(cohort, now)


@dataclass(frozen=True)
class Found:
    """The highest rate that holds, the run at the case's own rate, and every (rate, share that met the bounds) that was tried."""

    rate: float
    at_rate: Served
    probes: tuple[tuple[float, float], ...]


def serve(
    wires: Wires, plan: Plan, path: Path, model: str, arrival: Floats, prompt: Ints, output: Ints, slo: Slo | None = None, *,
    bursts: Bursts = CALM, seed: int = 0, by_finish: bool = False,
) -> Served:  # fmt: skip
    """Serves requests with one plan and path. With an `slo` it may stop as soon as too many have missed it."""
    rng = np.random.default_rng(seed) if bursts.share or bursts.slots else None
    run = Run(wires, plan, path, model, arrival, prompt, output, bursts=bursts, rng=rng, by_finish=by_finish)
    if slo is None:
        return run.run()
    allowed = math.floor((1 - slo.share) * len(arrival) + 1e-9)

    def hopeless(r: Run) -> bool:
        with np.errstate(invalid="ignore"):
            late = r.first - r.arrival > slo.ttft_s
            late |= np.isnan(r.first) & (r.net.now - r.arrival > slo.ttft_s)
        return int(late.sum()) > allowed

    return run.run(until_s=float(arrival[-1]) + 4 * slo.ttft_s + 2000 * slo.tpot_s, give_up=hopeless)


def max_rate(attempt: Callable[[float, bool], Served], slo: Slo, own: float, guess: float, bound: float) -> Found:
    """Bisects the rate of requests in at most `MOST_PROBES` runs, the first at the case's `own` rate and the next two around a `guess`.

    `attempt(rate, whole)` runs the work at a rate; `whole` runs are not cut short. `bound` is a rate that cannot hold. Returns the highest
    rate tried at which the bounds were met, or 0 if there was none.
    """
    first = attempt(own, True)
    probes = [(own, first.attained(slo))]
    low, high = (own, max(bound, 2 * own)) if probes[0][1] >= slo.share else (0.0, own)
    while len(probes) < MOST_PROBES and high - low > 0.01 * high:
        near = guess if len(probes) == 1 else 1.25 * guess if low >= guess else 0.8 * guess
        rate = near if len(probes) < 3 and low < near < high else 0.5 * (low + high)
        share = attempt(rate, False).attained(slo)
        probes.append((rate, share))
        low, high = (rate, high) if share >= slo.share else (low, rate)
    return Found(low, first, tuple(probes))
