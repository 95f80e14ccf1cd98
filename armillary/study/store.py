"""Where results live: one SQLite file that a killed process cannot harm.

Write-ahead logging, one writer, one transaction for each finished unit, committed before the next result is read. Readers open the
file read-only and never wait. Trouble with the disk is a `StoreError`: what is committed stays, nothing is repaired silently.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.arena import Artifact
from armillary.errors import InputError, one_line
from armillary.study.unit import Unit

APPLICATION_ID = 0x41524D4C  # "ARML"
SCHEMA = 1
SCHEMA_SQL = Path(__file__).with_name("schema.sql")
#: From each older schema number to the next: SQL run in one transaction, after a copy of the file was made.
MIGRATIONS: dict[int, str] = {}
BEAT_S, DEAD_S = 10.0, 60.0


class StoreError(Exception):
    """The store cannot be written or read: a full disk, a read-only file, a damaged one. Exit status 3."""


@dataclass(frozen=True)
class Report:
    """How a unit ended, as its worker tells it."""

    state: str
    values: Mapping[str, tuple[str, float]]
    artifacts: Sequence[Artifact] = ()
    reason: str = ""
    error: str = ""
    traceback: str = ""
    started: float = 0.0
    seconds: float = 0.0
    worker: str = ""
    environment: str = ""
    noisy: bool = False
    slowdown: float | None = None
    load: float | None = None


class Store:
    """One SQLite file of results. `Store.open` to write, `Store.read` to look."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, writes: bool) -> None:
        self.path = path
        self.db = connection
        self._writes = writes
        self._metrics: dict[tuple[str, str], int] = {}
        self._environments: dict[str, int] = {}
        self._beat = 0.0

    @classmethod
    def open(cls, path: Path, *, durable: bool = False, max_pages: int | None = None) -> Store:
        """Opens or makes a store to write, as its only coordinator.

        `durable` survives a loss of power too, at the price of a disk flush a unit. `max_pages` bounds the file, for tests.
        """
        with _trouble(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists() or path.stat().st_size == 0
        if not new:
            _check_ours(path, intact=True)
        with _trouble(path):
            connection = sqlite3.connect(path, timeout=10, isolation_level=None)
            if new:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            if max_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {max_pages}")
            store = cls(path, connection, writes=True)
            store._migrate(new)
            store._take_over()
        return store

    @classmethod
    def read(cls, path: Path) -> Store:
        """Opens a store to look at; never waits for a writer and never changes the file."""
        if not path.exists():
            raise InputError("no such store", where=str(path))
        _check_ours(path, intact=False)
        with _trouble(path):
            connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=10, isolation_level=None)
            store = cls(path, connection, writes=False)
            store._check_version()
        return store

    def close(self) -> None:
        """Gives the store back."""
        if self._writes:
            with contextlib.suppress(sqlite3.Error):
                self.db.execute("DELETE FROM coordinator WHERE pid = ? AND host = ?", (os.getpid(), socket.gethostname()))
        self.db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing: by the coordinator only.

    def begin(self, identity: str, seed: int, command: str, plan_json: str, note: str = "") -> int:
        """The study with this identity, made if it is new."""
        with self._transaction():
            row = self.db.execute("SELECT id FROM study WHERE identity = ?", (identity,)).fetchone()
            if row:
                return int(row[0])
            values = (identity, time.time(), seed, command, plan_json, note)
            insert = "INSERT INTO study (identity, created, seed, command, plan_json, note) VALUES (?,?,?,?,?,?)"
            return self.db.execute(insert, values).lastrowid or 0

    def enrol(self, study: int, units: Sequence[Unit]) -> None:
        """Notes the units of a study; those that are there already stay as they are."""
        rows = (
            (bytes.fromhex(u.id), u.arena, u.technique, u.parameters, u.case, _short(u.case_digest), u.repeat, u.seed,
             _short(u.code_digest)) for u in units
        )  # fmt: skip
        with self._transaction():
            self.db.executemany(
                "INSERT OR IGNORE INTO unit (id, arena, technique, parameters, case_name, case_digest, repeat, seed, code_digest,"
                " state) VALUES (?,?,?,?,?,?,?,?,?,'planned')",
                rows,
            )
            self.db.executemany(
                "INSERT OR IGNORE INTO member SELECT ?, key FROM unit WHERE id = ?", ((study, bytes.fromhex(u.id)) for u in units)
            )

    def start(self, unit: Unit, worker: str) -> None:
        """Notes that a unit is being run."""
        with self._transaction():
            self.db.execute(
                "UPDATE unit SET state = 'running', attempt = attempt + 1, worker = ?, started = ? WHERE id = ?",
                (worker, time.time(), bytes.fromhex(unit.id)),
            )
            self.beat()

    def finish(self, unit: Unit, report: Report) -> None:
        """Stores how a unit ended, in one transaction."""
        with self._transaction():
            key = self._key(unit)
            self.db.execute("DELETE FROM value WHERE unit = ?", (key,))
            self.db.execute("DELETE FROM artifact WHERE unit = ?", (key,))
            self.db.execute(
                "UPDATE unit SET state = ?, worker = ?, environment = ?, started = ?, seconds = ?, noisy = ?, slowdown = ?,"
                " load = ?, reason = ?, error = ?, traceback = ?, code_digest = ? WHERE key = ?",
                (
                    report.state, report.worker, self._environment(report.environment), report.started, report.seconds,
                    report.noisy, report.slowdown, report.load, report.reason or None, report.error or None,
                    report.traceback or None, _short(unit.code_digest), key,
                ),
            )  # fmt: skip
            rows = [(key, self._metric(metric, kind), value) for metric, (kind, value) in report.values.items()]
            self.db.executemany("INSERT INTO value VALUES (?,?,?)", rows)
            for a in report.artifacts:
                row = (key, a.name, a.media, hashlib.sha256(a.data).hexdigest(), a.data)
                self.db.execute("INSERT INTO artifact VALUES (?,?,?,?,?)", row)
            self.beat()

    def judge(self, study: int, verdicts: Iterable[Mapping[str, Any]]) -> None:
        """Stores the verdicts of a study."""
        now = time.time()
        with self._transaction():
            self.db.executemany(
                "INSERT OR REPLACE INTO verdict VALUES (?,?,?,?,?,?,?,?,?)",
                ((study, v["claim"], v["state"], v["figure"], v["low"], v["high"], v["n"], json.dumps(v), now) for v in verdicts),
            )

    def beat(self) -> None:
        """Says that the coordinator lives."""
        if time.monotonic() - self._beat > BEAT_S:
            self.db.execute("UPDATE coordinator SET beat = ?", (time.time(),))
            self._beat = time.monotonic()

    # Reading.

    def states(self, units: Iterable[Unit]) -> dict[str, tuple[str, str, frozenset[str]]]:
        """Unit id to (state, short code digest, metrics stored), for those of the units that are in the store."""
        wanted = {bytes.fromhex(u.id): u.id for u in units}
        metrics: dict[int, set[str]] = {}
        rows = self._units_of(wanted)
        for key, name in self._rows(
            "SELECT value.unit, metric.name FROM value JOIN metric ON metric.key = value.metric WHERE value.unit BETWEEN ? AND ?",
            (min((r[0] for r in rows), default=0), max((r[0] for r in rows), default=-1)),
        ):
            metrics.setdefault(key, set()).add(name)
        return {wanted[r[1]]: (r[2], r[3].hex(), frozenset(metrics.get(r[0], ()))) for r in rows}

    def studies(self) -> list[tuple[int, float, int, str, str]]:
        """(id, created, seed, command, plan as JSON) of every study, newest first."""
        return self._rows("SELECT id, created, seed, command, plan_json FROM study ORDER BY created DESC, id DESC")

    def study_of(self, identity: str) -> int | None:
        """The number of the study with this identity."""
        rows = self._rows("SELECT id FROM study WHERE identity = ?", (identity,))
        return int(rows[0][0]) if rows else None

    def plan_of(self, study: int) -> tuple[str, str] | None:
        """(identity, plan as JSON) of a study, or None."""
        rows = self._rows("SELECT identity, plan_json FROM study WHERE id = ?", (study,))
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

    def identities(self) -> dict[str, int]:
        """Identity to number, of every study."""
        return {str(identity): int(number) for identity, number in self._rows("SELECT identity, id FROM study")}

    def states_of(self, study: int | None = None) -> dict[int, dict[str, int]]:
        """Study to the number of its units in each state; of one study, or of all."""
        found: dict[int, dict[str, int]] = {}
        only = "" if study is None else "WHERE member.study = ?"
        query = f"SELECT member.study, unit.state, count(*) FROM member JOIN unit ON unit.key = member.unit {only} GROUP BY 1, 2"
        for number, state, many in self._rows(query, () if study is None else (study,)):
            found.setdefault(number, {})[state] = many
        return found

    def running(self, study: int) -> list[tuple[str, str, float]]:
        """(technique, case, when it began) of the units of a study that run now."""
        return self._rows(
            "SELECT technique, case_name, started FROM member JOIN unit ON unit.key = member.unit WHERE study = ? AND state = 'running'",
            (study,),
        )

    def spent(self, study: int) -> tuple[int, float]:
        """(how many units of a study have ended, the seconds that they took together)."""
        query = "SELECT count(*), total(seconds) FROM member JOIN unit ON unit.key = member.unit WHERE study = ? AND seconds IS NOT NULL"
        return self._rows(query, (study,))[0]

    def results(self, study: int) -> tuple[list[tuple], list[tuple]]:
        """(units, values) of a study.

        Units: (key, id, arena, technique, parameters, case, repeat, state, attempt, noisy, seconds, worker, reason, error,
        traceback, code digest, environment, slowdown). Values: (unit key, metric, kind, value).
        """
        units = self._rows(
            "SELECT key, lower(hex(id)), arena, technique, parameters, case_name, repeat, state, attempt, noisy, seconds, worker,"
            " reason, error, traceback, lower(hex(code_digest)), environment, slowdown"
            " FROM member JOIN unit ON unit.key = member.unit WHERE study = ? ORDER BY key",
            (study,),
        )
        values = self._rows(
            "SELECT value.unit, metric.name, metric.kind, value.value FROM member JOIN value ON value.unit = member.unit"
            " JOIN metric ON metric.key = value.metric JOIN unit ON unit.key = member.unit"
            " WHERE member.study = ? AND unit.state = 'done'",
            (study,),
        )
        return units, values

    def artifacts(self, unit_id: str) -> Iterator[Artifact]:
        """What a unit left beside its metrics."""
        query = "SELECT name, media, bytes FROM artifact JOIN unit ON unit.key = artifact.unit WHERE unit.id = ?"
        for name, media, data in self._rows(query, (bytes.fromhex(unit_id),)):
            yield Artifact(name, media, data)

    def left(self, study: int) -> list[tuple[int, str, str, int]]:
        """(unit key, name, media, bytes) of every artifact of a study's finished units."""
        return self._rows(
            "SELECT unit.key, artifact.name, artifact.media, length(artifact.bytes) FROM member JOIN unit ON unit.key = member.unit"
            " JOIN artifact ON artifact.unit = unit.key WHERE study = ? AND unit.state = 'done' ORDER BY unit.key, artifact.name",
            (study,),
        )

    def environments(self) -> dict[int, dict[str, Any]]:
        """The machines that units ran on."""
        return {key: json.loads(text) for key, text in self._rows("SELECT id, json FROM environment")}

    def seconds(self, arena: str) -> dict[tuple[str, str], float]:
        """The mean seconds of an arena's finished units, by technique and case."""
        query = "SELECT technique, case_name, avg(seconds) FROM unit WHERE arena = ? AND state IN ('done', 'declined') GROUP BY 1, 2"
        return {(technique, case): seconds for technique, case, seconds in self._rows(query, (arena,)) if seconds is not None}

    def last_verdicts(self) -> dict[str, tuple[str, float | None]]:
        """Claim id to (state, figure), as last judged; what older versions judged without the whole evidence is left out."""
        newest = "SELECT claim, state, figure, max(judged) FROM verdict WHERE json LIKE '%\"whole\": true%' GROUP BY claim"
        return {claim: (state, figure) for claim, state, figure, _ in self._rows(newest)}

    # Inside.

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        with _trouble(self.path):
            return self.db.execute(sql, values).fetchall()

    def _units_of(self, wanted: Mapping[bytes, str]) -> list[tuple]:
        ids, found = list(wanted), []
        for i in range(0, len(ids), 500):
            some = ids[i : i + 500]
            marks = ",".join("?" * len(some))
            found += self._rows(f"SELECT key, id, state, code_digest FROM unit WHERE id IN ({marks})", some)
        return found

    def _key(self, unit: Unit) -> int:
        return int(self.db.execute("SELECT key FROM unit WHERE id = ?", (bytes.fromhex(unit.id),)).fetchone()[0])

    def _metric(self, name: str, kind: str) -> int:
        if (name, kind) not in self._metrics:
            self.db.execute("INSERT OR IGNORE INTO metric (name, kind) VALUES (?,?)", (name, kind))
            row = self.db.execute("SELECT key FROM metric WHERE name = ? AND kind = ?", (name, kind)).fetchone()
            self._metrics[name, kind] = int(row[0])
        return self._metrics[name, kind]

    def _environment(self, text: str) -> int | None:
        if not text:
            return None
        if text not in self._environments:
            host = json.loads(text).get("host", "")
            self.db.execute("INSERT OR IGNORE INTO environment (host, json) VALUES (?,?)", (host, text))
            self._environments[text] = int(self.db.execute("SELECT id FROM environment WHERE json = ?", (text,)).fetchone()[0])
        return self._environments[text]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with _trouble(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                # A full disk may have rolled back already; ids handed out inside are void with it.
                self._metrics.clear()
                self._environments.clear()
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def _check_version(self) -> int:
        version = int(self.db.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA:
            raise InputError(f"made by a newer Armillary (schema {version}; this one knows {SCHEMA})", where=str(self.path))
        return version

    def _migrate(self, new: bool) -> None:
        version = self._check_version()
        if new or version == 0:
            self._script(SCHEMA_SQL.read_text(), SCHEMA)
        elif version < SCHEMA:
            shutil.copy2(self.path, self.path.with_name(self.path.name + ".bak"))
            for number in range(version, SCHEMA):
                self._script(MIGRATIONS[number], number + 1)

    def _script(self, sql: str, version: int) -> None:
        self.db.executescript(f"BEGIN IMMEDIATE; {sql}\nPRAGMA user_version = {version}; COMMIT;")

    def _take_over(self) -> None:
        """Becomes the coordinator, or says who is."""
        host = socket.gethostname()
        with self._transaction():
            row = self.db.execute("SELECT pid, host, beat FROM coordinator").fetchone()
            if row and not _gone(*row):
                who = f"process {row[0]} on {row[1]}"
                raise StoreError(f"{self.path}: {who} is writing to this store; wait for it or use another --store")
            self.db.execute("INSERT OR REPLACE INTO coordinator VALUES (1, ?, ?, ?)", (os.getpid(), host, time.time()))
            self.db.execute("UPDATE unit SET state = 'planned' WHERE state = 'running'")
        self._beat = time.monotonic()


def default_store() -> Path:
    """`ARMILLARY_STORE`, or `armillary/armillary.db` in the user's state folder."""
    given = os.environ.get("ARMILLARY_STORE")
    if given:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "armillary" / "armillary.db"


def reports() -> Path:
    """The folder in which reports are written that the user asked to see rather than to keep; made if need be."""
    folder = default_store().parent / "reports"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(folder)) from None
    return folder


def _gone(pid: int, host: str, beat: float) -> bool:
    """Whether the coordinator that wrote this row is dead: its process is gone, or on another host its beat is old."""
    if host != socket.gethostname():
        return time.time() - beat > DEAD_S
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _check_ours(path: Path, *, intact: bool) -> None:
    """Refuses what is not a store of ours, or with `intact` a damaged one, without touching it."""
    if not path.is_file():
        raise InputError("expected a store of Armillary, found something that is no file", where=str(path))
    with _trouble(path):
        connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=10)
        try:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            if found != APPLICATION_ID:
                raise InputError("an SQLite file, but no store of Armillary", where=str(path))
            report = connection.execute("PRAGMA quick_check(1)").fetchone()[0] if intact else "ok"
            if report != "ok":
                raise StoreError(f"{path}: damaged ({one_line(report, 120)}); copy it away and start a new store")
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            raise InputError(f"expected a store of Armillary ({error})", where=str(path)) from None
        finally:
            connection.close()


@contextlib.contextmanager
def _trouble(path: Path) -> Iterator[None]:
    """What SQLite and the disk complain of, as one line."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {one_line(str(error))}") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path.absolute()))


def _short(digest: str) -> bytes:
    return bytes.fromhex(digest)[:16]
