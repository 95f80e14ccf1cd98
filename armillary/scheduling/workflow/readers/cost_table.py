"""A table of costs per edge, as published with the paper's artifact.

A row is an edge between two stages with their storage and tasks per node: `estT_prod` is the producer's writing and `estT_cons` the
consumer's reading, in seconds. A producer `stage_in-X` stands for X's initial data: with a pair of tiers such as `beegfs-ssd` as its
storage, `estT_prod` is the copy into the local tier. A consumer `stage_out-X` stands for copies of X's outputs: its storage is the pair
from-to, and `estT_cons` is the copy.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line, unknown
from armillary.files import Column, Table, read_table
from armillary.scheduling.workflow.planning.configurations import Layout
from armillary.scheduling.workflow.planning.costs import Costs, tasks_per_node
from armillary.scheduling.workflow.storage.tiers import MOST_TIERS

from .shared_tier import by_speed, shared_tier
from .stage_order import StageOrder, read_order

COLUMNS = (
    Column("producer", "str"), Column("consumer", "str"), Column("producerStorageType", "str"), Column("consumerStorageType", "str"),
    Column("producerTasksPerNode", "float", least=0, most=1e6), Column("consumerTasksPerNode", "float", least=0, most=1e6),
    Column("estT_prod", "float", least=0, most=1e12, unit="seconds"), Column("estT_cons", "float", least=0, most=1e12, unit="seconds"),
)  # fmt: skip
NAMES = {column.name for column in COLUMNS}
IN, OUT = "stage_in-", "stage_out-"
MOST_ROWS = 1_000_000

#: Seconds by tasks per node.
Cell = dict[float, float]
Cells = dict[tuple[str, ...], Cell]


@dataclass(frozen=True)
class CostTable:
    """The cells of a table, by (producer, consumer, tier) and by (stage, from, to)."""

    where: str
    layout: Layout
    reads: Cells
    writes: Cells
    copies_in: Cells
    copies_out: Cells

    def at(self, nodes: int, *, cross_local: bool = False) -> Costs:
        """The costs on `nodes` nodes; a cell that a valid configuration needs and that is missing is named."""
        stages, tiers = self.layout.stages, self.layout.tiers
        S, T = len(stages), len(tiers)
        per_node = np.array([tasks_per_node(n, nodes) for n in self.layout.tasks], np.int64)
        made = Costs(
            nodes, np.zeros((S, T)), np.zeros((S, T)), np.zeros(S), np.zeros((S, T)), np.zeros((S, T, T)), np.zeros((S, T)), per_node
        )
        for s, stage in enumerate(stages):
            sources = [*(stages[p] for p in self.layout.before[s]), *([IN + stage] if self.layout.initial[s] else [])]
            targets = [stages[o] for o in self.layout.after[s]]
            for t, tier in enumerate(tiers):
                made.read[s, t] = sum(self._looked_up(self.reads, (p, stage, tier), int(per_node[s])) for p in sources)
                written = [self._looked_up(self.writes, (stage, o, tier), int(per_node[s])) for o in targets or [OUT + stage]]
                made.write[s, t] = max(written)
                if t == self.layout.shared:
                    for to in range(T):
                        if to != t and targets:
                            made.stage_out[s, t, to] = self._copy(self.copies_out, (stage, tier, tiers[to]))
                    continue
                # A stage without initial data may have a cell for copying what its predecessors left on the shared tier.
                needed = self.layout.initial[s] or (stage, tier) in self.copies_in
                made.stage_in[s, t] = self._copy(self.copies_in, (stage, tier)) if needed else 0.0
                if not targets:
                    made.flush[s, t] = self._copy(self.copies_out, (stage, tier, tiers[self.layout.shared]))
                for to in range(T):
                    if targets and (to in (t, self.layout.shared) or cross_local):
                        made.stage_out[s, t, to] = self._copy(self.copies_out, (stage, tier, tiers[to]))
        return made

    def _looked_up(self, cells: Cells, key: tuple[str, str, str], per_node: int) -> float:
        if key not in cells:
            producer, consumer, tier = (one_line(part, 60) for part in key)
            what = "reading" if cells is self.reads else "writing"
            raise InputError(f"the cell of {what} for producer {producer}, consumer {consumer}, tier {tier} is missing", where=self.where)
        return _between(cells[key], per_node)

    def _copy(self, cells: Cells, key: tuple[str, ...]) -> float:
        if key not in cells:
            name = OUT if len(key) == 3 else IN
            pair = key[1:] if len(key) == 3 else (self.layout.tiers[self.layout.shared], key[1])
            raise InputError(f"the cell of {name}{one_line(key[0], 60)}, tiers {'-'.join(pair)}, is missing", where=self.where)
        return min(cells[key].values())


def _between(cell: Cell, per_node: float) -> float:
    """Linear in the logarithm of tasks per node, constant outside."""
    points = sorted(cell)
    if per_node <= points[0]:
        return cell[points[0]]
    for low, high in itertools.pairwise(points):
        if per_node <= high:
            share = math.log(per_node / max(low, 1e-9)) / math.log(high / max(low, 1e-9))
            return cell[low] + share * (cell[high] - cell[low])
    return cell[points[-1]]


def read_costs(path: str | Path, order: str | Path, *, shared: str = "") -> CostTable:
    """Reads a table of costs and the order of its stages."""
    stages = read_order(order)
    table = read_table(path, COLUMNS, format="csv", row_limit=MOST_ROWS)
    where = str(path)
    tiers = _tiers(table, where)
    known = by_speed(tiers, shared_tier(tiers, shared, where))
    layout = Layout(stages.stages, stages.order, stages.before, stages.initial, tuple(known), 0, stages.tasks)
    made = CostTable(where, layout, {}, {}, {}, {})
    _fill(made, table, stages)
    return made


def _tiers(table: Table, where: str) -> list[str]:
    """The storage types that are no pairs: those of the real stages."""
    names: dict[str, None] = {}
    for stage, storage in (("producer", "producerStorageType"), ("consumer", "consumerStorageType")):
        real = [not name.startswith((IN, OUT)) for name in table[stage].tolist()]
        names.update(dict.fromkeys(tier for tier, keep in zip(table[storage].tolist(), real) if keep))
    if not 2 <= len(names) <= MOST_TIERS:
        raise InputError(f"found {len(names)} storage types; expected 2 to {MOST_TIERS}", where=where)
    return list(names)


def _fill(made: CostTable, table: Table, stages: StageOrder) -> None:
    tiers = made.layout.tiers
    columns = [table[column.name].tolist() for column in COLUMNS]
    for row, (producer, consumer, stored, wanted, per_producer, per_consumer, produced, consumed) in enumerate(zip(*columns)):
        for column, name in (("producer", producer), ("consumer", consumer)):
            plain = name.removeprefix(IN).removeprefix(OUT)
            if plain not in stages.stages:
                raise unknown("stage", plain, stages.stages, where=f'{made.where}: row {row + 1}, column "{column}"')
        at = f"{made.where}: row {row + 1}"
        if producer.startswith(IN):
            if stored not in tiers:
                source, target = _pair(stored, tiers, at)
                if source == tiers[0] and target != tiers[0]:
                    _keep(made.copies_in, (consumer, target), per_producer, produced)
            _keep(made.reads, (producer, consumer, wanted), per_consumer, consumed)
        elif consumer.startswith(OUT):
            _keep(made.writes, (producer, consumer, stored), per_producer, produced)
            if wanted not in tiers:
                source, target = _pair(wanted, tiers, at)
                _keep(made.copies_out, (producer, source, target), per_consumer, consumed)
        else:
            _keep(made.writes, (producer, consumer, stored), per_producer, produced)
            _keep(made.reads, (producer, consumer, wanted), per_consumer, consumed)


def _pair(said: str, tiers: tuple[str, ...], where: str) -> tuple[str, str]:
    for source in tiers:
        if said.startswith(f"{source}-") and said[len(source) + 1 :] in tiers:
            return source, said[len(source) + 1 :]
    raise InputError(f'found the storage "{one_line(said, 60)}"; expected a tier or a pair such as {tiers[0]}-{tiers[-1]}', where=where)


def _keep(cells: Cells, key: tuple[str, ...], per_node: float, seconds: float) -> None:
    """Keeps the least time of a cell, because the same cell occurs in many rows."""
    cell = cells.setdefault(key, {})
    cell[per_node] = min(seconds, cell.get(per_node, math.inf))
