"""Which format a trace has, by its name, and which domain of the meter each worker belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from armillary.errors import InputError, one_line, unknown
from armillary.files import Column, read_table
from armillary.runtime.energy.meters.readings import Readings

from .tasks import MOST_WORKERS, TaskTrace

ENDINGS = ".csv, .tsv, .jsonl, .parquet, .rec (StarPU), .trace (Pajé), .json (Chrome) or .sqlite (Nsight Systems)"


def read_trace(path: str | Path, *, category: str = "") -> TaskTrace:
    """Reads the tasks of a trace; `category` chooses events of a Chrome trace."""
    name = Path(path).name.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith((".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq", ".tab")):
        from .tables import read_tasks

        return read_tasks(path)
    if name.endswith(".rec"):
        from .starpu import read_starpu

        return read_starpu(path)
    if name.endswith(".trace"):
        from .paje import read_paje

        return read_paje(path)
    if name.endswith(".json"):
        from .chrome import read_chrome

        return read_chrome(path, category=category)
    if name.endswith((".sqlite", ".db", ".nsys-rep", ".qdrep")):
        from .nsys import read_nsys

        return read_nsys(path)
    raise InputError(f'found the ending of "{one_line(name[-40:], 40)}"; expected {ENDINGS}', where=str(path))


def read_map(path: str | Path) -> dict[str, str]:
    """Reads `worker,domain`."""
    table = read_table(path, [Column("worker", "str"), Column("domain", "str")], row_limit=MOST_WORKERS, unique=("worker",))
    return dict(zip(map(str, table["worker"]), map(str, table["domain"])))


def is_subzone(domain: str, among: Mapping[str, Readings]) -> bool:
    """Whether a domain lies inside another one, as `package-0/core` lies in `package-0`; it is never added to it."""
    return any(domain != other and domain.startswith(f"{other}/") for other in among)


def domains_of(
    trace: TaskTrace, readings: Mapping[str, Readings], given: Mapping[str, str] | None = None, *, where: str = "trace",
    map_where: str = "map",
) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """The workers of each domain of the meter: by the map, or all in the only domain, or by their kinds.

    Without a map, the k-th GPU goes to the k-th domain that is named after a GPU, and cores go to the only one that is not.
    """
    main = [name for name in readings if not is_subzone(name, readings)]
    found: dict[str, list[int]] = {}
    if given is not None:
        for name in given:
            if name not in trace.workers:
                raise unknown("worker", name, trace.workers, where=map_where)
            if given[name] not in readings:
                raise unknown("domain", given[name], readings, where=map_where)
        for number, name in enumerate(trace.workers):
            if name in given:
                found.setdefault(given[name], []).append(number)
    elif len(main) == 1:
        found[main[0]] = list(range(len(trace.workers)))
    else:
        graphics = [name for name in main if any(word in name.lower() for word in ("gpu", "nvml", "cuda", "device"))]
        others = [name for name in main if name not in graphics]
        devices = list(dict.fromkeys(_device(trace, number) for number, kind in enumerate(trace.kinds) if kind == "gpu"))
        for number, kind in enumerate(trace.kinds):
            at = devices.index(_device(trace, number)) if kind == "gpu" else 0
            choices = graphics if kind == "gpu" else others
            if kind == "gpu" and at < len(choices):
                found.setdefault(choices[at], []).append(number)
            elif kind != "gpu" and len(choices) == 1:
                found.setdefault(choices[0], []).append(number)
            elif kind != "gpu" and choices:
                said = one_line(", ".join(choices), 120)
                raise InputError(f"found the domains {said}; expected --map, a table of worker,domain, to tell them apart", where=where)
    if not found:
        raise InputError(f"no worker belongs to any of the domains {one_line(', '.join(main), 120)}; expected --map", where=where)
    return {name: tuple(workers) for name, workers in found.items()}


def _device(trace: TaskTrace, worker: int) -> str:
    """The device of a GPU's worker: streams and lanes of one device share it."""
    return trace.workers[worker].split("/")[0]
