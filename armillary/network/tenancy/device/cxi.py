"""A model of the driver of a Slingshot card (CXI): services say who may use which VNIs, and every endpoint is opened through one.

The checks and the numbers are those of the public library, its manual and its headers: at most two members and four VNIs per service,
services only with CAP_SYS_ADMIN, a default service with the VNIs 1 and 10 that everybody may use, a network namespace that cannot be
combined with users or groups. A service that reserves list entries (LEs) takes one of 16 pools, and the first is the shared one.

    nic = CxiDevice()
    nic.alloc_service(ServiceDescription(members=(Member("netns", 4026532201),), vnis=(137,)), admin)
    nic.open_endpoint(process, service=2, vni=137)
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from armillary.errors import InputError

#: Members and VNIs of one service, and the highest VNI.
MOST_MEMBERS, MOST_VNIS, HIGHEST_VNI = 2, 4, 65535
#: The service that the driver makes by itself, and its VNIs.
DEFAULT_SERVICE, DEFAULT_VNIS = 1, (1, 10)
#: Pools of list entries (the first is shared) and of trigger entries, and what one card has; not in the public headers, from the manual.
LE_POOLS, TLE_POOLS = 16, 4
TOTAL = MappingProxyType(
    {"acs": 1022, "cts": 2047, "eqs": 2047, "les": 16384, "ptes": 2048, "tgqs": 512, "txqs": 1024, "tles": 2048}
)  # fmt: skip
TRAFFIC_CLASSES = ("DEDICATED_ACCESS", "LOW_LATENCY", "BULK_DATA", "BEST_EFFORT")
#: What one endpoint takes of the card (ours: one queue each way, its events, one portal and its lists).
ENDPOINT = MappingProxyType({"acs": 1, "cts": 1, "eqs": 1, "les": 4, "ptes": 1, "tgqs": 1, "txqs": 1, "tles": 0})


class CxiError(Exception):
    """What the driver answers instead of doing it: `code` is the errno, such as EPERM."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{errno.errorcode.get(code, code)}: {said}")
        self.code = code


@dataclass(frozen=True)
class Process:
    """A process as the kernel knows it.

    uid and gid are those that the process shows; inside a container it chooses them. `netns` is the inode number of its network namespace,
    which the kernel looks up itself, and `claimed_netns` what the process says it is, which nobody asks.
    """

    uid: int
    gid: int
    netns: int
    admin: bool = False
    claimed_netns: int | None = None
    #: Whose process it is, for those who watch.
    job: str = ""


@dataclass(frozen=True)
class Member:
    """Who may use a service: a user, a group, or every process of a network namespace."""

    kind: Literal["uid", "gid", "netns"]
    number: int


@dataclass(frozen=True)
class Limit:
    """The most of a resource that a service may use, and what is reserved for it."""

    most: int
    reserved: int = 0


@dataclass(frozen=True)
class ServiceDescription:
    """What a service allows. Empty `members`, `vnis` or `classes` restrict nothing, as an absent `limits` does."""

    members: tuple[Member, ...] = ()
    vnis: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    limits: Mapping[str, Limit] | None = None
    enabled: bool = True

    def check(self) -> None:
        """Raises InputError for what no driver could take."""
        if len(self.members) > MOST_MEMBERS:
            raise InputError(f"found {len(self.members)} members; expected at most {MOST_MEMBERS}")
        if len(self.vnis) > MOST_VNIS:
            raise InputError(f"found {len(self.vnis)} VNIs; expected at most {MOST_VNIS}")
        for vni in self.vnis:
            check_vni(vni)
        for member in self.members:
            if member.kind not in ("uid", "gid", "netns") or not 0 <= member.number < 1 << 32:
                raise InputError(f"found the member {member.kind} {member.number}; expected uid, gid or netns and a 32-bit number")
        for name in self.classes:
            if name not in TRAFFIC_CLASSES:
                raise InputError(f'found the traffic class "{name}"; expected one of {", ".join(TRAFFIC_CLASSES)}')
        for name, limit in (self.limits or {}).items():
            if name not in TOTAL or not 0 <= limit.reserved <= limit.most <= 65535:
                raise InputError(f"found the limit {name} {limit.most}/{limit.reserved}; expected a resource, and reserved ≤ most ≤ 65535")


@dataclass
class Service:
    """A service that stands."""

    id: int
    what: ServiceDescription
    #: What its endpoints use now.
    used: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTAL, 0))
    endpoints: int = 0


@dataclass(frozen=True)
class Endpoint:
    """An open endpoint; `Device.close` gives it back."""

    number: int
    service: int
    vni: int
    process: Process


def check_vni(vni: object, where: str | None = None) -> int:
    """The VNI, if it is one."""
    if isinstance(vni, bool) or not isinstance(vni, int) or not 1 <= vni <= HIGHEST_VNI:
        raise InputError(f"found the VNI {vni!r}; expected a whole number from 1 to {HIGHEST_VNI}", where=where)
    return vni


