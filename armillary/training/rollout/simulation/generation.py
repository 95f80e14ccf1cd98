"""One rollout on its instances: requests are sent, moved and given up, and time passes in between."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.llm import CostArrays

from . import stepping as sp

FloatArray = npt.NDArray[np.float64]
#: The rows of the dense tables of an iteration's seconds; the last slope continues beyond them.
TABLE_TOKENS = 16384
NO_DRAFTS = np.zeros((0, 1, 1))


@dataclass(frozen=True)
class Instances:
    """Equal instances: their number, the tokens of KV that each holds, what an iteration costs, and how they batch."""

    count: int
    kv_tokens: int
    cost: CostArrays
    max_seqs: int = 1024
    budget: int = 8192
    block: int = 16

    def __post_init__(self) -> None:
        if self.count < 1 or self.kv_tokens < self.block:
            raise InputError(f"{self.count} instances of {self.kv_tokens} tokens of KV; expected at least one of at least {self.block}")

    def tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The seconds by new tokens and by sequences, and the four rates, for the compiled loop."""
        known = _TABLES.get(id(self.cost))
        if known is None or known[0] is not self.cost:
            c, x = self.cost, np.arange(TABLE_TOKENS, dtype=float)
            known = (self.cost, _dense(c.tokens, c.body_s, x), _dense(c.tokens, c.head_s, x),
                     np.array([c.pair_s, c.context_s, c.host_s, c.running_s]))  # fmt: skip
            _TABLES[id(self.cost)] = known
        return known[1], known[2], known[3]


_TABLES: dict[int, Any] = {}


def _dense(grid: FloatArray, values: FloatArray, x: FloatArray) -> FloatArray:
    out = np.interp(x, grid, values)
    beyond = x > grid[-1]
    out[beyond] = values[-1] + (x[beyond] - grid[-1]) * (values[-1] - values[-2]) / (grid[-1] - grid[-2])
    return out


