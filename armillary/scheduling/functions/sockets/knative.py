"""An allocation as a patch of a Knative Service: requests and limits of its container, and the node type it may run on."""

from __future__ import annotations

import math
import re
from typing import Any

from armillary.errors import InputError, one_line
from armillary.scheduling.functions.planning.allocator import Allocation

#: The label by which cloud providers name node types.
TYPE_LABEL = "node.kubernetes.io/instance-type"


def service_patch(
    allocation: Allocation, node_type: str = "", *, container: str = "user-container", concurrency: int = 1, label: str = TYPE_LABEL
) -> dict[str, Any]:
    """A strategic merge patch for `kubectl patch ksvc NAME --type merge`: a new revision gets these resources.

    Memory is a limit that kills; vCPUs are the quota. Knative takes a nodeSelector if its feature flag
    `kubernetes.podspec-nodeselector` is enabled.
    """
    if not (math.isfinite(allocation.vcpu) and allocation.vcpu > 0 and math.isfinite(allocation.memory_mb) and allocation.memory_mb > 0):
        raise InputError(f"found {allocation.vcpu:g} vCPUs and {allocation.memory_mb:g} MB; expected more than 0", where="allocation")
    if node_type and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", node_type):
        raise InputError(f'found the node type "{one_line(node_type, 40)}"; expected a value that a label may have', where="node_type")
    resources = {"cpu": f"{max(1, round(1000 * allocation.vcpu))}m", "memory": f"{math.ceil(allocation.memory_mb)}Mi"}
    spec: dict[str, Any] = {
        "containerConcurrency": concurrency,
        "containers": [{"name": container, "resources": {"requests": dict(resources), "limits": dict(resources)}}],
    }
    if node_type:
        spec["nodeSelector"] = {label: node_type}
    return {"spec": {"template": {"spec": spec}}}
