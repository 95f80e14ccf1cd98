"""Requests for images: the production trace GenTD26, a public text-to-image trace, and work from a seed that looks like the first."""

from __future__ import annotations

import csv
import datetime
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_STEPS, MOST_IMAGES, MOST_ROWS, MOST_LORAS = 1000, 1000, 10_000_000, 64
KINDS = ("TXT_2_IMG", "IMG_2_IMG", "INPAINTING")
STATUSES = ("SUCCEED", "FAILED", "CANCELED", "TIMEOUT", "RUNNING", "QUEUED")
#: Shares of GenTD26's requests: LoRAs in one, the first five base models, steps and images (value, share).
LORAS = ((0, 0.777), (1, 0.207), (2, 0.011), (3, 0.005))
BASES = (0.27, 0.20, 0.10, 0.07, 0.06)
IMAGES = ((1, 0.60), (2, 0.12), (4, 0.14), (6, 0.05), (8, 0.09))
LORA_COUNT, BASE_COUNT, LORA_EXPONENT = 874, 105, 0.91
#: Seconds to load, (median, p99), in GenTD26.
LOAD_S = {"lora": (4.4, 8.2), "base": (22.7, 51.9), "controlnet": (3.9, 16.7)}


@dataclass(frozen=True)
class ImageTrace:
    """Requests by arrival. LoRAs of request i: `lora[off[i]:off[i + 1]]`; `dropped` rows of the file had not succeeded."""

    arrival_s: Floats
    kind: Ints
    steps: Ints
    images: Ints
    base: Ints
    off: Ints
    lora: Ints
    bases: int
    loras: int
    dropped: int = 0
    #: Measured load times of LoRAs and base models, seconds; empty: drawn about the medians above.
    lora_load_s: Floats = field(default_factory=lambda: np.empty(0))
    base_load_s: Floats = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.arrival_s)

    def loras_of(self, i: int) -> tuple[int, ...]:
        """The LoRAs of a request."""
        return tuple(int(a) for a in self.lora[self.off[i] : self.off[i + 1]])


def of(rows: list[tuple[float, int, int, int, int, tuple[int, ...]]], bases: int, loras: int, dropped: int = 0) -> ImageTrace:
    """A trace from (arrival, kind, steps, images, base, LoRAs), put in the order of arrival."""
    rows = sorted(rows, key=lambda r: r[0])
    first = rows[0][0] if rows else 0.0
    off = np.concatenate([[0], np.cumsum([len(r[5]) for r in rows])]).astype(np.int64)
    kind, steps, images, base = (np.array([r[i] for r in rows], np.int64) for i in (1, 2, 3, 4))
    times = np.array([r[0] - first for r in rows], float)
    return ImageTrace(times, kind, steps, images, base, off, np.array([a for r in rows for a in r[5]], np.int64), bases, loras, dropped)


