"""What a run gives back: metrics, and artifacts to look at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

ValueKind = Literal["measured", "simulated", "modelled"]
#: The media type of `Artifact.quantiles`.
QUANTILES = "application/vnd.armillary.quantiles+json"


@dataclass(frozen=True)
class Artifact:
    """Bytes that a run leaves beside its metrics (a timeline, a table, an array): at most 16 MiB, never a pickle.

    The report offers every artifact for download, draws those that `quantiles` made as distributions, and the one that `timeline`
    made as a timeline.
    """

    name: str
    media: str
    data: bytes

    @classmethod
    def quantiles(cls, of: str, values: npt.ArrayLike, unit: str = "") -> Artifact:
        """The distribution of `values` in 201 quantiles, both ends included; `of` says what they are: "latency"."""
        import numpy as np

        found = np.quantile(np.asarray(values, float), np.linspace(0, 1, 201)) if np.size(values) else np.empty(0)
        said = {"of": of, "unit": unit, "count": int(np.size(values)), "quantiles": [float(f"{v:.6g}") for v in found]}
        return cls(f"{of}.quantiles.json", QUANTILES, json.dumps(said, separators=(",", ":")).encode())

    @classmethod
    def timeline(cls, events: Any) -> Artifact:
        """A timeline that Perfetto and Chrome open: a list of trace events, or an object that holds them as `traceEvents`."""
        return cls("timeline.json", "application/json", json.dumps(events, separators=(",", ":")).encode())

    @classmethod
    def table(cls, name: str, rows: pl.DataFrame | Sequence[Mapping[str, Any]] | Mapping[str, npt.ArrayLike]) -> Artifact:
        """A table as CSV, to download: a Polars table, rows, or columns by name."""
        import polars as pl

        table = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows)
        return cls(f"{name}.csv", "text/csv", table.write_csv().encode())


@dataclass(frozen=True)
class Outcome:
    """What a run may return instead of a plain mapping: metrics, artifacts, and whether its own rounds were too far apart to trust.

    `kinds` names the metrics whose value came to be in another way than the metric says, because of this technique: an energy that is
    modelled for a simulated device is measured where it is a price times seconds of this machine.
    """

    values: Mapping[str, float]
    artifacts: Sequence[Artifact] = ()
    noisy: bool = False
    kinds: Mapping[str, ValueKind] = field(default_factory=dict)


class NotForThisCase(Exception):
    """The technique declines the case, with the reason; raised or returned. Shown as declined, never as a zero."""
