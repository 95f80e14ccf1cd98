"""Simulates requests through the tiers, pass by pass.

A request makes one pass for its prompt and one for each further token. A pass visits every tier that has blocks: it queues at the
request's node there, takes its stage's seconds, which are longer while others use the device, and its activations queue for the node's
link upwards. The token then returns to the tier with the first block for the next pass, and to the user. A request stays on its node in
each tier, because its keys and values are there. A node serves one pass after the other in the order of arrival, or, with `batching`,
all waiting passes together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from armillary.engine import Agenda
from armillary.errors import InputError
from armillary.llm.serving.requests import Requests
from armillary.timing import Stopwatch

from ..nodes.hierarchy import Hierarchy
from ..nodes.stage_cost import BlockCosts, Mix
from ..planning.plan import TierPlan

Floats = npt.NDArray[np.float64]
TOKEN_BYTES = 4.0
#: The most sequences and the most prompt tokens in one iteration with batching.
MOST_SEQUENCES, MOST_PROMPT_TOKENS = 256, 2048


class Dispatcher(Protocol):
    """Chooses nodes, and learns everything that a monitor of the nodes could tell it."""

    def pick(self, request: int, tier: int, work: Sequence[float], memory: float, now: float) -> int:
        """Returns the node of `tier` for a request, given its expected seconds on each idle node and its bytes of keys and values."""
        ...

    def done(self, tier: int, node: int, work: float, seconds: float, booked: float, now: float) -> None:
        """Is told that a node did `work` (seconds on an idle device) in `seconds`, of which `booked` had been expected."""
        ...

    def release(self, tier: int, node: int, work: float, memory: float, now: float) -> None:
        """Is told that a request left, whose remaining expected `work` was not needed."""
        ...

    def replan(self, now: float) -> tuple[TierPlan, float] | None:
        """Returns another cut for later requests with the time from which it is in place, or None; called at every arrival."""
        ...


@dataclass(frozen=True)
class Served:
    """The outcome of every request, in seconds since the start, and of the nodes."""

    arrival_s: Floats
    first_token_s: Floats
    finish_s: Floats
    nodes: npt.NDArray[np.int64]  # [requests, tiers] the node; −1 if the tier had no blocks
    busy_s: tuple[Floats, ...]  # [tier][node]
    end_s: float
    decision_s: float  # wall-clock seconds per call of `pick`
    replans: int
    spans: tuple[tuple[int, int, float, float, int], ...]  # the first passes: tier, node, begin, end, sequences

    @property
    def latency_s(self) -> Floats:
        """The seconds from arrival until the last token is with the user."""
        return self.finish_s - self.arrival_s

    @property
    def ttft_s(self) -> Floats:
        """The seconds from arrival until the first token is with the user."""
        return self.first_token_s - self.arrival_s

    @property
    def utilisation(self) -> float:
        """The mean busy share of all nodes until the last request was done."""
        return float(np.mean(np.concatenate(self.busy_s)) / self.end_s) if self.end_s > 0 else 0.0

    def perfetto(self, hierarchy: Hierarchy) -> dict[str, Any]:
        """Returns the first passes as trace events, with one process per tier and one thread per node."""
        events: list[dict[str, Any]] = []
        for j, tier in enumerate(hierarchy.tiers):
            events.append({"ph": "M", "name": "process_name", "pid": j, "args": {"name": tier.name}})
        for j, k, begin, end, sequences in self.spans:
            name = "pass" if sequences == 1 else f"{sequences} passes"
            events.append({"ph": "X", "name": name, "pid": j, "tid": k, "ts": begin * 1e6, "dur": (end - begin) * 1e6})
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def serve(
    costs: BlockCosts,
    plan: TierPlan,
    dispatcher: Dispatcher,
    requests: Requests,
    mix: Mix,
    *,
    batching: bool = False,
    most_spans: int = 2000,
) -> Served:
    """Serves all requests; `mix` is what the operator expects of a request whose answer nobody has seen yet."""
    return _Run(costs, plan, dispatcher, requests, mix, batching, most_spans).run()


class _Node:
    __slots__ = ("began", "busy_s", "free", "line", "now_serving", "queue", "work")

    def __init__(self, free: float) -> None:
        self.queue: deque[int] = deque()
        self.now_serving: list[int] = []
        #: The start of the current iteration, and its seconds on an idle device.
        self.began = self.work = 0.0
        self.busy_s = 0.0
        self.free = free
        #: Requests that wait for memory.
        self.line: deque[int] = deque()


class _Run:
    def __init__(
        self, costs: BlockCosts, plan: TierPlan, dispatcher: Dispatcher, requests: Requests, mix: Mix, batching: bool, most_spans: int
    ) -> None:
        self.costs, self.dispatcher, self.requests, self.mix, self.batching = costs, dispatcher, requests, mix, batching
        self.tiers = costs.hierarchy.tiers
        n = len(requests)
        self.prompt, self.output = requests.prompt.tolist(), requests.output.tolist()
        self.made = [0] * n
        self.first_token, self.finish = np.full(n, np.nan), np.full(n, np.nan)
        self.node_of = [[-1] * len(self.tiers) for _ in range(n)]
        self.plan = plan
        #: The cuts in transit, the running requests of each cut, and the blocks whose weights the nodes of each tier hold.
        self.coming: deque[TierPlan] = deque()
        self.live: dict[TierPlan, int] = {}
        self.held = [set(range(lo, hi)) for lo, hi in plan.segments]
        self.plan_of: list[TierPlan] = [plan] * n
        self.visits: list[list[int]] = [[]] * n
        #: The work that is still booked for each request on each tier.
        self.booked = [[0.0] * len(self.tiers) for _ in range(n)]
        self.nodes = [[_Node(self._room(j, plan)) for _ in tier.chips] for j, tier in enumerate(self.tiers)]
        self.link_free = [[0.0] * len(tier) for tier in self.tiers]
        self.agenda = Agenda()
        self.decisions, self.deciding_s, self.replans = 0, 0.0, 0
        self.spans: list[tuple[int, int, float, float, int]] = []
        self.most_spans = most_spans
        self._check(plan)

    def _room(self, tier: int, plan: TierPlan) -> float:
        lo, hi = plan.segments[tier]
        return self.tiers[tier].memory - float(self.costs.weights[lo:hi].sum())

    def _need(self, q: int, tier: int) -> float:
        lo, hi = self.plan_of[q].segments[tier]
        return (self.prompt[q] + self.output[q]) * self.costs.kv_token * (hi - lo)

    def _check(self, plan: TierPlan) -> None:
        longest = max((p + o for p, o in zip(self.prompt, self.output, strict=True)), default=0)
        for j, (lo, hi) in enumerate(plan.segments):
            if hi > lo and longest * self.costs.kv_token * (hi - lo) > self._room(j, plan):
                raise InputError(
                    f"tier {self.tiers[j].name}: {hi - lo} blocks leave {max(0.0, self._room(j, plan)):.3g} bytes,"
                    f" too few for a request of {longest} tokens"
                )

    def run(self) -> Served:
        for q, time in enumerate(self.requests.arrival_s.tolist()):
            self.agenda.at(time, self._arrives, q)
        self.agenda.run()
        busy = tuple(np.array([node.busy_s for node in row]) for row in self.nodes)
        return Served(
            self.requests.arrival_s, self.first_token, self.finish, np.array(self.node_of).reshape(-1, len(self.tiers)), busy,
            self.agenda.now, self.deciding_s / max(1, self.decisions), self.replans, tuple(self.spans),
        )  # fmt: skip

    def _arrives(self, q: int) -> None:
        changed = self.dispatcher.replan(self.agenda.now)
        if changed is not None:
            self.coming.append(changed[0])
            self.agenda.at(max(self.agenda.now, changed[1]), self._replace)
        self.plan_of[q] = self.plan
        self.live[self.plan] = self.live.get(self.plan, 0) + 1
        self.visits[q] = [j for j, (lo, hi) in enumerate(self.plan.segments) if hi > lo]
        self._send(q, 0, self.visits[q][0])

    def _replace(self) -> None:
        """Puts the new cut in place if its weights fit beside those that running requests still need."""
        new = self.coming.popleft()
        extra = [self._bytes(set(range(*new.segments[j])) - held) for j, held in enumerate(self.held)]
        if all(node.free >= extra[j] for j, row in enumerate(self.nodes) for node in row):
            self.plan = new
            self.replans += 1
            self._hold()

    def _hold(self) -> None:
        """Loads the blocks that the plan needs and drops those that neither it nor a running request needs."""
        plans = [self.plan, *self.live]
        for j, row in enumerate(self.nodes):
            needed = set().union(*(range(*plan.segments[j]) for plan in plans))
            change = self._bytes(needed - self.held[j]) - self._bytes(self.held[j] - needed)
            for node in row:
                node.free -= change
            self.held[j] = needed

    def _bytes(self, blocks: set[int]) -> float:
        return float(self.costs.weights[sorted(blocks)].sum())

    def _send(self, q: int, tier: int, to: int) -> None:
        """Puts a pass on the link above `tier`, as activations, or as token numbers before the first block."""
        if tier >= to:
            self._reaches(q, to)
            return
        k = self.node_of[q][tier]
        lane = self.link_free[tier]
        # A request passes a tier without blocks through one of its nodes.
        k = k if k >= 0 else q % len(lane)
        tokens = self.prompt[q] if self.made[q] == 0 else 1
        computed = tier >= self.visits[q][0]
        size = tokens * (2.0 * self.costs.model.hidden if computed else TOKEN_BYTES)
        uplink = self.tiers[tier].uplink
        assert uplink is not None
        lane[k] = uplink.finish(max(self.agenda.now, lane[k]), size)
        self.agenda.at(lane[k] + self.tiers[tier].latency_s, self._send, q, tier + 1, to)

    def _reaches(self, q: int, tier: int) -> None:
        if self.made[q] == 0 and self.node_of[q][tier] < 0:
            self._admit(q, tier)
        else:
            self._queue(q, tier)

    def _admit(self, q: int, tier: int) -> None:
        """Chooses a node for the request, which waits there in line until its keys and values have room."""
        work, need = self._expected(q, tier), self._need(q, tier)
        with Stopwatch() as watch:
            k = self.dispatcher.pick(q, tier, work, need, self.agenda.now)
        self.deciding_s += watch.seconds
        self.decisions += 1
        self.node_of[q][tier] = k
        self.booked[q][tier] = work[k]
        self.nodes[tier][k].line.append(q)
        self._let_in(tier, k)

    def _expected(self, q: int, tier: int) -> list[float]:
        lo, hi = self.plan_of[q].segments[tier]
        p, n = self.prompt[q], self.mix.output
        found = []
        for k in range(len(self.tiers[tier])):
            prefill = self.costs.pass_seconds(tier, k, lo, hi, p, 1, p * (p + 1) / 2, 0.0)
            found.append(prefill + (n - 1) * self.costs.pass_seconds(tier, k, lo, hi, 1, 1, 0.0, p + n / 2))
        return found

    def _let_in(self, tier: int, k: int) -> None:
        node = self.nodes[tier][k]
        while node.line and self._need(node.line[0], tier) <= node.free:
            q = node.line.popleft()
            node.free -= self._need(q, tier)
            self._queue(q, tier)

    def _queue(self, q: int, tier: int) -> None:
        k = self.node_of[q][tier]
        self.nodes[tier][k].queue.append(q)
        if not self.nodes[tier][k].now_serving:
            self._start(tier, k)

    def _start(self, tier: int, k: int) -> None:
        node = self.nodes[tier][k]
        if not node.queue:
            return
        chosen = [node.queue.popleft()]
        prompts = self.prompt[chosen[0]] if self.made[chosen[0]] == 0 else 0
        segment = self.plan_of[chosen[0]].segments[tier]
        # Passes of another cut belong to another iteration.
        while self.batching and node.queue and len(chosen) < MOST_SEQUENCES and self.plan_of[node.queue[0]].segments[tier] == segment:
            more = self.prompt[node.queue[0]] if self.made[node.queue[0]] == 0 else 0
            if prompts and prompts + more > MOST_PROMPT_TOKENS:
                break
            prompts += more
            chosen.append(node.queue.popleft())
        tokens, pairs, context = 0, 0.0, 0.0
        for q in chosen:
            if self.made[q] == 0:
                tokens += self.prompt[q]
                pairs += self.prompt[q] * (self.prompt[q] + 1) / 2
            else:
                tokens += 1
                context += self.prompt[q] + self.made[q]
        work = self.costs.pass_seconds(tier, k, *segment, tokens, len(chosen), pairs, context)
        end = self.tiers[tier].left[k].finish(self.agenda.now, work)
        node.now_serving = chosen
        node.busy_s += end - self.agenda.now
        if len(self.spans) < self.most_spans:
            self.spans.append((tier, k, self.agenda.now, end, len(chosen)))
        node.work, node.began = work, self.agenda.now
        self.agenda.at(end, self._ended, tier, k)

    def _ended(self, tier: int, k: int) -> None:
        node = self.nodes[tier][k]
        served, node.now_serving = node.now_serving, []
        each, booked = node.work / len(served), 0.0
        for q in served:
            part = min(each, self.booked[q][tier])
            self.booked[q][tier] -= part
            booked += part
        self.dispatcher.done(tier, k, node.work, self.agenda.now - node.began, booked, self.agenda.now)
        for q in served:
            self._passed(q, tier)
        self._start(tier, k)

    def _passed(self, q: int, tier: int) -> None:
        visits = self.visits[q]
        if tier != visits[-1]:
            self._send(q, tier, visits[visits.index(tier) + 1])
            return
        self.made[q] += 1
        to_user = sum(self.tiers[j].latency_s for j in range(visits[-1]))
        if self.made[q] == 1:
            self.first_token[q] = self.agenda.now + to_user
        if self.made[q] == self.output[q]:
            self.finish[q] = self.agenda.now + to_user
            for j in visits:
                self._leave(q, j)
            plan = self.plan_of[q]
            self.live[plan] -= 1
            if self.live[plan] == 0:
                del self.live[plan]
                if plan != self.plan:
                    self._hold()
            return
        back = sum(self.tiers[j].latency_s for j in range(visits[0], visits[-1]))
        self.agenda.at(self.agenda.now + back, self._reaches, q, visits[0])

    def _leave(self, q: int, tier: int) -> None:
        k = self.node_of[q][tier]
        need = self._need(q, tier)
        self.nodes[tier][k].free += need
        self.dispatcher.release(tier, k, self.booked[q][tier], need, self.agenda.now)
        self.booked[q][tier] = 0.0
        self._let_in(tier, k)
