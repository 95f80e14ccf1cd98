"""A fast twin of a serving engine with adapters: one small loop that keeps only what decides throughput.

A step accepts arrivals, lets waiting requests run first come, first served, within a budget of tokens, blocks of KV and G slots for
adapters (a request whose adapter finds no slot is skipped), and lasts, in milliseconds,

    host + loads + c0 + c1·B + c2·A + c3·A·B + c4·P

with B running requests, A distinct adapters among them and P prompt tokens beside the decodes (c4 is our addition, because the released
twin was made for prompts as long as answers). Waiting requests are examined again only after an arrival, an end or a preemption. They
stand in one queue per adapter, so the next one that may run is the oldest head of at most G queues, however many wait. The twin shares
no code with the simulator in `armillary.llm`, against which it is checked.

Data Driven Optimization of GPU efficiency for Distributed LLM Adapter Serving, arXiv 2602.24044; constants released with its forerunner,
arXiv 2508.08343.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.kernels import kernel

if TYPE_CHECKING:
    from armillary.llm import Model, Requests

    from .measured import Row

Floats = npt.NDArray[np.float64]
#: Milliseconds to load an adapter into a slot, by the engine's largest rank and the adapter's (released constants, H100).
LOAD_MS: dict[str, dict[int, dict[int, float]]] = {
    "llama-3.1-8b": {8: {8: 6.61}, 16: {8: 7.77, 16: 6.38}, 32: {8: 8.08, 16: 7.87, 32: 6.37}},
    "qwen2.5-7b": {8: {8: 3.06}, 16: {8: 3.40, 16: 2.99}, 32: {8: 3.38, 16: 3.51, 32: 3.04}},
}
#: A step takes (c1·B + c2)·(c3·A + c4)/100 milliseconds (released constants, H100).
RELEASED: dict[str, tuple[float, float, float, float]] = {
    "llama-3.1-8b": (0.0438, 10.54, 1.930, 200.0),
    "qwen2.5-7b": (0.0489, 10.62, 1.669, 177.7),
}
#: The number of requests that may wait before the engine's front door holds arrivals back, as published.
MOST_WAITING = 25_500
#: Seconds per output token after the first within which a request counts as having had enough time; see `counted`.
PATIENT_S, SLACK_S = 0.05, 5.0


def load_ms(model: str, max_rank: int, rank: int) -> float:
    """Returns the milliseconds to load an adapter of `rank` on an engine for ranks up to `max_rank`, from the nearest released ones."""
    table = LOAD_MS.get(model, LOAD_MS["llama-3.1-8b"])
    outer = table[min(table, key=lambda r: (abs(r - max_rank), r))]
    return outer[min(outer, key=lambda r: (abs(r - rank), r))]


@dataclass(frozen=True)
class TwinModel:
    """The milliseconds of a step: c0 + c1·B + c2·A + c3·A·B + c4·P, plus the host's time and loads (see `load_ms`).

    The host takes `host`·(1, B, W, W·G/n) with W waiting requests, G slots and n adapters served, and never less than 0.
    """

    c0: float
    c1: float
    c2: float
    c3: float = 0.0
    c4: float = 0.0
    host: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    name: str = "llama-3.1-8b"

    @classmethod
    def released(cls, name: str = "llama-3.1-8b") -> TwinModel:
        """Returns the released product form with the released host times."""
        if name not in RELEASED:
            raise unknown("model of the released twin", name, RELEASED)
        c1, c2, c3, c4 = RELEASED[name]
        low, high, wide, narrow = 0.232, 1081.4, 20309.0, 16371.0
        host = (-0.196 - 4.373 * low / (high - low), 4.373 / (high - low), 4.615 / wide, -4.391 / narrow)
        return cls(c2 * c4 / 100, c1 * c4 / 100, c2 * c3 / 100, c1 * c3 / 100, 0.0, host, name)

    @classmethod
    def fit(cls, rows: Sequence[Row], name: str | Model = "llama-3.1-8b", rounds: int = 2, *, device: str = "h100-64") -> TwinModel:
        """Fits c0, c1, c2, c3 and a time per waiting request by nonnegative least squares of the relative error; see `fit_step`.

        The rows were measured with the model `name` on `device`, which determine the KV tokens and c4, the time of the model's matrix
        products for one more token (`armillary.llm.StepCost`). Prompts and outputs of the rows are in one proportion, so that the fit
        could not tell c4 from c1. `measured.fit_twin` also gives the error on rows that a fit has not seen.
        """
        from .gpu_engine import GpuEngine
        from .measured import fit_step, token_ms, twin_agreement

        engine = GpuEngine(name, device)
        c4 = token_ms(name, device)

        def made(c: tuple[float, float, float, float, float]) -> TwinModel:
            return cls(c[0], c[1], c[2], c[3], c4, (0.0, 0.0, c[4], -c[4]), engine.name)

        return made(
            fit_step(
                rows, lambda row, running, tokens: c4 * (tokens - running), rounds=rounds,
                simulate=lambda c: [twin_agreement(row, made(c), engine=engine) for row in rows],
            )
        )  # fmt: skip

    def coefficients(self) -> Floats:
        """Returns c0, c1, c2, c3, the host's four and c4 for the compiled loop."""
        return np.array([self.c0, self.c1, self.c2, self.c3, *self.host, self.c4])


