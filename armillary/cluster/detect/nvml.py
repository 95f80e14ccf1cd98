"""NVIDIA GPUs as their management library describes them, only on the running machine and only if `nvidia-ml-py` is installed."""

from __future__ import annotations

from typing import Any

from armillary.cluster.detect.links import pair_tables

#: Bytes/s of one NVLink lane group in each direction, by version.
NVLINK_RATE = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
MOST_LINKS = 18
REMOTE_GPU, REMOTE_SWITCH = 0, 2


def read_nvml() -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """`device` tables by PCI address, and `link` tables; both empty without the library, a driver or a GPU."""
    try:
        import pynvml
    except ImportError:
        return {}, []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}, []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(k) for k in range(pynvml.nvmlDeviceGetCount())]
        found = {_address(pynvml, handle): _device(pynvml, handle) for handle in handles}
        return found, _links(pynvml, handles)
    except pynvml.NVMLError:
        return {}, []
    finally:
        pynvml.nvmlShutdown()


def _ask(pynvml: Any, question: str, *given: Any) -> Any:
    """The answer, or None if this GPU or this driver has none."""
    try:
        return getattr(pynvml, question)(*given)
    except (pynvml.NVMLError, AttributeError):
        return None


def _text(answer: bytes | str | None) -> str | None:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _address(pynvml: Any, handle: Any) -> str:
    """The address as sysfs writes it, with four digits for the domain, where NVML gives eight."""
    full = (_text(pynvml.nvmlDeviceGetPciInfo(handle).busId) or "").lower()
    return full[-12:]


def _device(pynvml: Any, handle: Any) -> dict[str, Any]:
    table: dict[str, Any] = {"kind": "gpu", "model": _text(_ask(pynvml, "nvmlDeviceGetName", handle)) or "NVIDIA"}
    memory = _ask(pynvml, "nvmlDeviceGetMemoryInfo", handle)
    clock = _ask(pynvml, "nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_MEM)
    width = _ask(pynvml, "nvmlDeviceGetMemoryBusWidth", handle)
    if memory and memory.total:
        # HBM has a bus of 1,024 bits and more; GDDR never does.
        table["memory"] = {"kind": "hbm" if width and width >= 1024 else "dram", "size": int(memory.total)}
        if clock and width:
            rate = 2 * clock * 1e6 * width / 8
            table["memory"]["bandwidth"] = {"value": rate, "source": "NVML: memory clock × 2 × bus width"}
    limit = _ask(pynvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)
    if limit:
        table["power"] = {"peak": limit / 1e3}
    table["warp_size"] = 32
    cores, capability = _ask(pynvml, "nvmlDeviceGetNumGpuCores", handle), _ask(pynvml, "nvmlDeviceGetCudaComputeCapability", handle)
    if cores and capability:
        per_sm = 64 if tuple(capability) in ((6, 0), (7, 0), (7, 2), (7, 5), (8, 0)) else 128
        table["sms"] = cores // per_sm
    return table


def _links(pynvml: Any, handles: list[Any]) -> list[dict[str, Any]]:
    """The NVLink tables: through switches if any GPU has one at the other end, and otherwise pair by pair."""
    position = {_address(pynvml, handle): k for k, handle in enumerate(handles)}
    active: dict[int, int] = {}
    pairs: dict[tuple[int, int], int] = {}
    version, switched = None, False
    for k, handle in enumerate(handles):
        for link in range(MOST_LINKS):
            if _ask(pynvml, "nvmlDeviceGetNvLinkState", handle, link) != 1:
                continue
            active[k] = active.get(k, 0) + 1
            version = version or _ask(pynvml, "nvmlDeviceGetNvLinkVersion", handle, link)
            switched |= _ask(pynvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == REMOTE_SWITCH
            remote = _ask(pynvml, "nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, link)
            other = position.get((_text(remote.busId) or "").lower()[-12:]) if remote else None
            if other is not None and k < other:
                pairs[k, other] = pairs.get((k, other), 0) + 1
    if len(handles) < 2 or not active or version not in NVLINK_RATE:
        return []
    if switched:
        return [{"kind": "nvlink", "topology": "switch", "between": "device", "rate": max(active.values()) * NVLINK_RATE[version]}]
    return pair_tables("nvlink", {pair: count * NVLINK_RATE[version] for pair, count in pairs.items()}, len(handles))
