"""Runs the engine in one thread, which takes requests from an event loop and returns tokens; each iteration serves all of them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from armillary.errors import InputError
from armillary.llm.serving import state as st
from armillary.llm.tiny import tokens as tk
from armillary.llm.tiny.generation import Engine, Sampling
from armillary.llm.tiny.transformer import Tiny

from .prometheus import Counters


@dataclass(frozen=True)
class Piece:
    """The result of one token: the text that it completes (often none), and its log-probabilities."""

    text: str
    token: int | None  # None marks the end alone
    logprob: float = 0.0
    top: Sequence[tuple[int, float]] = ()
    finished: str = ""  # "", "stop", "length" or "error"


@dataclass
class Asked:
    """One sequence that a client waits for. `heard` is called in the engine's thread, once for each piece."""

    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    stop: Sequence[str]
    adapter: int
    top: int  # the number of likeliest tokens to return
    ignore_end: bool
    heard: Callable[[Piece], None]
    since: float = field(default_factory=time.monotonic)
    number: int = -1  # its number in the engine, once it has one
    tokens: int = 0
    gone: bool = False

    def __post_init__(self) -> None:
        self.text = tk.Text(self.stop)


class Batcher:
    """Continuous batching in a thread of its own. Only this thread touches the engine; others put messages into its inbox."""

    def __init__(self, model: Tiny, *, max_seqs: int = 64, blocks: int = 1024, max_batched_tokens: int = 512, most: int = 256) -> None:
        self.engine = Engine(model, max_seqs=max_seqs, blocks=blocks, max_batched_tokens=max_batched_tokens, max_requests=most)
        self.most = most
        self.counters = Counters(model.name)
        #: The number of requests that were accepted and are not finished; only the event loop changes it.
        self.inside = 0
        self._inbox: queue.SimpleQueue[tuple[str, Asked | None]] = queue.SimpleQueue()
        self._asked: dict[int, Asked] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def longest(self) -> int:
        """The number of tokens that a prompt and its answer may have together."""
        return min(self.engine.room, self.engine.model.shape.positions)

    def start(self) -> None:
        """Starts the thread, which compiles what the first request would otherwise wait for and then serves."""
        self.engine.generate([[0] * 20, [1]], 2)
        self._thread.start()

    def submit(self, asked: Asked) -> None:
        """Accepts a request; may be called from any thread."""
        self._inbox.put(("in", asked))

    def abort(self, asked: Asked) -> None:
        """Drops a request that nobody waits for any more; its blocks are free before the next iteration."""
        self._inbox.put(("out", asked))

    def stop(self) -> None:
        """Ends the thread and drops all unfinished requests."""
        self._inbox.put(("end", None))
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while True:
            idle = not self._asked
            try:
                while True:
                    what, asked = self._inbox.get(block=idle)
                    idle = False
                    if what == "end" or asked is None:
                        return
                    self._take(asked) if what == "in" else self._drop(asked)
            except queue.Empty:
                pass
            if self._asked:
                self._step()
            self._gauge()

    def _take(self, asked: Asked) -> None:
        if asked.gone:
            return
        end = () if asked.ignore_end else (tk.END, tk.TURN)
        try:
            asked.number = self.engine.submit(
                asked.prompt, asked.max_tokens, sampling=asked.sampling, stop=end, adapter=asked.adapter, top=asked.top
            )
        except InputError as problem:  # the endpoint has checked this; only a race for the last place ends here
            asked.heard(Piece(str(problem), None, finished="error"))
            return
        self._asked[asked.number] = asked
        self.counters.add("prompt_tokens", len(asked.prompt))

    def _drop(self, asked: Asked) -> None:
        asked.gone = True
        if self._asked.get(asked.number) is asked:
            self.engine.abort(asked.number)
            self._forget(asked, "abort")

    def _step(self) -> None:
        try:
            came = self.engine.step()
        except Exception as problem:  # an engine that fails must not leave clients waiting
            for asked in list(self._asked.values()):
                self.engine.abort(asked.number)
                self._forget(asked, "error")
                asked.heard(Piece(f"the engine failed: {problem}", None, finished="error"))
            return
        now = time.monotonic()
        for q, token in came:
            self._hand_out(self._asked[q], token, now)

    def _hand_out(self, asked: Asked, token: int, now: float) -> None:
        q, ticket = asked.number, self.engine.tickets[asked.number]
        asked.tokens += 1
        if asked.tokens == 1:
            self.counters.observe("time_to_first_token_seconds", now - asked.since)
        text = asked.text.feed(token)
        finished = ticket.finished
        if asked.text.stopped and not finished:
            self.engine.abort(q)
            finished = "stop"
        if finished and not asked.text.stopped:
            text += asked.text.end()
        if finished:
            self._forget(asked, "stop" if asked.text.stopped else finished)
            self.counters.observe("e2e_request_latency_seconds", now - asked.since)
        asked.heard(Piece(text, token, ticket.logprobs[-1], ticket.likeliest, finished))

    def _forget(self, asked: Asked, why: str) -> None:
        q = asked.number
        ticket = self.engine.take(q)
        del self._asked[q]
        self.counters.add("generation_tokens", asked.tokens)
        self.counters.add("num_preemptions", ticket.preemptions)
        self.counters.finish(why)

    def _gauge(self) -> None:
        eng = self.engine.state.eng[0]
        self.counters.gauges = {
            "num_requests_running": float(eng[st.RUNS]),
            "num_requests_waiting": float(eng[st.WAITS]),
            "gpu_cache_usage_perc": 1.0 - float(eng[st.FREE]) / float(eng[st.CAPACITY]),
        }
