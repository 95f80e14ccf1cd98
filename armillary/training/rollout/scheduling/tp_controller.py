"""Chooses tensor parallelism by preemptions: if they grow, instances get more devices, and if there are none, fewer.

Each kind of round has its own TP. More than `growth` times the preemptions of the round before double it (never across nodes), and `calm`
rounds in a row without any halve it. RollPacker (arXiv 2509.21009, 2025), parallelism planner.
"""

from __future__ import annotations

from collections.abc import Hashable

from armillary.errors import InputError


class TpController:
    """The TP of each kind of round, which starts at `start` and stays within `least` and `most` (the devices of a node)."""

    def __init__(self, start: int, most: int, least: int = 1, *, growth: float = 1.05, calm: int = 4) -> None:
        if not 1 <= least <= start <= most or calm < 1:
            raise InputError(f"tp: found {start} within {least} to {most}, calm {calm}; expected 1 ≤ least ≤ start ≤ most, calm ≥ 1")
        self.start, self.most, self.least, self.growth, self.calm = start, most, least, growth, calm
        self._tp: dict[Hashable, int] = {}
        self._before: dict[Hashable, int] = {}
        self._zeros: dict[Hashable, int] = {}

    def tp(self, kind: Hashable = "") -> int:
        """The devices of an instance in the next round of this kind."""
        return self._tp.get(kind, self.start)

    def after(self, preemptions: int, kind: Hashable = "") -> int:
        """Records the preemptions of a round; returns the TP of the next round of its kind."""
        now, before = self.tp(kind), self._before.get(kind)
        self._before[kind] = preemptions
        zeros = self._zeros[kind] = self._zeros.get(kind, 0) + 1 if preemptions == 0 else 0
        if before is not None and preemptions > self.growth * before and 2 * now <= self.most:
            now *= 2
        elif zeros >= self.calm:
            self._zeros[kind] = 0
            if now % 2 == 0 and now // 2 >= self.least:
                now //= 2
        self._tp[kind] = now
        return now
