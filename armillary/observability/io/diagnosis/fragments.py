"""A log as at most about thirty fragments: one module's figures on one subject each, of about a KiB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..logs.log import Log
from ..logs.modules import COUNTERS
from .facts import DIRECTIONS, Facts
from .finding import Fragment, Value, plain
from .placement import servers

TOP = 5


def fragments(log: Log) -> dict[str, Fragment]:
    """The fragments of a log by their keys, ordered by module and category."""
    facts = Facts(log)
    made = [_context(facts)]
    if len(facts.posix):
        made += [_sizes(facts), _alignment(facts), _order(facts), _repeats(facts), _sharing(facts), _ranks(facts), _metadata(facts)]
    if len(facts.mpi):
        made += [_calls(facts), _mpi_ranks(facts)]
    if len(facts.stdio):
        made.append(_streams(facts))
    found = servers(facts)
    made += [found] if found is not None else []
    made += [_others(facts, name) for name in ("H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR") if name in log.modules]
    return {one.key: one for one in made}


def joined(many: Mapping[str, Fragment]) -> dict[str, Fragment]:
    """All fragments as one, for an ablation: the fields keep their names where no other fragment has them."""
    fields: dict[str, Value] = {}
    for one in many.values():
        fields.update({f"{one.key}:{name}": value for name, value in one.fields.items()})
    return {"LOG.all": Fragment("LOG", "all", fields)}


def _rounded(fields: Mapping[str, Any]) -> dict[str, Value]:
    """Plain numbers with six significant digits; counts as they are."""
    made: dict[str, Value] = {}
    for name, value in fields.items():
        if isinstance(value, str | int):
            made[name] = value
        else:
            number = float(value)
            made[name] = int(number) if number == int(number) and abs(number) < 1e15 else float(f"{number:.6g}")
    return made


def _top(facts: Facts, weight: Any, **columns: Any) -> tuple[tuple[Mapping[str, Value], ...], tuple[int, ...]]:
    """The five files with the largest weight, with their figures, and the numbers of their records."""
    ids, _ = facts.files
    order = [int(i) for i in np.argsort(-weight, kind="stable")[:TOP] if weight[i] > 0]
    rows: tuple[Mapping[str, Value], ...] = tuple(
        {"file": shortened(facts.log.file(int(ids[i]))), **_rounded({name: column[i] for name, column in columns.items()})} for i in order
    )
    return rows, tuple(int(ids[i]) for i in order)


def shortened(name: str) -> str:
    """The end of a file's name, so that a fragment stays small."""
    return plain(name if len(name) <= 48 else f"…{name[-47:]}")


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _context(facts: Facts) -> Fragment:
    log = facts.log
    kinds = {log.mount_of(name)[1] for name in log.names.values() if name.startswith("/")}
    fields = {
        "processes": log.processes, "run_time_s": log.run_time_s, "executable": plain(log.executable, 80), "bytes": facts.moved,
        "io_time_s": facts.io_s, "data_time_s": facts.data_s, "metadata_time_s": facts.meta_s,
        "io_share_of_run": _share(facts.io_s, log.run_time_s * log.processes), "modules": " ".join(log.modules),
        "file_systems": plain(" ".join(sorted(kinds)), 60), "partial": " ".join(log.partial),
        "lustre": int("lustre" in kinds or log.stripes is not None),
        "files": len(log.names),
        "mpi_io": int(len(facts.mpi) > 0), "posix_bytes": float(facts.bytes("read").sum() + facts.bytes("write").sum()),
    }  # fmt: skip
    return Fragment("JOB", "context", _rounded(fields))


def _sizes(facts: Facts) -> Fragment:
    fields: dict[str, Any] = {}
    weight = np.zeros(len(facts.files[0]))
    columns: dict[str, Any] = {}
    _, place = facts.files
    for way in DIRECTIONS:
        total, small, spent = facts.requests(way), facts.small(way), facts.time(way)
        in_small = spent * small / np.maximum(total, 1)
        artefact = small * facts.aggregated[place]
        fields |= {
            f"{way}s": total.sum(), f"{way}s_small": small.sum(), f"{way}_small_share": _share(small.sum(), total.sum()),
            f"{way}_time_s": spent.sum(), f"{way}_time_in_small_s": in_small.sum(),
            f"{way}_small_severity": facts.share(in_small.sum()),
            f"{way}_small_share_of_time": _share(in_small.sum(), spent.sum()),
            f"{way}_small_aggregated_share": _share(artefact.sum(), small.sum()),
            f"{way}_small_severity_not_aggregated": facts.share((in_small * ~facts.aggregated[place]).sum()),
            f"{way}_mean_bytes": _share(facts.bytes(way).sum(), total.sum()),
        }  # fmt: skip
        weight += facts.by_file(in_small)
        columns |= {f"{way}s_small": facts.by_file(small), f"{way}s": facts.by_file(total)}
    return Fragment("POSIX", "sizes", _rounded(fields), *_top(facts, weight, **columns))


