"""A chained CNI plugin (specification 1.0): when a pod gets its network, its namespace gets the VNI of the job that owns the pod.

ADD reads the pod, its first owner and the owner's Vni object, makes one service per card that only this network namespace may use, and
passes the result of the plugin before it through. A Vni object that is not there yet is error 11: the kubelet tries again. DEL removes
the services. CHECK says whether they stand.

Ours, beyond the published plugin: claims, CHECK, and what is needed because the kernel gives the number of a namespace that is gone to
the next one. ADD removes services that stand for its namespace with another VNI, also for a pod without an annotation, and what ADD made
is written down, so that DEL finds it when the namespace is gone already.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from armillary.errors import InputError, one_line

from ..device.cxi import DEFAULT_VNIS, CxiDevice, CxiError, Member, Process, ServiceDescription
from ..device.kept import kept_devices
from .cluster import PODS, RESOURCES, VNIS, Cluster, Forbidden, NotThere, Unreachable, read_kubeconfig

if TYPE_CHECKING:
    from ..device.tool import ToolCard

VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0")
#: Error codes of the specification, and from 100 on our own.
VERSION_CODE, UNKNOWN, ENVIRONMENT, IO_FAILURE, DECODE, CONFIGURATION, AGAIN = 1, 3, 4, 5, 6, 7, 11
REFUSED, NO_SERVICE = 100, 101
#: A pod that takes longer to end could outlive the quarantine.
MOST_GRACE_S = 30
TRIES, APART_S = 5, 1.0
MOST_BYTES = 1 << 20
DATA = Path("/var/lib/cni/cxi")
Card: TypeAlias = "CxiDevice | ToolCard"
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_INTERFACE = re.compile(r"[^\s/:]{1,15}")


class CniError(Exception):
    """What goes wrong, with its code in the specification."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(one_line(said))
        self.code = code


@dataclass(frozen=True)
class Request:
    """One call of the plugin, read and checked."""

    command: str
    container: str
    netns: str
    arguments: Mapping[str, str]
    config: Mapping[str, Any]

    @property
    def version(self) -> str:
        """The version of the specification that the caller speaks."""
        return str(self.config.get("cniVersion", VERSIONS[-1]))

    def cards(self) -> contextlib.AbstractContextManager[Sequence[Card]]:
        """The node's cards: those of a file if the configuration names a model, otherwise the real ones."""
        path = self.config.get("model")
        if isinstance(path, str) and path:
            return kept_devices(Path(path))
        from ..device.tool import tool_cards

        return tool_cards(self.folder)

    @property
    def folder(self) -> Path:
        """Where the plugin writes down what it made."""
        given = self.config.get("data_dir")
        return Path(given) if isinstance(given, str) and given else DATA

    @property
    def record(self) -> Path:
        """What ADD made for this container."""
        return self.folder / f"{self.container}.json"


def main(stdin: IO[bytes] | None = None, environment: Mapping[str, str] | None = None, stdout: IO[str] | None = None) -> int:
    """Answers one call; the exit status is 0, or 1 with an error as JSON on standard output."""
    surroundings = os.environ if environment is None else environment
    out = sys.stdout if stdout is None else stdout
    version = VERSIONS[-1]
    try:
        request = _request(surroundings, stdin or sys.stdin.buffer)
        version = request.version
        found = _answered(request)
    except CniError as problem:
        found = {"cniVersion": version, "code": problem.code, "msg": str(problem)}
        out.write(json.dumps(found) + "\n")
        return 1
    if found is not None:
        out.write(json.dumps(found) + "\n")
    return 0


def _answered(request: Request) -> dict[str, Any] | None:
    answers: dict[str, Callable[[Request], dict[str, Any] | None]] = {"ADD": add, "DEL": delete, "CHECK": check, "VERSION": _version}
    try:
        found = answers[request.command](request)
        _log(request, "ok")
        return found
    except CniError as problem:
        _log(request, f"error {problem.code}: {problem}")
        raise
    except InputError as problem:
        raise CniError(CONFIGURATION, str(problem)) from None
    except OSError as problem:
        raise CniError(IO_FAILURE, f"{problem.strerror or problem}") from None


def add(request: Request) -> dict[str, Any]:
    """Gives the namespace its services; returns the result of the plugin before."""
    previous = _previous(request)
    inode = _inode(request.netns)
    with _cluster(request) as cluster:
        vni = wanted_vni(cluster, *_pod(request))
    made: list[tuple[int, int]] = []
    with _driver(), request.cards() as devices:
        if vni is not None and not devices:
            raise CniError(IO_FAILURE, "found no card; expected cxi0 in /sys/class/cxi")
        for place, device in enumerate(devices):
            number = grant(device, inode, vni)
            if number is not None:
                made.append((place, number))
        if vni is not None:
            # Before the cards' file is replaced: an entry too many does no harm, one too few would.
            _write_down(request.record, {"inode": inode, "vni": vni, "services": made})
    return previous


