"""Steps of an AMR code from files: block tables, profiles of the public tool, and Parthenon's HDF5 files.

All numbers are proved before a compiled loop follows one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.extras import need
from armillary.files import Column, Table, column_names, read_table
from armillary.scheduling.mesh.octree.mesh import (
    MOST_BLOCKS,
    MOST_MESSAGES,
    MOST_PLACE,
    Blocks,
    Floats,
    Graph,
    Ints,
    face_messages,
    overlapping,
    z_order,
)
from armillary.scheduling.mesh.octree.refinement import Change, by_position, change
from armillary.scheduling.mesh.octree.scenes import face_bytes
from armillary.scheduling.mesh.placement.policy import MOST_COST
from armillary.scheduling.mesh.simulation.machine import MOST_RANKS

PARTHENON = (".phdf", ".rhdf")
PROFILE = ("ts", "sub_ts", "rank", "block_id", "time_us")
KINDS = (
    "expected blocks (the columns step, block, level, i, j, k, cost_us), a profile (ts, sub_ts, rank, block_id, time_us), "
    "or Parthenon's .phdf or .rhdf"
)
#: Rows of a table, and the finest level of a mesh.
MOST_ROWS = 1 << 25
FINEST = 15
#: µs of every block where a file has no costs.
UNIT_US = 1000.0


@dataclass(frozen=True, eq=False)
class Loaded:
    """Steps with their meshes; `ranks` is the number of ranks that the file names, or 0."""

    graphs: tuple[Graph, ...]
    changes: tuple[Change, ...]
    mesh_of: tuple[int, ...]
    costs: tuple[Floats, ...]
    ranks: int
    dimensions: int


def read_steps(path: str | Path, *, messages: str = "", profile: str = "", face: float = 0.0, periodic: bool = False) -> Loaded:
    """The steps in a file, by its ending or its columns.

    messages: a CSV with src_block, dst_block, bytes and perhaps step, instead of messages between blocks that share a face.
    profile: costs for a Parthenon file. face: bytes of a whole face; 0 takes those of blocks of 4,096 cells.
    """
    path = Path(path)
    if path.suffix.lower() in PARTHENON:
        return _parthenon(path, messages, profile, face, periodic)
    if profile:
        raise InputError("found a profile beside a file that has costs itself; expected it with .phdf or .rhdf", where="--profile")
    if not any(ending in (".csv", ".tsv") for ending in path.suffixes[-2:]):
        raise InputError(f'found the ending "{one_line(path.suffix, 20)}"; {KINDS}', where=str(path))
    names = [name.strip().lower() for name in column_names(path)]
    if {"level", "cost_us"} <= set(names):
        return _blocks(path, messages, face, periodic)
    if len(names) == len(PROFILE) and (tuple(names) == PROFILE or path.name.startswith("prof.aggr.evt")):
        return _from_profile(path, messages)
    raise InputError(f'found the columns "{one_line(", ".join(names), 80)}"; {KINDS}', where=f"{path}:1")


def _blocks(path: Path, messages: str, face: float, periodic: bool) -> Loaded:
    place = [Column(name, "int", least=0, most=MOST_PLACE - 1, default=0 if name == "k" else None) for name in "ijk"]
    columns = [
        Column("step", "int", least=0, default=0), Column("block", "int", least=0), Column("level", "int", least=0, most=FINEST), *place,
        Column("cost_us", "float", unit="microseconds", least=0, most=MOST_COST),
        Column("rank", "int", least=0, most=MOST_RANKS - 1, optional=True),
    ]  # fmt: skip
    table = read_table(path, columns, row_limit=MOST_ROWS, unique=("step", "block"))
    where = np.stack([table["i"], table["j"], table["k"]], 1)
    dimensions = 3 if where[:, 2].any() else 2
    numbers, meshes, steps, costs = [], [], [], []
    for step, rows in _by_step(table["step"]):
        _fits(table, rows)
        order = rows[np.argsort(z_order(table["level"][rows], where[rows]), kind="stable")]
        blocks = Blocks(np.ascontiguousarray(table["level"][order]), np.ascontiguousarray(where[order]), dimensions)
        wrong = overlapping(blocks)
        if wrong is not None:
            raise table.error(int(order[wrong]), "found a block that occurs twice in its step or lies in another one; expected leaves")
        numbers.append(table["block"][order])
        meshes.append(blocks)
        steps.append(step)
        costs.append(np.ascontiguousarray(table["cost_us"][order]))
    ranks = int(table["rank"].max()) + 1 if "rank" in table else 0
    return _located(meshes, numbers, steps, costs, ranks, messages, face, periodic)


def _fits(table: Table, rows: Ints) -> None:
    """Refuses places that the space-filling curve of the step's finest level cannot hold."""
    finest = int(table["level"][rows].max())
    for name in "ijk":
        far = table[name][rows] << (finest - table["level"][rows])
        if int(far.max()) >= 1 << 20:
            row = int(rows[int(far.argmax())])
            found = f"found {table[name][row]} at level {table['level'][row]}"
            raise table.error(row, f"{found}; expected a mesh of at most 2²⁰ finest blocks", name)


