"""From a timed program to the log that Darshan would write of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..counters.posix import bins, count_posix
from ..counters.reduction import reduced
from ..counters.requests import Requests
from ..logs.log import Log, Module
from ..logs.modules import BIN_NAMES, COUNTERS, is_float
from ..logs.stripes import made as made_stripes
from .program import Program
from .timing import Timed, timed

MOUNTS = (("/scratch", "lustre"), ("/home", "nfs"), ("/", "ext4"))


def log_of(program: Program, name: str, rng: np.random.Generator) -> Log:
    """The log of a program's run, with other work between its phases."""
    plain = timed(program)
    gap = float(rng.uniform(0.2, 2.0)) * plain.seconds / max(1, len(program.phases))
    run = timed(program, gap_s=gap)
    ids = rng.integers(1, 1 << 63, len(program.files), dtype=np.uint64)
    modules: dict[str, Module] = {}
    parts = {library: _of(program, run, library, ids) for library in ("POSIX", "STDIO")}
    alignment = {int(ids[i]): file.alignment for i, file in enumerate(program.files)}
    if parts["POSIX"]:
        modules["POSIX"] = reduced(count_posix(Requests.joined(parts["POSIX"]), alignment), program.processes)
    calls = _mpi(program, run, ids)
    if calls is not None:
        modules["MPI-IO"] = calls
    if parts["STDIO"]:
        modules["STDIO"] = reduced(_stdio(count_posix(Requests.joined(parts["STDIO"]), alignment)), program.processes)
    used = {int(one) for module in modules.values() for one in module.ids.tolist()}
    lustre = [(i, file) for i, file in enumerate(program.files) if int(ids[i]) in used and file.name.startswith("/scratch")]
    stripes = made_stripes([(int(ids[i]), -1, 1, file.stripe, len(file.osts), list(file.osts)) for i, file in lustre])
    return Log(
        name=name, version="3.41", executable=f"/home/user/bin/{name}", job="1", processes=program.processes,
        run_time_s=round(plain.seconds + gap * (len(program.phases) + 1), 4), start_time_s=1_700_000_000, metadata={"lib_ver": "3.4.4"},
        mounts=MOUNTS, modules=modules, stripes=stripes if len(stripes) else None,
        names={int(ids[i]): file.name for i, file in enumerate(program.files) if int(ids[i]) in used},
    )  # fmt: skip


def _of(program: Program, run: Timed, library: str, ids: Any) -> list[Requests]:
    """The operations through one library, with the files' record numbers."""
    found = [part for part, phase in zip(run.requests, program.phases) if phase.library == library]
    return [
        Requests(ids[part.file.astype(np.int64)], part.rank, part.kind, part.offset, part.length, part.start_s, part.end_s)
        for part in found
    ]


def _stdio(posix: Module) -> Module:
    """The records of module STDIO from those that the same operations would have in module POSIX."""
    made: dict[str, Any] = {}
    for name in COUNTERS["STDIO"]:
        made[name] = posix.column(name.replace("STDIO_", "POSIX_")).copy()
    return Module("STDIO", posix.ids, posix.ranks, made, version=2)


def _mpi(program: Program, run: Timed, ids: Any) -> Module | None:
    """The records of module MPI-IO: each rank's calls, which together take as long as their phase does for the rank's operations."""
    rows: list[tuple[int, int, Any, float, float]] = []
    for part, phase in zip(run.requests, program.phases):
        for call in phase.calls:
            begin, end = float(part.start_s.min()), float(part.end_s.max())
            rows += [(int(ids[call.file]), rank, call, begin, end) for rank in range(call.ranks)]
    if not rows:
        return None
    made = {name: np.zeros(len(rows), np.float64 if is_float(name) else np.int64) for name in COUNTERS["MPI-IO"]}
    for row, (_, _, call, begin, end) in enumerate(rows):
        way, past = ("WRITE", "WRITTEN") if call.wrote else ("READ", "READ")
        made["MPIIO_COLL_OPENS"][row] = 1
        made[f"MPIIO_{'COLL' if call.collective else 'INDEP'}_{way}S"][row] = call.count
        made[f"MPIIO_BYTES_{past}"][row] = call.count * call.length
        made[f"MPIIO_SIZE_{way}_AGG_{BIN_NAMES[int(bins(np.array([call.length]))[0])]}"][row] = call.count
        made["MPIIO_ACCESS1_ACCESS"][row], made["MPIIO_ACCESS1_COUNT"][row] = call.length, call.count
        made[f"MPIIO_F_{way}_TIME"][row] = end - begin
        made[f"MPIIO_F_MAX_{way}_TIME"][row] = (end - begin) / call.count
        made[f"MPIIO_F_{way}_START_TIMESTAMP"][row], made[f"MPIIO_F_{way}_END_TIMESTAMP"][row] = begin, end
    numbers = np.array([row[0] for row in rows], np.uint64)
    ranks = np.array([row[1] for row in rows], np.int64)
    return reduced(_merged(Module("MPI-IO", numbers, ranks, made, version=3)), program.processes)


def _merged(module: Module) -> Module:
    """One record for each file and rank where several phases call for the same."""
    key = np.stack([module.ids, module.ranks.astype(np.uint64)])
    kept, group = np.unique(key, axis=1, return_inverse=True)
    if kept.shape[1] == len(module):
        return module
    group = group.reshape(-1)
    counters: dict[str, Any] = {}
    for name, values in module.counters.items():
        if "MAX" in name or "END" in name or "ACCESS1_ACCESS" in name:
            found = np.zeros(kept.shape[1], values.dtype)
            np.maximum.at(found, group, values)
        else:
            found = np.zeros(kept.shape[1], values.dtype)
            np.add.at(found, group, values)
        counters[name] = found
    return Module(module.name, kept[0], kept[1].astype(np.int64), counters, module.partial, module.version)