def delete(request: Request) -> None:
    """Removes the services of the namespace, or those that were written down if it is gone; an error only if they stay in use."""
    inode = None
    with contextlib.suppress(CniError):
        inode = _inode(request.netns)
    written = _written(request.record)
    apart = request.config.get("retry_s", APART_S)
    apart = float(apart) if isinstance(apart, int | float) and not isinstance(apart, bool) and 0 <= apart <= 60 else APART_S
    for attempt in range(TRIES):
        with _driver(), request.cards() as devices:
            busy = [place for place, device in enumerate(devices) if not _removed(device, place, inode, written)]
        if not busy:
            break
        if attempt == TRIES - 1:
            raise CniError(AGAIN, f"the services of cxi{busy[0]} are still in use")
        time.sleep(apart)
    with contextlib.suppress(FileNotFoundError):
        request.record.unlink()


def check(request: Request) -> None:
    """Raises unless the namespace has exactly the services that it should have."""
    _previous(request)
    inode = _inode(request.netns)
    with _cluster(request) as cluster:
        vni = wanted_vni(cluster, *_pod(request))
    with _driver(), request.cards() as devices:
        for place, device in enumerate(devices):
            found = [device.services[number].what.vnis for number in device.services_of(inode)]
            if found != ([] if vni is None else [(vni,)]):
                raise CniError(NO_SERVICE, f"cxi{place} has services with the VNIs {found}; expected {vni or 'none'}")


def grant(device: Card, inode: int, vni: int | None, *, clear_stale: bool = True) -> int | None:
    """Makes the service of a namespace on a card, or finds it; removes those that stand with another VNI. None without a VNI."""
    found = None
    for number in device.services_of(inode):
        if vni is not None and (device.services[number].what.vnis == (vni,) or not clear_stale):
            found = number
        elif clear_stale:
            device.destroy_service(number, DRIVER)
    if found is not None or vni is None:
        return found
    return device.alloc_service(ServiceDescription((Member("netns", inode),), (vni,)), DRIVER)


#: The plugin itself, which runs as root on the node.
DRIVER = Process(0, 0, 0, admin=True)


def wanted_vni(cluster: Cluster, namespace: str, name: str) -> int | None:
    """The VNI of the job that owns a pod, or None where it wants none; CniError 11 if it has none yet."""
    try:
        pod = cluster.get(PODS, namespace, name)
        owners = _part(pod, "metadata").get("ownerReferences") or []
        first = owners[0] if isinstance(owners, list) and owners and isinstance(owners[0], dict) else {}
        resource = RESOURCES.get((str(first.get("apiVersion")), str(first.get("kind"))))
        if resource is None:
            return None
        owner = cluster.get(resource, namespace, str(first.get("name")))
        if not _part(_part(owner, "metadata"), "annotations").get("vni"):
            return None
        uid = _part(owner, "metadata").get("uid")
        if uid != first.get("uid"):
            raise CniError(REFUSED, f"the pod's owner {first.get('name')} is another object of the same name")
        grace = _part(pod, "spec").get("terminationGracePeriodSeconds", MOST_GRACE_S)
        if not isinstance(grace, int) or grace > MOST_GRACE_S:
            raise CniError(REFUSED, f"terminationGracePeriodSeconds: found {grace}; expected at most {MOST_GRACE_S} with a VNI")
        return _vni(cluster, namespace, str(uid))
    except NotThere as problem:
        raise CniError(AGAIN, str(problem)) from None
    except Unreachable as problem:
        raise CniError(AGAIN, str(problem)) from None
    except Forbidden as problem:
        raise CniError(REFUSED, str(problem)) from None


def _vni(cluster: Cluster, namespace: str, uid: str) -> int:
    try:
        found = cluster.get(VNIS, namespace, f"vni-{uid}")
    except NotThere:
        raise CniError(AGAIN, f"the VNI of {uid} is not there yet") from None
    owners = _part(found, "metadata").get("ownerReferences") or []
    if isinstance(owners, list) and owners and not any(isinstance(one, dict) and one.get("uid") == uid for one in owners):
        raise CniError(REFUSED, f"the Vni object vni-{uid} belongs to another object")
    vni = _part(found, "spec").get("vni")
    if isinstance(vni, bool) or not isinstance(vni, int) or not 1 <= vni <= 65535 or vni in DEFAULT_VNIS:
        raise CniError(REFUSED, f"the Vni object vni-{uid} has the VNI {vni!r}; expected 2 to 65535 without 10")
    return vni


