"""Two runs of one program: which differences explain the change of its elapsed time, in microseconds, and on which devices.

Kernels are matched by name and by the order of their calls; lost time is matched by cause. All rows together are the change.

Our design, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level, Technique

from .analysis.aligning import aligned
from .analysis.comparing import Comparison, compare_runs
from .analysis.lost import CAUSES
from .attribution import COMPUTE, Change
from .run.model import Run


@dataclass(frozen=True)
class Compare(Technique):
    """The difference of two runs."""

    takes: ClassVar[frozenset[str]] = frozenset({"changed"})
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "cause_found", over=("stats", "busy", "breakdown", "nsys2prv"), by=Gain(difference=(0.0, None)), on=Kind("changed"),
            says="names what a change comes from more often than differences of the other views", source="our design",
        ),
        Claim(
            "attribution_error", by=Level(at_most=3.0), on=Kind("changed"), says="explains a change within 3 points of the elapsed time",
            source="our design",
        ),
    )  # fmt: skip

    def compare(self, before: Run, after: Run) -> Comparison:
        """The table of differences."""
        return compare_runs(aligned(before), aligned(after))

    def explain(self, before: Run, after: Run) -> Change:
        """What changed, as shares of the second run's elapsed time."""
        found = self.compare(before, after)
        rows = list(found.table.select("what", "change_us").iter_rows())
        whole = max(1.0, found.elapsed_us[1])
        causes = {f"lost to {cause}": cause for cause in CAUSES}
        shares = {causes[what]: change / whole for what, change in rows if what in causes}
        shares[COMPUTE] = sum(change for what, change in rows if what not in causes) / whole
        main = rows[0][0] if rows else ""
        return Change(shares, causes.get(main, main))
