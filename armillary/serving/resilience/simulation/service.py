"""A node that serves while its GPUs fail and return: the parts that all techniques share, and the measurements.

A service is a `Fleet` with one replica for each way in which the node can serve (tensor parallel over 8, over 7, …), of which those in
use are open. A loss aborts all requests in flight and the current iteration. Requests are sent to another replica when the service can
accept them, with the keys and values of as many tokens as were saved (`KEPT`). Delivered tokens stay delivered unless the service says
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique
from armillary.llm import Fleet, Replica, Serving
from armillary.llm.serving import state as st

from ..planning.layout import Layout
from ..planning.price import Price, price
from ..workload import ResilienceWork
from .faults import Fault

#: The settings with which vLLM starts its server on an H100.
BATCHED_TOKENS, SEQUENCES = 8192, 1024
#: Seconds until a loss is noticed (our figure, after PyTorch's watchdog, which checks its collectives every 100 ms).
DETECTION_S = 0.1
#: Seconds until survivors switch to a communicator that was created in advance for every single loss (our figure).
REGROUP_S = 0.05
#: Seconds from the start of an engine's process to the loading of weights (our figure).
RESTART_S = 20.0


@dataclass
class Interruption:
    """A request that had keys and values on a group when it lost a GPU, and the `seconds` to its first new token."""

    request: int
    at_s: float
    slot: int
    seconds: float = float("nan")


class Resilient(Technique):
    """A technique of this arena, which starts a service that handles faults in its own way."""

    def service(self, work: ResilienceWork) -> Service:
        """Returns the service on this work at time 0."""
        raise NotImplementedError


class Service:
    """Replicas, of which some are open, and a record of what was interrupted and lost."""

    #: Seconds between two calls of `tick`; 0 if none are needed.
    tick_s = 0.0

    def __init__(self, work: ResilienceWork, layouts: Iterable[Layout], opened: Iterable[int], *, side_by_side: bool = False) -> None:
        self.work, self.node = work, work.node
        #: The layout of each replica, whose devices may change but not their number.
        self.layouts = list(layouts)
        self.slow: dict[int, float] = {}
        self.prices: list[Price] = [price(self.node, layout) for layout in self.layouts]
        replicas = [
            Replica(
                cost=p, blocks=self.node.kv_blocks(layout), block=self.node.block, max_batched_tokens=BATCHED_TOKENS, max_seqs=SEQUENCES,
                prefix_cache=False,
                long_prefill_threshold=-(-BATCHED_TOKENS // layout.gpus) if side_by_side and layout.dp_heads.any() else 0,
            )
            for layout, p in zip(self.layouts, self.prices, strict=True)
        ]  # fmt: skip
        self.serving: Serving = Fleet(replicas, router="least-tokens").start(work.requests, token_times=True)
        self.opened = set(opened)
        for r in range(len(replicas)):
            if r not in self.opened:
                self.serving.pause(r)
        self.interruptions: list[Interruption] = []
        #: Tokens of answers that began again, with the times of their first delivery.
        self.delivered: list[tuple[int, npt.NDArray[np.float64]]] = []
        self.lost_tokens = 0
        self.mirrored_bytes = 0.0
        self.generation = 0
        #: The layouts that served, by replica, and the least KV tokens that the service ever held.
        self.used: dict[int, Layout] = {r: self.layouts[r] for r in self.opened}
        self.kv_capacity = self._capacity()
        self.imbalance_seen: list[float] = []
        #: A readable log of events, (seconds, words).
        self.story: list[tuple[float, str]] = []
        for fault in work.faults.faults:
            if fault.time_s < work.window_s:
                self.serving.at(fault.time_s, lambda fault=fault: self.take(fault))  # type: ignore[misc]

    # -- faults --

    def take(self, fault: Fault) -> None:
        """Lets one fault happen now."""
        self._resolve()
        if fault.event == "down":
            self.slow.pop(fault.device, None)
            self.down(fault.device)
        elif fault.event == "up":
            self.up(fault.device)
        else:
            self.slow[fault.device] = fault.factor
            self.repriced()

    def down(self, device: int) -> None:
        """Loses a GPU now."""
        raise NotImplementedError

    def up(self, device: int) -> None:
        """Takes a GPU back now."""
        raise NotImplementedError

    def tick(self) -> None:
        """Updates the state of the requests; it is called every `tick_s` seconds."""

    def repriced(self) -> None:
        """Computes prices again for the devices that are slow now."""
        for r in self.opened:
            self.prices[r] = price(self.node, self.used[r], self.slow)
            self.set_price(r)

    # -- the fleet --

    @property
    def now(self) -> float:
        """The simulated time in seconds."""
        return self.serving.now

    def later(self, time_s: float, call: Callable[[], None]) -> None:
        """Schedules a call at `time_s`, which is cancelled if a fault has changed everything by then."""
        mine = self.generation
        self.serving.at(time_s, lambda: call() if self.generation == mine else None)

    def set_price(self, r: int, body: npt.NDArray[np.float64] | None = None, rates: tuple[float, float] | None = None) -> None:
        """Sets the price of replica `r` for an even spread, or for a given table and (pair_s, context_s)."""
        p, table = self.prices[r], self.serving.prices
        tokens = np.arange(table.body.shape[1], dtype=float)
        table.body[r] = np.interp(tokens, p.grid, p.body(p.even)) if body is None else body
        table.head[r] = np.interp(np.arange(table.head.shape[1], dtype=float), p.grid, p.head)
        table.rate[r, :2] = p.rates(p.even, p.even) if rates is None else rates

    def halt(self, r: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Stops replica `r` and aborts its requests; returns ([(request, tokens with KV)], the requests that only waited)."""
        seq = self.serving.state.seq
        running = [(q, int(seq[q, st.COMPUTED])) for q in self.serving.running(r)]
        queue = self.serving.waiting(r)
        running += [(q, int(seq[q, st.KEPT])) for q in queue if seq[q, st.KEPT] > 0]
        waiting = [q for q in queue if seq[q, st.KEPT] == 0]
        for q, _ in running:
            self.serving.abort(q)
        for q in waiting:
            self.serving.abort(q)
        self.serving.fail(r)
        self.opened.discard(r)
        return running, waiting

    def open(self, r: int, layout: Layout | None = None) -> None:
        """Lets replica `r` serve."""
        self.opened.add(r)
        self.used[r] = layout or self.layouts[r]
        self.prices[r] = price(self.node, self.used[r], self.slow)
        self.set_price(r)
        self.serving.resume(r)
        self.kv_capacity = min(self.kv_capacity, self._capacity())

    def _capacity(self) -> int:
        return sum(self.node.kv_blocks(self.layouts[r]) for r in self.opened) * self.node.block

    def send(self, q: int, to: int | None = None, *, kept: int = 0, retry: bool = False) -> None:
        """Sends an aborted request again with the KV of its first `kept` tokens; `retry` starts from its prompt, as a client would."""
        seq = self.serving.state.seq
        out, m = int(seq[q, st.KNOWN] - seq[q, st.PROMPT]), self.serving.measures
        if retry and out:
            first = int(m.token_at[q])
            self.delivered.append((q, m.token_time[first : first + out].copy()))
        self.serving.resubmit(q, 0 if retry else out, to)
        seq[q, st.KEPT] = kept

    # -- the book --

    def interrupt(self, running: Iterable[tuple[int, int]]) -> None:
        """Records the requests that a loss interrupts now."""
        self._resolve()
        waiting = {i.request for i in self.interruptions if np.isnan(i.seconds)}
        seq, m = self.serving.state.seq, self.serving.measures
        for q, _ in running:
            if q not in waiting:
                slot = int(m.token_at[q]) + int(seq[q, st.KNOWN] - seq[q, st.PROMPT])
                self.interruptions.append(Interruption(q, self.now, slot))

    def _resolve(self) -> None:
        times = self.serving.measures.token_time
        for i in self.interruptions:
            if np.isnan(i.seconds) and i.slot < len(times) and np.isfinite(times[i.slot]) and times[i.slot] > i.at_s:
                i.seconds = float(times[i.slot]) - i.at_s

    def say(self, words: str) -> None:
        """Adds a line to the log."""
        self.story.append((self.now, words))

    def run(self) -> Served:
        """Serves the window and returns the result."""
        window = float(self.work.window_s)
        if self.tick_s > 0:
            for k in range(1, int(np.ceil(window / self.tick_s)) + 1):
                self.serving.run(min(window, k * self.tick_s))
                self.tick()
        self.serving.run(window)
        self._resolve()
        return Served(self)