def _removed(device: Card, place: int, inode: int | None, written: Mapping[str, Any]) -> bool:
    """Whether nothing of the container stands on the card any more."""
    numbers = [] if inode is None else device.services_of(inode)
    for where, number in written.get("services", []):
        # The driver may have given the number, and the kernel the namespace's number, to others since.
        one = device.services.get(number) if where == place else None
        mine = one is not None and one.what.vnis == (written["vni"],) and one.what.members == (Member("netns", written["inode"]),)
        if mine and number not in numbers:
            numbers.append(number)
    for number in numbers:
        try:
            device.destroy_service(number, DRIVER)
        except CxiError as problem:
            if problem.code == errno.EBUSY:
                return False
            raise CniError(IO_FAILURE, str(problem)) from None
    return True


@contextlib.contextmanager
def _driver() -> Iterator[None]:
    try:
        yield
    except CxiError as problem:
        raise CniError(AGAIN if problem.code in (errno.EBUSY, errno.ENOSPC) else IO_FAILURE, str(problem)) from None


# The request


def _request(surroundings: Mapping[str, str], stdin: IO[bytes]) -> Request:
    from armillary.files import parse_json

    body = stdin.read(MOST_BYTES + 1)
    if len(body) > MOST_BYTES:
        raise CniError(DECODE, f"standard input has more than {MOST_BYTES:,} bytes")
    try:
        config = parse_json(body, "standard input")
    except InputError as problem:
        raise CniError(DECODE, str(problem)) from None
    if not isinstance(config, dict):
        raise CniError(DECODE, "standard input is no JSON object")
    command = surroundings.get("CNI_COMMAND", "")
    if command not in ("ADD", "DEL", "CHECK", "VERSION"):
        raise CniError(ENVIRONMENT, f'CNI_COMMAND: found "{command}"; expected ADD, DEL, CHECK or VERSION')
    container, netns = surroundings.get("CNI_CONTAINERID", ""), surroundings.get("CNI_NETNS", "")
    if command != "VERSION":
        if config.get("cniVersion", VERSIONS[-1]) not in VERSIONS:
            raise CniError(VERSION_CODE, f"cniVersion: found {config.get('cniVersion')!r}; expected one of {', '.join(VERSIONS)}")
        if not _CONTAINER.fullmatch(container):
            raise CniError(ENVIRONMENT, f'CNI_CONTAINERID: found "{container}"; expected letters, digits and . _ -')
        if not _INTERFACE.fullmatch(surroundings.get("CNI_IFNAME", "")):
            raise CniError(ENVIRONMENT, f'CNI_IFNAME: found "{surroundings.get("CNI_IFNAME", "")}"; expected the name of an interface')
        if command != "DEL" and not netns:
            raise CniError(ENVIRONMENT, "CNI_NETNS: found none; expected the path of a network namespace")
    pairs = [pair.partition("=") for pair in surroundings.get("CNI_ARGS", "").split(";") if pair]
    return Request(command, container, netns, {key: value for key, _, value in pairs}, config)


def _previous(request: Request) -> dict[str, Any]:
    found = request.config.get("prevResult")
    if not isinstance(found, dict):
        raise CniError(CONFIGURATION, "prevResult: found none; this plugin is chained after the one that makes the network")
    return found


def _pod(request: Request) -> tuple[str, str]:
    names = [request.arguments.get(key, "") for key in ("K8S_POD_NAMESPACE", "K8S_POD_NAME")]
    if not all(names):
        raise CniError(ENVIRONMENT, "CNI_ARGS: found no K8S_POD_NAMESPACE or K8S_POD_NAME; expected both")
    return names[0], names[1]


def _cluster(request: Request) -> Cluster:
    path = request.config.get("kube_config_path")
    if not isinstance(path, str) or not path:
        raise CniError(CONFIGURATION, "kube_config_path: found none; expected the path of a kubeconfig file")
    return read_kubeconfig(Path(path))


def _inode(netns: str) -> int:
    try:
        return os.stat(netns).st_ino
    except (OSError, ValueError):
        raise CniError(UNKNOWN, f'CNI_NETNS: found no namespace at "{netns}"') from None


def _version(request: Request) -> dict[str, Any]:
    return {"cniVersion": VERSIONS[-1], "supportedVersions": list(VERSIONS)}


def _part(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}


def _write_down(path: Path, what: Mapping[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(what))
    unfinished.replace(path)


def _written(path: Path) -> dict[str, Any]:
    from armillary.files import read_json

    if not path.exists():
        return {}
    try:
        found = read_json(path, limit=MOST_BYTES)
        services = [(int(place), int(number)) for place, number in found["services"]]
        return {"inode": int(found["inode"]), "vni": int(found["vni"]), "services": services}
    except (InputError, KeyError, TypeError, ValueError):
        return {}


def _log(request: Request, said: str) -> None:
    folder = request.config.get("log_dir")
    if request.config.get("enable_log") is not True or not isinstance(folder, str):
        return
    how = "w" if request.config.get("log_mode") == "w" else "a"
    with contextlib.suppress(OSError), (Path(folder) / "cxi-cni.log").open(how) as file:
        file.write(f"{request.command} {request.container} {said}\n")
