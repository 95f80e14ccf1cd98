"""Reads requests from public files: traces of Azure, vidur, BurstGPT and Mooncake, ShareGPT, and benchmark records of vLLM and SGLang."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line, unknown

from .requests import BLOCK, MOST, Requests, chained

#: The longest line that is read, bytes, and the deepest JSON.
LINE_BYTES = 1 << 20
DEPTH = 64
#: A file with one JSON value is read whole, up to this many bytes.
JSON_BYTES = 4 << 30
#: Each of Mooncake's ids stands for a block of this many tokens.
MOONCAKE_BLOCK = 512
FORMATS = ("azure", "vidur", "burstgpt", "mooncake", "sharegpt", "vllm-bench", "sglang-bench")
_CSV = {
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "vidur": ("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    "burstgpt": ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"),
}


def read(path: str | Path, *, kind: str | None = None, limit: int | None = None, block: int = BLOCK, tokenizer: str | None = None,
         filter: bool = True) -> Requests:  # fmt: skip
    """Reads requests from a file, whose format is recognised by its suffix and first line unless `kind` names it.

    `limit` takes only the first rows; `block` is the number of tokens per hash of a prefix. For ShareGPT, `tokenizer` is a `tokenizer.json`
    that counts tokens (without one, four characters count as a token), and `filter=False` keeps very short and very long conversations.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError("no such file", where=str(path))
    if limit is not None and limit < 1:
        raise InputError(f"limit: found {limit}; expected at least 1")
    kind = _sniff(source) if kind is None else kind
    if kind not in FORMATS:
        raise unknown("format of requests", kind, FORMATS)
    if kind in _CSV:
        found = _from_csv(source, kind, limit)
    elif kind == "mooncake":
        found = _from_mooncake(source, limit, block)
    elif kind == "sharegpt":
        found = _from_sharegpt(source, limit, tokenizer, filter)
    else:
        found = requests_of(bench(source, kind), limit)
    if not len(found):
        raise InputError("the file holds no request", where=str(path))
    return found


