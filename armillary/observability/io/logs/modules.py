"""The modules of a Darshan log and their counters, as version 3.5 of its tools names them."""

from __future__ import annotations

from collections.abc import Mapping

#: Size bins with inclusive upper bounds in bytes: exactly 1 MiB is counted in 100K_1M.
BIN_NAMES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
BIN_BOUNDS = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30)
#: Bins of requests of at most 1 MiB.
SMALL_BINS = 5

_STAMPS = ("OPEN_START", "READ_START", "WRITE_START", "CLOSE_START", "OPEN_END", "READ_END", "WRITE_END", "CLOSE_END")
_SHARED_TIMES = ("F_FASTEST_RANK_TIME", "F_SLOWEST_RANK_TIME", "F_VARIANCE_RANK_TIME", "F_VARIANCE_RANK_BYTES")
_FOUR = range(1, 5)


def _bins(direction: str, aggregate: str = "") -> tuple[str, ...]:
    return tuple(f"SIZE_{direction}_{aggregate}{name}" for name in BIN_NAMES)


def _common(name: str) -> tuple[str, ...]:
    return (*(f"{name}{i}_{name}" for i in _FOUR), *(f"{name}{i}_COUNT" for i in _FOUR))


_RANKS = ("FASTEST_RANK", "FASTEST_RANK_BYTES", "SLOWEST_RANK", "SLOWEST_RANK_BYTES")
_TIMES = ("F_READ_TIME", "F_WRITE_TIME", "F_META_TIME", "F_MAX_READ_TIME", "F_MAX_WRITE_TIME")

_POSIX = (
    "OPENS", "FILENOS", "DUPS", "READS", "WRITES", "SEEKS", "STATS", "MMAPS", "FSYNCS", "FDSYNCS", "RENAME_SOURCES", "RENAME_TARGETS",
    "RENAMED_FROM", "MODE", "BYTES_READ", "BYTES_WRITTEN", "MAX_BYTE_READ", "MAX_BYTE_WRITTEN", "CONSEC_READS", "CONSEC_WRITES",
    "SEQ_READS", "SEQ_WRITES", "RW_SWITCHES", "MEM_NOT_ALIGNED", "MEM_ALIGNMENT", "FILE_NOT_ALIGNED", "FILE_ALIGNMENT",
    "MAX_READ_TIME_SIZE", "MAX_WRITE_TIME_SIZE", *_bins("READ"), *_bins("WRITE"), *_common("STRIDE"), *_common("ACCESS"), *_RANKS,
    *(f"F_{stamp}_TIMESTAMP" for stamp in _STAMPS), *_TIMES, *_SHARED_TIMES,
)  # fmt: skip
_MPIIO = (
    "INDEP_OPENS", "COLL_OPENS", "INDEP_READS", "INDEP_WRITES", "COLL_READS", "COLL_WRITES", "SPLIT_READS", "SPLIT_WRITES", "NB_READS",
    "NB_WRITES", "SYNCS", "HINTS", "VIEWS", "MODE", "BYTES_READ", "BYTES_WRITTEN", "RW_SWITCHES", "MAX_READ_TIME_SIZE",
    "MAX_WRITE_TIME_SIZE", *_bins("READ", "AGG_"), *_bins("WRITE", "AGG_"), *_common("ACCESS"), *_RANKS,
    *(f"F_{stamp}_TIMESTAMP" for stamp in _STAMPS), *_TIMES, *_SHARED_TIMES,
)  # fmt: skip
_STDIO = (
    "OPENS", "FDOPENS", "READS", "WRITES", "SEEKS", "FLUSHES", "BYTES_WRITTEN", "BYTES_READ", "MAX_BYTE_READ", "MAX_BYTE_WRITTEN",
    *_RANKS, "F_META_TIME", "F_WRITE_TIME", "F_READ_TIME", "F_OPEN_START_TIMESTAMP", "F_CLOSE_START_TIMESTAMP", "F_WRITE_START_TIMESTAMP",
    "F_READ_START_TIMESTAMP", "F_OPEN_END_TIMESTAMP", "F_CLOSE_END_TIMESTAMP", "F_WRITE_END_TIMESTAMP", "F_READ_END_TIMESTAMP",
    *_SHARED_TIMES,
)  # fmt: skip


def _common_shapes() -> tuple[str, ...]:
    """The four most common requests of a data set or variable: bytes, and lengths and strides in the last five dimensions."""
    shape = [f"{what}_D{i}" for what in ("LENGTH", "STRIDE") for i in range(1, 6)]
    return (*(f"ACCESS{i}_{name}" for i in _FOUR for name in ("ACCESS", *shape)), *(f"ACCESS{i}_COUNT" for i in _FOUR))


