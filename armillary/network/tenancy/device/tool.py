"""The real cards of a node, through the vendor's `cxi_service` (0.6 or later, which knows network namespaces).

Written after the tool's manual and its output; there is no card here, so it was tried against a stand-in that prints the same lines.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from .cxi import CxiError, Member, Process, Service, ServiceDescription

#: Seconds within which the tool must answer, and cards of one node.
ANSWER_S, MOST_CARDS = 10.0, 16
_KINDS: tuple[Literal["uid", "gid", "netns"], ...] = ("uid", "gid", "netns")
_ID = re.compile(r"^ ID: (\d+)")
_MEMBERS = re.compile(r"^   ---> Valid Members :(.*)$")
_VNIS = re.compile(r"^   VNIs               :(.*)$")
_CREATED = re.compile(r"^Successfully created service: (\d+)", re.MULTILINE)
_ERRORS = {"busy": errno.EBUSY, "No space": errno.ENOSPC, "Operation not permitted": errno.EPERM, "No such": errno.ENOENT}


class ToolCard:
    """One card by its name, such as cxi0; `services` is what stood when it was looked at last."""

    def __init__(self, name: str, program: str = "cxi_service") -> None:
        self.name, self.program = name, program
        self.services: dict[int, Service] = {}
        self.look()

    def look(self) -> None:
        """Asks the driver which services stand."""
        self.services = listed(self._said("list", "-v"))

    def services_of(self, netns: int) -> list[int]:
        """The services that a network namespace is a member of."""
        return [one.id for one in self.services.values() if Member("netns", netns) in one.what.members]

    def alloc_service(self, what: ServiceDescription, by: Process) -> int:
        """The number of a new service."""
        what.check()
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(service_yaml(what))
            file.flush()
            said = self._said("create", "-y", file.name)
        made = _CREATED.search(said)
        if made is None:
            raise CxiError(errno.EIO, f"{self.program} did not say which service it made")
        self.look()
        return int(made[1])

    def destroy_service(self, number: int, by: Process) -> None:
        """Removes a service; EBUSY while endpoints of it are open."""
        self._said("delete", "-s", str(number))
        self.services.pop(number, None)

    def _said(self, *words: str) -> str:
        try:
            done = subprocess.run(
                [self.program, *words, "-d", self.name], stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise CxiError(errno.EIO, f"{self.program} cannot be run ({type(problem).__name__})") from None
        complaint = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode:
            code = next((number for said, number in _ERRORS.items() if said in complaint), errno.EIO)
            raise CxiError(code, complaint.splitlines()[-1][:200] if complaint else f"{self.program} ended with {done.returncode}")
        return done.stdout.decode("utf-8", "replace")


def listed(text: str) -> dict[int, Service]:
    """The services in what `cxi_service list -v` prints."""
    found: dict[int, Service] = {}
    number = None
    for line in text.splitlines():
        if head := _ID.match(line):
            number = int(head[1])
            found[number] = Service(number, ServiceDescription())
        elif number is not None and (members := _MEMBERS.match(line)):
            what = tuple(Member(kind, int(value)) for kind in _KINDS for value in re.findall(rf"\b{kind}=(\d{{1,10}})\b", members[1]))
            found[number] = Service(number, ServiceDescription(what, found[number].what.vnis))
        elif number is not None and (vnis := _VNIS.match(line)):
            values = tuple(int(word) for word in vnis[1].split() if word.isdigit())
            found[number] = Service(number, ServiceDescription(found[number].what.members, values))
    return found


def service_yaml(what: ServiceDescription) -> str:
    """The description as the tool reads it; it takes a key several times where it has several VNIs."""
    lines = [f"restricted_members: {int(bool(what.members))}", "resource_limits: 0", f"restricted_tcs: {int(bool(what.classes))}"]
    lines += ["vnis:", *(f"  vni: {vni}" for vni in what.vnis)] if what.vnis else []
    if what.members:
        lines += ["members:", *(f"  - type: {member.kind}\n    id: {member.number}" for member in what.members)]
    lines += ["tcs:", *(f"  tc: {name}" for name in what.classes)] if what.classes else []
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def tool_cards(folder: Path, program: str = "cxi_service") -> Iterator[list[ToolCard]]:
    """All cards of this node, with a lock in `folder` so that two plugins do not work at once."""
    names = sorted(path.name for path in Path("/sys/class/cxi").glob("cxi*") if re.fullmatch(r"cxi\d{1,3}", path.name))[:MOST_CARDS]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield [ToolCard(name, program) for name in names]
    finally:
        os.close(lock)
