"""Who has which VNI, in one SQLite file: at most one owner per VNI, a rest between two owners, and a log of all that happened.

Every change is one IMMEDIATE transaction, so a process that is killed between two statements changes nothing, and two processes never
give out one VNI twice. Free VNIs stand in a table ordered by the time from which they may be given out again, so an acquisition looks at
one row. The published service searches for the least free number by a set difference over all numbers at each request.

    database = VniDatabase("vni.db")
    database.acquire("vni-7f0c…", "physics")         # 100, and 100 again for the same owner
    database.release("vni-7f0c…", "physics")         # 100 rests for 60 s
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from armillary.errors import InputError, one_line

from ..device.cxi import HIGHEST_VNI, check_vni
from .clock import SteadyClock

LOWEST, HIGHEST, QUARANTINE_S = 100, 65535, 60.0
#: Rows of the log that are kept, and the longest name of an owner.
LOG_ROWS, NAME_BYTES = 1_000_000, 300
APPLICATION, SCHEMA = 0x564E4953, 1
_TABLES = {
    "setting": "CREATE TABLE setting (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID, STRICT",
    "free": "CREATE TABLE free (ready REAL NOT NULL, vni INTEGER NOT NULL UNIQUE, PRIMARY KEY (ready, vni)) WITHOUT ROWID, STRICT",
    "allocation": "CREATE TABLE allocation (namespace TEXT NOT NULL, owner TEXT NOT NULL, vni INTEGER NOT NULL UNIQUE, "
    "kind TEXT NOT NULL CHECK (kind IN ('job', 'claim')), uid TEXT NOT NULL, PRIMARY KEY (namespace, owner)) WITHOUT ROWID, STRICT",
    "user": "CREATE TABLE user (namespace TEXT NOT NULL, owner TEXT NOT NULL, user TEXT NOT NULL, "
    "PRIMARY KEY (namespace, owner, user), FOREIGN KEY (namespace, owner) REFERENCES allocation (namespace, owner)) WITHOUT ROWID, STRICT",
    "log": "CREATE TABLE log (id INTEGER PRIMARY KEY, at REAL NOT NULL, operation TEXT NOT NULL, namespace TEXT NOT NULL, "
    "owner TEXT NOT NULL, vni INTEGER NOT NULL, user TEXT NOT NULL) STRICT",
}  # fmt: skip
_INDICES = {
    "allocation_uid": "CREATE INDEX allocation_uid ON allocation (namespace, uid)",
    "user_user": "CREATE INDEX user_user ON user (namespace, user)",
}


class NoFreeVni(Exception):
    """Every VNI is taken or rests; `wait_s` is the time until the next one is ready, infinite if all are taken."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("no VNI is free" if wait_s == float("inf") else f"no VNI is free; the next one is ready in {wait_s:.0f} s")
        self.wait_s = wait_s


class InUse(Exception):
    """A claim has users and keeps its VNI."""


class NoSuchClaim(Exception):
    """There is no such claim in the namespace."""


class Taken(Exception):
    """The name belongs to another object."""


@dataclass(frozen=True)
class Allocation:
    """A VNI and who has it."""

    namespace: str
    owner: str
    vni: int
    kind: str
    uid: str


