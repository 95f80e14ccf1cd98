"""Reads requests for images from the production trace GenTD26 and from a public text-to-image trace."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_json, read_table
from armillary.workloads import poisson

from ..images.workload import KINDS, LORA_COUNT, MEAN_RATE, MOST_IMAGES, MOST_LORAS, MOST_ROWS, MOST_STEPS, ImageTrace, of

Floats = npt.NDArray[np.float64]
DOCUMENT_BYTES = 1 << 30
_ID = r"(?:'(?P<id>[\w.:-]{1,64})'|(?P<no>\d{1,18}))"
_SCALE = r"-?\d{1,6}(?:\.\d{1,24})?(?:[eE]-?\d{1,3})?"
_PAIR = r"\{\s*'modelVersionId'\s*:\s*" + _ID + r"\s*,\s*'scale'\s*:\s*" + _SCALE + r"\s*\}"
_PAIRS = re.compile(_PAIR)
_LIST = re.compile(r"\[\s*(?:%s(?:\s*,\s*%s)*)?\s*\]" % ((re.sub(r"\?P<\w+>", "?:", _PAIR),) * 2))


def parse_loras(text: str) -> tuple[str, ...]:
    """Returns the ids in `[{'modelVersionId': 12, 'scale': 0.8}, …]`, GenTD26's notation of a list; anything else is an error."""
    stripped = text.strip()
    if not stripped:
        return ()
    if len(stripped) > 1 << 16 or not _LIST.fullmatch(stripped):
        raise InputError(f"lora_args: found {one_line(stripped, 60)!r}; expected [{{'modelVersionId': 12, 'scale': 0.8}}, …]")
    found = tuple(m["id"] or m["no"] for m in _PAIRS.finditer(stripped))
    if len(found) > MOST_LORAS:
        raise InputError(f"lora_args: found {len(found)} LoRAs; expected at most {MOST_LORAS}")
    return found


class LoadTimes(NamedTuple):
    """Measured load times of LoRAs and of base models, seconds, sorted."""

    lora: Floats
    base: Floats


def load_files(named: Sequence[str | Path]) -> LoadTimes:
    """Reads load times from files `lora_load*.csv` and `base_load*.csv`, or from a folder of them.

    Their columns are `timestamp_anon,value,container_ip`, with the value in milliseconds.
    """
    found: dict[str, list[Path]] = {"lora": [], "base": []}
    for name in map(Path, named):
        for kind, paths in found.items():
            paths += sorted(name.glob(f"{kind}_load*.csv")) if name.is_dir() else [name] if name.name.startswith(f"{kind}_load") else []
        if not name.is_dir() and not name.name.startswith(("lora_load", "base_load")):
            raise InputError(f'found "{one_line(str(name), 80)}"; expected lora_load*.csv, base_load*.csv or their folder', where="--loads")
    value = Column("value", unit="ms", least=0, most=1e9)
    columns = [Column("timestamp_anon", "str"), value]
    tables = {kind: [read_table(path, columns, row_limit=MOST_ROWS, may_be_empty=True) for path in paths] for kind, paths in found.items()}
    return LoadTimes(*(np.sort(np.concatenate([np.empty(0), *(t["value"] for t in tables[kind])]) / 1e3) for kind in ("lora", "base")))


