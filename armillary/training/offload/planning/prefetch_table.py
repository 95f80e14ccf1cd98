"""The prefetch table: every access of one iteration in order, as the warm-up saw it, and where its tensor lives."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork

IntArray = npt.NDArray[np.int64]
PLACES = ("gpu", "cpu", "nvme")
PHASES = ("fwd", "bwd")
#: Names of types by their bytes per element.
DTYPES = {1: "fp8", 2: "fp16", 4: "fp32"}


@dataclass(frozen=True)
class PrefetchTable:
    """Columns with one entry per access: `tensor`, `op` (position of its operation in the iteration), and `next`, the row of the tensor's
    next access, which counts on into the following iteration. `start` and `end` are the seconds of the operation since the iteration
    began. `place` [tensors] is where each tensor lives at the start of an iteration, `rank` its number in that memory.
    """

    tensor: IntArray
    op: IntArray
    next: IntArray
    phase: IntArray
    layer: IntArray
    size: IntArray
    elements: IntArray
    names: tuple[str, ...]
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    place: IntArray | None = None

    @staticmethod
    def of(work: OffloadWork, iteration: int = 0) -> PrefetchTable:
        """The table of one iteration; its seconds are those that a plan may know."""
        tensor, op = work.rows(iteration)
        order = work.order[iteration]
        end = np.cumsum(work.planned[order])
        return PrefetchTable(
            tensor, op, next_rows(tensor), work.phase[order][op], work.layer[order][op], work.size, work.elements, work.names,
            np.concatenate([[0.0], end[:-1]])[op], end[op],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.tensor)

    def to_csv(self, path: str | Path | None = None) -> str:
        """The access trace that `armillary compare training/offload --work` reads, also written to `path` if there is one.

        It has one row per access, with times in milliseconds.
        """
        out = io.StringIO(newline="")
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["tensor_id", "bytes", "dtype", "layer_id", "layer_name", "phase", "start_ms", "end_ms"])
        for t, layer, phase, start, end in zip(self.tensor, self.layer, self.phase, self.start, self.end, strict=True):
            name = self.names[t].rpartition(".")[0] or self.names[t]
            kind = DTYPES.get(int(self.size[t]) // max(int(self.elements[t]), 1), "fp16")
            rows.writerow([int(t), int(self.size[t]), kind, int(layer), name, PHASES[phase], 1e3 * float(start), 1e3 * float(end)])
        if path is not None:
            Path(path).write_text(out.getvalue(), encoding="utf-8")
        return out.getvalue()

    def rows(self) -> Sequence[dict[str, object]]:
        """The table as rows for a person: what is touched when, and where it lives at the start."""
        place = self.place if self.place is not None else np.full(len(self.size), -1)
        ranks = np.zeros(len(self.size), np.int64)
        for where in range(len(PLACES)):
            mine = np.flatnonzero(place == where)
            ranks[mine] = np.arange(len(mine))
        return [
            {
                "tensor": self.names[t], "bytes": int(self.size[t]), "layer": int(layer), "direction": PHASES[phase],
                "start_s": float(start), "end_s": float(end), "active_s": float(end - start),
                "final_location": PLACES[place[t]] if place[t] >= 0 else "", "rank": int(ranks[t]),
            }
            for t, layer, phase, start, end in zip(self.tensor, self.layer, self.phase, self.start, self.end, strict=True)
        ]  # fmt: skip


def next_rows(tensor: IntArray) -> IntArray:
    """For each access, the row of the same tensor's next access if the order repeats: rows of the next iteration count on."""
    n = len(tensor)
    following = np.empty(n, np.int64)
    seen: dict[int, int] = {}
    for row in range(2 * n - 1, -1, -1):
        t = int(tensor[row % n])
        if row < n:
            following[row] = seen[t]
        seen[t] = row
    return following