def _alignment(facts: Facts) -> Fragment:
    module = facts.posix
    unit = module.amount("POSIX_FILE_ALIGNMENT")
    wrong = module.amount("POSIX_FILE_NOT_ALIGNED") * (unit > 1)
    requests = {way: facts.requests(way) * (unit > 1) for way in DIRECTIONS}
    both = requests["read"] + requests["write"]
    traced = _traced_misaligned(facts)
    fields: dict[str, Any] = {"misaligned": wrong.sum(), "requests": both.sum(), "attributed": "exact"}
    severity = np.zeros(len(module))
    for way in DIRECTIONS:
        part = requests[way] / np.maximum(both, 1)
        mine = np.minimum(wrong * part, requests[way])
        if traced is not None:
            mine = np.where(traced["known"], traced[way], mine)
            fields["attributed"] = "traced"
        elif ((part > 0) & (part < 1) & (wrong > 0) & (wrong < both)).any():
            fields["attributed"] = "mixed"
        if fields["attributed"] == "mixed" and requests[way].sum() < 0.1 * both.sum():
            mine = np.zeros(len(module))  # Too few requests of this direction for the split to mean anything.
        spent = facts.time(way) * mine / np.maximum(requests[way], 1)
        severity += spent
        fields |= {
            f"{way}s_misaligned": mine.sum(), f"{way}_misaligned_share": _share(mine.sum(), requests[way].sum()),
            f"{way}_misaligned_severity": facts.share(spent.sum()),
        }  # fmt: skip
    common = module.amount("POSIX_ACCESS1_ACCESS")
    top = int(np.argmax(wrong)) if len(module) else 0
    fields |= {"alignment": unit[top], "common_request": common[top]}
    stripe = _stripe_of(facts, int(module.ids[top]))
    fields |= {"stripe_size": stripe, "request_mod_stripe": common[top] % stripe if stripe else 0}
    weight = facts.by_file(severity)
    rows = _top(facts, weight, misaligned=facts.by_file(wrong), requests=facts.by_file(both), alignment=_largest(facts, unit))
    return Fragment("POSIX", "alignment", _rounded(fields), *rows)


def _largest(facts: Facts, values: Any) -> Any:
    ids, place = facts.files
    found = np.zeros(len(ids))
    np.maximum.at(found, place, values)
    return found


def _stripe_of(facts: Facts, number: int) -> int:
    stripes = facts.log.stripes
    if stripes is None:
        return 0
    rows = np.flatnonzero(stripes.ids == number)
    return max(0, int(stripes.size[rows[0]])) if len(rows) else 0


def _traced_misaligned(facts: Facts) -> dict[str, Any] | None:
    """Misaligned reads and writes of each POSIX record from traced requests, where the log has all of them."""
    traced = facts.log.segments.get("DXT_POSIX")
    if traced is None or not len(traced) or "DXT_POSIX" in facts.log.partial:
        return None
    module = facts.posix
    ids, place = facts.files
    at = np.searchsorted(ids, traced.ids)
    there = (at < len(ids)) & (ids[np.minimum(at, len(ids) - 1)] == traced.ids)
    unit = np.maximum(_largest(facts, module.amount("POSIX_FILE_ALIGNMENT")), 1).astype(np.int64)
    wrong = there & (traced.offset % unit[np.minimum(at, len(ids) - 1)] != 0)
    totals = facts.by_file(facts.requests("read") + facts.requests("write"))
    complete = np.bincount(at[there], minlength=len(ids))[: len(ids)] == totals
    # Where a file has several records, its figures go to each of them in proportion to its requests.
    made: dict[str, Any] = {"known": complete[place]}
    for way, wrote in (("read", False), ("write", True)):
        mine = np.bincount(at[wrong & (traced.wrote == wrote)], minlength=len(ids))[: len(ids)]
        of_file = facts.by_file(facts.requests(way))
        made[way] = mine[place] * facts.requests(way) / np.maximum(of_file[place], 1)
    return made