def _located(
    meshes: list[Blocks], numbers: list[Ints], steps: list[int], costs: list[Floats], ranks: int, messages: str, face: float,
    periodic: bool,
) -> Loaded:  # fmt: skip
    """Steps whose blocks have places: equal meshes are found, messages and changes are made."""
    given = _messages(messages, steps, numbers) if messages else None
    graphs: list[Graph] = []
    kept: list[int] = []
    mesh_of: list[int] = []
    for at, blocks in enumerate(meshes):
        same = kept and np.array_equal(blocks.keys, meshes[kept[-1]].keys) and (given is None or given[at] is given[kept[-1]])
        if not same:
            kept.append(at)
            size = face or face_bytes(blocks.dimensions)
            graphs.append(given[at] if given is not None else face_messages(blocks, size, _roots(blocks) if periodic else None))
        mesh_of.append(len(kept) - 1)
    changes = tuple(change(meshes[old], meshes[new]) for old, new in pairwise(kept))
    return Loaded(tuple(graphs), changes, tuple(mesh_of), tuple(costs), ranks, meshes[0].dimensions)


def _roots(blocks: Blocks) -> tuple[int, int, int]:
    x, y, z = (int(((blocks.place[:, axis] >> blocks.level) + 1).max()) for axis in range(3))
    return x, y, z


def _from_profile(path: Path, messages: str) -> Loaded:
    numbers, steps, costs, ranks = _profile(path)
    given = _messages(messages, steps, numbers) if messages else None
    graphs: list[Graph] = []
    kept: list[int] = []
    mesh_of: list[int] = []
    for at, found in enumerate(numbers):
        same = kept and np.array_equal(found, numbers[kept[-1]]) and (given is None or given[at] is given[kept[-1]])
        if not same:
            kept.append(at)
            graphs.append(given[at] if given is not None else Graph.empty(len(found)))
        mesh_of.append(len(kept) - 1)
    changes = tuple(by_position(len(numbers[old]), len(numbers[new])) for old, new in pairwise(kept))
    return Loaded(tuple(graphs), changes, tuple(mesh_of), tuple(costs), ranks, 3)


def _profile(path: Path) -> tuple[list[Ints], list[int], list[Floats], int]:
    """Block numbers, steps and costs per sub-step of a profile, and its number of ranks; lines of one sub-step and block are added."""
    names = column_names(path)
    if len(names) != len(PROFILE):
        raise InputError(f"found {len(names)} columns; expected {', '.join(PROFILE)}", where=f"{path}:1")
    most = {"rank": MOST_RANKS - 1, "time_us": 10**15}
    # The columns count by their position, whatever the header calls them.
    columns = [Column(theirs, "int", least=0, most=most.get(ours)) for ours, theirs in zip(PROFILE, names, strict=True)]
    table = read_table(path, columns, row_limit=MOST_ROWS)
    _, sub_ts, rank, block, time_us = (table[name] for name in names)
    numbers, steps, costs = [], [], []
    for step, rows in _by_step(sub_ts):
        found, where = np.unique(block[rows], return_inverse=True)
        cost = np.asarray(np.bincount(where, time_us[rows].astype(np.float64)), np.float64)
        if cost.max() > MOST_COST:
            raise InputError(f"sub_ts {step}: found a block of {cost.max():g} µs; expected at most {MOST_COST:g}", where=str(path))
        numbers.append(found)
        steps.append(step)
        costs.append(cost)
    return numbers, steps, costs, int(rank.max()) + 1


def _messages(file: str, steps: list[int], numbers: list[Ints]) -> list[Graph]:
    """The messages of each step; steps with equal blocks and messages share one graph."""
    columns = [
        Column("src_block", "int", least=0), Column("dst_block", "int", least=0),
        Column("bytes", "float", unit="bytes", least=0, most=1e12), Column("step", "int", least=0, optional=True),
    ]  # fmt: skip
    table = read_table(file, columns, row_limit=MOST_MESSAGES, may_be_empty=True)
    made: list[Graph] = []
    everywhere = np.arange(table.rows)
    for at, found in enumerate(numbers):
        if "step" not in table and at and np.array_equal(found, numbers[at - 1]):
            made.append(made[-1])
            continue
        rows = everywhere if "step" not in table else np.flatnonzero(table["step"] == steps[at])
        ends = []
        order = np.argsort(found, kind="stable")
        for name in ("src_block", "dst_block"):
            wanted = table[name][rows]
            near = order[np.minimum(np.searchsorted(found[order], wanted), len(found) - 1)]
            unknown = np.flatnonzero(found[near] != wanted)
            if len(unknown):
                row = int(rows[unknown[0]])
                raise table.error(row, f"found {table[name][row]}; expected a block of step {steps[at]}", name)
            ends.append(near)
        made.append(Graph.of(ends[0], ends[1], table["bytes"][rows], len(found)))
    return made


