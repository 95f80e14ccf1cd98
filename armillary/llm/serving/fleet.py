"""Several replicas behind a router. The caller can stop simulated time at any moment, and look at the fleet or change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from armillary.engine.compiled import heap, push
from armillary.errors import InputError, unknown

from . import batching as bt
from . import loop as lp
from . import routing as rt
from . import state as st
from .replica import POLICIES, ROLES, Adapters, Replica
from .requests import Requests
from .result import Result
from .state import NOTHING

#: The number of iterations that the log holds; when it is full, every second one is dropped.
LOG_LINES = 100_000


@dataclass(frozen=True)
class Seen:
    """What a router can see of a replica."""

    replica: int
    waiting: int
    running: int
    tokens: int
    free_blocks: int
    adapters: tuple[int, ...]


@dataclass(frozen=True)
class Fleet:
    """Replicas, and the router that gives them requests.

    `router` is a name of `loop.ROUTERS`, or a function (serving, request) -> replica. `handover` is a function (serving, request, from, to)
    -> seconds, which gives the time to move the KV of a request from a prefill replica to a decode replica. While `most_waiting` requests
    wait on all replicas together, later ones stay outside the fleet, in order (0 means no limit); their latency still counts from their own
    arrival.
    """

    replicas: Sequence[Replica]
    router: str | Callable[[Serving, int], int] = "round-robin"
    staleness_s: float = 0.0
    weights: Sequence[float] | None = None
    handover: Callable[[Serving, int, int, int], float] | None = None
    seed: int = 0
    most_waiting: int = 0

    def __post_init__(self) -> None:
        if not self.replicas:
            raise InputError("replicas: found none; expected at least one")
        if isinstance(self.router, str) and self.router not in rt.ROUTERS[:-1]:
            raise unknown("router", self.router, rt.ROUTERS[:-1])
        if self.staleness_s < 0:
            raise InputError(f"staleness_s: found {self.staleness_s}; expected 0 or more")
        if self.most_waiting < 0:
            raise InputError(f"most_waiting: found {self.most_waiting}; expected 0 or more")
        weights = self.weights
        if weights is not None and (len(weights) != len(self.replicas) or min(weights) < 0 or sum(weights) <= 0):
            raise InputError(f"weights: expected {len(self.replicas)} numbers of 0 or more, not all 0")
        roles = {r.role for r in self.replicas}
        if roles == {"prefill"} or roles == {"decode"}:
            raise InputError(f"role: all replicas are for {roles.pop()}; expected prefill and decode, or both")

    def start(
        self, requests: Requests, *, adapters: Adapters | None = None, home: npt.NDArray[np.int32] | None = None, token_times: bool = False,
        step: Literal["iteration", "segment"] = "iteration",
    ) -> Serving:  # fmt: skip
        """The fleet at time 0, before any request arrives; `home` assigns requests to replicas in advance (-1 leaves the choice to the
        router).
        """
        return Serving(self, requests, adapters, home, token_times, step)

    def run(self, requests: Requests, *, until_s: float = float("inf"), **options: Any) -> Result:
        """Serves `requests` to the end, or for `until_s` seconds."""
        serving = self.start(requests, **options)
        serving.run(until_s)
        return serving.result()


@dataclass
class Serving:
    """A fleet at work. Time passes in `run`; between two calls anything may be changed."""

    fleet: Fleet
    requests: Requests
    adapters: Adapters | None
    home: npt.NDArray[np.int32] | None
    token_times: bool
    step: str
    now: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        requests, replicas = self.requests, self.fleet.replicas
        if self.step not in ("iteration", "segment"):
            raise unknown("step", self.step, ("iteration", "segment"))
        n, count = len(requests), len(replicas)
        ranks = [] if self.adapters is None else list(self.adapters.rank)
        if n and requests.adapter.max() >= len(ranks):
            raise InputError(f"adapter: a request names adapter {int(requests.adapter.max())}; expected one of {len(ranks)}")
        capacity = [r.kv_blocks() for r in replicas]
        self._check_fit(max(blocks * r.block for blocks, r in zip(capacity, replicas, strict=True)))
        self.state = st.empty(
            n, count, most_running=max(r.max_seqs for r in replicas), adapters=len(ranks), slots=max(r.slots for r in replicas),
            blocks=capacity, size=[r.block for r in replicas], names=requests.prefix_hash, first_name=requests.prefix_off,
            named=any(r.prefix_cache for r in replicas),
        )  # fmt: skip
        seq = self.state.seq
        seq[:, st.PROMPT] = seq[:, st.KNOWN] = requests.prompt
        seq[:, st.OUTPUT], seq[:, st.ADAPTER], seq[:, st.PRIORITY] = requests.output, requests.adapter, requests.priority
        seq[:, st.HOME] = self._homes(n, count)
        self._tell_engines()
        self.feed = self._feed(n)
        self.prices = self._prices(ranks)
        self.measures = self._measures(n)
        self._custom = [r for r in range(count) if not isinstance(replicas[r].policy, str)]
        router = self.fleet.router
        self.routing = rt.Routing(
            rt.ROUTERS.index(router) if isinstance(router, str) else rt.CUSTOM, float(self.fleet.staleness_s), int(self.fleet.seed),
            np.ones(count) if self.fleet.weights is None else np.asarray(self.fleet.weights, float), np.zeros(count, np.int64),
            np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(1, -np.inf), int(self.fleet.most_waiting),
        )  # fmt: skip
        self._parked: list[int] = []
        self._pending: list[tuple[float, int, Callable[[], None]]] = []

    def _homes(self, n: int, count: int) -> npt.NDArray[np.int32]:
        if self.home is None:
            return np.full(n, NOTHING, np.int32)
        home = np.asarray(self.home, np.int32)
        if home.shape != (n,) or (n and (home.min() < NOTHING or home.max() >= count)):
            raise InputError(f"home: expected one of {count} replicas, or -1, for each of {n} requests")
        return home.copy()

    def _check_fit(self, room: int) -> None:
        """Refuses requests whose KV can never fit."""
        need = self.requests.prompt.astype(np.int64) + self.requests.output
        if len(need) and need.max() - 1 > room:
            q = int(np.argmax(need))
            raise InputError(f"request {q} needs the KV of {int(need[q]) - 1:,} tokens; expected at most {room:,}, the size of a replica")

    def _tell_engines(self) -> None:
        eng, clock = self.state.eng, self.state.clock
        longest = int(self.requests.output.max()) if len(self.requests) else 1
        for r, replica in enumerate(self.fleet.replicas):
            policy = replica.policy if isinstance(replica.policy, str) else "vllm"
            eng[r, st.BUDGET], eng[r, st.SEQUENCES] = replica.max_batched_tokens, replica.max_seqs
            eng[r, st.LONG_PREFILL], eng[r, st.ADAPTERS] = replica.long_prefill_threshold, replica.slots
            eng[r, st.POLICY], eng[r, st.PREFIXES] = POLICIES.index(policy), replica.prefix_cache
            eng[r, st.DRAFT], eng[r, st.SWAP], eng[r, st.SWAP_ROOM] = replica.draft, replica.preemption == "swap", replica.swap_tokens
            eng[r, st.RESERVE] = (replica.max_output or longest) if policy in ("orca", "static") else 0
            eng[r, st.ASYNC_LOADS], eng[r, st.HOST_ADAPTERS] = replica.async_load, replica.host_adapters
            eng[r, st.ROLE] = ROLES.index(replica.role)
            clock[r, st.SWAP_TOKEN_S] = replica.swap_token_s
            if self.adapters is not None and np.any(self.requests.adapter >= 0) and replica.slots < 1:
                raise InputError(f"slots: replica {r} has none, and requests name adapters; expected at least 1")
            if self.requests.prefix_off[-1] and replica.prefix_cache and replica.block != self.requests.block:
                raise InputError(f"block: replica {r} has {replica.block} tokens; the prefixes are hashed by {self.requests.block}")
        if self.adapters is not None:
            self.state.load_s[0, :-1], self.state.load_s[1, :-1] = self.adapters.host_s, self.adapters.disk_s

    def _feed(self, n: int) -> lp.Feed:
        requests = self.requests
        follower, think = np.full(n, NOTHING, np.int32), np.zeros(n)
        later = np.flatnonzero(requests.follows >= 0)
        if len(np.unique(requests.follows[later])) != len(later):
            raise InputError("follows: two requests follow the same one; expected at most one")
        follower[requests.follows[later]] = later
        think[requests.follows[later]] = requests.think_s[later]
        order = np.flatnonzero(requests.follows < 0).astype(np.int32)
        return lp.Feed(
            requests.arrival_s.copy(), order, np.zeros(4, np.int64), heap(max(1, 2 * n + 16)), follower, think, requests.session,
        )  # fmt: skip

    def _prices(self, ranks: list[int]) -> lp.Prices:
        known: dict[Any, Any] = {}
        costs = []
        for replica in self.fleet.replicas:
            key = id(replica.cost) if replica.cost is not None else (id(replica.model), replica.device, replica.tp, replica.pp)
            if key not in known:
                known[key] = replica.priced().arrays()
            costs.append(known[key])
        tokens = max(r.max_batched_tokens for r in self.fleet.replicas) + 2
        seqs = max(r.max_seqs * (1 + r.draft) for r in self.fleet.replicas) + 2
        body, head = np.empty((len(costs), tokens)), np.empty((len(costs), seqs))
        rate = np.empty((len(costs), 9))
        for r, c in enumerate(costs):
            body[r], head[r] = _dense(c.tokens, c.body_s, tokens), _dense(c.tokens, c.head_s, seqs)
            rate[r] = (
                c.pair_s,
                c.context_s,
                c.computed_s,
                c.adapter_s,
                c.rank_token_s,
                c.host_s,
                c.running_s,
                c.waiting_s,
                c.adapter_token_s,
            )
        return lp.Prices(body, head, rate, np.asarray(ranks, float))

    def _measures(self, n: int) -> lp.Measures:
        offsets = np.zeros(n + 1, np.int64)
        if self.token_times:
            np.cumsum(self.requests.output, out=offsets[1:])
        drafts = max(1, *(r.draft for r in self.fleet.replicas)) if self.fleet.replicas else 1
        chances = np.resize(np.asarray(self.fleet.replicas[0].acceptance, float), drafts)
        return lp.Measures(
            offsets, np.full(int(offsets[-1]), np.nan), np.zeros(lp.GAP_BINS, np.int64), np.zeros((LOG_LINES, 5)),
            np.array([0, 1, 0], np.int64), chances, int(self.step == "segment"),
        )  # fmt: skip

    # -- time --

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Calls `call` when the clock shows `time_s`."""
        if time_s < self.now:
            raise InputError(f"time_s: found {time_s}; it is {self.now} already")
        self._pending.append((time_s, len(self._pending), call))
        self._pending.sort(key=lambda item: item[:2], reverse=True)

    def run(self, until_s: float = float("inf")) -> None:
        """Advances simulated time to `until_s`, or until nothing is left to do."""
        while True:
            stop = min(until_s, self._pending[-1][0] if self._pending else until_s)
            self._advance(stop)
            if not self._pending or self._pending[-1][0] > until_s:
                break
            self.now, _, call = self._pending.pop()
            call()
        if until_s < float("inf"):
            self.now = until_s

    def _advance(self, until_s: float) -> None:
        while True:
            why, now = lp.advance(self.state, self.feed, self.prices, self.measures, self.routing, self.now, until_s)
            self.now = float(now)
            q, r = int(self.feed.state[2]), int(self.feed.state[3])
            if why == lp.STOP_TIME:
                return
            if why == lp.STOP_ROUTE:
                self._route(q)
            elif why == lp.STOP_HANDOVER:
                self._hand_over(q, r)
                if self._pending and self._pending[-1][0] < until_s:
                    until_s = self._pending[-1][0]
            else:
                raise InputError(f"request {q} can never run on replica {r}: its blocks or its adapter find no place")

    def _route(self, q: int) -> None:
        router = self.fleet.router
        if not any(self.is_open(r) for r in range(len(self.fleet.replicas))):
            self._parked.append(q)
        elif isinstance(router, str):
            self.submit(q)
        else:
            to = int(router(self, q))
            if not 0 <= to < len(self.fleet.replicas):
                raise InputError(f"router: gave replica {to}; expected one of {len(self.fleet.replicas)}")
            self.submit(q, to)

    def submit(self, q: int, to: int | None = None) -> None:
        """Submits a request now, to replica `to` or to the one that the router chooses."""
        self.state.seq[q, st.HOME] = NOTHING if to is None else to
        self.feed.time[q] = self.now
        push(self.feed.later, self.now, 0, q)

    # -- what may be seen and changed --

    def is_open(self, r: int) -> bool:
        """Whether replica `r` takes new requests."""
        return not self.state.eng[r, st.PAUSED] and self.state.eng[r, st.ROLE] != st.DECODE

    def snapshot(self, r: int) -> Seen:
        """What a router can see of replica `r`."""
        count, slots = self.state.eng[r], self.state.slots[r]
        held = tuple(int(a) for a in slots if a != NOTHING)
        return Seen(r, int(count[st.WAITS]), int(count[st.RUNS]), int(self.routing.tokens[r]), int(count[st.FREE]), held)

    def waiting(self, r: int) -> list[int]:
        """The requests that wait at replica `r`, in order."""
        out, q = [], int(self.state.eng[r, st.FIRST])
        while q != NOTHING:
            out.append(q)
            q = int(self.state.seq[q, st.BEHIND_IT])
        return out

    def running(self, r: int) -> list[int]:
        """The requests that run on replica `r`, in order."""
        return [int(q) for q in self.state.lists[r, st.RUN_LIST, : self.state.eng[r, st.RUNS]]]

    def _detach(self, q: int) -> None:
        """Removes a request from its replica and frees its blocks at once."""
        r = int(self.state.seq[q, st.HOME])
        if self.state.seq[q, st.STATUS] == st.WAITING:
            bt.leave_waiting(self.state, q, r)
        elif self.state.seq[q, st.STATUS] in (st.RUNNING, st.MOVING):
            if self.state.seq[q, st.STATUS] == st.RUNNING:
                bt.leave_running(self.state, q, r)
            bt.give_back(self.state, q, r)
        else:
            raise InputError(f"request {q} is neither waiting nor running")
        if self.state.seq[q, st.KEPT] and self.state.seq[q, st.PREEMPTIONS]:
            self.state.eng[r, st.SWAPPED_TOKENS] -= int(self.state.seq[q, st.KEPT])
        self.routing.tokens[r] -= int(self.state.seq[q, st.KNOWN])
        self.state.seq[q, st.COMPUTED], self.state.seq[q, st.KEPT], self.state.seq[q, st.HOME] = 0, 0, NOTHING

    def abort(self, q: int) -> None:
        """Aborts a request now; its output tokens stay counted."""
        if self.state.seq[q, st.STATUS] == st.AHEAD:
            self.state.seq[q, st.STATUS] = st.GONE
            return
        self._detach(q)
        self.state.seq[q, st.STATUS] = st.GONE

    def resubmit(self, q: int, kept_tokens: int = 0, to: int | None = None) -> None:
        """Submits an aborted request again; the first `kept_tokens` of its output are kept, but not their KV."""
        if self.state.seq[q, st.STATUS] != st.GONE:
            raise InputError(f"request {q} was not aborted")
        out = int(self.state.seq[q, st.KNOWN] - self.state.seq[q, st.PROMPT])
        if not 0 <= kept_tokens <= out:
            raise InputError(f"kept_tokens: found {kept_tokens}; expected 0 to {out}, the tokens that came out")
        self.state.seq[q, st.KNOWN] = self.state.seq[q, st.PROMPT] + kept_tokens
        if kept_tokens == 0:
            self.state.when[q, st.FIRST_TOKEN] = np.nan
        self.state.seq[q, st.STATUS] = st.AHEAD
        self.submit(q, to)

    def migrate(self, q: int, to: int, seconds: float = 0.0, kv: bool = True) -> None:
        """Moves a request to replica `to`, where it arrives after `seconds`, either with its KV or to compute it again."""
        kept = int(max(self.state.seq[q, st.COMPUTED], self.state.seq[q, st.KEPT])) if kv else 0
        self._detach(q)
        self.state.seq[q, st.STATUS], self.state.seq[q, st.KEPT], self.state.seq[q, st.HOME] = st.MOVING, kept, to
        self.feed.time[q] = self.now + seconds
        push(self.feed.later, self.now + seconds, 0, q)

    def _hand_over(self, q: int, r: int) -> None:
        """Sends the requests that a prefill replica has finished to decode replicas; their blocks stay in use until the KV has arrived."""
        decode = [i for i, replica in enumerate(self.fleet.replicas) if replica.role == "decode" and not self.state.eng[i, st.PAUSED]]
        if not decode:
            raise InputError("role: no decode replica is open to take a request over")
        while q != NOTHING:
            after = int(self.state.seq[q, st.BEHIND_IT])
            to = min(decode, key=lambda i: (int(self.routing.tokens[i]), i))
            self.routing.tokens[to] += int(self.state.seq[q, st.KNOWN])
            seconds = 0.0 if self.fleet.handover is None else float(self.fleet.handover(self, q, r, to))
            self.at(self.now + seconds, lambda q=q, to=to: self._handed(q, to))  # type: ignore[misc]
            q = after

    def _handed(self, q: int, to: int) -> None:
        self.routing.tokens[to] -= int(self.state.seq[q, st.KNOWN])
        if self.state.seq[q, st.STATUS] == st.MOVING:
            self.migrate(q, to)

    def pause(self, r: int) -> None:
        """Pauses replica `r`: it finishes its current iteration, starts no other, and accepts no requests."""
        self.state.eng[r, st.PAUSED] = 1

    def resume(self, r: int) -> None:
        """Resumes replica `r` now."""
        self.state.eng[r, st.PAUSED] = 0
        if self.state.clock[r, st.END] == np.inf:
            self.state.clock[r, st.END], self.state.eng[r, st.REPEAT] = self.now, 0
            self.state.eng[r, st.CHOSEN] = 0
        parked, self._parked = self._parked, []
        for q in parked:
            self._route(q)

    def drain(self, r: int) -> list[int]:
        """Drains replica `r`: it accepts no requests, its running ones finish, and its waiting ones go to other replicas. Returns those
        requests.
        """
        self.state.eng[r, st.ROLE] = st.DECODE
        sent = self.waiting(r)
        for q in sent:
            self._detach(q)
            self.state.seq[q, st.STATUS] = st.AHEAD
            self.submit(q)
        return sent

    def fail(self, r: int) -> list[int]:
        """Replica `r` fails and loses its KV: the iteration in flight is lost, and its requests are submitted again and recomputed."""
        hit = [*self.running(r), *self.waiting(r)]
        hit += [
            int(q)
            for q in np.flatnonzero(
                (self.state.seq[:, st.STATUS] == st.MOVING) & (self.state.seq[:, st.HOME] == r) & (self.state.seq[:, st.HELD] > 0)
            )
        ]
        static = [q for q in hit if self.state.seq[q, st.STATUS] == st.FINISHED]
        hit = [q for q in hit if self.state.seq[q, st.STATUS] != st.FINISHED]
        for q in static:
            bt.leave_running(self.state, q, r)
            bt.give_back(self.state, q, r)
        for q in hit:
            self._detach(q)
            self.state.seq[q, st.STATUS] = st.AHEAD
        if self.state.clock[r, st.END] < np.inf:
            self.state.clock[r, st.BUSY_S] -= self.state.clock[r, st.END] - self.now
        self.state.eng[r, st.PAUSED] = 1
        self.state.clock[r, st.END], self.state.eng[r, st.CHOSEN] = np.inf, 0
        st.forget_all(self.state, r)
        for q in hit:
            self.submit(q)
        return hit

    def result(self) -> Result:
        """The result so far."""
        return Result.of(self)


def _dense(grid: npt.NDArray[np.float64], values: npt.NDArray[np.float64], length: int) -> npt.NDArray[np.float64]:
    """The table at 0, 1, 2, …, interpolated linearly between the points of the grid and extrapolated beyond the last."""
    x = np.arange(length, dtype=float)
    out = np.interp(x, grid, values)
    beyond = x > grid[-1]
    if len(grid) > 1:
        out[beyond] = values[-1] + (x[beyond] - grid[-1]) * (values[-1] - values[-2]) / (grid[-1] - grid[-2])
    return out


def failures(serving: Serving, events: Iterable[tuple[float, int, str]]) -> None:
    """Schedules failures and repairs, each a (time in seconds, replica, "down" or "up")."""
    for time_s, r, what in events:
        if not 0 <= r < len(serving.fleet.replicas):
            raise InputError(f"failures: found replica {r}; expected one of {len(serving.fleet.replicas)}")
        if what not in ("down", "up"):
            raise unknown("event", what, ("down", "up"))
        call = serving.fail if what == "down" else serving.resume
        serving.at(time_s, lambda call=call, r=r: call(r))  # type: ignore[misc]