def _order(facts: Facts) -> Fragment:
    module = facts.posix
    fields: dict[str, Any] = {}
    weight = np.zeros(len(facts.files[0]))
    columns: dict[str, Any] = {}
    for way, (plural, _) in DIRECTIONS.items():
        total = facts.requests(way)
        first = np.minimum(total, np.where(module.ranks < 0, facts.users[facts.files[1]], 1))
        jumped = np.maximum(0.0, total - module.amount(f"POSIX_SEQ_{plural}") - first)
        spent = facts.time(way) * jumped / np.maximum(total, 1)
        fields |= {
            f"{way}s": total.sum(), f"{way}s_random": jumped.sum(), f"{way}_random_share": _share(jumped.sum(), total.sum()),
            f"{way}_random_severity": facts.share(spent.sum()),
            f"{way}_consecutive_share": _share(module.amount(f"POSIX_CONSEC_{plural}").sum(), total.sum()),
        }  # fmt: skip
        # The largest share within one file that matters, which a job's total may hide.
        by_file, all_of = facts.by_file(jumped), facts.by_file(total)
        large = facts.by_file(spent) >= 0.05 * max(facts.data_s, 1e-12)
        fields |= {f"{way}s_random_in_busy_files": (by_file * large).sum(), f"{way}s_in_busy_files": (all_of * large).sum()}
        weight += facts.by_file(spent)
        columns |= {f"{way}s_random": by_file, f"{way}s": all_of}
    return Fragment("POSIX", "order", _rounded(fields), *_top(facts, weight, **columns))


def _repeats(facts: Facts) -> Fragment:
    module = facts.posix
    read = facts.by_file(facts.bytes("read"))
    extent = _largest(facts, module.amount("POSIX_MAX_BYTE_READ")) + 1
    times = np.where(read > 0, read / np.maximum(extent, 1), 0.0)
    spent = facts.by_file(facts.time("read")) * np.maximum(0.0, 1 - 1 / np.maximum(times, 1))
    again = times > 2
    fields = {
        "bytes_read": read.sum(), "files_read": (read > 0).sum(), "repeated_times": _share(read[again].sum(), extent[again].sum()),
        "repeated_bytes_share": _share(read[again].sum(), read.sum()),
        "repeated_severity": facts.share(spent.sum()),
    }  # fmt: skip
    return Fragment("POSIX", "repeats", _rounded(fields), *_top(facts, spent, bytes_read=read, extent=extent, times=times))


def _sharing(facts: Facts) -> Fragment:
    moved = facts.by_file(facts.bytes("read") + facts.bytes("write"))
    spent = facts.by_file(facts.time("read") + facts.time("write"))
    several = facts.users > 1
    alone = several & ~facts.aggregated
    few_s = spent * alone
    fields = {
        "files": len(moved), "shared_files": several.sum(), "shared_files_not_aggregated": alone.sum(),
        "bytes_shared_share": _share(moved[several].sum(), moved.sum()),
        "bytes_shared_not_aggregated_share": _share(moved[alone].sum(), moved.sum()),
        "shared_severity": facts.share(few_s.sum()), "ranks_on_largest": facts.users[int(np.argmax(moved))] if len(moved) else 0,
    }  # fmt: skip
    return Fragment("POSIX", "sharing", _rounded(fields), *_top(facts, moved * alone, bytes=moved, ranks=facts.users))


def _ranks(facts: Facts) -> Fragment:
    module, log = facts.posix, facts.log
    joined_records = np.flatnonzero((module.ranks < 0) & ((facts.requests("read") + facts.requests("write")) > 0))
    fast, slow = (module.amount(f"POSIX_F_{name}_RANK_TIME")[joined_records] for name in ("FASTEST", "SLOWEST"))
    fast_b, slow_b = (module.amount(f"POSIX_{name}_RANK_BYTES")[joined_records] for name in ("FASTEST", "SLOWEST"))
    fields: dict[str, Any] = {"shared_files": len(joined_records)}
    if len(joined_records):
        at = int(np.argmax(slow))
        high, low = max(fast_b[at], slow_b[at]), min(fast_b[at], slow_b[at])
        fields |= {
            "shared_fastest_s": fast[at], "shared_slowest_s": slow[at], "shared_time_spread": _share(slow[at] - fast[at], slow[at]),
            "shared_fastest_bytes": fast_b[at], "shared_slowest_bytes": slow_b[at], "shared_bytes_spread": _share(high - low, high),
            "shared_slowest_rank": int(module.column("POSIX_SLOWEST_RANK")[joined_records[at]]),
            "shared_file_aggregated": int(facts.aggregated[facts.files[1]][joined_records[at]]),
        }  # fmt: skip
    for name, only in (("own", None), ("own_not_aggregated", ~facts.aggregated)):
        ranks, moved, spent = facts.by_rank(only)
        if len(ranks):
            idle = len(ranks) < log.processes
            low = 0.0 if idle else float(moved.min())
            mean_s = float(spent.sum()) / log.processes
            fields |= {
                f"{name}_ranks": len(ranks), f"{name}_bytes_most": moved.max(), f"{name}_bytes_least": low,
                f"{name}_bytes_spread": _share(moved.max() - low, moved.max()),
                f"{name}_bytes_spread_among_users": _share(moved.max() - moved.min(), moved.max()),
                f"{name}_slowest_s": spent.max(), f"{name}_mean_s": mean_s, f"{name}_busiest_rank": int(ranks[np.argmax(moved)]),
                f"{name}_slowest_rank": int(ranks[np.argmax(spent)]), f"{name}_time_lost_share": _share(spent.max() - mean_s, spent.max()),
            }  # fmt: skip
            if name == "own":
                quarters = np.quantile(spent, [0.25, 0.5, 0.75])
                fields |= {f"own_s_quantile_{q}": value for q, value in zip((25, 50, 75), quarters)}
    fields["critical_s"] = facts.critical_s
    return Fragment("POSIX", "ranks", _rounded(fields))