def synthetic(
    rate_per_s: float, window_s: float, rng: np.random.Generator, *, loras: int = LORA_COUNT, bursts: bool = False, swing: float = 0.0
) -> ImageTrace:
    """Requests as GenTD26 has them, `rate_per_s` on average, bursts included.

    Each LoRA belongs to one base model. `swing`: the coefficient of variation of the rate from ten minutes to ten minutes. `bursts`:
    every twenty minutes one LoRA is asked for 90 times as often for two to five minutes (at most half of all requests).
    """
    tail = np.arange(1, BASE_COUNT - len(BASES) + 1) ** -1.0
    share = np.concatenate([BASES, tail / tail.sum() * (1 - sum(BASES))])
    base_of = rng.choice(BASE_COUNT, loras, p=share)
    base_of[: len(BASES)] = np.arange(min(loras, len(BASES)))
    weight = np.arange(1, loras + 1) ** -LORA_EXPONENT
    weight /= weight.sum()
    bins = max(1, math.ceil(window_s / 600))
    factor = rng.gamma(1 / swing**2, swing**2, bins) if swing else np.ones(bins)
    factor /= factor.mean()
    plan = []
    if bursts:
        for start in np.arange(600.0, window_s, 1200.0):
            hot, length = int(rng.choice(loras, p=weight)), min(float(rng.uniform(120, 300)), window_s - start)
            plan.append((start, length, hot, min(89.0 * rate_per_s * (1 - LORAS[0][1]) * float(weight[hot]), 0.5 * rate_per_s)))
    calm = rate_per_s - sum(length * extra for _, length, _, extra in plan) / window_s
    rows: list[tuple[float, int, int, int, int, tuple[int, ...]]] = []

    def draw(times: Floats, chosen: Ints | None) -> None:
        n = len(times)
        count = rng.choice([c for c, _ in LORAS], n, p=[p for _, p in LORAS])
        base = rng.choice(BASE_COUNT, n, p=share)
        steps = np.where(rng.random(n) < 0.98, 30, np.where(rng.random(n) < 0.5, 50, 20))
        images = rng.choice([i for i, _ in IMAGES], n, p=[p for _, p in IMAGES])
        kind = rng.choice(3, n, p=(0.91, 0.08, 0.01))
        first = rng.choice(loras, n, p=weight) if chosen is None else chosen
        for i in range(n):
            wanted: tuple[int, ...] = ()
            home = int(base[i])
            if count[i] or chosen is not None:
                home = int(base_of[first[i]])
                mine = np.flatnonzero(base_of == home)
                extra: Any = rng.choice(mine, min(len(mine), max(0, int(count[i]) - 1)), replace=False) if count[i] > 1 else []
                wanted = tuple(dict.fromkeys([int(first[i]), *(int(a) for a in extra)]))
            rows.append((float(times[i]), int(kind[i]), int(steps[i]), int(images[i]), home, wanted))

    for k in range(bins):
        length = min(600.0, window_s - 600.0 * k)
        n = rng.poisson(calm * factor[k] * length)
        draw(600.0 * k + np.sort(rng.random(n)) * length, None)
    for start, length, hot, extra_rate in plan:
        n = rng.poisson(extra_rate * length)
        draw(start + np.sort(rng.random(n)) * length, np.full(n, hot))
    if not rows:
        raise InputError(f"rate: {rate_per_s:g} requests a second make none in {window_s:g} s")
    return of(rows, BASE_COUNT, loras)


# -- files --

_ID = r"(?:'(?P<id>[\w.:-]{1,64})'|(?P<no>\d{1,18}))"
_SCALE = r"-?\d{1,6}(?:\.\d{1,24})?(?:[eE]-?\d{1,3})?"
_PAIR = r"\{\s*'modelVersionId'\s*:\s*" + _ID + r"\s*,\s*'scale'\s*:\s*" + _SCALE + r"\s*\}"
_PAIRS = re.compile(_PAIR)
_LIST = re.compile(r"\[\s*(?:%s(?:\s*,\s*%s)*)?\s*\]" % ((re.sub(r"\?P<\w+>", "?:", _PAIR),) * 2))


def parse_loras(text: str, where: str) -> tuple[str, ...]:
    """The ids in `[{'modelVersionId': 12, 'scale': 0.8}, …]`, GenTD26's way to write a list; anything else is an InputError."""
    stripped = text.strip()
    if not stripped:
        return ()
    if len(stripped) > 1 << 16 or not _LIST.fullmatch(stripped):
        raise InputError(f"lora_args: found {one_line(stripped, 60)!r}; expected [{{'modelVersionId': 12, 'scale': 0.8}}, …]", where=where)
    found = tuple(m["id"] or m["no"] for m in _PAIRS.finditer(stripped))
    if len(found) > MOST_LORAS:
        raise InputError(f"lora_args: found {len(found)} LoRAs; expected at most {MOST_LORAS}", where=where)
    return found