class CxiDevice:
    """One card. `default_enabled`: today's driver disables its default service unless it is told otherwise."""

    def __init__(self, *, default_enabled: bool = False) -> None:
        self.services = {DEFAULT_SERVICE: Service(DEFAULT_SERVICE, ServiceDescription(vnis=DEFAULT_VNIS, enabled=default_enabled))}
        self.endpoints: dict[int, Endpoint] = {}
        self._next_service, self._next_endpoint = DEFAULT_SERVICE + 1, 1

    def alloc_service(self, what: ServiceDescription, by: Process) -> int:
        """The number of a new service; EPERM, EINVAL, EEXIST or ENOSPC if the driver refuses."""
        _privileged(by)
        _valid(what)
        if what.limits:
            self._reservable(what.limits)
        number = self._next_service
        self._next_service += 1
        self.services[number] = Service(number, what)
        return number

    def destroy_service(self, number: int, by: Process) -> None:
        """Removes a service and what it reserved; EBUSY while endpoints of it are open."""
        _privileged(by)
        service = self._service(number)
        if number == DEFAULT_SERVICE:
            raise CxiError(errno.EINVAL, "the default service cannot be removed")
        if service.endpoints:
            raise CxiError(errno.EBUSY, f"service {number} has {service.endpoints} open endpoints")
        del self.services[number]

    def enable(self, number: int, by: Process, *, enabled: bool = True) -> None:
        """Enables or disables a service; endpoints that are open stay open."""
        _privileged(by)
        service = self._service(number)
        what = service.what
        service.what = ServiceDescription(what.members, what.vnis, what.classes, what.limits, enabled)

    def services_of(self, netns: int) -> list[int]:
        """The services that a network namespace is a member of, which are those to remove with it."""
        return [one.id for one in self.services.values() if Member("netns", netns) in one.what.members]

    def open_endpoint(self, process: Process, service: int, vni: int, traffic_class: str = "BEST_EFFORT") -> Endpoint:
        """An endpoint on a VNI; EACCES, EINVAL, ENOENT or ENOSPC if the service does not allow it."""
        one = self._service(service)
        what = one.what
        if not what.enabled:
            raise CxiError(errno.EACCES, f"service {service} is disabled")
        if what.members and not any(_is_member(process, member) for member in what.members):
            raise CxiError(errno.EACCES, f"the process is no member of service {service}")
        if isinstance(vni, bool) or not isinstance(vni, int) or not 1 <= vni <= HIGHEST_VNI or (what.vnis and vni not in what.vnis):
            raise CxiError(errno.EINVAL, f"service {service} does not have the VNI {vni}")
        if what.classes and traffic_class not in what.classes:
            raise CxiError(errno.EINVAL, f"service {service} does not have the traffic class {traffic_class}")
        self._within_limits(one)
        for name, count in ENDPOINT.items():
            one.used[name] += count
        one.endpoints += 1
        opened = Endpoint(self._next_endpoint, service, vni, process)
        self._next_endpoint += 1
        self.endpoints[opened.number] = opened
        return opened

    def close(self, endpoint: Endpoint) -> None:
        """Gives an endpoint back; once is enough."""
        if self.endpoints.pop(endpoint.number, None) is None:
            return
        one = self.services[endpoint.service]
        one.endpoints -= 1
        for name, count in ENDPOINT.items():
            one.used[name] -= count

    def close_of(self, dead: Callable[[Process], bool]) -> None:
        """Closes the endpoints of processes that have ended, as the kernel does."""
        for endpoint in [one for one in self.endpoints.values() if dead(one.process)]:
            self.close(endpoint)

    def takes_packet(self, vni: int) -> bool:
        """Whether a packet with this VNI reaches anybody here: the card drops what no local endpoint uses."""
        return any(endpoint.vni == vni for endpoint in self.endpoints.values())

    def _service(self, number: int) -> Service:
        if number not in self.services:
            raise CxiError(errno.ENOENT, f"there is no service {number}")
        return self.services[number]

    def _reservable(self, limits: Mapping[str, Limit]) -> None:
        standing = [one.what.limits or {} for one in self.services.values()]
        for name, pools, said in (("les", LE_POOLS - 1, "LE"), ("tles", TLE_POOLS, "TLE")):
            wanted = limits.get(name)
            if wanted and wanted.reserved and sum(1 for one in standing if name in one and one[name].reserved) >= pools:
                raise CxiError(errno.ENOSPC, f"no {said} pool is left: {pools} services reserve {said}s")
        for name, limit in limits.items():
            left = TOTAL[name] - sum(one[name].reserved for one in standing if name in one)
            if limit.reserved > left:
                raise CxiError(errno.ENOSPC, f"{limit.reserved} {name} cannot be reserved; {left} are left")

    def _within_limits(self, one: Service) -> None:
        for name, count in ENDPOINT.items():
            if not count:
                continue
            limit = None if one.what.limits is None else one.what.limits.get(name, Limit(0))
            if limit is not None and one.used[name] + count > limit.most:
                raise CxiError(errno.ENOSPC, f"service {one.id} may use {limit.most} {name}")
            # What another service has reserved is gone, whether it uses it or not.
            others = [other for other in self.services.values() if other is not one]
            gone = sum(max((other.what.limits or {}).get(name, Limit(0)).reserved, other.used[name]) for other in others)
            if gone + one.used[name] + count > TOTAL[name]:
                raise CxiError(errno.ENOSPC, f"the card has no {name} left")


def _privileged(by: Process) -> None:
    if not by.admin:
        raise CxiError(errno.EPERM, "this needs CAP_SYS_ADMIN")


def _valid(what: ServiceDescription) -> None:
    try:
        what.check()
    except InputError as problem:
        raise CxiError(errno.EINVAL, str(problem)) from None
    kinds = {member.kind for member in what.members}
    if "netns" in kinds and (len(kinds) > 1 or len(what.members) > 1):
        raise CxiError(errno.EEXIST, "a network namespace cannot be combined with other members")


def _is_member(process: Process, member: Member) -> bool:
    return {"uid": process.uid, "gid": process.gid, "netns": process.netns}[member.kind] == member.number
