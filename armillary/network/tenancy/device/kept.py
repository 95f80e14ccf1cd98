"""The cards of one node in a file, so that a plugin that runs as a process of its own finds what an earlier one made.

This is the model for machines without the hardware. The file is locked while it is changed and replaced as a whole, so a plugin that is
killed leaves either the old state or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line

from .cxi import DEFAULT_SERVICE, CxiDevice, Endpoint, Limit, Member, Process, Service, ServiceDescription

#: Bytes of the file.
MOST_BYTES = 1 << 26


@contextlib.contextmanager
def kept_devices(path: Path) -> Iterator[list[CxiDevice]]:
    """The cards in the file, locked; what was changed is written when the block ends, and nothing if it raises."""
    from armillary.files import read_json

    with _locked(path):
        document = read_json(path, limit=MOST_BYTES)
        try:
            devices = [_device(one) for one in document["devices"]]
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise InputError(f"is no file of cards ({type(problem).__name__})", where=str(path)) from None
        yield devices
        _replace(path, devices)


def keep(path: Path, devices: Sequence[CxiDevice]) -> None:
    """Writes a new file of cards."""
    with _locked(path):
        _replace(path, devices)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise InputError(f"cannot be locked: {one_line(str(problem.strerror), 60)}", where=str(path)) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(path: Path, devices: Sequence[CxiDevice]) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps({"devices": [_document(one) for one in devices]}))
    unfinished.replace(path)


def _document(device: CxiDevice) -> dict[str, Any]:
    return {
        "next": [device._next_service, device._next_endpoint],
        "services": [
            {
                "id": one.id, "enabled": one.what.enabled, "vnis": list(one.what.vnis), "classes": list(one.what.classes),
                "members": [[member.kind, member.number] for member in one.what.members],
                "limits": None if one.what.limits is None else {name: [x.most, x.reserved] for name, x in one.what.limits.items()},
            }
            for one in device.services.values()
        ],
        "endpoints": [
            [one.number, one.service, one.vni, [one.process.uid, one.process.gid, one.process.netns, one.process.job]]
            for one in device.endpoints.values()
        ],
    }  # fmt: skip


def _device(document: Any) -> CxiDevice:
    from .cxi import ENDPOINT

    device = CxiDevice()
    device._next_service, device._next_endpoint = (int(number) for number in document["next"])
    device.services.clear()
    for one in document["services"]:
        limits = None if one["limits"] is None else {name: Limit(int(most), int(kept)) for name, (most, kept) in one["limits"].items()}
        members = tuple(Member(kind, int(number)) for kind, number in one["members"])
        what = ServiceDescription(members, tuple(int(vni) for vni in one["vnis"]), tuple(one["classes"]), limits, bool(one["enabled"]))
        what.check()
        device.services[int(one["id"])] = Service(int(one["id"]), what)
    if DEFAULT_SERVICE not in device.services:
        raise ValueError("no default service")
    for number, service, vni, (uid, gid, netns, job) in document["endpoints"]:
        device.endpoints[int(number)] = Endpoint(int(number), int(service), int(vni), Process(int(uid), int(gid), int(netns), job=str(job)))
        device.services[int(service)].endpoints += 1
        for name, count in ENDPOINT.items():
            device.services[int(service)].used[name] += count
    return device
