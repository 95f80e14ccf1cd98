"""Orders with two chunks per rank in the shape of a V: rank r has stages r and 2p − 1 − r, so the last stage is beside the first."""

from __future__ import annotations

from armillary.errors import InputError

from ..simulation.schedule import Action, Pair, Schedule
from .one_way import check_sizes


def zb_v_order(ranks: int, micros: int) -> Schedule:
    """ZB-V (Qi et al., Pipeline Parallelism with Controllable Memory, 2024): no bubble in the steady state if F = I = W.

    It is the order of torch's `ScheduleZBVZeroBubble`. Rank r fills with 2(p − r) − 1 forward passes of its first stage.
    """
    check_sizes(ranks, micros)
    return Schedule.of([_zb_v(ranks, micros, r) for r in range(ranks)])


def _zb_v(ranks: int, micros: int, rank: int) -> list[Action | Pair]:
    down, up = rank, 2 * ranks - 1 - rank
    # The order is made for at least 2p − 1 micro-batches; those that do not exist are left out at the end.
    full = max(2 * ranks - 1, micros)
    made = {(stage, kind): 0 for stage in (down, up) for kind in "FIW"}
    order: list[Action | Pair] = []

    def do(stage: int, kinds: str) -> None:
        for kind in kinds:
            order.append(Action(stage, kind, made[stage, kind]))
            made[stage, kind] += 1

    for _ in range(2 * (ranks - rank) - 1):
        do(down, "F")
    for _ in range(rank):
        do(up, "F")
        do(down, "F")
    for _ in range(ranks - rank):
        do(up, "FIW")
    while made[up, "F"] < made[down, "F"] or made[down, "F"] < full:
        if made[down, "F"] < full:
            do(down, "F")
        do(down, "IW")
        do(up, "FIW")
    for _ in range(rank):
        do(down, "I")
        do(up, "I")
    for _ in range(ranks - rank):
        do(down, "IW")
    for stage in (up, down):
        while made[stage, "W"] < made[stage, "I"]:
            do(stage, "W")
    return [action for action in order if isinstance(action, Action) and action.micro < micros]


def dualpipe_v_order(ranks: int, micros: int) -> Schedule:
    """DualPipeV (DeepSeek, 2025): the forward pass of one chunk and the backward pass of the other run as a pair in the steady state.

    It is the order of torch's `ScheduleDualPipeV`, which needs at least as many micro-batches as stages.
    """
    check_sizes(ranks, micros)
    if micros < 2 * ranks:
        raise InputError(f"DualPipeV has {2 * ranks} stages and {micros} micro-batches; expected at least as many micro-batches as stages")
    return Schedule.of([_DualPipeV(ranks, micros, r).order() for r in range(ranks)])


class _DualPipeV:
    """The order of one rank: counts of what was done per stage, and the gradients of weights that were put off."""

    def __init__(self, ranks: int, micros: int, rank: int) -> None:
        self.ranks, self.micros, self.rank = ranks, micros, rank
        self.down, self.up = rank, 2 * ranks - 1 - rank
        self.forwards = {self.down: 0, self.up: 0}
        self.backwards = {self.down: 0, self.up: 0}
        self.late: list[Action] = []
        self.actions: list[Action | Pair] = []

    def forward(self, stage: int) -> Action:
        self.forwards[stage] += 1
        return Action(stage, "F", self.forwards[stage] - 1)

    def backward(self, stage: int, split: bool = False) -> Action:
        micro = self.backwards[stage]
        self.backwards[stage] += 1
        if split:
            self.late.append(Action(stage, "W", micro))
        return Action(stage, "I" if split else "B", micro)

    def weight(self) -> None:
        if self.late:
            self.actions.append(self.late.pop(0))

    def order(self) -> list[Action | Pair]:
        after, rank, down, up, do = self.ranks - self.rank - 1, self.rank, self.down, self.up, self.actions.append
        for _ in range(2 * after):
            do(self.forward(down))
        for _ in range(rank + 1):
            do(self.forward(down))
            do(self.forward(up))
        for _ in range(after):
            do(self.backward(up, split=True))
            self.weight()
            do(self.forward(up))
        for i in range(self.micros - 2 * self.ranks + rank + 1):
            if i == 0 and after == 0:  # The last rank does not pair its first two, which shortens the bubble.
                do(self.forward(down))
                do(self.backward(up))
            else:
                do(Pair(self.forward(down), self.backward(up)))
            do(Pair(self.forward(up), self.backward(down)))
        for _ in range(after):
            do(self.backward(up))
            do(Pair(self.forward(up), self.backward(down)))
        split = False
        for i in range(rank + 1):
            half = i == (rank + 1) // 2
            split = split or (half and rank % 2 == 1)
            do(self.backward(up, split))
            split = split or (half and rank % 2 == 0)
            do(self.backward(down, split))
        for _ in range(after):
            self.weight()
            do(self.backward(down, split))
        for _ in range(rank + 1):
            self.weight()
        return self.actions
