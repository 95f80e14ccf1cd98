"""Buffers by size class: how many buffers of each tensor size a memory gets, so that they are reused and never freed.

A model has few different sizes of tensors, and many tensors of each. A class gets buffers in proportion to its share of the model's bytes,
so that a walk along the model fills all classes at about the same point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

IntArray = npt.NDArray[np.int64]
#: A class with fewer buffers borrows from the most numerous class, as long as that one keeps more than `RICH`.
MIN_BUFFERS, RICH = 20, 100
#: Buffers of the host beyond those that the tensors outside the GPU need.
SPARE = 12


@dataclass(frozen=True)
class SizeClasses:
    """The different sizes of tensors in bytes, ascending; how many tensors have each; and the class of every tensor."""

    size: IntArray
    count: IntArray
    of: IntArray

    @staticmethod
    def find(size: IntArray) -> SizeClasses:
        """The classes of these tensors."""
        sizes, of, count = np.unique(size, return_inverse=True, return_counts=True)
        return SizeClasses(sizes, count.astype(np.int64), of.astype(np.int64))

    @property
    def share(self) -> npt.NDArray[np.float64]:
        """Each class's share of all bytes."""
        held = (self.size * self.count).astype(float)
        return held / held.sum()

    def buffers(self, budget: float, most: IntArray, least: IntArray, *, min_buffers: int = MIN_BUFFERS) -> IntArray:
        """How many buffers of each class `budget` bytes hold; at most `most`, at least `least`, and never more bytes than the budget.

        Classes of one or two tensors get that many; the others round(share · budget / size). Then classes that are left with few buffers
        borrow, and rounding that went over the budget is taken back from the most numerous classes.
        """
        if float((least * self.size).sum()) > budget:
            need = int((least * self.size).sum())
            raise InputError(f"a budget of {budget:.0f} bytes; expected at least {need}, which the widest operations need at once")
        wanted = np.round(self.share * budget / self.size).astype(np.int64)
        found = np.clip(np.where(self.count <= 2, self.count, wanted), least, np.maximum(most, least))
        found = np.clip(self._borrowed(found, min_buffers), least, np.maximum(most, least))
        return self.within(found, budget, least)

    def _borrowed(self, found: IntArray, min_buffers: int) -> IntArray:
        """Lets poor classes borrow from the most numerous one where one size divides the other."""
        out, rich = found.copy(), int(np.argmax(found))
        for poor in range(len(out)):
            lacking = min(min_buffers, int(self.count[poor])) - int(out[poor])
            if poor == rich or out[poor] <= 2 or lacking <= 0 or out[rich] <= RICH:
                continue
            larger, smaller = max(self.size[poor], self.size[rich]), min(self.size[poor], self.size[rich])
            if larger % smaller:
                continue
            times = int(larger // smaller)
            if self.size[poor] > self.size[rich]:
                given = min(lacking, int(out[rich] - RICH) // times)
                out[poor], out[rich] = out[poor] + given, out[rich] - given * times
            else:
                given = min(-(-lacking // times), int(out[rich] - RICH))
                out[poor], out[rich] = out[poor] + min(lacking, given * times), out[rich] - given
        return out

    def within(self, found: IntArray, budget: float, least: IntArray) -> IntArray:
        """Takes buffers back, one at a time from the class with the most to spare, until they fit the budget."""
        out = found.copy()
        over = float((out * self.size).sum()) - budget
        while over > 0:
            spare = np.where(out > least, (out - least) * self.size, -1)
            pick = int(np.argmax(spare))
            taken = int(min(out[pick] - least[pick], max(1, min(over // self.size[pick], (out[pick] - least[pick]) // 8))))
            out[pick] -= taken
            over -= taken * float(self.size[pick])
        return out


def least_buffers(classes: SizeClasses, first: IntArray, used: IntArray) -> IntArray:
    """For each class, the most tensors that one operation uses at once."""
    found = np.zeros(len(classes.size), np.int64)
    of = classes.of[used]
    op = np.repeat(np.arange(len(first) - 1), np.diff(first))
    pairs, counts = np.unique(op * len(classes.size) + of, return_counts=True)
    np.maximum.at(found, pairs % len(classes.size), counts)
    return found
