"""What GreenK8s writes for Kubernetes: Jobs that wait until a time, and Pods whose CPU request is what they are expected to use."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from armillary.errors import InputError

from .scheduler import moment_of

UNSUSPEND = "armillary.dev/unsuspend-at"


def suspended_job(job: Mapping[str, Any], start_s: float) -> dict[str, Any]:
    """A Job with `suspend: true` and the time at which to unsuspend it, in seconds since 1970, as an annotation.

    Whoever runs it sets `suspend` to false then, for instance a CronJob with `kubectl patch`.
    """
    if job.get("kind") != "Job" or not isinstance(job.get("spec"), Mapping):
        raise InputError("expected a Job with a spec", where="job")
    if not math.isfinite(start_s):
        raise InputError(f"found {start_s}; expected seconds since 1970", where="start_s")
    made: dict[str, Any] = copy.deepcopy(dict(job))
    made["spec"]["suspend"] = True
    meta = made.setdefault("metadata", {})
    meta.setdefault("annotations", {})[UNSUSPEND] = moment_of(start_s)
    return made


def resized(pod: Mapping[str, Any], cores: float) -> dict[str, Any]:
    """A Pod whose containers request `cores` together, shared as they were; limits and memory stay.

    kube-scheduler adds up requests, so a node takes more pods only if they request what they use.
    """
    from armillary.scheduling.kubernetes import Pod, quantity

    asked = Pod.of(pod).cpu
    if not 0 < cores <= max(asked, 0.0):
        raise InputError(f"found {cores:g} cores; expected above 0 and at most the request of {asked:g}", where="cores")
    made: dict[str, Any] = copy.deepcopy(dict(pod))
    for i, container in enumerate(made["spec"].get("containers", [])):
        requests = container.get("resources", {}).get("requests", {})
        if "cpu" in requests:
            share = quantity(requests["cpu"], f"containers[{i}]") * cores / asked
            requests["cpu"] = f"{max(1, math.ceil(1000 * share - 1e-9))}m"
    return made
