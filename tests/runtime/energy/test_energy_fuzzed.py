"""Damaged traces of every format: an answer or an InputError of one line, nothing else."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest
from test_energy_arena import PAJE

from armillary.errors import InputError
from armillary.extras import MissingPackage
from armillary.runtime.energy import read_readings, read_trace
from armillary.tasks import Virtual, shapes


def export(folder: Path) -> bytes:
    base = sqlite3.connect(folder / "whole.sqlite")
    base.executescript("""
        CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);
        INSERT INTO META_DATA_EXPORT VALUES('EXPORT_SCHEMA_VERSION', '3.16.0');
        CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
        INSERT INTO StringIds VALUES(1, 'sgemm'), (2, 'reduce');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, shortName INTEGER);
    """)
    base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(?, ?, 0, ?, ?)", [(i * 10, i * 10 + 9, i % 3, i % 2 + 1) for i in range(60)])
    base.commit()
    base.close()
    return (folder / "whole.sqlite").read_bytes()


def damaged(whole: bytes, rng: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(5)
        if what == 0:
            del data[at:]
        elif what == 1 and at < len(data):
            data[at] = rng.randrange(256)
        elif what == 2:
            data[at:at] = rng.choice([b"-1", b"1e999", b"nan", b"\n", b'"', b"99999999999999999999", b":", b"%EndEventDef\n", b"\x00", b"{"])
        elif what == 3:
            other = rng.randrange(len(data) + 1)
            del data[min(at, other) : min(at, other) + rng.randrange(30)]
        else:
            piece = bytes(data[at : at + rng.randrange(80)])
            data[at:at] = piece
    return bytes(data)


@pytest.mark.parametrize("kind", ["rec", "trace", "json", "sqlite", "csv", "energy"])
def test_a_damaged_file_is_one_line(tmp_path: Path, kind: str) -> None:
    graph = shapes.cholesky(4, cost=0.002)
    run = graph.run(Virtual(3))
    run.trace.to_rec(tmp_path / "whole.rec", graph)
    run.trace.to_csv(tmp_path / "whole.csv")
    events = [{"ph": "X", "name": "k", "cat": "kernel", "pid": 0, "tid": i % 2, "ts": 10.0 * i, "dur": 9.5} for i in range(20)]
    whole = {
        "rec": (tmp_path / "whole.rec").read_bytes(), "trace": PAJE.encode(), "json": json.dumps({"traceEvents": events}).encode(),
        "sqlite": export(tmp_path), "csv": (tmp_path / "whole.csv").read_bytes(),
        "energy": b"time_s,domain,energy_j\n" + b"".join(b"%d.5,p,%d\n" % (i, i * i) for i in range(30)),
    }[kind]  # fmt: skip
    rng = random.Random(7)
    refused: list[str] = []
    file = tmp_path / ("damaged.csv" if kind == "energy" else f"damaged.{kind}")
    for _ in range(100):
        file.write_bytes(damaged(whole, rng))
        try:
            _ = read_readings(file) if kind == "energy" else read_trace(file)
        except InputError as error:
            refused.append(str(error))
        except MissingPackage:
            pytest.skip("a package is missing")
    assert len(refused) > 12
    assert not [said for said in refused if "\n" in said]
