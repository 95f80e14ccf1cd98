"""The published way to find a free VNI: the least number of all that have rested and that nobody has, searched anew at each request.

It is the slow peer of `VniDatabase`, with the same transactions, and the ablation "no free table".
"""

from __future__ import annotations

from .database import VniDatabase

_TABLES = {"available": "CREATE TABLE available (vni INTEGER PRIMARY KEY, released TEXT) STRICT"}


class PublishedDatabase(VniDatabase):
    """A database without a table of free VNIs; times of release are texts, which each request converts again for every number."""

    def _tables(self) -> dict[str, str]:
        return {**super()._tables(), **_TABLES}

    def _fit_range(self) -> None:
        self._run(
            "INSERT OR IGNORE INTO available WITH RECURSIVE number(vni) AS (VALUES (?) UNION ALL SELECT vni + 1 FROM number WHERE vni < ?) "
            "SELECT vni, NULL FROM number",
            self.low, self.high,
        )  # fmt: skip

    def _next_free(self, now: float) -> tuple[float, int] | None:
        rested = "SELECT vni FROM available WHERE unixepoch(datetime(?, 'unixepoch')) - coalesce(unixepoch(released), 0) > ?"
        found = self._one(f"SELECT min(vni) FROM ({rested} EXCEPT SELECT vni FROM allocation)", now, self.quarantine_s)
        return None if found[0] is None else (now, int(found[0]))

    def _take(self, ready: float, vni: int) -> None:
        """The row of a number stays."""

    def _give_back(self, ready: float, vni: int) -> None:
        self._run("UPDATE available SET released = datetime(?, 'unixepoch') WHERE vni = ?", ready - self.quarantine_s, vni)

    def free(self) -> tuple[int, int]:
        """(VNIs that are ready, VNIs that rest)."""
        now = self._now()
        taken = "vni NOT IN (SELECT vni FROM allocation)"
        ready = f"{now - self.quarantine_s} > coalesce(unixepoch(released), 0)"
        with self._lock:
            row = self._one(f"SELECT count(*), coalesce(sum({ready}), 0) FROM available WHERE {taken}")
        return int(row[1]), int(row[0] - row[1])

    def check(self) -> None:
        """Raises nothing: a VNI is free here because it is not allocated, so none can be lost."""