def read_gentd26(path: Path) -> ImageTrace:
    """`lora_request_trace.csv` or `data_trace_processed.csv`; rows that had not succeeded are counted and left out.

    The first says only how many LoRAs a request had (`num_lora`): they are then drawn, seeded by the row, by popularity within its base.
    Load times come from `lora_load*.csv` and `base_load*.csv` (`timestamp_anon,value,container_ip`, milliseconds) beside it.
    """
    wanted = ("gmt_create", "predict_status", "num_images_per_prompt", "num_inference_steps", "checkpoint_model_version_id")
    rows: list[tuple[float, int, int, int, int, tuple[int, ...]]] = []
    bases: dict[str, int] = {}
    loras: dict[tuple[str, str], int] = {}
    dropped = 0
    rng = np.random.default_rng(0)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            have = reader.fieldnames or ()
            if any(c not in have for c in wanted) or not ({"num_lora", "lora_args"} & set(have)):
                raise InputError(
                    f"found the columns {one_line(', '.join(have), 120)}; expected {', '.join(wanted)} and num_lora or lora_args",
                    where=str(path),
                )
            for row in reader:
                where = f"{path}:{reader.line_num}"
                if len(rows) >= MOST_ROWS:
                    raise InputError(f"more than {MOST_ROWS:,} rows", where=str(path))
                if None in row or any(row[c] is None for c in wanted):
                    raise InputError(f"expected as many values as columns ({len(have)})", where=where)
                if row["predict_status"].strip() != "SUCCEED":
                    dropped += 1
                    continue
                base = row["checkpoint_model_version_id"].strip()
                args = row.get("lora_args")
                names = parse_loras(args, where) if args is not None else tuple(_drawn(row["num_lora"], where, rng))
                if not base:
                    raise InputError(f"found {len(names)} LoRAs without a base model; expected checkpoint_model_version_id", where=where)
                kind = row.get("predict_type", "").strip()
                rows.append(
                    (
                        _when(row["gmt_create"], where), KINDS.index(kind) if kind in KINDS else 0,
                        _count(row["num_inference_steps"], "num_inference_steps", MOST_STEPS, where),
                        _count(row["num_images_per_prompt"], "num_images_per_prompt", MOST_IMAGES, where),
                        bases.setdefault(base, len(bases)), tuple(dict.fromkeys(loras.setdefault((base, n), len(loras)) for n in names)),
                    )
                )  # fmt: skip
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"not a CSV file: {one_line(str(problem), 120)}", where=str(path)) from None
    if not rows:
        raise InputError("no request in it that succeeded", where=str(path))
    made = of(rows, len(bases), max(1, len(loras)), dropped)
    loads = {name: _loads(path.parent, name) for name in ("lora", "base")}
    return ImageTrace(
        made.arrival_s, made.kind, made.steps, made.images, made.base, made.off, made.lora, made.bases, made.loras, dropped, loads["lora"],
        loads["base"],
    )  # fmt: skip


def _drawn(text: Any, where: str, rng: np.random.Generator) -> list[str]:
    count = _count(text, "num_lora", MOST_LORAS, where, low=0)
    return [str(int(k)) for k in np.minimum(rng.zipf(1.91, count), LORA_COUNT)]


def _loads(folder: Path, name: str) -> Floats:
    """Seconds in the monitoring files of one kind, milliseconds there; sorted."""
    found: list[float] = []
    for path in sorted(folder.glob(f"{name}_load*.csv")):
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not {"timestamp_anon", "value"} <= set(reader.fieldnames or ()):
                raise InputError("expected the columns timestamp_anon, value, container_ip", where=str(path))
            for row in reader:
                try:
                    value = float(row["value"])
                except (TypeError, ValueError):
                    value = math.nan
                if not 0 <= value < 1e9:
                    raise InputError(
                        f'column "value": found "{one_line(str(row["value"]), 40)}"; expected ms', where=f"{path}:{reader.line_num}"
                    )
                found.append(value / 1e3)
    return np.sort(np.asarray(found))


def read_public(path: Path) -> ImageTrace:
    """The public text-to-image trace: JSON, a list of objects with `timestamp`, `base_model_id` and `loras`."""
    if path.stat().st_size > 1 << 30:
        raise InputError("more than 1 GiB of JSON; expected a smaller part of the trace", where=str(path))
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise InputError(f"not JSON: {one_line(str(problem), 120)}", where=str(path)) from None
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
        steps = _count(entry.get("steps", 30), "steps", MOST_STEPS, where)
        images = _count(entry.get("images", 1), "images", MOST_IMAGES, where)
        rows.append((_when(entry["timestamp"], where), 0, steps, images, bases.setdefault(str(base), len(bases)), loras))
    return of(rows, len(bases), max(1, len(names)))


def _count(text: Any, name: str, most: int, where: str, low: int = 1) -> int:
    try:
        found = float(text)
    except (TypeError, ValueError):
        found = math.nan
    if not (low <= found <= most) or found != int(found):
        raise InputError(f'column "{name}": found "{one_line(str(text), 40)}"; expected a whole number from {low} to {most}', where=where)
    return int(found)


def _when(text: Any, where: str) -> float:
    """Seconds: a number (milliseconds above 1e11), or a date and time."""
    try:
        found = float(text)
    except (TypeError, ValueError):
        try:
            stamp = datetime.datetime.fromisoformat(str(text).strip())
        except ValueError:
            raise InputError(f'time: found "{one_line(str(text), 40)}"; expected seconds or 2026-01-31 12:00:00', where=where) from None
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=datetime.UTC)).timestamp()
    if not math.isfinite(found):
        raise InputError(f'time: found "{one_line(str(text), 40)}"; expected seconds', where=where)
    return found / 1e3 if found > 1e11 else found