def _metadata(facts: Facts) -> Fragment:
    module = facts.posix
    meta = module.amount("POSIX_F_META_TIME")
    calls = sum((module.amount(f"POSIX_{name}") for name in ("OPENS", "STATS", "FSYNCS", "FDSYNCS")), np.zeros(len(module)))
    data = facts.requests("read") + facts.requests("write")
    own = module.ranks >= 0
    _, rank = np.unique(module.ranks[own], return_inverse=True)
    by_rank = np.bincount(rank.reshape(-1), meta[own]) if own.any() else np.zeros(1)
    on_rank = float(by_rank.max()) + float(meta[~own].sum()) / facts.log.processes
    moved = facts.by_file(facts.bytes("read") + facts.bytes("write"))
    used = facts.by_file(calls) > 0
    busy = facts.by_file(facts.time("read") + facts.time("write"))
    little = (moved > 0) & (moved < 1 << 20)
    critical = facts.critical_s
    fields = {
        "metadata_s": meta.sum(), "metadata_share": _share(meta.sum(), facts.io_s), "metadata_s_on_one_rank": on_rank,
        "share_of_slowest_rank": min(1.0, _share(on_rank, max(on_rank, critical))),
        "calls": calls.sum(), "data_requests": data.sum(),
        "calls_per_data_request": _share(calls.sum(), data.sum()) if data.sum() else calls.sum(),
        "opens": module.amount("POSIX_OPENS").sum(), "stats": module.amount("POSIX_STATS").sum(), "files": used.sum(),
        "files_per_rank": used.sum() / max(1, facts.log.processes),
        "median_file_bytes": float(np.median(moved[moved > 0])) if (moved > 0).any() else 0.0,
        "small_files_per_rank": little.sum() / max(1, facts.log.processes),
        "small_files_share_of_data_time": facts.share(busy[little].sum()),
        "small_files_share_of_small_requests": _share(
            facts.by_file(facts.small("read") + facts.small("write"))[little].sum(), (facts.small("read") + facts.small("write")).sum()
        ),
    }  # fmt: skip
    rows = _top(facts, facts.by_file(meta), metadata_s=facts.by_file(meta), calls=facts.by_file(calls))
    return Fragment("POSIX", "metadata", _rounded(fields), *rows)


