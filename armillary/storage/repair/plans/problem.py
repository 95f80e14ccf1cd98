"""What is to be rebuilt and over which network: nodes with free bandwidth in racks, lost blocks, survivors and destinations."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from armillary.errors import InputError

from ..coding.reed_solomon import ReedSolomon


@dataclass(frozen=True)
class Fabric:
    """Free bandwidth in bytes/s of each node up and down and of each rack's uplink both ways, and what each switch can add up in flight.

    `rack[i]` is the rack of node i. `aggregate[r]` is the bytes/s of incoming streams that the switch of rack r can combine, or 0 if it
    cannot, and `core_aggregate` is the same for the switch between the racks. Infinite rack bandwidth means that racks do not limit.
    """

    up: np.ndarray
    down: np.ndarray
    rack: np.ndarray
    rack_up: np.ndarray
    rack_down: np.ndarray
    aggregate: np.ndarray
    core_aggregate: float = np.inf

    @classmethod
    def make(
        cls,
        up: Sequence[float] | np.ndarray,
        down: Sequence[float] | np.ndarray,
        *,
        rack: Sequence[int] | np.ndarray | None = None,
        rack_up: Sequence[float] | np.ndarray | float = np.inf,
        rack_down: Sequence[float] | np.ndarray | float | None = None,
        aggregate: Sequence[float] | np.ndarray | float = np.inf,
        core_aggregate: float | None = None,
    ) -> Fabric:
        """A fabric from plain sequences; unless given, there is one rack, and racks and switches limit nothing."""
        ups, downs = np.array(up, np.float64), np.array(down, np.float64)
        racks = np.zeros(len(ups), np.int64) if rack is None else np.array(rack, np.int64)
        if ups.shape != downs.shape or ups.shape != racks.shape or ups.ndim != 1:
            raise InputError(f"found {len(ups)} uplinks, {len(downs)} downlinks, {len(racks)} racks; expected as many of each")
        count = int(racks.max(initial=-1)) + 1
        spread = [
            np.broadcast_to(np.asarray(x, np.float64), (count,)).copy() for x in (rack_up, rack_up if rack_down is None else rack_down)
        ]
        switches = np.broadcast_to(np.asarray(aggregate, np.float64), (count,)).copy()
        core = float(switches.min(initial=np.inf)) if core_aggregate is None else float(core_aggregate)
        for name, values in (("up", ups), ("down", downs), ("rack", np.concatenate(spread)), ("aggregate", np.append(switches, core))):
            if not (values >= 0).all():
                bad = values[~(values >= 0)][0]
                raise InputError(f"found {bad:g} bytes/s; expected 0 or more", where=f"bandwidth {name}")
        return cls(ups, downs, racks, spread[0], spread[1], switches, core)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.up)

    @property
    def racks(self) -> int:
        """The number of racks."""
        return len(self.rack_up)

    @functools.cached_property
    def capacities(self) -> np.ndarray:
        """The capacities of all pools of the simulation: nodes up, nodes down, racks up, racks down, rack switches, the core."""
        return np.concatenate([self.up, self.down, self.rack_up, self.rack_down, self.aggregate, [self.core_aggregate]])

    def with_nodes(self, up: np.ndarray, down: np.ndarray) -> Fabric:
        """The same racks and switches with other free bandwidths of the nodes."""
        return replace(self, up=np.asarray(up, np.float64), down=np.asarray(down, np.float64))


@dataclass(frozen=True)
class Problem:
    """Lost blocks to rebuild over a fabric.

    Row l is one lost block. It has a stripe `stripe[l]` and an index in the stripe `index[l]`. `holder[l, :]` is the node of every block of
    that stripe, or -1 for one that is lost too, and `allowed[l, node]` says which nodes may receive it. `size[l]` bytes of it are still to
    be rebuilt. A helper sends `slice` bytes at a time.
    """

    code: ReedSolomon
    fabric: Fabric
    stripe: np.ndarray
    index: np.ndarray
    holder: np.ndarray
    allowed: np.ndarray
    size: np.ndarray
    slice: int = 64 << 10
    names: tuple[str, ...] = ()
    stripe_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        short = np.flatnonzero((self.holder >= 0).sum(axis=1) < self.code.k)
        if len(short):
            row = int(short[0])
            left = int((self.holder[row] >= 0).sum())
            raise InputError(
                f"found {left} surviving blocks of {self.code.n}; expected at least k = {self.code.k}", where=self.stripe_name(row)
            )
        if (~self.allowed.any(axis=1)).any():
            row = int(np.flatnonzero(~self.allowed.any(axis=1))[0])
            raise InputError("no live node is free to receive the block", where=self.stripe_name(row))
        dead = np.flatnonzero(self.fabric.down[None, :][np.zeros(len(self), np.int64)].max(axis=1, where=self.allowed, initial=0.0) <= 0)
        if len(dead):
            raise InputError("every node that may receive the block has no downlink free", where=self.stripe_name(int(dead[0])))

    def __len__(self) -> int:
        return len(self.stripe)

    def stripe_name(self, row: int) -> str:
        """The user's name for the stripe of a lost block."""
        number = int(self.stripe[row])
        return f"stripe {self.stripe_names[number] if self.stripe_names else number}"

    def node_name(self, node: int) -> str:
        """The user's name for a node."""
        return self.names[node] if self.names else str(node)

    def survivors(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """(nodes, block indices) of the blocks of this stripe that are left."""
        indices = np.flatnonzero(self.holder[row] >= 0)
        return self.holder[row, indices], indices

    @classmethod
    def single(
        cls, up: Sequence[float] | np.ndarray, down: Sequence[float] | np.ndarray, k: int, size: int = 64 << 20, slice: int = 64 << 10
    ) -> Problem:
        """A problem with one lost block: nodes 0 … n-2 hold the survivors, the last node is the destination, and no racks limit."""
        count = len(up) - 1
        code = ReedSolomon(k, count + 1 - k)
        allowed = np.zeros((1, count + 1), bool)
        allowed[0, -1] = True
        holder = np.append(np.arange(count), -1)[None, :]
        return cls(code, Fabric.make(up, down), np.zeros(1, np.int64), np.array([count]), holder, allowed, np.array([size]), slice)
