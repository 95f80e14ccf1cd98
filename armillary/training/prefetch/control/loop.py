"""The control loop beside a trainer: it gathers statistics, asks a policy, and learns what its decisions brought.

A trainer posts a record after each minibatch without a replacement. When `window` of them are there and no decision is pending, their
averages are a window, the effect of the last decision is what changed between the window before it and this one, and the policy is asked.
Its answer waits until a minibatch finds it. A replacement empties the gathered records, so that a window never mixes before and after.

This is a state machine without a clock; its caller decides when an answer arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

Kind = Literal["replaced", "skipped", "declined", "invalid"]


@dataclass(frozen=True)
class Static:
    """What does not change: sizes of the graph, the minibatches and the buffer. 0 is what is not known."""

    capacity: int
    halo: int
    minibatches: int = 0
    vertices: int = 0
    edges: int = 0
    part: int = 0
    parts: int = 0
    batch: int = 0
    period: int = 25
    window: int = 25


@dataclass(frozen=True)
class Record:
    """What a trainer posts after a minibatch; `hit_rate` is cumulative, a whole percentage; `comm` is sampled less found."""

    minibatch: int
    epoch: int
    step: int
    #: Minibatches that are left, or -1 where nobody knows.
    remaining: int
    hit_rate: int
    comm: int
    #: Remote vertices that were sampled.
    sampled: int


@dataclass(frozen=True)
class Window:
    """The averages of the last records."""

    minibatch: int
    remaining: int
    hit_rate: float
    comm: float
    sampled: float

    @property
    def missed(self) -> float:
        """The share of the sampled remote vertices that was not buffered in this window alone."""
        return self.comm / self.sampled if self.sampled else 0.0


@dataclass(frozen=True)
class Effect:
    """A decision and what changed until the next window; the changes are None where effects are not recorded.

    `sampled_percent` is the change of the remote vertices that were sampled, which no decision causes.
    """

    kind: Kind
    minibatch: int
    #: Vertices that were exchanged, and their share of the buffer.
    moved: int = 0
    share: float = 0.0
    #: Change of the cumulative hit rate in percentage points, of the communication and of the sampled vertices in percent.
    hit_rate_points: float | None = None
    comm_percent: float | None = None
    sampled_percent: float | None = None
    #: The share that was missed in the window before, and in the one after.
    missed_before: float | None = None
    missed_after: float | None = None

    @property
    def attempted(self) -> bool:
        """Whether a replacement was decided."""
        return self.kind in ("replaced", "skipped")


History = tuple[Effect, ...]


@dataclass(frozen=True)
class Decision:
    """Whether to replace, what is expected of it, and why; an answer that is not valid is never applied."""

    replace: bool
    #: "increase", "decrease" or "stagnant" for `hit_rate` and `comm`.
    expected: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    valid: bool = True


class Policy(Protocol):
    """Decides when to replace."""

    def decide(self, static: Static, window: Window, history: History) -> Decision:
        """Whether to replace now."""
        ...


@dataclass(frozen=True)
class Question:
    """What a policy is asked."""

    static: Static
    window: Window
    history: History


class ControlLoop:
    """Windows, the effects of past decisions, and the decision that waits.

    kept: effects that a policy sees; 0 leaves it without a history. effects: whether a past decision's effect is recorded.
    """

    def __init__(self, static: Static, *, kept: int = 5, effects: bool = True) -> None:
        self.static, self._effects = static, effects
        self._records: deque[Record] = deque(maxlen=static.window)
        self._history: deque[Effect] = deque(maxlen=kept)
        #: The last decision's effect without its changes, and the window before it; until the next window.
        self._open: tuple[Effect, Window] | None = None
        #: The window that the pending decision was asked with, and the decision once it is there.
        self._asked: Window | None = None
        self._answer: Decision | None = None

    @property
    def pending(self) -> bool:
        """Whether a policy was asked and its answer was not taken yet."""
        return self._asked is not None

    @property
    def history(self) -> History:
        """The last effects, the oldest first."""
        return tuple(self._history)

    def post(self, record: Record) -> Question | None:
        """Takes a minibatch's record; returns what to ask the policy, if it is time to."""
        self._records.append(record)
        if self.pending or len(self._records) < self.static.window:
            return None
        window = _averages(self._records)
        self._records.clear()
        if self._open is not None:
            self._history.append(self._closed(*self._open, window))
            self._open = None
        self._asked = window
        return Question(self.static, window, self.history)

    def answered(self, decision: Decision) -> None:
        """The policy's answer is there."""
        if self._asked is None:
            raise ValueError("nothing was asked")
        self._answer = decision

    def take(self) -> Decision | None:
        """The decision that a minibatch finds, or None; whoever takes it says with `applied` what became of it."""
        decision, self._answer = self._answer, None
        return decision

    def applied(self, decision: Decision, minibatch: int, moved: int) -> Kind:
        """Notes what a decision led to."""
        if self._asked is None:
            raise ValueError("nothing was asked")
        kind: Kind = "invalid" if not decision.valid else "declined" if not decision.replace else "replaced" if moved else "skipped"
        share = moved / self.static.capacity if self.static.capacity else 0.0
        self._open = (Effect(kind, minibatch, moved, share), self._asked)
        self._asked = None
        if kind == "replaced":
            self._records.clear()
        return kind

    def _closed(self, effect: Effect, before: Window, after: Window) -> Effect:
        if not self._effects:
            return effect
        return replace(
            effect,
            hit_rate_points=round(after.hit_rate - before.hit_rate, 2),
            comm_percent=_percent(before.comm, after.comm),
            sampled_percent=_percent(before.sampled, after.sampled),
            missed_before=before.missed,
            missed_after=after.missed,
        )


def _averages(records: deque[Record]) -> Window:
    last, count = records[-1], len(records)
    return Window(
        last.minibatch,
        last.remaining,
        round(sum(r.hit_rate for r in records) / count, 2),
        sum(r.comm for r in records) / count,
        sum(r.sampled for r in records) / count,
    )


def _percent(before: float, after: float) -> float | None:
    return round(100 * (after - before) / before, 2) if before else None
