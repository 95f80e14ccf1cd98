"""Generates text with the tiny transformer: continuous batching over paged keys and values, by the simulator's own policies."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from armillary.errors import InputError

from ..serving import batching as bt
from ..serving import state as st
from ..serving.replica import POLICIES
from ..serving.state import NOTHING
from .transformer import Batch, KvBlocks, Tiny


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn: greedily at temperature 0, and otherwise from the likeliest tokens that together reach `top_p`."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100 or not 0 < self.top_p <= 1:
            raise InputError(f"temperature, top_p: found {self.temperature}, {self.top_p}; expected 0 to 100, and more than 0 to 1")

    def draw(self, logits: np.ndarray, position: int) -> int:
        """Draws a token, which is the same for the same logits, seed and position, whatever else runs."""
        if self.temperature == 0.0:
            return int(np.argmax(logits))
        x = logits.astype(np.float64) / self.temperature
        chance = np.exp(x - x.max())
        chance /= chance.sum()
        order = np.argsort(-chance, kind="stable")
        keep = int(np.searchsorted(np.cumsum(chance[order]), self.top_p)) + 1
        top = order[:keep]
        cut = np.cumsum(chance[top])
        stream = [self.seed & 0xFFFFFFFF, position]
        pick = np.random.default_rng(stream).random() * cut[-1]
        return int(top[min(int(np.searchsorted(cut, pick, side="right")), keep - 1)])


@dataclass
class Ticket:
    """A request in the engine, and its output."""

    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    stop: frozenset[int]
    adapter: int
    top: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    likeliest: list[tuple[int, float]] = field(default_factory=list)  # the `top` tokens of the last step, with their log probabilities
    preemptions: int = 0
    cached: int = 0
    finished: str = ""  # "", "stop", "length" or "abort"


class Engine:
    """Serves many requests at once with one model; `step` runs one iteration."""

    def __init__(
        self, model: Tiny, *, max_seqs: int = 64, blocks: int = 512, block: int = 16, max_batched_tokens: int = 256,
        policy: str = "vllm", prefix_cache: bool = True, max_requests: int = 1024, long_prefill_threshold: int = 0,
        slots: int | None = None,
    ) -> None:  # fmt: skip
        if policy not in POLICIES or policy in ("static", "orca", "sjf-oracle"):
            raise InputError(
                f"policy: found {policy!r}; expected vllm, sarathi, sglang or priority (the others need to know the length of the output)"
            )
        if min(max_seqs, blocks, block, max_batched_tokens, max_requests) < 1:
            raise InputError("max_seqs, blocks, block, max_batched_tokens, max_requests: expected at least 1 of each")
        self.model = model
        self._width = min(blocks, -(-model.shape.positions // block))
        self._most = max_requests
        adapters = len(model.loras)
        self.state = st.empty(
            max_requests, 1, most_running=max_seqs, adapters=adapters, slots=max(1, adapters if slots is None else slots), blocks=[blocks],
            size=[block], names=np.zeros(max_requests * self._width, np.uint64), first_name=np.arange(max_requests + 1) * self._width,
            named=prefix_cache,
        )  # fmt: skip
        eng = self.state.eng[0]
        eng[st.BUDGET], eng[st.SEQUENCES], eng[st.POLICY], eng[st.PREFIXES] = (
            max_batched_tokens,
            max_seqs,
            POLICIES.index(policy),
            prefix_cache,
        )
        eng[st.LONG_PREFILL], eng[st.ADAPTERS] = long_prefill_threshold, max(1, adapters if slots is None else slots)
        self.kv = KvBlocks(model.shape, blocks, block, model.device, model.weights["model.norm.weight"].dtype)
        self.tickets: dict[int, Ticket] = {}
        self._free = list(range(max_requests - 1, -1, -1))
        self.iterations = 0

    @property
    def room(self) -> int:
        """The number of tokens whose keys and values fit."""
        return int(self.state.eng[0, st.CAPACITY] * self.state.eng[0, st.SIZE])

    def submit(
        self, prompt: Sequence[int], max_tokens: int, *, sampling: Sampling | None = None, stop: Sequence[int] = (), adapter: int = NOTHING,
        priority: int = 0, top: int = 0,
    ) -> int:  # fmt: skip
        """Submits a request of token ids and returns its number. Its ticket shows the `top` likeliest tokens after each step."""
        ids, most = list(prompt), min(self.room, self.model.shape.positions)
        if not ids or max_tokens < 1:
            raise InputError(f"found a prompt of {len(ids)} tokens and max_tokens {max_tokens}; expected at least 1 of each")
        if len(ids) + max_tokens - 1 > most:
            raise InputError(f"prompt and max_tokens come to {len(ids) + max_tokens} tokens; expected at most {most}")
        if min(ids) < 0 or max(ids) >= self.model.shape.vocab:
            raise InputError(f"token {max(ids)} is not in the vocabulary of {self.model.shape.vocab}")
        if not NOTHING <= adapter < len(self.model.loras):
            raise InputError(f"adapter: found {adapter}; expected one of {len(self.model.loras)}")
        if not self._free:
            raise InputError(f"{self._most} requests are in the engine already")
        q = self._free.pop()
        self.tickets[q] = Ticket(ids, max_tokens, sampling or Sampling(), frozenset(stop), adapter, top)
        row, when = self.state.seq[q], self.state.when[q]
        row[:] = 0
        row[[st.LAST, st.BEFORE_IT, st.BEHIND_IT]] = NOTHING
        row[st.PROMPT] = row[st.KNOWN] = len(ids)
        row[st.OUTPUT], row[st.ADAPTER], row[st.PRIORITY] = max_tokens, adapter, priority
        when[:] = np.nan
        when[[st.ARRIVED, st.SCHEDULED]] = float(self.iterations), -1.0
        self._name_blocks(q, 0)
        bt.wait_last(self.state, q, 0)
        return q

    def _name_blocks(self, q: int, first: int) -> None:
        """Names the full blocks from `first` on by all tokens up to their end; each adapter has its own names."""
        ticket, size = self.tickets[q], int(self.state.eng[0, st.SIZE])
        ids = np.asarray([*ticket.prompt, *ticket.tokens], np.int64)
        at = q * self._width
        previous = int(self.state.names[at + first - 1]) if first else ticket.adapter + 2
        for i in range(first, min(len(ids) // size, self._width)):
            digest = hashlib.blake2b(previous.to_bytes(8, "little") + ids[i * size : (i + 1) * size].tobytes(), digest_size=8)
            previous = int.from_bytes(digest.digest(), "little") or 1
            self.state.names[at + i] = previous

    def blocks_of(self, q: int) -> list[int]:
        """The blocks of a request, in order."""
        out, block = [], int(self.state.seq[q, st.LAST])
        for _ in range(int(self.state.seq[q, st.HELD])):
            out.append(block)
            block = int(self.state.blocks[0, block, st.OLDER])
        return out[::-1]

    @torch.inference_mode()
    def step(self) -> list[tuple[int, int]]:
        """Runs one iteration and returns (request, token) for each new token; the list is empty when there is nothing to do."""
        eng, seq = self.state.eng[0], self.state.seq
        if eng[st.RUNS] + eng[st.WAITS] == 0:
            return []
        self.iterations += 1
        bt.plan(self.state, 0)
        n = int(eng[st.CHOSEN])
        if n == 0:
            raise InputError("no waiting request can run, because its blocks do not fit")
        chosen = [int(q) for q in self.state.lists[0, st.CHOICE, :n]]
        counts = [int(t) for t in self.state.lists[0, st.SHARES, :n]]
        starts = [int(seq[q, st.COMPUTED]) for q in chosen]
        ids = []
        for q, start, count in zip(chosen, starts, counts, strict=True):
            ticket = self.tickets[q]
            ids += (ticket.prompt + ticket.tokens)[start : start + count]
        batch = Batch(
            torch.tensor(ids, device=self.model.device), starts, counts, [self.blocks_of(q) for q in chosen],
            [self.tickets[q].adapter for q in chosen],
        )  # fmt: skip
        logits = self.model.forward(batch, self.kv).float().cpu().numpy()
        out = []
        for row, q, count in zip(logits, chosen, counts, strict=True):
            seq[q, st.COMPUTED] += count
            if seq[q, st.COMPUTED] == seq[q, st.KNOWN]:
                out.append((q, self._emit(q, row)))
        return out

    def _emit(self, q: int, logits: np.ndarray) -> int:
        ticket, size = self.tickets[q], int(self.state.eng[0, st.SIZE])
        token = ticket.sampling.draw(logits, len(ticket.prompt) + len(ticket.tokens))
        wide = logits.astype(np.float64)
        wide -= wide.max()
        wide -= np.log(np.exp(wide).sum())
        ticket.logprobs.append(float(wide[token]))
        if ticket.top:
            ticket.likeliest = [(int(i), float(wide[i])) for i in np.argsort(-wide, kind="stable")[: ticket.top]]
        ticket.tokens.append(token)
        known = int(self.state.seq[q, st.KNOWN]) + 1
        self.state.seq[q, st.KNOWN] = known
        if known % size == 0:
            self._name_blocks(q, known // size - 1)
        if token in ticket.stop:
            self._leave(q, "stop")
        elif len(ticket.tokens) == ticket.max_tokens:
            self._leave(q, "length")
        return token

    def _leave(self, q: int, why: str) -> None:
        ticket, row = self.tickets[q], self.state.seq[q]
        ticket.finished, ticket.preemptions, ticket.cached = why, int(row[st.PREEMPTIONS]), int(row[st.CACHED])
        if row[st.STATUS] == st.WAITING:
            bt.leave_waiting(self.state, q, 0)
        else:
            bt.leave_running(self.state, q, 0)
            bt.give_back(self.state, q, 0)
        row[st.STATUS] = st.FINISHED
        self._free.append(q)

    def abort(self, q: int) -> None:
        """Aborts a request and frees its blocks at once."""
        if q in self.tickets and not self.tickets[q].finished:
            self._leave(q, "abort")

    def take(self, q: int) -> Ticket:
        """Returns the ticket of a finished request, which the engine then forgets."""
        if not self.tickets[q].finished:
            raise InputError(f"request {q} is not finished")
        return self.tickets.pop(q)

    def generate(
        self, prompts: Sequence[Sequence[int]], max_tokens: int | Sequence[int], *, sampling: Sampling | None = None,
        stop: Sequence[int] = (), adapters: Sequence[int] | None = None,
    ) -> list[list[int]]:  # fmt: skip
        """Generates the tokens that follow each prompt; all prompts are served together."""
        most = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
        numbers = [
            self.submit(prompt, most[i], sampling=sampling, stop=stop, adapter=NOTHING if adapters is None else adapters[i])
            for i, prompt in enumerate(prompts)
        ]
        while any(not self.tickets[q].finished for q in numbers):
            self.step()
        return [self.take(q).tokens for q in numbers]