class VniDatabase:
    """The file at `path` (":memory:" for none), which is made if it does not exist.

    low, high: the range, both ends included. quarantine_s: seconds for which a released VNI rests. clock: seconds, never going back.
    durable: a commit survives a loss of power, and not only the end of the process.
    """

    def __init__(
        self, path: str | Path, *, low: int = LOWEST, high: int = HIGHEST, quarantine_s: float = QUARANTINE_S,
        clock: Callable[[], float] | None = None, durable: bool = True,
    ) -> None:  # fmt: skip
        check_vni(low, "low")
        check_vni(high, "high")
        if high < low:
            raise InputError(f"found {low} to {high}; expected a range that begins before it ends", where="range")
        if not 0 <= quarantine_s <= 1e9:
            raise InputError(f"found {quarantine_s:g} s; expected 0 to 1e9", where="quarantine")
        self.path, self.low, self.high, self.quarantine_s, self.durable = str(path), low, high, float(quarantine_s), durable
        self._lock = threading.RLock()
        #: Whether a transaction is open that several requests share.
        self._together = False
        try:
            self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=10.0, check_same_thread=False)
            self._open()
            latest = self._one("SELECT at FROM log ORDER BY id DESC LIMIT 1")
        except sqlite3.DatabaseError as problem:
            raise InputError(f"is no VNI database that can be used: {one_line(str(problem), 100)}", where=self.path) from None
        self._clock = clock or SteadyClock(latest[0] if latest else 0.0)

    def __enter__(self) -> VniDatabase:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    # What is asked and changed

    def acquire(self, owner: str, namespace: str, *, kind: Literal["job", "claim"] = "job", uid: str = "") -> int:
        """The owner's VNI, a new one if it has none; NoFreeVni if none is ready, Taken if the name belongs to another object."""
        _name(owner, "owner")
        _name(namespace, "namespace")
        with self._transaction() as now:
            row = self._one("SELECT vni, kind, uid FROM allocation WHERE namespace = ? AND owner = ?", namespace, owner)
            if row is not None:
                if (row[1], row[2]) != (kind, uid):
                    raise Taken(f'the name "{one_line(owner, 80)}" belongs to another object in {namespace}')
                return int(row[0])
            free = self._next_free(now)
            if free is None or free[0] > now:
                raise NoFreeVni(float("inf") if free is None else free[0] - now)
            vni = int(free[1])
            self._take(free[0], vni)
            self._run("INSERT INTO allocation VALUES (?, ?, ?, ?, ?)", namespace, owner, vni, kind, uid)
            self._note(now, "acquire", namespace, owner, vni)
        return vni

    def release(self, owner: str, namespace: str) -> bool:
        """Gives the owner's VNI back, which rests from now on; False if it has none, InUse (and no change at all) if others use it."""
        with self._transaction() as now:
            row = self._one("SELECT vni FROM allocation WHERE namespace = ? AND owner = ?", namespace, owner)
            if row is None:
                return False
            if self._one("SELECT 1 FROM user WHERE namespace = ? AND owner = ? LIMIT 1", namespace, owner) is not None:
                raise InUse(f'the claim "{one_line(owner, 80)}" still has users')
            self._run("DELETE FROM allocation WHERE namespace = ? AND owner = ?", namespace, owner)
            self._give_back(now + self.quarantine_s, int(row[0]))
            self._note(now, "release", namespace, owner, int(row[0]))
        return True

    def join(self, claim: str, namespace: str, user: str) -> int:
        """The claim's VNI, with `user` among its users from now on; NoSuchClaim if the namespace has no claim of this name."""
        _name(user, "user")
        with self._transaction() as now:
            row = self._one("SELECT vni FROM allocation WHERE namespace = ? AND owner = ? AND kind = 'claim'", namespace, claim)
            if row is None:
                raise NoSuchClaim(f'there is no claim "{one_line(claim, 80)}" in {one_line(namespace, 80)}')
            if self._one("SELECT 1 FROM user WHERE namespace = ? AND owner = ? AND user = ?", namespace, claim, user) is None:
                self._run("INSERT INTO user VALUES (?, ?, ?)", namespace, claim, user)
                self._note(now, "add", namespace, claim, int(row[0]), user)
        return int(row[0])

    def leave(self, claim: str, namespace: str, user: str) -> bool:
        """Takes `user` from the users of a claim; False if it was none."""
        with self._transaction() as now:
            row = self._one("SELECT vni FROM allocation WHERE namespace = ? AND owner = ?", namespace, claim)
            if row is None or self._run("DELETE FROM user WHERE namespace = ? AND owner = ? AND user = ?", namespace, claim, user) == 0:
                return False
            self._note(now, "remove", namespace, claim, int(row[0]), user)
        return True

    def end(self, namespace: str, uid: str, kind: Literal["job", "claim"] = "job") -> None:
        """Gives back all that the object of this uid has, whatever it says of itself now; InUse (and no change) if a claim has users."""
        with self._transaction():
            for (claim,) in self._all("SELECT owner FROM user WHERE namespace = ? AND user = ?", namespace, uid):
                self.leave(claim, namespace, uid)
            mine = "SELECT owner FROM allocation WHERE namespace = ? AND uid = ? AND kind = ?"
            for (owner,) in self._all(mine, namespace, uid, kind):
                self.release(owner, namespace)

    # What there is

    def vni_of(self, owner: str, namespace: str) -> int | None:
        """The owner's VNI, or None."""
        with self._lock:
            row = self._one("SELECT vni FROM allocation WHERE namespace = ? AND owner = ?", namespace, owner)
        return None if row is None else int(row[0])

    def users(self, claim: str, namespace: str) -> list[str]:
        """The users of a claim, in the order of their names."""
        with self._lock:
            found = self._all("SELECT user FROM user WHERE namespace = ? AND owner = ? ORDER BY user", namespace, claim)
        return [user for (user,) in found]

    def allocations(self) -> list[Allocation]:
        """Everything that is allocated, by VNI."""
        with self._lock:
            return [Allocation(*row) for row in self._all("SELECT namespace, owner, vni, kind, uid FROM allocation ORDER BY vni")]

    def log(self) -> list[tuple[float, str, str, str, int, str]]:
        """(time, operation, namespace, owner, VNI, user) of what happened, oldest first."""
        with self._lock:
            return self._all("SELECT at, operation, namespace, owner, vni, user FROM log ORDER BY id")

    def free(self) -> tuple[int, int]:
        """(VNIs that are ready, VNIs that rest)."""
        now = self._now()
        with self._lock:
            row = self._one("SELECT count(*), coalesce(sum(ready > ?), 0) FROM free", now)
        return int(row[0] - row[1]), int(row[1])

    def check(self) -> None:
        """Raises InputError unless every VNI of the range is in exactly one place and every user's claim exists."""
        with self._lock:
            faults = [str(row[0]) for row in self._all("PRAGMA quick_check") if row[0] != "ok"]
            faults += [f"row {row[1]} of {row[0]} has no claim" for row in self._all("PRAGMA foreign_key_check")]
            places = self._all(
                "SELECT vni FROM (SELECT vni FROM free UNION ALL SELECT vni FROM allocation) GROUP BY vni HAVING count(*) > 1"
            )
            faults += [f"VNI {vni} is in two places" for (vni,) in places]
            both = "(SELECT vni FROM free UNION SELECT vni FROM allocation)"
            if self._one(f"SELECT count(*) FROM {both} WHERE vni BETWEEN ? AND ?", self.low, self.high)[0] != self.high - self.low + 1:
                faults.append("VNIs are missing")
        if faults:
            raise InputError("; ".join(faults[:5]), where=self.path)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """One transaction, and so one commit, for all requests in the block; each of them still happens as a whole or not at all."""
        with self._lock:
            self._run("BEGIN IMMEDIATE")
            self._together = True
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                self._roll_back("ROLLBACK")
                raise
            finally:
                self._together = False

    # Statements

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[float]:
        with self._lock:
            nested = self._connection.in_transaction
            self._run("SAVEPOINT request" if nested else "BEGIN IMMEDIATE")
            try:
                yield self._now()
                self._run("RELEASE request" if nested else "COMMIT")
            except BaseException:
                if nested:
                    self._roll_back("ROLLBACK TO request")
                    self._roll_back("RELEASE request")
                else:
                    self._roll_back("ROLLBACK")
                raise

    def _roll_back(self, statement: str) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute(statement)

    def _run(self, statement: str, *values: Any) -> int:
        """Every statement that changes something goes through here; returns the rows that it changed."""
        return self._connection.execute(statement, values).rowcount

    def _one(self, statement: str, *values: Any) -> Any:
        return self._connection.execute(statement, values).fetchone()

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _now(self) -> float:
        """The time, which never goes back behind the log, whatever the clock of this process says."""
        latest = self._one("SELECT at FROM log ORDER BY id DESC LIMIT 1")
        return max(self._clock(), latest[0]) if latest else self._clock()

    def _next_free(self, now: float) -> tuple[float, int] | None:
        found: tuple[float, int] | None = self._one("SELECT ready, vni FROM free ORDER BY ready, vni LIMIT 1")
        return found

    def _take(self, ready: float, vni: int) -> None:
        self._run("DELETE FROM free WHERE ready = ? AND vni = ?", ready, vni)

    def _give_back(self, ready: float, vni: int) -> None:
        if self.low <= vni <= self.high:
            self._run("INSERT INTO free VALUES (?, ?)", ready, vni)

    def _note(self, now: float, operation: str, namespace: str, owner: str, vni: int, user: str = "") -> None:
        self._run("INSERT INTO log (at, operation, namespace, owner, vni, user) VALUES (?, ?, ?, ?, ?, ?)",
                  now, operation, namespace, owner, vni, user)  # fmt: skip
        self._run("DELETE FROM log WHERE id <= (SELECT max(id) FROM log) - ?", LOG_ROWS)

    # Opening

    def _open(self) -> None:
        for pragma in ("journal_mode = WAL", f"synchronous = {'FULL' if self.durable else 'NORMAL'}", "foreign_keys = ON",
                       "trusted_schema = OFF", "cell_size_check = ON"):  # fmt: skip
            self._connection.execute(f"PRAGMA {pragma}")
        self._run("BEGIN IMMEDIATE")
        try:
            self._make()
            self._run("COMMIT")
        except BaseException:
            self._roll_back("ROLLBACK")
            raise

    def _make(self) -> None:
        ours = {name: " ".join(made.split()) for name, made in {**self._tables(), **_INDICES}.items()}
        there = dict(self._all("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
        if there:
            application, version = self._one("PRAGMA application_id")[0], self._one("PRAGMA user_version")[0]
            if application != APPLICATION or there != ours:
                raise InputError("found another kind of database; expected one that a VNI service made", where=self.path)
            if version != SCHEMA:
                raise InputError(f"found version {version}; expected version {SCHEMA}", where=self.path)
            self._check_file()
        else:
            for statement in ours.values():
                self._run(statement)
            self._run(f"PRAGMA application_id = {APPLICATION}")
            self._run(f"PRAGMA user_version = {SCHEMA}")
        self._fit_range()

    def _tables(self) -> dict[str, str]:
        return _TABLES

    def _check_file(self) -> None:
        """A damaged file is refused rather than repaired: what it gave out could be given out again."""
        damaged = self._one("PRAGMA quick_check(1)")[0] != "ok"
        for table in ("free", "allocation"):
            damaged = damaged or self._one(f"SELECT 1 FROM {table} WHERE vni NOT BETWEEN 1 AND {HIGHEST_VNI} LIMIT 1") is not None
        twice = "SELECT 1 FROM free WHERE vni IN (SELECT vni FROM allocation) LIMIT 1"
        if damaged or self._one(twice) is not None or self._one("SELECT 1 FROM setting WHERE name NOT IN ('low', 'high') LIMIT 1"):
            raise InputError("found a damaged database; copy it away and look at the Vni objects of the cluster", where=self.path)

    def _fit_range(self) -> None:
        """Adds the free VNIs of a range that has grown and removes those of one that has shrunk; what is allocated stays."""
        before = dict(self._all("SELECT name, value FROM setting"))
        if (before.get("low"), before.get("high")) == (self.low, self.high):
            return
        if any(not 1 <= before.get(name, 1) <= HIGHEST_VNI for name in ("low", "high")):
            raise InputError("found a range that no service has", where=self.path)
        self._run("DELETE FROM free WHERE vni < ? OR vni > ?", self.low, self.high)
        self._run(
            "INSERT INTO free WITH RECURSIVE number(vni) AS (VALUES (?) UNION ALL SELECT vni + 1 FROM number WHERE vni < ?) "
            "SELECT 0.0, vni FROM number WHERE vni NOT IN (SELECT vni FROM free) AND vni NOT IN (SELECT vni FROM allocation)",
            self.low, self.high,
        )  # fmt: skip
        for name, value in (("low", self.low), ("high", self.high)):
            self._run("INSERT OR REPLACE INTO setting VALUES (?, ?)", name, value)


def _name(text: object, where: str) -> None:
    if not isinstance(text, str) or not text or len(text.encode("utf-8", "replace")) > NAME_BYTES or not text.isprintable():
        raise InputError(f"found {one_line(repr(text), 60)}; expected a name of at most {NAME_BYTES} bytes", where=where)