def _sniff(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(LINE_BYTES)
    text = head.decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
    first = text.split("\n", 1)[0].strip()
    for kind, columns in _CSV.items():
        if set(columns) <= {c.strip().strip('"') for c in first.split(",")}:
            return kind
    if first.startswith("["):
        return "sharegpt"
    if first.startswith("{"):
        if '"hash_ids"' in first or '"input_length"' in first:
            return "mooncake"
        return "sglang-bench" if '"mean_e2e_latency_ms"' in text else "vllm-bench"
    expected = "; ".join(f"{kind}: {','.join(columns)}" for kind, columns in _CSV.items())
    kinds = ", ".join(FORMATS[3:])
    raise InputError(f"found the columns {one_line(first, 120)!r}; expected one of {expected}; or JSON of {kinds}", where=str(path))


def _from_csv(path: Path, kind: str, limit: int | None) -> Requests:
    import polars as pl

    columns = _CSV[kind]
    try:
        frame = pl.read_csv(path, infer_schema=False, n_rows=limit if limit is not None else MOST + 1)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as problem:
        raise InputError(f"not a CSV file: {one_line(str(problem), 160)}", where=str(path)) from None
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise InputError(f"found the columns {', '.join(frame.columns)}; expected {', '.join(columns)}", where=str(path))
    if len(frame) > MOST:
        raise InputError(f"more than {MOST:,} rows; give a limit", where=str(path))
    time, prompt, output = (columns[0], columns[1], columns[2]) if kind != "burstgpt" else (columns[0], columns[2], columns[3])
    numbers = {name: _numbers(frame[name], path, name) for name in (prompt, output)}
    seconds = _timestamps(frame[time], path) if kind == "azure" else _numbers(frame[time], path, time)
    if np.any(np.diff(seconds) < 0):
        raise InputError(f"time goes back at line {int(np.argmax(np.diff(seconds) < 0)) + 3}", where=str(path))
    failed = numbers[output] == 0 if kind == "burstgpt" else np.zeros(len(seconds), bool)
    for name, values in numbers.items():
        bad = (values < 1) & ~failed if name == output or kind != "burstgpt" else (values < 1)
        if np.any(bad):
            line = int(np.argmax(bad)) + 2
            raise InputError(f"line {line}: {name} is {values[line - 2]:g}; expected at least 1 token", where=str(path))
    keep = ~failed
    first = seconds[0] if len(seconds) else 0.0
    return Requests.of((seconds - first)[keep], numbers[prompt][keep], numbers[output][keep], dropped=int(failed.sum()))


def _numbers(column: Any, path: Path, name: str) -> npt.NDArray[np.float64]:
    import polars as pl

    values = column.str.strip_chars().cast(pl.Float64, strict=False)
    bad = values.is_null() | ~values.is_finite()
    if bad.any():
        line = int(bad.arg_max()) + 2
        raise InputError(f"line {line}: {name} is {one_line(str(column[line - 2]), 40)!r}; expected a number", where=str(path))
    return np.asarray(values.to_numpy(), np.float64)


def _timestamps(column: Any, path: Path) -> npt.NDArray[np.float64]:
    """Seconds since the first timestamp; the traces have seven decimals, and some have the zone +00:00."""
    import polars as pl

    text = column.str.strip_chars().str.replace(r"(\+00:00|Z)$", "").str.replace("T", " ", literal=True)
    whole = text.str.head(19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    part = ("0" + text.str.slice(19)).cast(pl.Float64, strict=False)
    bad = whole.is_null() | part.is_null()
    if bad.any():
        line = int(bad.arg_max()) + 2
        raise InputError(
            f"line {line}: TIMESTAMP is {one_line(str(column[line - 2]), 40)!r}; expected 2023-11-16 18:15:46.6805900", where=str(path)
        )
    seconds = whole.dt.epoch("s").to_numpy()
    return np.asarray(seconds - seconds[0], np.float64) + part.to_numpy()


def _lines(path: Path, limit: int | None) -> Iterator[tuple[int, Any]]:
    """(line number, JSON value) of a file with one value per line."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES:
                raise InputError(f"line {number} is longer than 1 MiB", where=str(path))
            if limit is not None and number > limit:
                return
            if number > MOST:
                raise InputError(f"more than {MOST:,} lines; give a limit", where=str(path))
            if line.strip():
                yield number, _parse(line, path, f"line {number}: ")


def _parse(text: bytes, path: Path, where: str = "") -> Any:
    depth = deepest = 0
    inside = escaped = False
    for byte in text.translate(None, delete=_PLAIN):
        if escaped:
            escaped = False
        elif inside:
            inside, escaped = byte != 34, byte == 92
        elif byte == 34:
            inside = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    if deepest > DEPTH:
        raise InputError(f"{where}JSON nested {deepest} deep; expected at most {DEPTH}", where=str(path))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{where}not JSON: {one_line(str(problem), 120)}", where=str(path)) from None


_PLAIN = bytes(b for b in range(256) if b not in b'[]{}"\\')


def _whole(path: Path) -> Any:
    size = path.stat().st_size
    if size > JSON_BYTES:
        raise InputError(f"{size:,} bytes of JSON; expected at most {JSON_BYTES:,}", where=str(path))
    return _parse(path.read_bytes(), path)


def _from_mooncake(path: Path, limit: int | None, block: int) -> Requests:
    if MOONCAKE_BLOCK % block:
        raise InputError(f"block: found {block}; expected a divisor of {MOONCAKE_BLOCK}, the tokens of one id of the trace")
    times, prompts, outputs, names = [], [], [], []
    for number, row in _lines(path, limit):
        try:
            time, prompt, output, ids = row["timestamp"], row["input_length"], row["output_length"], row["hash_ids"]
            if not (isinstance(prompt, int) and isinstance(output, int) and prompt >= 1 and output >= 1 and time >= 0):
                raise ValueError
            chain = np.asarray(ids, np.uint64)
            if chain.ndim != 1 or len(chain) > -(-prompt // MOONCAKE_BLOCK):
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InputError(
                f"line {number}: expected timestamp (ms), input_length, output_length, hash_ids (one per {MOONCAKE_BLOCK} tokens)",
                where=str(path),
            ) from None
        times.append(time / 1e3)
        prompts.append(prompt)
        outputs.append(output)
        names.append(chained(_expanded(chain, prompt, block)))
    return Requests.of(times, prompts, outputs, prefixes=names, block=block)


def _expanded(ids: npt.NDArray[np.uint64], prompt: int, block: int) -> npt.NDArray[np.uint64]:
    """An id for every full block of `block` tokens; the blocks of one id of the trace differ by their position in it."""
    ratio = MOONCAKE_BLOCK // block
    count = min(prompt // block, len(ids) * ratio)
    fine = np.repeat(ids, ratio)[:count] * np.uint64(ratio) + np.tile(np.arange(ratio, dtype=np.uint64), len(ids))[:count]
    return np.asarray(fine, np.uint64)


def _from_sharegpt(path: Path, limit: int | None, tokenizer: str | None, filtered: bool) -> Requests:
    rows = _whole(path)
    if not isinstance(rows, list):
        raise InputError("expected a list of conversations", where=str(path))
    count = _counter(tokenizer)
    prompts, outputs, dropped = [], [], 0
    for row in rows[:limit]:
        try:
            turns = row["conversations"]
            said = [(turn["from"], str(turn["value"])) for turn in turns]
        except (KeyError, TypeError):
            raise InputError("expected conversations with from and value in every entry", where=str(path)) from None
        asked = next((i for i, (who, _) in enumerate(said) if who in ("human", "user")), None)
        answer = None if asked is None else next((text for who, text in said[asked + 1 :] if who in ("gpt", "assistant")), None)
        if asked is None or answer is None:
            dropped += 1
            continue
        prompt, output = count(said[asked][1]), count(answer)
        if (prompt < 4 or output < 4 or prompt > 1024 or prompt + output > 2048) if filtered else (prompt < 1 or output < 1):
            dropped += 1
            continue
        prompts.append(prompt)
        outputs.append(output)
    return Requests.of(np.zeros(len(prompts)), prompts, outputs, dropped=dropped)


def _counter(tokenizer: str | None) -> Any:
    if tokenizer is None:
        return lambda text: -(-len(text) // 4)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError("a tokenizer.json needs the package tokenizers (pip install tokenizers)") from None
    try:
        loaded = Tokenizer.from_file(tokenizer)
    except Exception as problem:
        raise InputError(f"not a tokenizer: {one_line(str(problem), 120)}", where=tokenizer) from None
    return lambda text: len(loaded.encode(text).ids)


def bench(path: str | Path, kind: str | None = None) -> dict[str, Any]:
    """Reads and checks a benchmark's record (of `vllm bench serve --save-result --save-detailed`, or a line of SGLang's); its times are
    seconds.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError("no such file", where=str(path))
    kind = _sniff(source) if kind is None else kind
    found = next((row for _, row in _lines_or_whole(source)), None)
    if not isinstance(found, dict):
        raise InputError("expected an object with input_lens and output_lens", where=str(path))
    for key in ("input_lens", "output_lens"):
        values = found.get(key)
        if not isinstance(values, list) or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            raise InputError(f"{key}: expected a list of whole numbers (was the run saved with --save-detailed?)", where=str(path))
    for key in ("output_lens", "ttfts", "itls", "errors"):
        if key in found and (not isinstance(found[key], list) or len(found[key]) != len(found["input_lens"])):
            raise InputError(f"{key}: expected {len(found['input_lens'])} entries, one per request", where=str(path))
    return found


def _lines_or_whole(path: Path) -> Iterator[tuple[int, Any]]:
    """The values of a JSONL file, or the one value of a JSON file; a benchmark's record is one long line."""
    yield 1, _whole(path) if path.suffix != ".jsonl" else _parse(path.read_bytes().splitlines()[0], path)


def requests_of(found: dict[str, Any] | Any, limit: int | None = None) -> Requests:
    """The requests that a benchmark's record was made with."""
    n = len(found["input_lens"])
    errors = found.get("errors") or [""] * n
    outputs = np.asarray(found["output_lens"], np.int64)
    good = np.array([not e for e in errors], bool) & (outputs >= 1) & (np.asarray(found["input_lens"]) >= 1)
    starts = found.get("start_times")
    if isinstance(starts, list) and len(starts) == n:
        times = np.asarray(starts, float) - min(starts)
    else:
        # The benchmark states its rate but not its arrivals, so they come at equal gaps, or all at once.
        rate = found.get("request_rate")
        known = isinstance(rate, int | float) and 0 < rate < float("inf")
        times = np.arange(n) / float(rate) if known and rate is not None else np.zeros(n)
    index = np.flatnonzero(good)[:limit]
    return Requests.of(times[index], np.asarray(found["input_lens"])[index], outputs[index], dropped=int(n - good.sum()))
