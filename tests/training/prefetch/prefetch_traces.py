"""Small hand-made traces, and slow references that share no code with what they check."""

from __future__ import annotations

import numpy as np

from armillary.training.prefetch import Machine, PrefetchWork, Trainer

#: α 1 s and β 1 vertex per second, so that seconds can be added up by hand.
PLAIN = Machine("plain", request_s=1.0, bytes_per_s=1.0, flops=1.0, step_s=0.0)


def trainer_of(sets: list[list[int]], halo: int, *, part: int = 0, degree: list[int] | None = None, compute_s: float = 1.0) -> Trainer:
    """A trainer that asks for these halo positions; the halo lies in part 1, or in part 0 for the others."""
    start = np.cumsum([0, *map(len, sets)]).astype(np.int64)
    asked = np.concatenate([np.sort(np.asarray(s, np.int32)) for s in sets]) if sets else np.zeros(0, np.int32)
    ranks = np.arange(halo, 0, -1) if degree is None else np.asarray(degree)
    owner = np.full(halo, 1 if part == 0 else 0, np.int16)
    return Trainer(part, np.arange(halo) + 100, owner, ranks, ranks, asked, start, np.full(len(sets), compute_s))


def work_of(*trainers: Trainer, fraction: float = 0.5, machine: Machine = PLAIN) -> PrefetchWork:
    """These trainers with features of one byte."""
    return PrefetchWork(trainers, machine, fraction, 1, epoch=trainers[0].minibatches)


def drifting(
    rng: np.random.Generator, *, halo: int = 2000, hot: int = 400, minibatches: int = 400, phase: int = 100, often: int = 180,
    seldom: int = 20,
) -> list[list[int]]:  # fmt: skip
    """Each minibatch asks for `often` vertices of a hot set, which another one follows after every phase, and for `seldom` others.

    The first hot set has the highest degrees.
    """
    order = np.arange(halo)
    sets = []
    for t in range(minibatches):
        if t and t % phase == 0:
            order = rng.permutation(halo)
        sets.append(rng.choice(order[:hot], often, replace=False).tolist() + rng.choice(order[hot:], seldom, replace=False).tolist())
    return sets


def independent(rng: np.random.Generator, *, halo: int = 2000, minibatches: int = 400) -> list[list[int]]:
    """Every minibatch asks for the same distribution, by which the first vertices are asked for most."""
    weight = 1 / np.arange(1, halo + 1) ** 0.8
    return [rng.choice(halo, 200, replace=False, p=weight / weight.sum()).tolist() for _ in range(minibatches)]


class SlowBuffer:
    """The scored buffer as dictionaries, one vertex at a time."""

    def __init__(self, capacity: int, halo: list[int], content: list[int], alpha: float, period: int) -> None:
        self.capacity, self.period = capacity, period
        self.decay = np.float32(1 - alpha)
        self.threshold = np.float32(round((1 - alpha) ** period, 3))
        self.score = {v: np.float32(1.0) for v in content}
        self.access = {v: np.float32(-1.0) if v in content else np.float32(0.0) for v in halo}

    def look_up(self, asked: list[int]) -> list[int]:
        """The vertices that were hit."""
        for v in self.score:
            self.score[v] = self.score[v] * self.decay
        hits = []
        for v in asked:
            if v in self.score:
                self.score[v] = self.score[v] / self.decay
                hits.append(v)
            elif v in self.access:
                self.access[v] = self.access[v] + np.float32(1.0)
        return hits

    def replace(self) -> list[int]:
        """The vertices that entered."""
        stale = [v for v in sorted(self.score) if self.score[v] < self.threshold]
        vacant = self.capacity - len(self.score)
        hot = sorted((v for v in self.access if self.access[v] > 0), key=lambda v: (-self.access[v], v))
        entering = hot[: vacant + len(stale)]
        leaving = stale[: max(0, len(entering) - vacant)]
        # Scores are exchanged: both sides take what the other kind of score was.
        newcomers = {v: self.access[v] for v in entering}
        for v in leaving:
            self.access[v] = self.score.pop(v)
        for v, score in newcomers.items():
            self.access[v] = np.float32(-1.0)
            self.score[v] = score
        return sorted(entering)