_H5F = (
    "OPENS", "FLUSHES", "USE_MPIIO", "F_OPEN_START_TIMESTAMP", "F_CLOSE_START_TIMESTAMP", "F_OPEN_END_TIMESTAMP", "F_CLOSE_END_TIMESTAMP",
    "F_META_TIME",
)  # fmt: skip
_H5D = (
    "OPENS", "READS", "WRITES", "FLUSHES", "BYTES_READ", "BYTES_WRITTEN", "RW_SWITCHES", "REGULAR_HYPERSLAB_SELECTS",
    "IRREGULAR_HYPERSLAB_SELECTS", "POINT_SELECTS", "MAX_READ_TIME_SIZE", "MAX_WRITE_TIME_SIZE", *_bins("READ", "AGG_"),
    *_bins("WRITE", "AGG_"), *_common_shapes(), "DATASPACE_NDIMS", "DATASPACE_NPOINTS", "DATATYPE_SIZE",
    *(f"CHUNK_SIZE_D{i}" for i in range(1, 6)), "USE_MPIIO_COLLECTIVE", "USE_DEPRECATED", *_RANKS,
    *(f"F_{stamp}_TIMESTAMP" for stamp in _STAMPS), *_TIMES, *_SHARED_TIMES,
)  # fmt: skip
_PNETCDF_FILE = (
    "CREATES", "OPENS", "REDEFS", "INDEP_WAITS", "COLL_WAITS", "SYNCS", "BYTES_READ", "BYTES_WRITTEN", "WAIT_FAILURES",
    *(f"F_{what}_{when}_TIMESTAMP" for when in ("START", "END") for what in ("OPEN", "CLOSE", "WAIT")), "F_META_TIME", "F_WAIT_TIME",
)  # fmt: skip
_SHAPES = ("VAR", "VAR1", "VARA", "VARS", "VARM", "VARN")
_PNETCDF_VAR = (
    "OPENS", *(f"{kind}_{way}" for kind in ("INDEP", "COLL", "NB") for way in ("READS", "WRITES")), "BYTES_READ", "BYTES_WRITTEN",
    "RW_SWITCHES", *(f"{call}_{shape}" for call in ("PUT", "GET") for shape in (*_SHAPES, "VARD")),
    *(f"{call}_{shape}" for call in ("IPUT", "IGET", "BPUT") for shape in _SHAPES), "MAX_READ_TIME_SIZE", "MAX_WRITE_TIME_SIZE",
    *_bins("READ", "AGG_"), *_bins("WRITE", "AGG_"), *_common_shapes(), "NDIMS", "NPOINTS", "DATATYPE_SIZE", "IS_RECORD_VAR", *_RANKS,
    *(f"F_{stamp}_TIMESTAMP" for stamp in _STAMPS), *_TIMES, *_SHARED_TIMES,
)  # fmt: skip

#: What the counters of a module begin with.
PREFIX = {
    "POSIX": "POSIX_", "MPI-IO": "MPIIO_", "STDIO": "STDIO_", "H5F": "H5F_", "H5D": "H5D_", "PNETCDF_FILE": "PNETCDF_FILE_",
    "PNETCDF_VAR": "PNETCDF_VAR_", "LUSTRE": "LUSTRE_",
}  # fmt: skip
#: The counters of the newest version of each module, in the order of Darshan's tools.
COUNTERS: Mapping[str, tuple[str, ...]] = {
    module: tuple(PREFIX[module] + name for name in names)
    for module, names in (
        ("POSIX", _POSIX), ("MPI-IO", _MPIIO), ("STDIO", _STDIO), ("H5F", _H5F), ("H5D", _H5D), ("PNETCDF_FILE", _PNETCDF_FILE),
        ("PNETCDF_VAR", _PNETCDF_VAR),
    )
}  # fmt: skip
#: Modules whose records are counters, modules with segments, and modules that are named and left.
COUNTED = ("POSIX", "MPI-IO", "STDIO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR")
TRACED = ("DXT_POSIX", "DXT_MPIIO")
LEFT = ("HEATMAP", "APMPI", "APXC", "DFS", "DAOS", "BG/Q", "MDHIM", "APSS", "SPECTRUM", "NULL")
#: Numbers by which a binary log of version 3.41 refers to its modules.
NUMBERS = (
    "NULL", "POSIX", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "BG/Q", "LUSTRE", "STDIO", "DXT_POSIX", "DXT_MPIIO", "MDHIM",
    "APXC", "APMPI", "HEATMAP", "DFS", "DAOS",
)  # fmt: skip
#: Versions of the log format that the readers know.
VERSIONS = ("3.00", "3.10", "3.20", "3.21", "3.41")


def is_float(counter: str) -> bool:
    """Whether a counter is a time, a time stamp or a variance rather than a count."""
    return "_F_" in counter
