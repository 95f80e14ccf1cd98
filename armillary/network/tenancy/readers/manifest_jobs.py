"""The jobs of Kubernetes manifests: every object that wants a VNI, all submitted at once."""

from __future__ import annotations

from pathlib import Path

from armillary.errors import InputError

from ..kubernetes.objects import read_manifests
from ..service.hooks import DECORATED, OWN, annotation
from .traces import Trace


def read_manifest_jobs(path: Path, duration_s: float) -> Trace:
    """One job per annotated object, with as many pods as it has at once; each runs for `duration_s`. Its namespace is the tenant."""
    pods, tenants, claims = [], [], []
    for one in read_manifests(path):
        if one.annotation is None or (one.version, one.kind) not in DECORATED:
            continue
        wanted = annotation(one.annotation, f"{path}: {one}: annotation vni")
        pods.append(max(1, one.count))
        tenants.append(one.namespace)
        claims.append("" if wanted in OWN else wanted)
    if not pods:
        raise InputError("found no object with the annotation vni; expected a Job, Deployment, ReplicaSet or DaemonSet", where=str(path))
    return Trace.of([0.0] * len(pods), pods, [duration_s] * len(pods), tenants, claims, str(path))
