"""Exports of Nsight Systems: their version, their small tables, their numbers, and what is said of other files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.files.nsight import NULL, NsightExport, process_of, thread_of

TABLES = (
    "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT)",
    "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT)",
    "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT)",
    "CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT)",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER, graphNodeId INTEGER)",
    "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.16.2'), ('EXPORT_SCHEMA_VERSION_MAJOR', '3'), "
    "('EXPORT_SCHEMA_VERSION_MINOR', '16'), ('EXPORT_SCHEMA_VERSION_MICRO', '2')",
    "INSERT INTO StringIds VALUES (9, 'gemm'), (2, 'softmax')",
    "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'CpuInfo', 'Hostname', 19, 'node17')",
    "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1760000000123456789, '', '')",
    "INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device'), (2, 'CUDA_MEMCPY_KIND_DTOH', NULL)",
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, NULL), (30, 45, 1, 7)",
)


def made(path: Path, *more: str, tables: tuple[str, ...] = TABLES) -> Path:
    connection = sqlite3.connect(path)
    for statement in (*tables, *more):
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def test_an_export_says_its_version_node_start_and_names(tmp_path: Path) -> None:
    with NsightExport(made(tmp_path / "a.sqlite")) as export:
        assert (export.schema, export.host, export.session_start_ns) == ((3, 16, 2), "node17", 1760000000123456789)
        keys, texts = export.strings()
        assert (keys.tolist(), texts) == ([2, 9], ["softmax", "gemm"])
        assert export.labels("ENUM_CUDA_MEMCPY_OPER") == {1: "Host-to-Device", 2: "CUDA_MEMCPY_KIND_DTOH"}
        [chunk] = export.numbers("CUPTI_ACTIVITY_KIND_KERNEL", ["start", "end", "graphNodeId", "streamId"])
        assert {name: column.tolist() for name, column in chunk.items()} == {
            "start": [10, 30], "end": [20, 45], "graphNodeId": [NULL, 7], "streamId": [NULL, NULL],
        }  # fmt: skip
        assert export.columns("GPU_METRICS") == ()
        assert list(export.numbers("GPU_METRICS", ["timestamp"])) == []


def test_identifiers_name_process_and_thread() -> None:
    identifiers = np.array([(7 << 56) | (1234 << 24) | 99, (1 << 24) | 3])
    assert process_of(identifiers).tolist() == [1234, 1]
    assert thread_of(identifiers).tolist() == [99, 3]


@pytest.mark.parametrize(("text", "version"), [("2.5", (2, 5, 0)), ("3.20.1", (3, 20, 1)), ("new", (0, 0, 0)), ("-3.1.4", (0, 1, 4))])
def test_an_older_version_stands_in_one_text(tmp_path: Path, text: str, version: tuple[int, ...]) -> None:
    tables = ("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)", f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '{text}')")
    with NsightExport(made(tmp_path / "a.sqlite", tables=tables)) as export:
        assert export.schema == version
        assert (export.host, export.session_start_ns, export.strings()[1]) == ("", None, [])


@pytest.mark.parametrize("start", ["-5", "'today'", "NULL", "9223372036854775807"])
def test_a_start_that_cannot_be_is_unknown(tmp_path: Path, start: str) -> None:
    with NsightExport(made(tmp_path / "a.sqlite", f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {start}")) as export:
        assert export.session_start_ns is None


def test_names_that_are_no_utf8_are_read(tmp_path: Path) -> None:
    with NsightExport(made(tmp_path / "a.sqlite", "UPDATE StringIds SET value = CAST(x'ff41' AS TEXT) WHERE id = 2")) as export:
        assert export.strings()[1] == ["\ufffdA", "gemm"]


def test_other_files_are_told_from_exports(tmp_path: Path) -> None:
    made(tmp_path / "other.sqlite", tables=("CREATE TABLE t (a)",))
    with pytest.raises(InputError, match="found no table META_DATA_EXPORT; expected an export of Nsight Systems"):
        NsightExport(tmp_path / "other.sqlite")
    with pytest.raises(InputError, match=r"expected its SQLite export, which `nsys export -t sqlite run\.nsys-rep` makes"):
        NsightExport(tmp_path / "run.nsys-rep")
    with pytest.raises(InputError, match="expected a SQLite file"):
        (tmp_path / "a.txt").write_text("text")
        NsightExport(tmp_path / "a.txt")
    made(tmp_path / "hidden.sqlite", tables=("CREATE TABLE t (name, value)", "CREATE VIEW META_DATA_EXPORT AS SELECT * FROM t"))
    with pytest.raises(InputError, match="found no table META_DATA_EXPORT"):
        NsightExport(tmp_path / "hidden.sqlite")
