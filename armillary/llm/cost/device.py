"""A device as the cost model sees it: its peaks, bandwidth, multiprocessors and link, and the calibration that its seconds rest on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster import Cluster, Device

DEVICES = Path(__file__).parents[1] / "presets" / "devices"
#: (rows, columns, efficiency) of the output tiles that a matrix product may be cut into.
TILES = ((128, 256, 1.0), (128, 128, 0.9), (64, 256, 0.85), (64, 128, 0.7), (64, 64, 0.5))
#: Libraries have narrower tiles for few rows. A calibration is fitted without them, but a device that was never measured needs them:
#: without them, small batches would pay for arithmetic on rows that do not exist.
NARROW_TILES = ((32, 128, 0.5), (16, 128, 0.35))


@dataclass(frozen=True)
class Calibration:
    """The constants of the roofline and their source; `error` is the mean |error| over the points that they were fitted to."""

    id: str = "uncalibrated"
    #: Shares of the peak and of the memory bandwidth that a large matrix product reaches.
    eta_c: float = 0.75
    eta_m: float = 0.75
    #: Seconds that every kernel takes in addition to its work.
    t0: float = 4e-6
    tiles: tuple[tuple[int, int, float], ...] = TILES + NARROW_TILES
    #: The share of η_c · peak that attention over prompts reaches, and the share of η_m · bandwidth that attention over the cache reaches.
    eta_attn: float = 0.55
    eta_decode: float = 0.85
    #: The share of η_m · bandwidth that each element-wise kernel reaches, by name; "other" stands for the rest.
    eta_elem: tuple[tuple[str, float], ...] = (("other", 0.5),)
    #: The least seconds of an element-wise kernel.
    elem_s: float = 3e-6
    #: Seconds of the smallest all-reduce and send on the device's own link, and the share of its rate that large ones reach.
    all_reduce_s: float = 30e-6
    send_s: float = 5e-6
    link: float = 0.8
    error: float | None = None
    error_p90: float | None = None
    points: int = 0

    @property
    def calibrated(self) -> bool:
        """Whether the constants rest on measurements of this device."""
        return self.points > 0

    def elem(self, kernel: str) -> float:
        """The share of η_m · bandwidth that an element-wise kernel reaches."""
        known = dict(self.eta_elem)
        return known.get(kernel, known.get("other", 0.5))

    def said(self) -> str:
        """The calibration and its error in words."""
        if not self.calibrated:
            return f"{self.id}: usual constants, because this device was never measured"
        error = f", mean error {self.error:.1%}" if self.error is not None else ""
        return f"{self.id}: fitted to {self.points} measured points{error}"


@dataclass(frozen=True)
class Chip:
    """One device, with rates in flop/s and bytes/s and `memory` in bytes. Where `sms` is None, no waves are counted."""

    name: str
    peaks: tuple[tuple[str, float], ...]
    bandwidth: float
    memory: float
    sms: int | None = None
    link_rate: float | None = None
    calibration: Calibration = Calibration()

    def peak(self, dtype: str) -> float:
        """Dense flop/s for one type, or for the nearest type that the device states (bf16 and fp16 stand for each other)."""
        known = dict(self.peaks)
        order = {"fp8": ("fp8", "int8", "bf16", "fp16"), "int8": ("int8", "fp8", "bf16", "fp16"), "fp32": ("tf32", "fp32")}
        for name in order.get(dtype, ("bf16", "fp16", "fp32")):
            if name in known:
                return known[name]
        raise InputError(f"{self.name} states no peak for {dtype}; it has {', '.join(known) or 'none'}")


def chip(device: Chip | str | Device, calibration: Calibration | str | Path | None = None) -> Chip:
    """The device with this name in the catalogue (`h200`, `a100-80`…) or in a cluster file; a `Chip` is returned as it is.

    A calibration that comes with the package is used when its device name matches; a file that `armillary llm calibrate` wrote can
    be given, and must match too.
    """
    found = device if isinstance(device, Chip) else _named(device) if isinstance(device, str) else _of_device(device)
    if isinstance(calibration, Calibration):
        return replace(found, calibration=calibration)
    if calibration is not None:
        read, names = read_calibration(Path(calibration))
        if _plain(found.name) not in names:
            raise InputError(f"a calibration of {sorted(names)[0]}, not of {found.name}", where=str(calibration))
        return replace(found, calibration=read)
    return found


@lru_cache(maxsize=64)
def _named(name: str) -> Chip:
    from armillary.cluster import from_dict, parts

    kind = "npu" if "910" in name else "gpu"
    try:
        node = {"device": [{"kind": kind, "model": name}]}
        found = from_dict({"armillary": 1, "name": "one", "group": [{"name": "g", "count": 1, "node": node}]}, where=f"device {name}")
    except InputError:
        raise unknown("device", name, parts()["device"]) from None
    device = found.groups[0].node.devices[0]
    if device.memory is None:
        raise unknown("device", name, parts()["device"])
    return _of_device(device)


def _of_device(device: Device) -> Chip:
    name = device.model or device.name or device.kind
    memory = device.memory
    if memory is None or memory.size is None or memory.bandwidth is None:
        raise InputError(f"device {name}: no memory size or bandwidth; the cost model needs both")
    peaks = tuple((p, float(v)) for p in ("bf16", "fp16", "fp8", "int8", "tf32", "fp32") if (v := device.peak[p]) is not None)
    if not peaks:
        raise InputError(f"device {name}: no peak flop/s; the cost model needs one")
    rate = float(device.link.rate) if device.link else None
    plain = Chip(name, peaks, float(memory.bandwidth), float(memory.size), int(device.sms) if device.sms else None, rate)
    own = Path(device.calibration) if device.calibration else None
    if own is not None:
        return chip(plain, own)
    return replace(plain, calibration=_packaged().get(_plain(name), Calibration()))


@lru_cache(maxsize=1)
def _packaged() -> dict[str, Calibration]:
    found = {}
    for path in sorted(DEVICES.glob("*.json")):
        read, names = read_calibration(path)
        found.update(dict.fromkeys(names, read))
    return found


def _plain(name: str) -> str:
    """The name of a device without differences of spelling."""
    words = "".join(c if c.isalnum() else " " for c in name.lower()).split()
    return "-".join(w for w in words if w != "nvidia")


def read_calibration(path: Path) -> tuple[Calibration, frozenset[str]]:
    """Reads a calibration file, and the names of the device that it is for."""
    try:
        if path.stat().st_size > 16 << 20:
            raise InputError("more than 16 MiB; expected a calibration", where=str(path))
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(error.strerror or "cannot be read", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", where=str(path)) from None
    if not isinstance(data, dict) or not isinstance(data.get("fit"), dict) or not isinstance(data.get("device"), str):
        raise InputError('expected an object with "device" and "fit"', where=str(path))
    also = data.get("also", [])
    if not isinstance(also, list) or not all(isinstance(each, str) for each in also):
        raise InputError('key "also": expected a list of names', where=str(path))
    return calibration_of(data, path.stem, str(path)), frozenset(_plain(each) for each in (data["device"], *also))


def calibration_of(data: Mapping[str, Any], name: str, where: str) -> Calibration:
    """The calibration in a file's content."""
    fit, error = data["fit"], data.get("error") or {}

    def number(table: Mapping[str, Any], key: str, default: float | None, low: float, high: float) -> float:
        found = table.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not low <= found <= high:
            raise InputError(f'key "{key}": found {found!r}; expected a number from {low:g} to {high:g}', where=where)
        return float(found)

    usual = Calibration()
    tiles = fit.get("tiles", TILES)
    good = isinstance(tiles, list | tuple) and 0 < len(tiles) <= 32 and all(isinstance(t, list | tuple) and len(t) == 3 for t in tiles)
    if not good or not all(1 <= a <= 4096 and 1 <= b <= 4096 and 0 < e <= 1 for a, b, e in tiles):
        raise InputError('key "tiles": expected a list of [rows, columns, efficiency]', where=where)
    elem = fit.get("eta_elem", {"other": 0.5})
    if isinstance(elem, int | float):
        elem = {"other": elem}
    if not isinstance(elem, dict):
        raise InputError('key "eta_elem": expected a number, or one number per kernel', where=where)
    points = data.get("fitted", len(data.get("points", ())))
    return Calibration(
        id=str(data.get("id", name)),
        eta_c=number(fit, "eta_c", None, 0.01, 1.5),
        eta_m=number(fit, "eta_m", None, 0.01, 1.5),
        t0=number(fit, "t0", None, 0, 1e-3),
        tiles=tuple((int(a), int(b), float(e)) for a, b, e in tiles),
        eta_attn=number(fit, "eta_attn", usual.eta_attn, 0.01, 1.5),
        eta_decode=number(fit, "eta_decode", usual.eta_decode, 0.01, 2),
        eta_elem=tuple((str(k), number(elem, k, None, 0.01, 4)) for k in elem),
        elem_s=number(fit, "elem_s", usual.elem_s, 0, 1e-3),
        all_reduce_s=number(fit, "all_reduce_s", usual.all_reduce_s, 0, 1e-2),
        send_s=number(fit, "send_s", usual.send_s, 0, 1e-2),
        link=number(fit, "link", usual.link, 0.01, 1.5),
        error=number(error, "mape", None, 0, 100) if "mape" in error else None,
        error_p90=number(error, "p90", None, 0, 100) if "p90" in error else None,
        points=int(points) if isinstance(points, int) else 0,
    )