def _by_step(step: Ints) -> list[tuple[int, Ints]]:
    """The rows of each step, in the order of the steps."""
    order = np.argsort(step, kind="stable")
    values, begins = np.unique(step[order], return_index=True)
    return [(int(value), rows) for value, rows in zip(values, np.split(order, begins[1:]), strict=True)]


def _parthenon(path: Path, messages: str, profile: str, face: float, periodic: bool) -> Loaded:
    level, place, ranks = _hdf5(path)
    if int(level.max()) > FINEST or int(level.min()) < 0 or int(place.min()) < 0 or int(place.max()) >= MOST_PLACE:
        raise InputError(f"found levels or places outside 0 to {FINEST} and 0 to {MOST_PLACE - 1}", where=f"{path}: /LogicalLocations")
    if int((place << (int(level.max()) - level)[:, None]).max()) >= 1 << 20:
        raise InputError("found a mesh of more than 2²⁰ finest blocks along an axis; expected fewer", where=f"{path}: /LogicalLocations")
    dimensions = 3 if place[:, 2].any() else 2
    order = np.argsort(z_order(level, place), kind="stable")
    blocks = Blocks(level[order], place[order], dimensions)
    wrong = overlapping(blocks)
    if wrong is not None:
        raise InputError(f"found block {order[wrong]} twice or in another one; expected leaves", where=f"{path}: /LogicalLocations")
    if not profile:
        return _located([blocks], [order], [0], [np.full(len(blocks), UNIT_US)], ranks, messages, face, periodic)
    numbers, steps, costs, _ = _profile(Path(profile))
    everything = np.arange(len(blocks))
    for step, found in zip(steps, numbers, strict=True):
        if not np.array_equal(found, everything):
            raise InputError(f"sub_ts {step}: found {len(found)} blocks; expected 0 to {len(blocks) - 1}, as in the mesh", where=profile)
    count = len(steps)
    return _located([blocks] * count, [order] * count, steps, [cost[order] for cost in costs], ranks, messages, face, periodic)


def _hdf5(path: Path) -> tuple[Ints, Ints, int]:
    """Levels, places and the number of ranks in a Parthenon file; sizes are compared before anything is read."""
    h5py = need("h5py")
    try:
        with h5py.File(path, "r") as file:
            level = _array(h5py, file, "Levels", 1, path)
            place = _array(h5py, file, "LogicalLocations", 2, path)
            info = file.get("Info") if isinstance(file.get("Info", getlink=True), h5py.HardLink) else None
            per_rank = None if info is None or "BlocksPerPE" not in info.attrs else _attribute(info, path)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"not a Parthenon file that can be read: {one_line(str(error), 120)}", where=str(path)) from None
    if place.shape != (len(level), 3) or not len(level):
        raise InputError(f"found {len(level)} levels and places of shape {place.shape}; expected n and n × 3", where=str(path))
    if per_rank is not None and (int(per_rank.sum()) != len(level) or int(per_rank.min()) < 0):
        raise InputError(f"found {int(per_rank.sum())} blocks on all ranks; expected {len(level)}", where=f"{path}: /Info BlocksPerPE")
    return level, place, 0 if per_rank is None else len(per_rank)


def _array(h5py: Any, file: Any, name: str, dimensions: int, path: Path) -> Ints:
    # What stands in another file is not followed.
    found = file.get(name) if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
    if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        found = None
    if not isinstance(found, h5py.Dataset) or found.dtype.kind not in "iu" or len(found.shape) != dimensions:
        raise InputError(f"found no array of whole numbers with {dimensions} dimensions; expected Parthenon's", where=f"{path}: /{name}")
    if found.size > 3 * MOST_BLOCKS:
        raise InputError(f"found {found.size:,} numbers; expected those of at most {MOST_BLOCKS:,} blocks", where=f"{path}: /{name}")
    return np.asarray(found[()]).astype(np.int64)


def _attribute(info: Any, path: Path) -> Ints:
    where = f"{path}: /Info BlocksPerPE"
    kind = info.attrs.get_id("BlocksPerPE")
    if kind.dtype.kind not in "iu" or not 0 < int(np.prod(kind.shape)) <= MOST_RANKS:
        raise InputError(f"found an attribute of shape {kind.shape}; expected whole numbers, one per rank", where=where)
    return np.asarray(info.attrs["BlocksPerPE"]).astype(np.int64).reshape(-1)
