"""Tail batching: start more than is needed, keep what ends first, and give those that were cut off a round of their own.

A *short* round starts ⌈η·P0⌉ prompts with ⌈η·R0⌉ responses each. A prompt is complete when R0 of its responses are there; the round is
over when P0 prompts are complete. Prompts (not tokens) that were cut off wait in a queue; as soon as it holds P0 of them, they get a
*long* round of P0 × R0 to the end. So every prompt is trained on once per epoch, with the weights of its own round.

It neither simulates nor does I/O, so it fits any loop that can add and abort requests of an engine.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from armillary.arena import NotForThisCase
from armillary.errors import InputError

Request = tuple[Hashable, int]


@dataclass(frozen=True)
class Round:
    """A round: its prompts, with `launch` responses each (numbered from 0); it is over when `needed` prompts are complete."""

    kind: Literal["short", "long"]
    prompts: tuple[Hashable, ...]
    launch: int
    needed: int


@dataclass(frozen=True)
class Reply:
    """What to do now: the requests (prompt, response) to abort, further prompts to start, and whether the round is over."""

    abort: tuple[Request, ...] = ()
    launch: tuple[Hashable, ...] = ()
    round_done: bool = False


_NOTHING_TO_DO = Reply()


class TailBatcher:
    """Rounds over a dataset of prompts.

    `eta` ≥ 1 is how much more is started than kept; `eta_prompts` and `eta_responses` set the two separately. With `dapo`, a prompt whose
    kept rewards are all equal teaches nothing, so it is dropped, neither counted nor queued, and another takes its place.
    """

    def __init__(
        self, dataset: Sequence[Hashable] | int, p0: int, r0: int, eta: float = 1.25, *, eta_prompts: float | None = None,
        eta_responses: float | None = None, dapo: bool = False,
    ) -> None:  # fmt: skip
        self.dataset: Sequence[Hashable] = range(dataset) if isinstance(dataset, int) else list(dataset)
        if len(set(self.dataset)) != len(self.dataset):
            raise InputError("dataset: found a prompt twice; expected each prompt id once")
        if p0 < 1 or r0 < 1:
            raise InputError(f"p0, r0: found {p0}, {r0}; expected at least 1 each")
        by_prompt, by_response = (eta if x is None else x for x in (eta_prompts, eta_responses))
        for name, value in (("eta", eta), ("eta_prompts", by_prompt), ("eta_responses", by_response)):
            if not (math.isfinite(value) and value >= 1):
                raise InputError(f"{name}: found {value}; expected at least 1")
        self.p0, self.r0, self.dapo = p0, r0, dapo
        self.launch_prompts, self.launch_responses = _up(by_prompt * p0), _up(by_response * r0)
        if self.launch_prompts > len(self.dataset):
            raise InputError(f"dataset: found {len(self.dataset)} prompts; a round starts {self.launch_prompts} (eta · p0)")
        #: The number of prompts taken from the dataset so far, and the prompts that wait for a long round, oldest first.
        self.taken = 0
        self.queue: list[Hashable] = []
        #: The round that runs, or None between rounds.
        self.now: Round | None = None
        self._kept: dict[Hashable, list[int]] = {}
        self._rewards: dict[Hashable, list[float]] = {}
        self._open: dict[Hashable, set[int]] = {}
        self._complete: list[Hashable] = []
        self._dropped: list[Hashable] = []

    def round(self) -> Round | None:
        """The next round, or None when the epoch is over; prompts left at its end are flushed in a last long round."""
        if self.now is not None:
            raise InputError("the last round is not over")
        left = len(self.dataset) - self.taken
        if len(self.queue) >= self.p0:
            prompts, self.queue = self.queue[: self.p0], self.queue[self.p0 :]
            started = Round("long", tuple(prompts), self.r0, len(prompts))
        elif left > self.p0 or (left == self.p0 and self.launch_prompts == self.p0):
            prompts = self._take(min(left, self.launch_prompts))
            short = self.launch_prompts > self.p0 or self.launch_responses > self.r0
            started = Round("short" if short else "long", tuple(prompts), self.launch_responses if short else self.r0, self.p0)
        elif left or self.queue:
            prompts = [*self._take(left), *self.queue][: self.p0]
            self.queue = self.queue[max(0, len(prompts) - left) :]
            started = Round("long", tuple(prompts), self.r0, len(prompts))
        else:
            return None
        self._kept, self._rewards, self._open = {}, {}, {}
        self._complete, self._dropped = [], []
        for prompt in started.prompts:
            self._start(prompt, started.launch)
        self.now = started
        return started

    def _take(self, count: int) -> list[Hashable]:
        out = list(self.dataset[self.taken : self.taken + count])
        self.taken += count
        return out

    def _start(self, prompt: Hashable, launch: int) -> None:
        self._open[prompt], self._kept[prompt], self._rewards[prompt] = set(range(launch)), [], []

    def finished(self, prompt: Hashable, response: int, reward: float | None = None) -> Reply:
        """Records that a response has ended. Responses that end together come in the order of their ids. `reward` matters to DAPO only."""
        if self.now is None or prompt not in self._open or response not in self._open[prompt]:
            return _NOTHING_TO_DO
        self._open[prompt].discard(response)
        kept = self._kept[prompt]
        kept.append(response)
        if reward is not None:
            self._rewards[prompt].append(reward)
        if len(kept) < self.r0:
            return _NOTHING_TO_DO
        abort = [(prompt, other) for other in sorted(self._open[prompt])]
        del self._open[prompt]
        launch: list[Hashable] = []
        if self.dapo and len(self._rewards[prompt]) == self.r0 and len(set(self._rewards[prompt])) == 1:
            self._dropped.append(prompt)
            if len(self._open) + len(self._complete) < self.now.needed:
                launch = self._take(min(1, len(self.dataset) - self.taken))
                for each in launch:
                    self._start(each, self.now.launch)
        else:
            self._complete.append(prompt)
        over = len(self._complete) == self.now.needed or not self._open
        if over:
            for other, responses in self._open.items():
                abort += [(other, each) for each in sorted(responses)]
                self.queue.append(other)
            self.now = None
        return Reply(tuple(abort), tuple(launch), over)

    @property
    def trained(self) -> tuple[Hashable, ...]:
        """The prompts of this or the last round that are complete, in the order in which they became complete."""
        return tuple(self._complete)

    @property
    def dropped(self) -> tuple[Hashable, ...]:
        """The prompts of this or the last round whose rewards were all equal (DAPO)."""
        return tuple(self._dropped)

    def kept(self, prompt: Hashable) -> tuple[int, ...]:
        """The responses to train on, which are the first R0 that ended."""
        return tuple(self._kept[prompt])

    def state_dict(self) -> dict[str, Any]:
        """The state of the epoch as plain data; what ran in an open round starts again."""
        again = [] if self.now is None else [p for p in self._kept if p not in self._dropped]
        return {"taken": self.taken, "queue": list(self.queue), "again": again}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`; prompts of a round that was open join the queue."""
        taken, queue, again = state.get("taken"), state.get("queue"), state.get("again", [])
        if not isinstance(taken, int) or not 0 <= taken <= len(self.dataset) or not isinstance(queue, list) or not isinstance(again, list):
            raise InputError("state: expected taken (a number within the dataset), queue and again (lists of prompts)")
        known = set(self.dataset[:taken])
        for prompt in (*queue, *again):
            if prompt not in known:
                raise InputError(f'state: prompt "{prompt}" was not taken from this dataset yet')
        self.taken, self.queue, self.now = taken, [*again, *queue], None


def rounds_of(
    prompts: int, p0: int, r0: int, eta: float, eta_prompts: float | None = None, eta_responses: float | None = None
) -> TailBatcher:  # fmt: skip
    """A batcher over prompts 0, 1, …; declines an epoch that is shorter than one round."""
    by_prompt = eta_prompts or eta
    if _up(by_prompt * p0) > prompts:
        raise NotForThisCase(f"{prompts} prompts; a round starts {_up(by_prompt * p0)}")
    return TailBatcher(prompts, p0, r0, eta, eta_prompts=eta_prompts, eta_responses=eta_responses)


def _up(x: float) -> int:
    """⌈x⌉ with a tolerance, so that 1.25 · 128 is 160 and not 161 because of rounding."""
    return math.ceil(x - 1e-9)
