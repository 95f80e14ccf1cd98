"""Halos between threads of one process, where the protocols inside a node are real copies of memory.

`read` lets receivers copy, `write` senders, and `shared-copy` both, by the load of the pair. All ranks meet before the copies, when every
view is known, and after them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

Array = np.ndarray[Any, Any]
PROTOCOLS = ("read", "write", "shared-copy")
_BOARDS: dict[int, _Board] = {}
_NUMBERS = itertools.count(1)


class _Board:
    """What the ranks of one exchange show each other: views by (source, destination)."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], Array] = {}
        self.received: dict[tuple[int, int], Array] = {}


class DynamicHalo:
    """Exchanges of views between the threads of `armillary.comm`; the ranks make it together.

    `protocol` is `read`, `write`, `shared-copy`, or `dynamic`, which shares each copy so that both ends have as much to do altogether.
    """

    def __init__(self, comm: Any, protocol: str = "dynamic") -> None:
        if protocol not in (*PROTOCOLS, "dynamic"):
            raise unknown("protocol", protocol, (*PROTOCOLS, "dynamic"))
        self._comm = comm
        self.protocol = protocol
        number = np.zeros(1, np.int64)
        if comm.rank == 0:
            number[0] = next(_NUMBERS)
            _BOARDS[int(number[0])] = _Board()
        comm.bcast(number, 0)
        self._number = int(number[0])
        known = np.array([int(self._number in _BOARDS)])
        # Ranks in other processes have another board, or none; all of them refuse together.
        if self._number not in _BOARDS or int(comm.allreduce(known)[0]) != comm.size:
            raise InputError("comm: found ranks in other processes; expected those of backend threads, which see each other's memory")
        self._board = _BOARDS[self._number]

    def exchange(self, sends: Sequence[tuple[int, Array]], receives: Sequence[tuple[int, Array]]) -> int:
        """Copy each (destination, view) to the view of its receiver; return the bytes that this rank copied."""
        comm, board, rank = self._comm, self._board, self._comm.rank
        for what, given in (("sends", sends), ("receives", receives)):
            if len({other for other, _ in given}) < len(given):
                raise InputError(f"{what}: found two views for one rank; expected one for each neighbour")
        comm.barrier()
        board.sent.update({(rank, other): view for other, view in sends})
        board.received.update({(other, rank): view for other, view in receives})
        comm.barrier()
        shares = self._shares()
        copied = 0
        for pair in sorted(shares):
            if rank in pair:
                copied += self._copy(pair, shares[pair], rank)
        comm.barrier()
        for other, _ in sends:
            del board.sent[rank, other]
        for other, _ in receives:
            del board.received[other, rank]
        return copied

    def free(self) -> None:
        """Forget the board."""
        self._comm.barrier()
        _BOARDS.pop(self._number, None)

    def _shares(self) -> dict[tuple[int, int], float]:
        """The sender's share of each copy; every rank computes the same from the same board."""
        sizes = {pair: view.nbytes for pair, view in sorted(self._board.sent.items())}
        if set(sizes) != set(self._board.received):
            odd = sorted(set(sizes) ^ set(self._board.received))[0]
            raise InputError(f"found a message from rank {odd[0]} to rank {odd[1]} at one end only; expected both ends")
        if self.protocol != "dynamic":
            return dict.fromkeys(sizes, {"read": 0.0, "write": 1.0, "shared-copy": 0.5}[self.protocol])
        from armillary.network.halo.simulation.adaptive import balanced_shares

        return balanced_shares([(a, b, n) for (a, b), n in sizes.items()])

    def _copy(self, pair: tuple[int, int], share: float, rank: int) -> int:
        source, target = self._board.sent[pair], self._board.received[pair]
        if source.shape != target.shape or source.dtype != target.dtype:
            there = f"{list(target.shape)} on rank {pair[1]}"
            raise InputError(f"found {list(source.shape)} from rank {pair[0]} and {there}; expected views of one shape and type")
        cut = round(share * len(source))
        part = slice(0, cut) if rank == pair[0] else slice(cut, None)
        if source.size == 0 or source[part].size == 0:
            return 0
        np.copyto(target[part], source[part])
        return int(source[part].nbytes)
