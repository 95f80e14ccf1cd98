"""Prometheus' text format, for a file that node_exporter's textfile collector reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def text(found: pl.DataFrame, horizon: int) -> str:
    """The rows of `Predictor.predict` as gauges, one line per drive and gauge; drives without a score have the last gauge only."""
    rows = found.to_dicts()
    lines = [
        "# HELP armillary_drive_failure_probability Probability of a failure within the horizon.",
        "# TYPE armillary_drive_failure_probability gauge",
    ]
    scored = [row for row in rows if row["scored"]]
    lines += [f"armillary_drive_failure_probability{_labels(row, horizon_days=str(horizon))} {row['probability']:.6g}" for row in scored]
    lines += ["# HELP armillary_drive_flagged Whether the drive should be replaced.", "# TYPE armillary_drive_flagged gauge"]
    lines += [f"armillary_drive_flagged{_labels(row)} {int(row['flagged'])}" for row in scored]
    lines += ["# HELP armillary_drive_history_days Days of the log before the last one.", "# TYPE armillary_drive_history_days gauge"]
    lines += [f"armillary_drive_history_days{_labels(row)} {int(row['history_days'])}" for row in rows]
    return "\n".join(lines) + "\n"


def _labels(row: dict[str, object], **more: str) -> str:
    named = {"model": str(row["model"]), "serial": str(row["serial"]), **more}
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in named.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
