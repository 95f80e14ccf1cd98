"""A schedule: which tensor moves where at which point of the iterations, and what lives where when the host updates it.

Every technique answers with a schedule, the simulator gives it seconds, and the real runtime carries it out. Moves are tied to operations,
not to times, because all techniques here decide by order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

#: Kinds of moves: host to GPU, GPU to host, drive to host, host to drive, and the end of a copy on the GPU that the host has too.
IN, OUT, READ, WRITE, DROP = range(5)
KINDS = ("in", "out", "read", "write", "drop")
#: Where a parameter is.
GPU, HOST, NVME = range(3)
NOTHING = -1


@dataclass(frozen=True)
class Moves:
    """Moves in the order in which they are issued.

    `slot` is 2·n for a move that is issued before operation n (counted over all iterations) and 2·n + 1 for one after it. `after` is a
    move that has to be done before, or −1: the buffer that this one fills is then free. `alloc_s` are seconds for which the host's
    thread blocks to allocate memory before it issues the move.
    """

    slot: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    tensor: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]
    alloc_s: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.slot)

    @staticmethod
    def none() -> Moves:
        """No move at all."""
        whole = np.empty(0, np.int64)
        return Moves(whole, whole, whole, whole, np.empty(0))

    @staticmethod
    def joined(parts: list[Moves]) -> Moves:
        """The moves of consecutive iterations, whose `after` count within each part."""
        if not parts:
            return Moves.none()
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        after = [np.where(p.after >= 0, p.after + start, NOTHING) for p, start in zip(parts, starts, strict=True)]
        slot, kind, tensor = (np.concatenate([getattr(p, name) for p in parts]) for name in ("slot", "kind", "tensor"))
        return Moves(slot, kind, tensor, np.concatenate(after), np.concatenate([p.alloc_s for p in parts]))

    def bytes(self, size: npt.NDArray[np.int64], kind: int) -> int:
        """Bytes of all moves of one kind."""
        return int(size[self.tensor[self.kind == kind]].sum())


@dataclass(frozen=True)
class Schedule:
    """Moves, the tensors that are on the GPU at the start, and what the update of the parameters needs.

    `home` [iterations, tensors] says where each parameter is when the host updates it: a copy on the GPU, in the host or on the drive gets
    the new value. `streamed` [tensors] marks Adam's states that stream from the drive. `host_bytes` are the bytes of the host in use,
    averaged over an iteration, and `host_most` the most of them.
    """

    moves: Moves
    resident: npt.NDArray[np.bool_]
    home: npt.NDArray[np.int8]
    streamed: npt.NDArray[np.bool_]
    host_bytes: float
    host_most: float
    #: What a person may want to know about the plan.
    facts: dict[str, float] = field(default_factory=dict)
