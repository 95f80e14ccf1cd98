"""Batches of jobs: one QASM file, a folder of them, or a table that names them; and links between QPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_table
from armillary.scheduling.quantum.circuits.circuit import Circuit
from armillary.scheduling.quantum.simulation.batch import MOST_JOBS, MOST_OPERATIONS, MOST_SHOTS, Job

from .qasm import read_qasm_file

QASM = (".qasm", ".qasm2", ".qasm3")
_BATCH = (
    Column("job", "str"), Column("file", "str"), Column("arrival_s", least=0, most=1e12, default=0.0, unit="seconds"),
    Column("shots", "int", least=1, most=MOST_SHOTS, default=1000), Column("priority", "int", least=-(10**9), most=10**9, default=0),
)  # fmt: skip
_LINKS = (
    Column("a", "str"), Column("b", "str"), Column("epr_rate_hz", above=0), Column("fidelity", above=0, most=1, default=1.0),
    Column("distance_km", least=0, most=1e6, default=0.0),
)  # fmt: skip


def read_jobs(path: Path, *, shots: int = 1000, folder: str = "") -> list[Job]:
    """The jobs of a QASM file, of all QASM files below a folder, or of a table `job,file,arrival_s,shots,priority`.

    shots: of jobs that do not say. folder: where the files of a table stand.
    """
    if path.is_dir():
        files = sorted(_below(path))
        if not files:
            raise InputError(f"found no file that ends in {', '.join(QASM)}; expected at least one", where=str(path))
        total, jobs = 0, []
        for file in files:
            circuit = read_qasm_file(file)
            total = _counted(total + len(circuit), path)
            jobs.append(Job(str(file.relative_to(path)), circuit, shots=shots))
        return jobs
    if path.suffix.lower() in QASM:
        return [Job(path.stem, read_qasm_file(path), shots=shots)]
    return _table(path, shots, folder)


def _below(folder: Path) -> Iterator[Path]:
    many = 0
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            if Path(name).suffix.lower() in QASM:
                many += 1
                if many > MOST_JOBS:
                    raise InputError(f"found more than {MOST_JOBS:,} QASM files", where=str(folder))
                yield Path(base, name)


def _counted(total: int, path: Path) -> int:
    if total > MOST_OPERATIONS:
        raise InputError(f"found more than {MOST_OPERATIONS:,} operations in all jobs", where=str(path))
    return total


def _table(path: Path, shots: int, folder: str) -> list[Job]:
    # A file without an ending that says otherwise may be a circuit as well as a table.
    columns = column_names(path) if path.suffix.lower() in (".csv", ".tsv", ".gz", ".zst", ".parquet", ".jsonl") else []
    if not {"job", "file"} <= set(columns):
        kinds = "a QASM file (.qasm), a folder of them, or a table with the columns job, file, arrival_s, shots and priority"
        raise InputError(f'found a file with "{one_line(", ".join(columns[:6]), 80)}"; expected {kinds}' if columns else
                         f"found another kind of file; expected {kinds}", where=str(path))  # fmt: skip
    if not folder or not Path(folder).is_dir():
        raise InputError("found a table of jobs; expected the folder of its circuits with --circuits", where=str(path))
    table = read_table(path, _BATCH, row_limit=MOST_JOBS, unique=("job",))
    known: dict[str, Circuit] = {}
    jobs, total, given = [], 0, "shots" in columns
    for i in range(table.rows):
        name = str(table["file"][i])
        if name not in known:
            known[name] = _inside(Path(folder), name, table, i)
        total = _counted(total + len(known[name]), path)
        jobs.append(Job(str(table["job"][i]), known[name], float(table["arrival_s"][i]), int(table["shots"][i]) if given else shots,
                        int(table["priority"][i])))  # fmt: skip
    return jobs


def _inside(folder: Path, name: str, table: Any, row: int) -> Circuit:
    """The circuit of a file that a table names; it must stand in the folder of the circuits or below it."""
    here = folder.resolve()
    file = Path(os.path.normpath(here / name))
    if "\0" in name or not file.is_relative_to(here) or file.suffix.lower() not in QASM:
        raise table.error(row, f'found "{one_line(name, 60)}"; expected a QASM file in the folder of the circuits', "file")
    if not file.is_file() or not file.resolve().is_relative_to(here):
        raise table.error(row, f'found no file "{one_line(name, 60)}" in {here.name}', "file")
    return read_qasm_file(file)


def read_links(path: str | Path) -> list[tuple[str, str, float, float, float]]:
    """The links of a table `a,b,epr_rate_hz,fidelity,distance_km`."""
    table = read_table(path, _LINKS, row_limit=1 << 16)
    seen: set[frozenset[str]] = set()
    found = []
    for i in range(table.rows):
        a, b = str(table["a"][i]), str(table["b"][i])
        if frozenset((a, b)) in seen or a == b:
            raise table.error(i, f'found a link from "{one_line(a, 40)}" to "{one_line(b, 40)}"; expected each pair of QPUs once')
        seen.add(frozenset((a, b)))
        found.append((a, b, float(table["epr_rate_hz"][i]), float(table["fidelity"][i]), float(table["distance_km"][i])))
    return found
