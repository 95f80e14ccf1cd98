"""The nodes that hold the blocks of every stripe, and what is lost when blocks or nodes are."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError, unknown

from ..coding.reed_solomon import ReedSolomon
from ..plans.problem import Problem
from .bandwidth import Bandwidth

BLOCK = 64 << 20
SLICE = 64 << 10
#: A node's name, several names, or (stripe, index) pairs; None stands for the blocks that the placement itself lacks.
Lost = str | Iterable[str] | Iterable[tuple[str, int]] | None


@dataclass(frozen=True)
class Placement:
    """`holder[s, i]` is the number of the node that has block i of stripe s, or -1 if the block is already missing."""

    code: ReedSolomon
    nodes: tuple[str, ...]
    stripes: tuple[str, ...]
    holder: np.ndarray

    @classmethod
    def make(cls, code: ReedSolomon, holder: Sequence[Sequence[int]] | np.ndarray, nodes: Sequence[str] | None = None) -> Placement:
        """A placement from node numbers by stripe and index; node names are the numbers unless given."""
        table = np.array(holder, np.int64)
        if table.ndim != 2 or table.shape[1] != code.n:
            raise InputError(f"placement: found shape {table.shape}; expected (stripes, {code.n})")
        count = int(table.max(initial=-1)) + 1
        names = tuple(str(i) for i in range(count)) if nodes is None else tuple(nodes)
        if table.min(initial=-1) < -1 or count > len(names):
            raise InputError(f"placement: found nodes {table.min()} to {table.max()}; expected -1 (missing) to {len(names) - 1}")
        return cls(code, names, tuple(str(s) for s in range(len(table))), table)

    def crowded(self, *, strict: bool = False) -> list[str]:
        """The stripes with two blocks on one node; a warning names the first, or with `strict` an error."""
        ordered = np.sort(self.holder, axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
        found = [self.stripes[s] for s in np.flatnonzero(twice)]
        if found:
            more = f" (and {len(found) - 1} more stripes)" if len(found) > 1 else ""
            message = f"stripe {found[0]}: two of its blocks stand on one node{more}"
            if strict:
                raise InputError(message)
            warnings.warn(message, stacklevel=2)
        return found

    def problem(
        self, lost: Lost, bandwidth: Bandwidth, *, destination: str | None = None, block: int = BLOCK, slice: int = SLICE,
        time: float = 0.0, strict: bool = False,
    ) -> Problem:  # fmt: skip
        """The blocks to rebuild when `lost` is gone, over the bandwidth that is free at `time`.

        The destination is `destination` if given, or else any live node without a block of the stripe, or any live node if there is none.
        """
        self.crowded(strict=strict)
        for name, value in (("block", block), ("slice", slice)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name}: found {value!r}; expected a number of bytes from 1")
        known = {name: i for i, name in enumerate(bandwidth.names)}
        missing = sorted(set(self.nodes) - set(known))
        if missing:
            raise InputError(f'node "{missing[0]}" is in the placement and not in the bandwidth; expected every node there')
        # From here on, nodes are numbered as the bandwidth numbers them.
        renumber = np.array([known[name] for name in self.nodes] + [-1], np.int64)
        holder = renumber[self.holder]
        dead, stripes, indices = self._losses(lost, known, holder)
        if destination is not None and destination not in known:
            raise unknown("destination", destination, known)
        gone = holder.copy()
        gone[np.isin(gone, dead)] = -1
        gone[stripes, indices] = -1
        left = gone[stripes]
        live = np.ones(len(known), bool)
        live[dead] = False
        allowed = np.zeros((len(stripes), len(known)), bool)
        allowed[:] = live
        rows = np.repeat(np.arange(len(stripes)), left.shape[1])[left.ravel() >= 0]
        allowed[rows, left.ravel()[left.ravel() >= 0]] = False
        nowhere = ~allowed.any(axis=1)
        allowed[nowhere] = live
        if destination is not None:
            if not live[known[destination]]:
                raise InputError(f'destination "{destination}" is lost itself; expected a live node')
            allowed[:] = False
            allowed[:, known[destination]] = True
        size = np.full(len(stripes), block, np.int64)
        return Problem(self.code, bandwidth.fabric(time), stripes, indices, left, allowed, size, slice, bandwidth.names, self.stripes)

    def _losses(self, lost: Lost, known: dict[str, int], holder: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(dead nodes, stripes, indices) of what is lost."""
        if lost is None:
            stripes, indices = np.nonzero(holder < 0)
            if not len(stripes):
                raise InputError("found no missing block in the placement; expected one, or what is lost by name")
            return np.zeros(0, np.int64), stripes, indices
        listed = [lost] if isinstance(lost, str) else list(lost)
        nodes = [x for x in listed if isinstance(x, str)]
        pairs = [x for x in listed if not isinstance(x, str)]
        for name in nodes:
            if name not in known:
                raise unknown("node", name, known)
        dead = np.array([known[name] for name in nodes], np.int64)
        stripes, indices = np.nonzero(np.isin(holder, dead))
        if nodes and not len(stripes):
            raise InputError(f'node "{nodes[0]}" holds no block; expected one that does')
        number = {name: s for s, name in enumerate(self.stripes)} if pairs else {}
        for pair in pairs:
            stripe, index = (pair[0], pair[1]) if isinstance(pair, tuple) and len(pair) == 2 else (pair, -1)
            if str(stripe) not in number:
                raise unknown("stripe", str(stripe), list(number)[:1000])
            if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < self.code.n:
                raise InputError(f"stripe {stripe}: found block {index!r}; expected 0 to {self.code.n - 1}")
            stripes = np.append(stripes, number[str(stripe)])
            indices = np.append(indices, int(index))
        if not len(stripes):
            raise InputError("nothing is lost; expected a node or (stripe, index) pairs")
        return dead, stripes, indices
