"""Reads requests from public files: traces of Azure, vidur, BurstGPT and Mooncake, ShareGPT, and benchmark records of vLLM and SGLang."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line, unknown
from armillary.files import Column, check_readable, read_head, read_json, read_json_lines, read_table

from .requests import BLOCK, MOST, Requests, chained

#: The bytes from which a format is recognised.
HEAD_BYTES = 1 << 20
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
    check_readable(source)
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
        found = requests_of(bench(source), limit)
    if not len(found):
        raise InputError("the file holds no request", where=str(path))
    return found


def _sniff(path: Path) -> str:
    text = read_head(path, HEAD_BYTES).decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
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
    burst = kind == "burstgpt"
    time, prompt, output = (_CSV[kind][i] for i in ((0, 2, 3) if burst else (0, 1, 2)))
    columns = [
        Column(time, "datetime" if kind == "azure" else "float", unit="seconds", not_decreasing=True),
        Column(prompt, "int", unit="tokens", least=1),
        Column(output, "int", unit="tokens", least=0 if burst else 1),
    ]
    table = read_table(path, columns, format="csv", first=limit, row_limit=MOST, may_be_empty=True)
    seconds = _seconds(table[time]) if kind == "azure" else table[time]
    # BurstGPT keeps failed requests, which have no output.
    keep = table[output] > 0
    first = seconds[0] if len(seconds) else 0.0
    return Requests.of((seconds - first)[keep], table[prompt][keep], table[output][keep], dropped=int((~keep).sum()))


def _seconds(moments: npt.NDArray[np.datetime64]) -> npt.NDArray[np.float64]:
    """Returns the seconds since the start of the first moment's second; whole seconds are subtracted first, so that decimals survive."""
    whole, part = np.divmod(moments.astype("datetime64[ns]").astype(np.int64), 1_000_000_000)
    return np.asarray(whole - whole[:1], np.float64) + part / 1e9


def _from_mooncake(path: Path, limit: int | None, block: int) -> Requests:
    if MOONCAKE_BLOCK % block:
        raise InputError(f"block: found {block}; expected a divisor of {MOONCAKE_BLOCK}, the tokens of one id of the trace")
    times, prompts, outputs, names = [], [], [], []
    for number, row in itertools.islice(read_json_lines(path, most=MOST), limit):
        try:
            time, prompt, output, ids = row["timestamp"], row["input_length"], row["output_length"], row["hash_ids"]
            if not (isinstance(prompt, int) and isinstance(output, int) and prompt >= 1 and output >= 1 and time >= 0):
                raise ValueError
            chain = np.asarray(ids, np.uint64)
            if chain.ndim != 1 or len(chain) > -(-prompt // MOONCAKE_BLOCK):
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            said = f"expected timestamp (ms), input_length, output_length, hash_ids (one per {MOONCAKE_BLOCK} tokens)"
            raise InputError(said, where=f"{path}:{number}") from None
        times.append(time / 1e3)
        prompts.append(prompt)
        outputs.append(output)
        names.append(chained(_expanded(chain, prompt, block)))
    return Requests.of(times, prompts, outputs, prefixes=names, block=block)


def _expanded(ids: npt.NDArray[np.uint64], prompt: int, block: int) -> npt.NDArray[np.uint64]:
    """Returns an id for every full block of `block` tokens; the blocks of one id of the trace differ by their position in it."""
    ratio = MOONCAKE_BLOCK // block
    count = min(prompt // block, len(ids) * ratio)
    fine = np.repeat(ids, ratio)[:count] * np.uint64(ratio) + np.tile(np.arange(ratio, dtype=np.uint64), len(ids))[:count]
    return np.asarray(fine, np.uint64)


def _from_sharegpt(path: Path, limit: int | None, tokenizer: str | None, filtered: bool) -> Requests:
    rows = read_json(path, limit=JSON_BYTES)
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


def bench(path: str | Path) -> dict[str, Any]:
    """Reads and checks a benchmark's record, whose times are seconds.

    The record is that of `vllm bench serve --save-result --save-detailed`, or the first line of SGLang's.
    """
    source = Path(path)
    if source.suffix == ".jsonl":
        found = next((row for _, row in read_json_lines(source, longest=JSON_BYTES)), None)
    else:
        found = read_json(source, limit=JSON_BYTES)
    if not isinstance(found, dict):
        raise InputError("expected an object with input_lens and output_lens", where=str(path))
    for key in ("input_lens", "output_lens"):
        values = found.get(key)
        if not isinstance(values, list) or not all(isinstance(v, int) and not isinstance(v, bool) and abs(v) < 1 << 62 for v in values):
            raise InputError(f"{key}: expected a list of whole numbers (was the run saved with --save-detailed?)", where=str(path))
    for key in ("output_lens", "ttfts", "itls", "errors"):
        if key in found and (not isinstance(found[key], list) or len(found[key]) != len(found["input_lens"])):
            raise InputError(f"{key}: expected {len(found['input_lens'])} entries, one per request", where=str(path))
    starts = found.get("start_times")
    if isinstance(starts, list) and not all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < 1e15 for v in starts):
        raise InputError("start_times: expected a list of seconds", where=str(path))
    return found


def requests_of(found: dict[str, Any] | Any, limit: int | None = None) -> Requests:
    """Returns the requests with which a benchmark's record was made."""
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
