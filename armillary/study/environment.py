"""The machine that a unit ran on: enough to judge a measured value by. It does not name the host unless the user asks for it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import socket
from pathlib import Path
from typing import Any

PACKAGES = ("armillary", "numpy", "scipy", "numba", "polars", "torch", "mpi4py", "distributed", "cupy")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@functools.cache
def here() -> str:
    """This machine as canonical JSON: CPU, memory, kernel, counters, GPUs, versions, thread pools.

    The host's name is hashed unless ARMILLARY_NAME_HOST is set.
    """
    name = socket.gethostname()
    facts: dict[str, Any] = {
        "host": name if os.environ.get("ARMILLARY_NAME_HOST") else hashlib.sha256(name.encode()).hexdigest()[:12],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": _caches(),
        "memory_bytes": _memory_bytes(),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "virtual": "hypervisor" in (_text("/proc/cpuinfo") or ""),
        "hardware_counters": Path("/sys/bus/event_source/devices/cpu").exists(),
        "energy_counters": any(Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj")),
        "gpus": _gpus(),
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
    }
    return json.dumps({key: value for key, value in facts.items() if value is not None}, sort_keys=True)


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _cpu_model() -> str | None:
    for line in (_text("/proc/cpuinfo") or "").splitlines():
        if line.lower().startswith(("model name", "hardware", "cpu model")):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _caches() -> dict[str, str]:
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(str(index / name)) for name in ("level", "type", "size"))
        if level and size:
            found[f"L{level} {(kind or '').lower()}".strip()] = size
    return found


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _gpus() -> list[str]:
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    lines = [line for file in files for line in (_text(str(file)) or "").splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
