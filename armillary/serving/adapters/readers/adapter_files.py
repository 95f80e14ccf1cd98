"""Reads adapters and requests for them from tables, request files and folders of PEFT adapters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, open_file, parse_json, read_json
from armillary.files import read_table as read_columns

from ..workload import MOST_ADAPTERS, MOST_RANK, MOST_ROWS, OUTPUT_MEAN, PROMPT_MEAN, AdapterTable, AdapterWork

HEADER_BYTES, CONFIG_BYTES, MOST_TOKENS = 100 << 20, 1 << 20, 10**7
_RATE = Column("rate_per_s", unit="requests per second", least=0)
_RANK = Column("rank", "int", least=1, most=MOST_RANK)


def read_table(path: Path) -> AdapterTable:
    """Reads a table `adapter,rank,rate_per_s[,prompt_mean,output_mean]` with one row per adapter."""
    usual = {"prompt_mean": PROMPT_MEAN, "output_mean": OUTPUT_MEAN}
    means = [Column(name, unit="tokens", least=1, default=mean) for name, mean in usual.items()]
    table = read_columns(path, [Column("adapter", "str"), _RANK, _RATE, *means], row_limit=MOST_ADAPTERS, unique=["adapter"])
    return AdapterTable.of(
        table["rank"], table["rate_per_s"], names=list(table["adapter"]), prompt=table["prompt_mean"], output=table["output_mean"],
        where=str(path),
    )  # fmt: skip


def read_requests(path: Path, rank: int, *, limit: int = 0) -> AdapterWork:
    """Reads requests `arrival_s,adapter,prompt_tokens,output_tokens[,rank]`, one row per request; rates follow from the rows.

    An adapter has the rank of its first row, or `rank` if the file states none. `limit` is the number of rows to read, 0 for all.
    """
    from armillary.llm import Requests

    tokens = [Column(name, "int", unit="tokens", least=1, most=MOST_TOKENS) for name in ("prompt_tokens", "output_tokens")]
    columns = [Column("arrival_s", "time", not_decreasing=True), Column("adapter", "str"), *tokens]
    ranks = Column("rank", "int", least=1, most=MOST_RANK, default=rank)
    table = read_columns(path, [*columns, ranks], first=limit or None, row_limit=MOST_ROWS)
    which, names = table.numbered("adapter")
    _, first = np.unique(which, return_index=True)
    times = table["arrival_s"] - table["arrival_s"][0]
    window = float(times[-1]) or 1.0
    count = np.bincount(which, minlength=len(names))
    prompt, output = table["prompt_tokens"], table["output_tokens"]
    made = AdapterTable.of(
        table["rank"][first], count / window, names=names, prompt=np.bincount(which, prompt) / count,
        output=np.bincount(which, output) / count, where=str(path),
    )  # fmt: skip
    return AdapterWork(made, Requests.of(times, prompt, output, adapter=which), window)


def read_peft(path: Path, rate: float) -> AdapterTable:
    """Reads a folder of PEFT adapters: `adapter_config.json` in each subfolder gives the rank, and the safetensors header the bytes.

    Tensors are not read. `rates.csv` (`adapter,rate_per_s`) in the folder gives the rates; an adapter that it does not name has `rate`.
    """
    folders = sorted(p.parent for p in path.glob("*/adapter_config.json")) or ([path] if (path / "adapter_config.json").is_file() else [])
    if not folders:
        raise InputError("found no adapter_config.json below it; expected a folder with one folder for each adapter", where=str(path))
    if len(folders) > MOST_ADAPTERS:
        raise InputError(f"found {len(folders):,} adapters; expected at most {MOST_ADAPTERS:,}", where=str(path))
    ranks, sizes, bases = [], [], set()
    for folder in folders:
        at = folder / "adapter_config.json"
        config = read_json(at, limit=CONFIG_BYTES)
        if not isinstance(config, dict):
            raise InputError(f"found {type(config).__name__}; expected an object", where=str(at))
        rank = config.get("r")
        if not isinstance(rank, int) or isinstance(rank, bool):
            raise InputError(f"r: found {one_line(repr(rank), 40)}; expected the rank, a whole number", where=str(at))
        ranks.append(rank)
        sizes.append(_safetensors_bytes(folder))
        bases.add(str(config.get("base_model_name_or_path") or ""))
    if len(bases) > 1:
        raise InputError(f"found adapters of several base models ({', '.join(sorted(bases))}); expected one", where=str(path))
    names = [folder.name for folder in folders]
    rates = dict.fromkeys(names, rate) | _rates(path / "rates.csv", names)
    return AdapterTable.of(ranks, [rates[name] for name in names], names=names, base=bases.pop(), size=sizes, where=str(path))


def _rates(path: Path, names: list[str]) -> dict[str, float]:
    if not path.is_file():
        return {}
    table = read_columns(path, [Column("adapter", "str"), _RATE], row_limit=MOST_ADAPTERS, may_be_empty=True)
    known = set(names)
    for row, name in enumerate(table["adapter"]):
        if name not in known:
            raise table.error(row, f'found "{one_line(name, 60)}", which has no folder; expected the name of an adapter', "adapter")
    return dict(zip(table["adapter"], table["rate_per_s"].tolist(), strict=True))


def _safetensors_bytes(folder: Path) -> int:
    """Returns the bytes of an adapter's tensors from the header alone."""
    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        return 0
    size = path.stat().st_size
    with open_file(path, limit=None, unpack=False) as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(HEADER_BYTES, size - 8):
            raise InputError(f"header of {length:,} bytes in a file of {size:,}; expected a safetensors file", where=str(path))
        header = parse_json(file.read(length), str(path))
    try:
        ends = [tuple(v["data_offsets"]) for k, v in header.items() if k != "__metadata__"]
        total = sum(int(b) - int(a) for a, b in ends)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("expected a safetensors header: names with data_offsets", where=str(path)) from None
    if any(not (0 <= a <= b <= size - 8 - length) for a, b in ends):
        raise InputError("data_offsets reach beyond the file", where=str(path))
    return total