@dataclass(frozen=True)
class TwinResult:
    """The twin's results per request and in total. Times are in seconds, and NaN for what did not happen."""

    first_token: Floats
    finish: Floats
    generated: npt.NDArray[np.int64]
    end_s: float
    steps: int
    loads: int
    preemptions: int
    mean_running: float
    most_running: int
    busy_s: float
    prompt: npt.NDArray[np.int64] = field(repr=False)

    @property
    def tokens_per_s(self) -> float:
        """The prompt and output tokens processed per second."""
        done = self.prompt[np.isfinite(self.first_token)].sum() + self.generated.sum()
        return float(done) / self.end_s if self.end_s else 0.0

    @property
    def mean_tpot_s(self) -> float:
        """The mean over finished requests of the seconds per token after the first."""
        n = self.generated - 1
        good = np.isfinite(self.finish) & (n > 0)
        return float(np.mean((self.finish - self.first_token)[good] / n[good])) if good.any() else float("nan")


@dataclass(frozen=True)
class Twin:
    """An engine on one GPU with `kv_tokens` of KV in blocks and `slots` for adapters of ranks up to `max_rank`."""

    model: TwinModel
    kv_tokens: int
    slots: int
    max_rank: int = 16
    max_batched_tokens: int = 2048
    max_seqs: int = 4096
    block: int = 16
    most_waiting: int = MOST_WAITING

    def __post_init__(self) -> None:
        for name in ("slots", "block", "max_seqs", "max_batched_tokens", "max_rank", "most_waiting"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: found {getattr(self, name)}; expected at least 1")
        if self.kv_tokens < self.block:
            raise InputError(f"kv_tokens: found {self.kv_tokens}; expected at least a block of {self.block}")

    def run(self, requests: Requests, ranks: Sequence[int], *, until_s: float = float("inf"), load_s: Any = None) -> TwinResult:
        """Serves requests for adapters of these ranks, to the end or for `until_s` seconds.

        `load_s` gives the seconds to load an adapter, one for all or one for each; the default is the released table.
        """
        n = len(requests)
        if n and (int(requests.adapter.max()) >= len(ranks) or int(requests.adapter.min()) < 0):
            found = int(requests.adapter.max()) if requests.adapter.min() >= 0 else -1
            raise InputError(f"adapter: a request names adapter {found}; expected one of {len(ranks)}")
        longest = int((requests.prompt.astype(np.int64) + requests.output).max()) if n else 0
        if longest > self.kv_tokens:
            raise InputError(f"a request needs {longest} tokens of KV; there are {self.kv_tokens}")
        served = len(np.unique(requests.adapter)) if n else 1
        loads = np.array([load_ms(self.model.name, self.max_rank, r) / 1e3 for r in ranks]) if load_s is None else np.asarray(load_s, float)
        loads = np.broadcast_to(loads, (max(1, len(ranks)),)).copy()
        first, finish, made = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.int64)
        totals = np.zeros(6, np.int64)
        clock = np.zeros(2)
        size = min(self.max_seqs, self.kv_tokens // self.block, max(1, n))
        _serve(
            requests.arrival_s, requests.prompt.astype(np.int64), requests.output.astype(np.int64), requests.adapter.astype(np.int64),
            loads, self.model.coefficients() / 1e3,
            np.array([self.slots, self.kv_tokens // self.block, self.block, self.max_batched_tokens, size, self.most_waiting, served]),
            until_s, first, finish, made, totals, clock,
            np.zeros((3, n + 1), np.int64), np.full((5, len(ranks) + 1), -1, np.int64), np.full(self.slots, -1, np.int64),
            np.zeros(size + 1, np.int64),
        )  # fmt: skip
        end = until_s if np.isfinite(until_s) else float(clock[0])
        steps = max(1, int(totals[0]))
        return TwinResult(first, finish, made, end, int(totals[0]), int(totals[1]), int(totals[2]), totals[3] / steps, int(totals[4]),
                          float(clock[1]), requests.prompt.astype(np.int64))  # fmt: skip


# Columns of the arrays that the loop works in.
COMPUTED, NEXT, HELD = 0, 1, 2  # a request: tokens in KV, the next request that waits for the same adapter, blocks
# An adapter: its first and last waiting request (-1: none), running requests, its slot (-1: none), the step of its last departure.
HEAD, TAIL, RUNNING, SLOT, LEFT = 0, 1, 2, 3, 4


@kernel
def _serve(
    arrival: Any, prompt: Any, output: Any, adapter: Any, load_s: Any, c: Any, limits: Any, until_s: float, first: Any, finish: Any,
    made: Any, totals: Any, clock: Any, state: Any, kind: Any, slots: Any, running: Any,
) -> None:  # fmt: skip
    # Invariants: blocks in use = Σ state[HELD]; kind[RUNNING, a] > 0 implies kind[SLOT, a] >= 0; at most `most_slots` adapters run.
    most_slots, blocks, block, budget_of_step, most_running, guard, served = (
        limits[0], limits[1], limits[2], limits[3], limits[4], limits[5], limits[6],
    )  # fmt: skip
    n = len(arrival)
    adapters = kind.shape[1] - 1
    for a in range(adapters):
        kind[RUNNING, a] = 0
    used = np.int64(0)
    count = np.int64(0)
    waiting = np.int64(0)
    distinct = np.int64(0)
    coming = np.int64(0)
    held_slots = np.int64(0)
    now = 0.0
    changed = True
    while True:
        while coming < n and arrival[coming] <= now and waiting < guard:
            a = adapter[coming]
            state[NEXT, coming] = -1
            if kind[HEAD, a] < 0:
                kind[HEAD, a] = coming
            else:
                state[NEXT, kind[TAIL, a]] = coming
            kind[TAIL, a] = coming
            waiting += 1
            coming += 1
            changed = True
        if count == 0 and waiting == 0:
            if coming >= n or arrival[coming] > until_s:
                break
            now = max(now, arrival[coming])
            continue
        if now >= until_s:
            break
        # Running requests come first. Each needs a block when its last one is full; if none is free, the latest request is preempted.
        budget = budget_of_step
        preempted = False
        i = 0
        while i < count and budget > 0:
            q = running[i]
            left = prompt[q] + made[q] - state[COMPUTED, q]
            take = min(left, budget)
            gone = False
            while (state[COMPUTED, q] + take + block - 1) // block - state[HELD, q] > blocks - used:
                last = running[count - 1]
                count -= 1
                used -= state[HELD, last]
                state[HELD, last] = 0
                state[COMPUTED, last] = 0
                b = adapter[last]
                kind[RUNNING, b] -= 1
                if kind[RUNNING, b] == 0:
                    distinct -= 1
                    kind[LEFT, b] = totals[0]
                state[NEXT, last] = kind[HEAD, b]
                if kind[HEAD, b] < 0:
                    kind[TAIL, b] = last
                kind[HEAD, b] = last
                waiting += 1
                totals[2] += 1
                preempted = True
                if last == q:
                    gone = True
                    break
            if gone:
                break
            need = (state[COMPUTED, q] + take + block - 1) // block
            used += need - state[HELD, q]
            state[HELD, q] = need
            budget -= take
            i += 1
        load = 0.0
        if changed and not preempted:
            changed = False
            while waiting > 0 and budget > 0 and count < most_running:
                # The oldest request that may run is sought among all adapters while a slot is free, and otherwise among running ones.
                best = np.int64(-1)
                for a in range(adapters):
                    head = kind[HEAD, a]
                    if head >= 0 and (best < 0 or head < best) and (distinct < most_slots or kind[RUNNING, a] > 0):
                        best = head
                if best < 0:
                    break
                take = min(prompt[best] + made[best], budget)
                need = (take + block - 1) // block
                if need > blocks - used:
                    break
                a = adapter[best]
                kind[HEAD, a] = state[NEXT, best]
                waiting -= 1
                if kind[SLOT, a] < 0:
                    load += load_s[a]
                    totals[1] += 1
                    if held_slots < most_slots:
                        place: Any = held_slots
                        held_slots += 1
                    else:
                        place = np.int64(-1)
                        for p in range(most_slots):
                            other = slots[p]
                            if kind[RUNNING, other] == 0 and (place < 0 or kind[LEFT, other] < kind[LEFT, slots[place]]):
                                place = p
                        kind[SLOT, slots[place]] = -1
                    slots[place] = a
                    kind[SLOT, a] = place
                if kind[RUNNING, a] == 0:
                    distinct += 1
                kind[RUNNING, a] += 1
                state[COMPUTED, best] = 0
                state[HELD, best] = need
                used += need
                running[count] = best
                count += 1
                budget -= take
            changed = budget == 0
        host = c[4] + c[5] * count + c[6] * waiting + c[7] * waiting * most_slots / served
        seconds = max(0.0, host) + load + c[0] + c[1] * count + c[2] * distinct + c[3] * count * distinct
        seconds += c[8] * max(0, budget_of_step - budget - count)
        now += seconds
        clock[1] += seconds
        totals[0] += 1
        totals[3] += count
        totals[4] = max(totals[4], count)
        # Tokens of the step: a request whose known tokens are all computed produces one.
        budget = budget_of_step
        kept = np.int64(0)
        for i in range(count):
            q = running[i]
            left = prompt[q] + made[q] - state[COMPUTED, q]
            take = min(left, budget)
            budget -= take
            state[COMPUTED, q] += take
            if take == left and take > 0:
                if made[q] == 0:
                    first[q] = now
                made[q] += 1
                if made[q] >= output[q]:
                    finish[q] = now
                    used -= state[HELD, q]
                    state[HELD, q] = 0
                    a = adapter[q]
                    kind[RUNNING, a] -= 1
                    if kind[RUNNING, a] == 0:
                        distinct -= 1
                        kind[LEFT, a] = totals[0]
                    changed = True
                    continue
            running[kept] = q
            kept += 1
        count = kept
        if preempted:
            changed = True
    clock[0] = now


def counted(requests: Requests, until_s: float) -> npt.NDArray[np.bool_]:
    """Returns which requests had enough time before `until_s`: 5 s, and 50 ms per output token."""
    return np.asarray(requests.arrival_s + SLACK_S + PATIENT_S * requests.output <= until_s)


def processed_share(requests: Requests, first: Floats, made: Any, until_s: float, groups: int) -> tuple[Floats, Floats]:
    """Returns (tokens processed, tokens offered) per adapter, over the requests that had enough time."""
    chosen = counted(requests, until_s)
    adapter = requests.adapter[chosen]
    done = np.where(np.isfinite(first[chosen]), requests.prompt[chosen], 0) + np.asarray(made, float)[chosen]
    offered = requests.prompt[chosen].astype(float) + requests.output[chosen]
    return np.asarray(np.bincount(adapter, done, groups), float), np.asarray(np.bincount(adapter, offered, groups), float)
