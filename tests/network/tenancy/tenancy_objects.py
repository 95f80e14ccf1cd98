"""Objects as the controller posts them, and a database whose statements can be made to fail."""

from __future__ import annotations

import os
import signal
import sqlite3
from typing import Any

from armillary.network.tenancy import VniDatabase

GROUP = "horizon-opencube.eu/v1"
UID = "0f7c1d1e-7c7b-4e54-9d0a-2f7c1d1e0001"


def job(uid: str, vni: str | None = "true", namespace: str = "physics", *, kind: str = "Job", version: str = "batch/v1") -> dict[str, Any]:
    """A Job with the annotation."""
    annotations = {} if vni is None else {"vni": vni}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": f"job-{uid}", "namespace": namespace, "uid": uid, "annotations": annotations},
    }


def claim(name: str, uid: str = "c1", namespace: str = "physics") -> dict[str, Any]:
    """A VniClaim."""
    return {
        "apiVersion": GROUP,
        "kind": "VniClaim",
        "metadata": {"name": f"claim-{uid}", "namespace": namespace, "uid": uid},
        "spec": {"name": name},
    }


def request(document: dict[str, Any], attached: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is posted to a hook."""
    return {"controller": {}, "object": document, "attachments": {"Vni.horizon-opencube.eu/v1": attached or {}}, "finalizing": False}


class Clock:
    """Time that a test moves."""

    def __init__(self, now: float = 1e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Faulty(VniDatabase):
    """Counts the statements that change something, and fails or dies before one of them."""

    statements = 0
    fail_at: int | None = None
    die_at: int | None = None

    def _run(self, statement: str, *values: Any) -> int:
        type(self).statements += 1
        if self.statements == self.fail_at:
            raise sqlite3.OperationalError("disk I/O error")
        if self.statements == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._run(statement, *values)