@dataclass(frozen=True)
class Fabric:
    """The links between devices: `node` devices share a near link, and the others are far. Each link has seconds for a small message and
    bytes/s for a large one.
    """

    node: int
    near_s: float
    near_rate: float
    far_s: float
    far_rate: float
    all_reduce_s: float

    @staticmethod
    def of(device: Chip, node: int = 8, far_rate: float | None = None) -> Fabric:
        """The device's own link inside a node, and one 400 Gb/s port per device between nodes unless `far_rate` says otherwise.

        A device without a link of its own uses PCIe 4.0 at 32 GB/s. Large messages between nodes reach 72 % of the port's rate, and a small
        one takes 17 µs (measured on 400 Gb/s ports).
        """
        near = (device.link_rate or 32e9) * device.calibration.link
        far = 0.72 * (50e9 if far_rate is None else far_rate)
        return Fabric(node, device.calibration.send_s, near, 17e-6, far, device.calibration.all_reduce_s)

    @staticmethod
    def of_cluster(cluster: Cluster | str) -> tuple[Chip, Fabric]:
        """The devices of the first group of a cluster that has any, and the links between them."""
        from armillary.cluster import find

        found = find(cluster) if isinstance(cluster, str) else cluster
        for group in found.groups:
            for device in group.node.devices:
                if device.kind not in ("gpu", "npu"):
                    continue
                one = chip(device)
                ports = [float(n.count) * n.bandwidth for n in group.node.nics if n.bandwidth is not None and n.network is not None]
                inside = [float(x.rate) for x in group.node.links if x.ends == ("device", "device") and isinstance(x.rate, float)]
                if inside:
                    one = replace(one, link_rate=max(inside))
                return one, Fabric.of(one, int(device.count), sum(ports) / device.count if ports else None)
        raise InputError(f"{found.name} has no GPU or NPU", where="cluster")
