"""Quotas for Kubernetes: patches of the resize subresource, and a recommendation in the shape of a VerticalPodAutoscaler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from armillary.errors import InputError, one_line


def quantity(cores: float) -> str:
    """Cores as Kubernetes writes them, in whole millicores: 1.5 is 1500m."""
    if not (math.isfinite(cores) and 0 < cores <= 4096):
        raise InputError(f"found {cores!r} cores; expected a number above 0", where="cores")
    return f"{max(1, math.ceil(1000 * cores - 1e-9))}m"


def resize_patch(container: str, cores: float) -> dict[str, Any]:
    """A strategic merge patch for `kubectl patch pod <name> --subresource resize`, which changes CPU in place.

    Requests follow limits, so that what is allocated is also reserved.
    """
    if not container:
        raise InputError("found no name; expected that of a container", where="container")
    amount = {"cpu": quantity(cores)}
    return {"spec": {"containers": [{"name": container, "resources": {"requests": dict(amount), "limits": dict(amount)}}]}}


def json_patch(index: int, cores: float) -> list[dict[str, Any]]:
    """The same as RFC 6902 operations on the container number `index` of a pod, which must have CPU requests and limits already."""
    place = f"/spec/containers/{index}/resources"
    return [{"op": "replace", "path": f"{place}/{part}/cpu", "value": quantity(cores)} for part in ("requests", "limits")]


def recommendation(
    quotas: Mapping[str, float], *, namespace: str = "default", kind: str = "Deployment", slack: float = 0.2
) -> list[dict[str, Any]]:  # fmt: skip
    """One VerticalPodAutoscaler per service, in mode Off, whose status recommends the cores that were decided.

    The bounds are the target less and plus `slack` of it. A recommender of your own writes the status; the spec says that it is not
    Kubernetes' default one.
    """
    if not 0 <= slack < 1:
        raise InputError(f"found {slack:g}; expected a share from 0 to below 1", where="slack")
    found = []
    for name, cores in quotas.items():
        target = {"cpu": quantity(cores)}
        found.append({
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": one_line(name, 200), "namespace": namespace},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
                "updatePolicy": {"updateMode": "Off"},
                "recommenders": [{"name": "armillary-ddrm"}],
            },
            "status": {
                "recommendation": {
                    "containerRecommendations": [{
                        "containerName": name, "target": target, "uncappedTarget": dict(target),
                        "lowerBound": {"cpu": quantity(cores * (1 - slack))}, "upperBound": {"cpu": quantity(cores * (1 + slack))},
                    }]
                }
            },
        })  # fmt: skip
    return found
