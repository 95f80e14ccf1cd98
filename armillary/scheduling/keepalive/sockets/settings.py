"""Keep-alives as the settings of serverless platforms: Knative, OpenFaaS and OpenWhisk."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from armillary.errors import InputError

RETENTION = "autoscaling.knative.dev/scale-to-zero-pod-retention-period"
#: The longest time that Knative accepts.
KNATIVE_MOST_S = 3600.0


def knative(service: Mapping[str, Any], keep_s: float) -> dict[str, Any]:
    """A copy of a Knative Service manifest, in which the last pod stays for `keep_s` seconds once it could be removed.

    Knative decides to scale to zero only after its stable window without requests (60 s by default), so a pod stays that much longer.
    """
    made = copy.deepcopy(dict(service))
    if made.get("kind") != "Service" or not str(made.get("apiVersion", "")).startswith("serving.knative.dev/"):
        raise InputError(f'found {made.get("apiVersion")} {made.get("kind")}; expected a serving.knative.dev Service')
    if _checked(keep_s) > KNATIVE_MOST_S:
        raise InputError(f"found {keep_s:g} s; expected at most {KNATIVE_MOST_S:g} s, which is Knative's limit")
    place = made.setdefault("spec", {}).setdefault("template", {}).setdefault("metadata", {}).setdefault("annotations", {})
    place[RETENTION] = duration(keep_s)
    return made


def openfaas(keep_s: float) -> dict[str, str]:
    """The labels of an OpenFaaS function that scales to zero after `keep_s` idle seconds, at least 1."""
    return {"com.openfaas.scale.zero": "true", "com.openfaas.scale.zero-duration": duration(max(1.0, _checked(keep_s)))}


def openwhisk(keep_s: float) -> str:
    """The setting of OpenWhisk's invokers: how long an idle container of any function stays."""
    return f"whisk.container-proxy.timeouts.idle-container = {math.ceil(_checked(keep_s))} seconds\n"


def duration(seconds: float) -> str:
    """Seconds as Go writes durations: 1m30s, 600ms, 0s."""
    milliseconds = round(1e3 * _checked(seconds))
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    left = f"{rest / 1000:g}s" if rest or not (hours or minutes) else ""
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "") + left


def _checked(seconds: float) -> float:
    if not (math.isfinite(seconds) and 0 <= seconds <= 1e7):
        raise InputError(f"found {seconds:g} s; expected a finite time of at least 0 s")
    return float(seconds)