class Generation:
    """Requests on instances. `prompt` and `target` are in tokens; requests with the same `group` are siblings and stand together.

    The life of a request is ahead → waiting → running → ended, or aborted on the way; `move` sends it on with what it has. `now` is in
    seconds from the start of the rollout. `accept[siblings ahead, drafts, paths - 1]` are the tokens kept per iteration with drafts.
    `done` tokens were made before (their KV is gone). `quota` requests of each group must end before `next` returns for it.
    """

    def __init__(
        self, instances: Instances, prompt: Any, target: Any, group: Any, *, accept: FloatArray = NO_DRAFTS, best_draft: bool = False,
        done: Any = 0.0, quota: Any = 0,
    ) -> None:  # fmt: skip
        prompt, target, group = (np.asarray(x, np.int64) for x in (prompt, target, group))
        n, r = len(prompt), instances.count
        if n and (prompt.min() < 1 or target.min() < 1):
            raise InputError("prompts and responses: expected at least one token each")
        if n and int((prompt + target).max()) - 1 > instances.kv_tokens // instances.block * instances.block:
            q = int(np.argmax(prompt + target))
            raise InputError(
                f"request {q} needs the KV of {int(prompt[q] + target[q]) - 1:,} tokens; expected at most {instances.kv_tokens:,}, "
                "what an instance holds"
            )
        self.instances, self.n, self.now = instances, n, 0.0
        tag = np.zeros((n, 9), np.int64)
        tag[:, (sp.HOME, sp.NEXT, sp.BEFORE)] = sp.NOTHING
        tag[:, sp.GROUP], tag[:, sp.PROMPT], tag[:, sp.TARGET] = group, prompt, target
        num = np.zeros((n, 4))
        num[:, sp.DONE], num[:, sp.RATE], num[:, sp.AT] = done, 1.0, np.nan
        eng = np.zeros((r, 9), np.int64)
        eng[:, (sp.FIRST, sp.LAST)] = sp.NOTHING
        eng[:, sp.FREE] = eng[:, sp.CAPACITY] = instances.kv_tokens // instances.block
        clock = np.zeros((r, 7))
        clock[:, sp.END], clock[:, sp.SLOW] = np.inf, 1.0
        body, head, rate = instances.tables()
        groups = int(group.max()) + 2 if n else 1
        member = np.zeros((2, groups), np.int64)
        member[0], member[1, : groups - 1] = np.searchsorted(group, np.arange(groups)), quota
        fixed = np.array([instances.budget, instances.max_seqs, instances.block, int(best_draft)])
        run = np.zeros((r, 2, min(instances.max_seqs, max(n, 1)) + 1), np.int64)
        self.state = sp.State(tag, num, eng, clock, run, member, body, head, rate, fixed, accept, np.zeros(n + 1, np.int64))
        #: The calls that are due, as (time, order, call).
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    def send(self, q: int, r: int) -> None:
        """Sends request `q` to instance `r`, where it waits from now on."""
        sp.submit(self.state, q, r, self.now)

    def send_all(self, homes: Any) -> None:
        """Sends every request, in order, to its instance."""
        sp.submit_all(self.state, np.asarray(homes, np.int64), self.now)

    def abort(self, q: int) -> float:
        """Gives a request up, which frees its blocks at once. Returns the tokens that it had made."""
        sp.take_off(self.state, q, self.now, sp.ABORTED)
        return float(self.state.num[q, sp.DONE])

    def move(self, q: int, to: int) -> None:
        """Sends a request to another instance, where it computes its KV again."""
        sp.take_off(self.state, q, self.now, sp.AHEAD)
        self.send(q, to)

    def keep_on(self, q: int, target: int, *, with_kv: bool) -> None:
        """Gives a request that ended a further target; `with_kv` says that its KV comes along to where it is sent next."""
        self.state.tag[q, sp.TARGET], self.state.tag[q, sp.STATUS] = target, sp.AHEAD
        known = self.state.tag[q, sp.PROMPT] + self.state.num[q, sp.DONE]
        self.state.num[q, sp.COMPUTED] = known - 1 if with_kv else 0.0

    def slow(self, r: int, factor: float) -> None:
        """Makes iterations of instance `r` that begin from now on take `factor` times as long."""
        sp.set_speed(self.state, r, self.now, factor)

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Calls `call` when the clock shows `time_s`."""
        self._order += 1
        heapq.heappush(self._timers, (max(time_s, self.now), self._order, call))

    def next(self, until_s: float = np.inf) -> list[int]:
        """The requests that reach their targets next, in the order of time; `now` is then the time of the last of them.

        Without a quota they are those of one moment. The list is empty if `until_s` came first, or if all are done.
        """
        while True:
            timer = self._timers[0][0] if self._timers else np.inf
            self.now, stuck = sp.advance(self.state, self.now, min(until_s, timer), True)
            if stuck != sp.NOTHING:
                raise InputError(f"instance {stuck} can run nothing: its blocks of KV are too few for one request")
            count = int(self.state.ended[0])
            if count:
                return self.state.ended[1 : count + 1].tolist()
            if not self._timers or timer > until_s:
                return []
            self.now, _, call = heapq.heappop(self._timers)
            call()

    def finish(self) -> None:
        """Runs to the end without returning in between."""
        self.now, stuck = sp.advance(self.state, self.now, np.inf, False)
        if stuck != sp.NOTHING:
            raise InputError(f"instance {stuck} can run nothing: its blocks of KV are too few for one request")
        self.now = max(self.now, self.over_s)

    def home(self, q: int) -> int:
        """The instance of a request."""
        return int(self.state.tag[q, sp.HOME])

    def free_tokens(self, r: int) -> int:
        """The tokens of KV that instance `r` had left after the last segment that was booked."""
        return int(self.state.eng[r, sp.FREE]) * self.instances.block

    @property
    def ended_at(self) -> FloatArray:
        """The seconds at which each request last reached its target; NaN if it never did."""
        return self.state.num[:, sp.AT]

    @property
    def over_s(self) -> float:
        """When a request last reached its target, which is the end of the rollout even if a judge still runs."""
        return float(np.nanmax(self.ended_at, initial=0.0)) if self.n else 0.0

    @property
    def done(self) -> FloatArray:
        """The tokens that each request has made up to the last segment that was booked."""
        return self.state.num[:, sp.DONE]

    @property
    def made_tokens(self) -> float:
        """All tokens that were made, including those of requests that were given up."""
        return float(self.state.clock[:, sp.OUT].sum())

    @property
    def live(self) -> npt.NDArray[np.int64]:
        """The requests that wait or run."""
        status = self.state.tag[:, sp.STATUS]
        return np.flatnonzero((status == sp.WAITING) | (status == sp.RUNNING))

    @property
    def preemptions(self) -> int:
        """The number of times that a request was sent back because KV ran out."""
        return int(self.state.eng[:, sp.PREEMPTED].sum())

    @property
    def busy_s(self) -> float:
        """The sum of the seconds in which instances computed."""
        return float(self.state.clock[:, sp.BUSY].sum())