class Served:
    """The result of a window."""

    def __init__(self, service: Service) -> None:
        self.service, self.work = service, service.work
        result = service.serving.result()
        # A token that came twice counts at its first delivery.
        for q, times in reversed(service.delivered):
            first = int(result.token_at[q])
            result.token_time[first : first + len(times)] = times
            result.first_token[q] = times[0]
        self.result = result
        self.story = service.story
        never = [i for i in service.interruptions if np.isnan(i.seconds)]
        self.recovery_s = np.array([i.seconds for i in service.interruptions if not np.isnan(i.seconds)]
                                   + [service.work.window_s - i.at_s for i in never])  # fmt: skip
        self.never_recovered = len(never)

    def tokens(self, begin: float, end: float) -> float:
        """Returns the output tokens delivered in a span, plus the prompts whose first token was."""
        times, first = self.result.token_time, self.result.first_token
        with np.errstate(invalid="ignore"):
            out = ((times > begin) & (times <= end)).sum()
            prompts = self.work.requests.prompt[(first > begin) & (first <= end)].sum(dtype=np.int64)
        return float(out + prompts)

    def metrics(self) -> dict[str, float]:
        """Returns the arena's metrics; those that need a loss are included only if there was one."""
        s, window = self.service, self.work.window_s
        out = {
            "token_throughput": self.tokens(0.0, window) / window,
            "kv_capacity": float(s.kv_capacity),
            "imbalance": max(max(layout.compute_imbalance(), layout.memory_imbalance()) for layout in s.used.values()),
            "lost_tokens": float(s.lost_tokens),
            "host_bw": s.mirrored_bytes / window / 1e9,
            "rank_imbalance": float(np.mean(s.imbalance_seen or [max(layout.compute_imbalance() for layout in s.used.values())])),
        }  # fmt: skip
        spans = self.work.faults.down_spans(window)
        if spans:
            length = sum(b - a for a, b in spans)
            out["throughput_degraded"] = sum(self.tokens(a, b) for a, b in spans) / length
            out["throughput_after"] = sum(self.tokens((a + b) / 2, b) for a, b in spans) / (length / 2)
        out["recovery_s"], out["recovery_p99_s"] = (
            (float(np.percentile(self.recovery_s, share)) for share in (50, 99)) if len(self.recovery_s) else (0.0, 0.0)
        )
        return out

    def table(self) -> Any:
        """Returns a Polars frame of the interruptions: request, time, and seconds to its first new token."""
        import polars as pl

        found = self.service.interruptions
        return pl.DataFrame(
            {"request": [i.request for i in found], "at_s": [i.at_s for i in found], "seconds": [i.seconds for i in found]},
            schema={"request": pl.Int64, "at_s": pl.Float64, "seconds": pl.Float64},
        )