def _calls(facts: Facts) -> Fragment:
    module = facts.mpi
    fields: dict[str, Any] = {"hints": module.amount("MPIIO_HINTS").sum(), "views": module.amount("MPIIO_VIEWS").sum()}
    spent_all = sum(float(module.amount(f"MPIIO_F_{way.upper()}_TIME").sum()) for way in DIRECTIONS)
    ids, place = np.unique(module.ids, return_inverse=True)
    weight = np.zeros(len(ids))
    for way, (plural, past) in DIRECTIONS.items():
        together = sum((module.amount(f"MPIIO_{kind}_{plural}") for kind in ("COLL", "SPLIT")), np.zeros(len(module)))
        alone = sum((module.amount(f"MPIIO_{kind}_{plural}") for kind in ("INDEP", "NB")), np.zeros(len(module)))
        total = together.sum() + alone.sum()
        spent = module.amount(f"MPIIO_F_{way.upper()}_TIME") * alone / np.maximum(together + alone, 1)
        on_posix = facts.time(way)[np.isin(facts.posix.ids, ids[np.bincount(place.reshape(-1), alone, len(ids)) > 0])].sum()
        fields |= {
            f"{way}s": total, f"{way}s_collective": together.sum(), f"{way}s_independent": alone.sum(),
            f"{way}_collective_share": _share(together.sum(), total), f"{way}_bytes": module.amount(f"MPIIO_BYTES_{past}").sum(),
            f"{way}_mean_bytes": _share(module.amount(f"MPIIO_BYTES_{past}").sum(), total),
            f"{way}_independent_severity": max(facts.share(on_posix), _share(spent.sum(), spent_all) if not facts.data_s else 0.0),
        }  # fmt: skip
        weight += np.bincount(place.reshape(-1), alone, len(ids))
    order = [int(i) for i in np.argsort(-weight, kind="stable")[:TOP] if weight[i] > 0]
    top: tuple[Mapping[str, Value], ...] = tuple(
        {"file": shortened(facts.log.file(int(ids[i]))), "independent": int(weight[i])} for i in order
    )
    return Fragment("MPI-IO", "calls", _rounded(fields), top, tuple(int(ids[i]) for i in order))


def _mpi_ranks(facts: Facts) -> Fragment:
    """How evenly the ranks call MPI-IO, whoever moves the bytes in the end."""
    module = facts.mpi
    shared = np.flatnonzero(module.ranks < 0)
    fields: dict[str, Any] = {"shared_files": len(shared)}
    if len(shared):
        fast, slow = (module.amount(f"MPIIO_{name}_RANK_BYTES")[shared] for name in ("FASTEST", "SLOWEST"))
        moved = (module.amount("MPIIO_BYTES_READ") + module.amount("MPIIO_BYTES_WRITTEN"))[shared]
        at = int(np.argmax(moved))
        mean = moved[at] / facts.log.processes
        spread = np.sqrt(module.amount("MPIIO_F_VARIANCE_RANK_BYTES")[shared][at])
        high, low = max(fast[at], slow[at]), min(fast[at], slow[at])
        fields |= {
            "bytes": moved[at], "bytes_of_a_rank": mean, "bytes_deviation": spread, "bytes_spread": _share(high - low, high),
            "collective_share": _share(
                sum(module.amount(f"MPIIO_COLL_{way}")[shared][at] for way in ("READS", "WRITES")),
                sum(module.amount(f"MPIIO_{kind}_{way}")[shared][at] for kind in ("COLL", "INDEP") for way in ("READS", "WRITES")),
            ),
        }  # fmt: skip
    return Fragment("MPI-IO", "ranks", _rounded(fields))


def _streams(facts: Facts) -> Fragment:
    fields: dict[str, Any] = {}
    ids, place = np.unique(facts.stdio.ids, return_inverse=True)
    weight = np.zeros(len(ids))
    for way in DIRECTIONS:
        mine, other = facts.bytes(way, facts.stdio), facts.bytes(way).sum() if len(facts.posix) else 0.0
        spent = facts.time(way, facts.stdio)
        plural = DIRECTIONS[way][0]
        fields |= {
            f"{way}s": facts.stdio.amount(f"STDIO_{plural}").sum(), f"{way}_bytes": mine.sum(),
            f"{way}_share_of_bytes": _share(mine.sum(), mine.sum() + other), f"{way}_time_s": spent.sum(),
            f"{way}_severity": facts.share(spent.sum()),
            f"{way}_mean_bytes": _share(mine.sum(), facts.stdio.amount(f"STDIO_{plural}").sum()),
        }  # fmt: skip
        weight += np.bincount(place.reshape(-1), mine, len(ids))
    order = [int(i) for i in np.argsort(-weight, kind="stable")[:TOP] if weight[i] > 0]
    top: tuple[Mapping[str, Value], ...] = tuple({"file": shortened(facts.log.file(int(ids[i]))), "bytes": int(weight[i])} for i in order)
    return Fragment("STDIO", "streams", _rounded(fields), top, tuple(int(ids[i]) for i in order))


def _others(facts: Facts, name: str) -> Fragment:
    module = facts.log.modules[name]
    # A text log may name any counters, so only those that Darshan has are taken.
    ends = ("_OPENS", "_READS", "_WRITES", "_FLUSHES", "_USE_MPIIO", "_SYNCS")
    wanted = [c for c in COUNTERS[name] if c in module.counters and c.endswith(ends)]
    fields: dict[str, Any] = {c.removeprefix(f"{name}_").lower(): module.amount(c).sum() for c in wanted[:12]}
    return Fragment(name, "counts", _rounded({"records": len(module), **fields}))
