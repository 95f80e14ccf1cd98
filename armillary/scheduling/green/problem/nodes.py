"""Nodes of a cluster as arrays: cores, memory, and the power that they draw awake, asleep and while they boot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

Floats = npt.NDArray[np.float64]

MOST_NODES = 5000
#: What a cluster file may leave out: off 2 W, boot 60 s at 0.6 of the peak.
OFF_W, BOOT_S, BOOT_SHARE = 2.0, 60.0, 0.6
EXPONENTS = (0.75, 1.4)


@dataclass(frozen=True)
class Nodes:
    """One value per node. A node's power is P(u) = idle + (peak − idle)·u^exponent; `boot_w` is drawn for `boot_s` seconds."""

    names: tuple[str, ...]
    cores: Floats
    memory_gb: Floats
    idle_w: Floats
    peak_w: Floats
    exponent: Floats
    off_w: Floats
    boot_s: Floats
    boot_w: Floats

    def __len__(self) -> int:
        return len(self.names)

    @staticmethod
    def of(cluster: Any, exponent: float | None = None) -> Nodes:
        """The nodes of a cluster; those without cores, memory or power are refused. `exponent` replaces that of the file."""
        rows: list[tuple[float, ...]] = []
        names: list[str] = []
        for group in cluster.groups:
            node, power = group.node, group.node.power
            cores = float(sum(int(s.count) * int(s.cores or 0) for s in node.sockets))
            memory = sum(float(m.size or 0) * int(m.count) for m in node.memories if m.kind == "dram") / 1e9
            if not cores or not memory or power is None or power.idle is None or power.peak is None:
                raise InputError("found no cores, no dram or no power; expected all three", where=f"group {one_line(str(group.name), 40)}")
            peak = float(power.peak)
            boot_w = float(power.boot_w) if power.boot_w is not None else BOOT_SHARE * peak
            row = (
                cores, memory, float(power.idle), peak, float(power.exponent) if exponent is None else exponent,
                OFF_W if power.off is None else float(power.off), BOOT_S if power.boot_s is None else float(power.boot_s), boot_w,
            )  # fmt: skip
            if len(names) + int(group.count) > MOST_NODES:
                raise InputError(f"found more than {MOST_NODES:,} nodes; expected at most as many", where="cluster")
            for i in range(int(group.count)):
                names.append(f"{group.name}-{i + 1}")
                rows.append(row)
        return Nodes.table(names, np.array(rows))

    @staticmethod
    def table(names: list[str], rows: Floats) -> Nodes:
        """Nodes from a table [node, 8] in the order of the fields, checked."""
        found = Nodes(tuple(names), *(np.ascontiguousarray(column) for column in rows.T))
        found.check()
        return found

    def check(self) -> None:
        """Raises InputError unless every figure is possible."""
        if not 1 <= len(self) <= MOST_NODES:
            raise InputError(f"found {len(self):,} nodes; expected 1 to {MOST_NODES:,}", where="nodes")
        for i, name in enumerate(self.names):
            where = f"node {one_line(name, 40)}"
            figures = [float(column[i]) for column in self.columns]
            if not np.isfinite(figures).all() or min(figures) < 0 or figures[0] <= 0 or figures[1] <= 0 or max(figures[:2]) > 1e6:
                raise InputError("found a figure below 0, above 1e6 or none; expected cores, GB and watts", where=where)
            if figures[3] < figures[2]:
                raise InputError(f"found a peak of {figures[3]:g} W below the idle power of {figures[2]:g} W", where=where)
            if figures[5] > figures[2]:
                raise InputError(f"found {figures[5]:g} W switched off and {figures[2]:g} W idle; expected less when off", where=where)
            if not EXPONENTS[0] <= figures[4] <= EXPONENTS[1]:
                raise InputError(f"found an exponent of {figures[4]:g}; expected {EXPONENTS[0]:g} to {EXPONENTS[1]:g}", where=where)
            if figures[6] > 86400 or max(figures[2:4]) > 1e6:
                raise InputError("found a boot of more than a day or a power above 1 MW", where=where)

    @property
    def columns(self) -> tuple[Floats, ...]:
        """The arrays, in the order of the fields."""
        return self.cores, self.memory_gb, self.idle_w, self.peak_w, self.exponent, self.off_w, self.boot_s, self.boot_w

    @property
    def marginal_w_per_core(self) -> float:
        """Watts per busy core of the node type that needs least when full: what one more core costs on a packed cluster."""
        return float((self.peak_w / self.cores).min())
