"""Writes a study of a store as HTML, CSV, Parquet or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armillary.study.result import Result
from armillary.web.apart.calling import answer


def written(store: str, study: int, target: str) -> dict[str, Any]:
    """Writes the file, which gets its name last, and returns the study's answer."""
    result, path = Result.load(store, study), Path(target)
    part = path.with_name(f"part-{path.name}")
    result.write(part)
    part.replace(path)
    return {"answer": result.answer()}


if __name__ == "__main__":
    answer(lambda given: written(given["store"], int(given["study"]), given["target"]))