def read_gentd26(path: Path, loads: LoadTimes | None = None) -> ImageTrace:
    """Reads `lora_request_trace.csv` or `data_trace_processed.csv`; rows that had not succeeded are counted and left out.

    The first one gives only the number of LoRAs per request (`num_lora`), so they are drawn by popularity from a fixed seed. The second one
    names them (`lora_args`) but has neither times nor statuses, so all its rows count and arrive in their order, at random times of
    GenTD26's mean rate. Steps and images that a file does not give are 30 and 1. Without `loads`, load times come from the files beside it
    that `load_files` knows.
    """
    have = column_names(path, format="csv")
    loras_in = "lora_args" if "lora_args" in have else "num_lora"
    if missing := [name for name in ("checkpoint_model_version_id", loras_in) if name not in have]:
        found = one_line(", ".join(have) or "none", 120)
        expected = "checkpoint_model_version_id and num_lora or lora_args"
        raise InputError(f"found the columns {found} without {missing[0]}; expected {expected}", where=str(path))
    defaults = {
        "gmt_create": "", "predict_status": "SUCCEED", "num_images_per_prompt": "1", "num_inference_steps": "30",
        "checkpoint_model_version_id": "", loras_in: "", "predict_type": "TXT_2_IMG",
    }  # fmt: skip
    # A column that the file has must have a value in every row, except those that may be empty.
    empty = ("checkpoint_model_version_id", loras_in, "predict_type")
    columns = [Column(name, "str", default=value if name in empty or name not in have else "") for name, value in defaults.items()]
    table = read_table(path, columns, format="csv", row_limit=MOST_ROWS)
    timed = "gmt_create" in have
    drawn = poisson(np.random.default_rng(1), max(1, table.rows), MEAN_RATE) if not timed else np.empty(0)
    rows: list[tuple[float, int, int, int, int, tuple[int, ...]]] = []
    bases: dict[str, int] = {}
    loras: dict[tuple[str, str], int] = {}
    rng = np.random.default_rng(0)
    for number in np.flatnonzero(table["predict_status"] == "SUCCEED").tolist():
        created, _, images, steps, base, listed, kind = table.frame.row(number)
        try:
            names = parse_loras(listed) if loras_in == "lora_args" else _drawn(listed, rng)
            if not base:
                raise InputError(f"found {len(names)} LoRAs without a base model; expected checkpoint_model_version_id")
            rows.append(
                (
                    _when(created) if timed else float(drawn[number]), KINDS.index(kind) if kind in KINDS else 0,
                    _count(steps, "num_inference_steps", MOST_STEPS),
                    _count(images, "num_images_per_prompt", MOST_IMAGES), bases.setdefault(base, len(bases)),
                    tuple(dict.fromkeys(loras.setdefault((base, n), len(loras)) for n in names)),
                )
            )  # fmt: skip
        except InputError as problem:
            raise table.error(number, problem.message) from None
    if not rows:
        raise InputError("found no request that succeeded; expected at least one", where=str(path))
    made = of(rows, len(bases), max(1, len(loras)), table.rows - len(rows))
    times = load_files([path.parent]) if loads is None else loads
    notes = () if timed else (f"the file has no times; its requests arrive at random, {600 * MEAN_RATE:g} in ten minutes",)
    return replace(made, lora_load_s=times.lora, base_load_s=times.base, notes=notes)


def _drawn(text: Any, rng: np.random.Generator) -> tuple[str, ...]:
    count = _count(text, "num_lora", MOST_LORAS, low=0)
    return tuple(str(int(k)) for k in np.minimum(rng.zipf(1.91, count), LORA_COUNT))


def read_public(path: Path) -> ImageTrace:
    """Reads the public text-to-image trace, a JSON list of objects with `timestamp`, `base_model_id` and `loras`."""
    found = read_json(path, limit=DOCUMENT_BYTES)
    if not isinstance(found, list) or not found:
        raise InputError("expected a list of requests", where=str(path))
    rows, bases, names = [], dict[str, int](), dict[tuple[str, str], int]()
    for i, entry in enumerate(found):
        where = f"{path}: request {i}"
        if not isinstance(entry, dict) or "timestamp" not in entry or "base_model_id" not in entry:
            raise InputError("expected an object with timestamp, base_model_id and loras", where=where)
        listed = entry.get("loras") or []
        if not isinstance(listed, list) or len(listed) > MOST_LORAS or not all(isinstance(x, str | int | dict) for x in listed):
            raise InputError(f"loras: expected a list of at most {MOST_LORAS} ids", where=where)
        base = entry["base_model_id"]
        if base is None or base == "":
            raise InputError(f"found {len(listed)} LoRAs without a base model; expected base_model_id", where=where)
        ids = [str(x.get("id", x.get("model_id", ""))) if isinstance(x, dict) else str(x) for x in listed]
        loras = tuple(dict.fromkeys(names.setdefault((str(base), n), len(names)) for n in ids))
        try:
            steps = _count(entry.get("steps", 30), "steps", MOST_STEPS)
            images = _count(entry.get("images", 1), "images", MOST_IMAGES)
            rows.append((_when(entry["timestamp"]), 0, steps, images, bases.setdefault(str(base), len(bases)), loras))
        except InputError as problem:
            raise InputError(problem.message, where=where) from None
    return of(rows, len(bases), max(1, len(names)))


def _count(text: Any, name: str, most: int, low: int = 1) -> int:
    try:
        found = float(text)
    except (TypeError, ValueError):
        found = math.nan
    if not (low <= found <= most) or found != int(found):
        raise InputError(f'column "{name}": found "{one_line(str(text), 40)}"; expected a whole number from {low} to {most}')
    return int(found)


def _when(text: Any) -> float:
    """Returns seconds from a number (milliseconds above 1e11) or a date and time."""
    try:
        found = float(text)
    except (TypeError, ValueError):
        try:
            stamp = datetime.datetime.fromisoformat(str(text).strip())
        except ValueError:
            raise InputError(f'time: found "{one_line(str(text), 40)}"; expected seconds or 2026-01-31 12:00:00') from None
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=datetime.UTC)).timestamp()
    if not math.isfinite(found):
        raise InputError(f'time: found "{one_line(str(text), 40)}"; expected seconds')
    return found / 1e3 if found > 1e11 else found
