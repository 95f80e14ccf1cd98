"""A placement for the agent of a node: an annotation on the pod, and the line that cgroup v2 takes."""

from __future__ import annotations

import os
from pathlib import Path

from armillary.errors import InputError
from armillary.scheduling.contention import cpu_list, parse_cpu_list

from .live import Placement

ANNOTATION = "armillary/cpuset"


def annotation(placement: Placement) -> dict[str, str]:
    """The annotation that carries the CPUs to the node."""
    return {ANNOTATION: placement.cpuset}


def cpuset_line(placement: Placement) -> str:
    """What is to be written into `cpuset.cpus` of the container's cgroup."""
    return f"{placement.cpuset}\n"


def write_cpuset(cgroup: str | os.PathLike[str], cpuset: str) -> None:
    """Writes a list of CPUs into the `cpuset.cpus` of an existing cgroup (v2)."""
    text = cpu_list(parse_cpu_list(cpuset, where="cpuset"))
    file = Path(cgroup) / "cpuset.cpus"
    if not file.is_file():
        raise InputError("found no cpuset.cpus; expected a cgroup v2 with the cpuset controller", where=str(cgroup))
    try:
        file.write_text(f"{text}\n")
    except OSError as error:
        raise InputError(f"cannot write {text}: {error.strerror}", where=str(file)) from None
