"""Scenarios as a person writes them, in TOML.

    scenario = "rendezvous"      # rendezvous, chunks, collective, stencil, burst
    bytes = 1048576              # of each message
    compute = 1.5                # times what the communication takes alone
    ranks = 8
    cores = 4                    # of each rank
    iterations = 20
    protocol = "rput"            # or "rget"

    [nic]                        # instead of the constants of bxi2-100
    latency_us = 1.3
    send_overhead_us = 0.25
    receive_overhead_us = 0.25
    bandwidth_gb_s = 12.5
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from pathlib import Path
from typing import Any

from armillary.errors import InputError, unknown
from armillary.files import read_text
from armillary.network.notification.workload import SCENARIOS, TRACE, Nic, Scenario

#: The most bytes of a file.
_LONGEST = 1 << 20
_KEYS = {"scenario": str, "bytes": int, "compute": float, "ranks": int, "cores": int, "iterations": int, "protocol": str, "nic": dict}


def read_scenario(path: str | Path) -> Scenario:
    """Return the scenario in a TOML file, checked."""
    try:
        found = tomllib.loads(read_text(path, limit=_LONGEST))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"found no TOML: {error}", where=str(path)) from None
    for key, value in found.items():
        if key not in _KEYS:
            raise unknown("key", key, _KEYS, where=str(path))
        _check_type(key, value, _KEYS[key], str(path))
    if "scenario" not in found:
        raise InputError(f"found no key scenario; expected one of {', '.join(SCENARIOS[:-1])}", where=str(path))
    if found["scenario"] == TRACE:
        raise InputError("scenario: found trace; expected the CSV file of the trace itself as the work", where=str(path))
    nic = found.pop("nic", None)
    if "bytes" in found:
        found["nbytes"] = found.pop("bytes")
    try:
        return Scenario(**found, nic=None if nic is None else _nic(nic))
    except InputError as error:
        raise InputError(error.message.replace("nbytes:", "bytes:"), where=str(path)) from None


def _check_type(key: str, value: Any, kind: type, where: str) -> None:
    numbers = (int, float) if kind is float else (kind,)
    if not isinstance(value, numbers) or isinstance(value, bool):
        names = {int: "a whole number", float: "a number", str: "text", dict: "a table"}
        raise InputError(f"{key}: found {value!r}; expected {names[kind]}", where=where)


def _nic(found: dict[str, Any]) -> Nic:
    known = [field.name for field in dataclasses.fields(Nic)]
    for key, value in found.items():
        if key not in known:
            raise unknown("key of nic", key, known)
        least = 1e-9 if key == "bandwidth_gb_s" else 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not (least <= value <= 1e9 and math.isfinite(value)):
            raise InputError(f"nic.{key}: found {value!r}; expected a number from {least:g}")
    return Nic(**{key: float(value) for key, value in found.items()})
