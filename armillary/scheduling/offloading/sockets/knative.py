"""A mode as Knative takes it: the annotation, the GPU limit and the node selector of a Service manifest."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from armillary.errors import InputError
from armillary.scheduling.offloading.inspection.modes import ANNOTATION
from armillary.scheduling.offloading.runtime.controller import Mode

GPU_RESOURCE = "nvidia.com/gpu"
GPU_LABEL = "nvidia.com/gpu.present"


def knative(service: Mapping[str, Any], mode: Mode | str) -> dict[str, Any]:
    """A Knative Service whose pods get a GPU (limit 1 and a node that has one) or none (limit 0); the given one is not changed.

    A change of the template makes Knative start a new revision, which is what a switch is.
    """
    wanted = Mode.of(mode)
    made: dict[str, Any] = copy.deepcopy(dict(service))
    if made.get("kind") != "Service" or not str(made.get("apiVersion", "")).startswith("serving.knative.dev/"):
        raise InputError(f"found {made.get('apiVersion')} {made.get('kind')}; expected a serving.knative.dev Service")
    template = _part(_part(made, "spec"), "template")
    _part(_part(template, "metadata"), "annotations")[ANNOTATION] = wanted.value
    spec = _part(template, "spec")
    containers = spec.setdefault("containers", [{}])
    if not isinstance(containers, list) or not containers or not all(isinstance(one, dict) for one in containers):
        raise InputError("spec.template.spec.containers: expected a list of containers")
    resources = _part(containers[0], "resources")
    _part(resources, "limits")[GPU_RESOURCE] = "1" if wanted.on_gpu else "0"
    if isinstance(resources.get("requests"), dict):
        resources["requests"].pop(GPU_RESOURCE, None)
    selector = _part(spec, "nodeSelector")
    if wanted.on_gpu:
        selector[GPU_LABEL] = "true"
    else:
        selector.pop(GPU_LABEL, None)
    if not selector:
        del spec["nodeSelector"]
    return made


def _part(of: dict[str, Any], name: str) -> dict[str, Any]:
    found = of.setdefault(name, {})
    if not isinstance(found, dict):
        raise InputError(f"{name}: found {type(found).__name__}; expected an object")
    return found
