"""Runs the engine in one thread, which takes requests from an event loop and returns tokens; each iteration serves all of them."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from armillary.errors import InputError, one_line
from armillary.llm.serving import state as st
from armillary.llm.tiny import tokens as tk
from armillary.llm.tiny.generation import Engine, Sampling
from armillary.llm.tiny.transformer import Tiny

from .prometheus import Counters

#: Iterations that may fail in a row before the engine counts as broken.
MOST_FAILURES = 3


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

    def __init__(
        self, model: Tiny, *, max_seqs: int = 64, blocks: int = 1024, max_batched_tokens: int = 512, most: int = 256, stall_s: float = 60.0
    ) -> None:
        self.engine = Engine(model, max_seqs=max_seqs, blocks=blocks, max_batched_tokens=max_batched_tokens, max_requests=most)
        self.most = most
        self.counters = Counters(model.name)
        #: The number of requests that were accepted and are not finished; only the event loop changes it.
        self.inside = 0
        self._inbox: queue.SimpleQueue[tuple[str, Asked | None]] = queue.SimpleQueue()
        self._asked: dict[int, Asked] = {}
        self._stall_s = stall_s
        #: When the thread took up what it is doing (time.monotonic); None while it waits for messages.
        self._busy_since: float | None = None
        #: Iterations that failed, without one between them that did not.
        self._failures = 0
        self._died_of = ""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def longest(self) -> int:
        """The number of tokens that a prompt and its answer may have together."""
        return min(self.engine.room, self.engine.model.shape.positions)

    @property
    def trouble(self) -> str:
        """Why the engine cannot serve: its thread ended, makes no progress, or fails on every iteration. Empty if it can."""
        if self._died_of or not self._thread.is_alive():
            return f"the engine has ended: {self._died_of or 'its thread does not run'}"
        since = self._busy_since
        if since is not None and time.monotonic() - since > self._stall_s:
            return f"the engine made no progress for {self._stall_s:g} s"
        return f"the engine failed {self._failures} times in a row" if self._failures >= MOST_FAILURES else ""

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
        try:
            while self._serve():
                pass
        except BaseException as problem:  # Whatever ends the thread, no client may wait for an answer that will not come.
            self._died_of = one_line(f"{type(problem).__name__}: {problem}", 200)
            waiting = list(self._asked.values())
            with contextlib.suppress(queue.Empty):
                while True:
                    what, asked = self._inbox.get(block=False)
                    waiting += [asked] if what == "in" and asked is not None else []
            for asked in waiting:
                asked.heard(Piece(f"the engine has ended: {self._died_of}", None, finished="error"))
            raise

    def _serve(self) -> bool:
        """Takes the messages that are there and runs one iteration; returns False when the thread shall end."""
        idle = not self._asked
        self._busy_since = None if idle else time.monotonic()
        with contextlib.suppress(queue.Empty):
            while True:
                what, asked = self._inbox.get(block=idle)
                if idle:
                    self._busy_since = time.monotonic()
                idle = False
                if what == "end" or asked is None:
                    return False
                self._take(asked) if what == "in" else self._drop(asked)
        if self._asked:
            self._step()
        self._gauge()
        return True

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
            self._failures = 0
        except Exception as problem:  # an engine that fails must not leave clients waiting
            self._failures += 1
            for asked in list(self._asked.values()):
                self.engine.abort(asked.number)
                self._forget(asked, "error")
                asked.heard(Piece(f"the engine failed: {problem}", None, finished="error"))
            return
        self._gauge()  # before anybody hears of the iteration, so that a client with a token finds itself counted
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
