"""The parts of a machine, as a cluster file writes them (schema version 1).

A `Cluster` has groups of equal nodes and networks between them; a node has sockets, memory tiers, devices, NICs and links. Every quantity
is a `Quantity` in base units (bytes, bytes/s, seconds, watts, flop/s, hertz, grams, metres); a figure that the file does not state is None,
which means unknown, not zero.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from armillary.cluster import fields as f
from armillary.cluster.fields import Table, bad
from armillary.cluster.traces import Trace, read_trace
from armillary.cluster.units import Count, Quantity, shown

MEMORY_KINDS = ("hbm", "dram", "cxl", "pmem", "nvme", "ssd", "hdd", "pfs", "object")
DEVICE_KINDS = ("gpu", "npu", "dpu", "simt", "analog", "qpu")
#: The bits per vector instruction of each set; scalable sets state theirs with `vector_bits`.
SIMD_BITS = {
    "sse2": 128,
    "sse4": 128,
    "neon": 128,
    "avx": 256,
    "avx2": 256,
    "avx512": 512,
    "sve": None,
    "sve2": None,
    "rvv": None,
    "vsx": 128,
}


class Duplex(Table):
    """A rate or delay that differs between the two directions; `up` is away from the owner, `down` is towards it."""

    up: Any
    down: Any


def duplex(found: object, reads: f.Reads) -> Quantity | Duplex:
    """One quantity for both directions, or `{up, down}`."""
    if isinstance(found, Duplex):
        return found
    if isinstance(found, dict) and "value" not in found and ("up" in found or "down" in found):
        if set(found) != {"up", "down"}:
            raise bad(f"found the keys {', '.join(sorted(map(str, found)))[:80]}; expected up and down")
        return Duplex(up=reads.value(found["up"]), down=reads.value(found["down"]))
    return reads.value(found)


class Clock(Table):
    """The clock of a core in hertz: the guaranteed base and the maximum."""

    base: f.Frequency | None = None
    max: f.Frequency | None = None


class Cache(Table):
    """One cache level; `shared_by` cores share one of `size` bytes."""

    level: Annotated[Count, f.Counts(1, 5)]
    size: f.Size
    shared_by: f.Number | None = None


class Peak(Table):
    """Dense peak rates by precision, in flop/s (floating point) or operations/s (integer), without sparse figures."""

    fp64: f.Compute | None = None
    fp64_tensor: f.Compute | None = None
    fp32: f.Compute | None = None
    tf32: f.Compute | None = None
    bf16: f.Compute | None = None
    fp16: f.Compute | None = None
    fp8: f.Compute | None = None
    fp6: f.Compute | None = None
    fp4: f.Compute | None = None
    int8: f.IntegerCompute | None = None
    int8_tensor: f.IntegerCompute | None = None
    int4: f.IntegerCompute | None = None

    def __getitem__(self, precision: str) -> Quantity | None:
        """The peak of one precision; `fp64-tensor` and `fp64_tensor` are the same."""
        name = precision.replace("-", "_")
        if name not in type(self).model_fields:
            raise KeyError(precision)
        return getattr(self, name)


class DevicePower(Table):
    """The power of one device in watts."""

    idle: f.Power | None = None
    peak: f.Power | None = None


class NodePower(Table):
    """The power of one node in watts, P(u) = idle + u^exponent · (peak − idle), with `off`, `boot_s` and `boot_w` for switching it."""

    idle: f.Power | None = None
    peak: f.Power | None = None
    exponent: f.Factor = Quantity(1.0)
    off: f.Power | None = None
    boot_s: f.Delay | None = None
    boot_w: f.Power | None = None


class Coherence(Table):
    """Seconds to get a cache line from the own cache, the same cache cluster, the same socket, or another socket."""

    local: f.Delay | None = None
    cluster: f.Delay | None = None
    socket: f.Delay | None = None
    remote: f.Delay | None = None


class Socket(Table):
    """`count` equal processors of a node; every figure is of one socket unless it says core."""

    count: f.Number = Count(1)
    name: f.Name | None = None
    model: f.Name | None = None
    cores: f.Number | None = None
    threads_per_core: Annotated[Count, f.Counts(1, 64)] = Count(1)
    #: The number of NUMA domains of one socket.
    numa: Annotated[Count, f.Counts(1, 1024)] = Count(1)
    clock: Clock | None = None
    flops: Peak | None = None
    simd: f.Name | None = None
    vector_bits: Annotated[Count, f.Counts(1, 65536)] | None = None
    fma_units: Annotated[Count, f.Counts(1, 64)] | None = None
    caches: tuple[Cache, ...] = ()
    #: Bytes/s of the memory controllers of one socket.
    memory_bandwidth: f.Rate | None = None
    tdp: f.Power | None = None
    #: The speed relative to 1 for the reference of the arena that uses it.
    speed: f.Factor | None = None
    #: Instructions/s, for simulators that count instructions; they are never mixed with flop/s.
    ops: f.Instructions | None = None
    #: Watts of one core.
    idle_w: f.Power | None = None
    busy_w: f.Power | None = None
    coherence: Coherence | None = None
    price: f.Price | None = None

    @property
    def vector_width(self) -> int | None:
        """The bits of one vector register: `vector_bits`, or the value that `simd` implies."""
        return self.vector_bits or SIMD_BITS.get((self.simd or "").lower())

    def peak(self, precision: str = "fp64") -> Quantity | None:
        """Flop/s of one socket; if the file states none, it is cores · base clock · lanes · 2 · FMA units, marked as derived."""
        stated = self.flops[precision] if self.flops else None
        if stated is not None:
            return stated
        width = {"fp64": 64, "fp32": 32}.get(precision)
        clock = (self.clock.base or self.clock.max) if self.clock else None
        if not (width and clock and self.cores and self.vector_width and self.fma_units):
            return None
        lanes = self.vector_width // width
        return Quantity(
            self.cores * clock * lanes * 2 * self.fma_units, "FLOP/s", "derived: cores × clock × lanes × 2 × FMA units", None, True
        )


class Memory(Table):
    """One memory or storage tier. Bandwidths are in bytes/s for the whole tier, as one node (or device) sees it."""

    name: f.Name | None = None
    kind: Literal["hbm", "dram", "cxl", "pmem", "nvme", "ssd", "hdd", "pfs", "object"]
    count: f.Number = Count(1)
    size: f.Size | None = None
    bandwidth: f.Rate | None = None
    write_bandwidth: f.Rate | None = None
    latency: f.Delay | None = None
    write_latency: f.Delay | None = None
    attached: Literal["socket", "node", "device", "network"] | None = None
    #: The bytes of one internal transfer.
    granule: f.Size | None = None
    #: Bytes/s of a shared file system over all nodes.
    aggregate_bandwidth: f.Rate | None = None
    aggregate_write_bandwidth: f.Rate | None = None
    #: Host–device copy rates from page-locked and from ordinary memory.
    pinned: f.Rate | None = None
    pageable: f.Rate | None = None
    copy_bandwidth_per_core: f.Rate | None = None
    price: f.PricePerSize | None = None
    lifetime: f.Time | None = None
    #: The number of full writes before it wears out.
    endurance: f.Factor | None = None
    idle: f.PowerPerSize | None = None
    read_energy: f.EnergyPerByte | None = None
    write_energy: f.EnergyPerByte | None = None
    #: The cache inside the tier (DRAM in front of flash), with its line size, latencies and fills.
    cache: f.Size | None = None
    line: f.Size | None = None
    line_latency: f.Delay | None = None
    next_line_latency: f.Delay | None = None
    fills: f.Number | None = None
    flush_latency: f.Delay | None = None
    #: Whether a device uses the node's memory instead of its own.
    shared: f.Flag = False
    #: Whether a figure outside the usual range is intended.
    unusual: f.Flag = False

    @property
    def called(self) -> str:
        """The name of the tier, or its kind if it has no name."""
        return self.name or self.kind


class Shared(Table):
    """The on-chip memory of one multiprocessor: its banks, bytes per bank, total bytes, and widest access."""

    banks: f.Number | None = None
    bank_bytes: f.Number | None = None
    size: f.Size | None = None
    vector_bytes: f.Number | None = None


class DeviceLink(Table):
    """The link of a device to its peers, in bytes/s per direction."""

    kind: f.Name
    rate: f.Rate
    links: f.Number | None = None
    #: Whether the switch between the devices adds what they send and copies what one of them sends to all (NVLink SHARP).
    reduces: bool = False


class Device(Table):
    """`count` equal accelerators of a node; every figure is of one of them."""

    count: f.Number = Count(1)
    name: f.Name | None = None
    kind: Literal["gpu", "npu", "dpu", "simt", "analog", "qpu"]
    model: f.Name | None = None
    peak: Peak = Peak()
    memory: Memory | None = None
    power: DevicePower = DevicePower()
    clock: Clock | None = None
    warp_size: f.Number | None = None
    shared: Shared | None = None
    near: f.Names | None = None
    sms: f.Number | None = None
    copy_engines: f.Number | None = None
    price: f.Price | None = None
    #: A JSON file with a calibration, which `llm` reads.
    calibration: f.Name | None = None
    link: DeviceLink | None = None
    #: The parameters of a SIMT model.
    cores: f.Number | None = None
    warps: f.Number | None = None
    lanes: f.Number | None = None
    caches: tuple[Cache, ...] = ()
    #: The parameters of a quantum processor: seconds of one-qubit gates, two-qubit gates and measurements.
    data_qubits: f.Number | None = None
    communication_qubits: f.Number | None = None
    gate_s: f.Delay | None = None
    two_qubit_s: f.Delay | None = None
    measure_s: f.Delay | None = None
    swap_s: f.Delay | None = None
    coherence_s: f.Delay | None = None


class Nic(Table):
    """`count` equal network ports of a node, each on `network`."""

    count: f.Number = Count(1)
    name: f.Name | None = None
    model: f.Name | None = None
    #: Bytes/s per direction, or `{up, down}` if they differ.
    rate: Any = None
    network: f.Name | None = None
    #: "device" (NIC i is beside device i), "socket:k", "numa:k", or one of these per NIC.
    near: f.Names | None = None
    latency: f.Delay | None = None
    #: Seconds between two messages, and CPU seconds per message sent or received.
    message_gap: f.Delay | None = None
    send_overhead: f.Delay | None = None
    receive_overhead: f.Delay | None = None

    @field_validator("rate", mode="before")
    @classmethod
    def _rate(cls, found: object) -> Quantity | Duplex | None:
        return None if found is None else duplex(found, f.Reads("rate"))

    @property
    def up(self) -> Quantity | None:
        """Bytes/s out of the node."""
        return self.rate.up if isinstance(self.rate, Duplex) else self.rate

    @property
    def down(self) -> Quantity | None:
        """Bytes/s into the node."""
        return self.rate.down if isinstance(self.rate, Duplex) else self.rate

    @property
    def bandwidth(self) -> float | None:
        """Bytes/s of the slower direction."""
        return None if self.rate is None else min(self.rate.up, self.rate.down) if isinstance(self.rate, Duplex) else self.rate


class Link(Table):
    """A link inside the node, with its `rate` in bytes/s per endpoint and direction, and its `latency` in seconds from end to end."""

    kind: f.Name
    name: f.Name | None = None
    topology: Literal["switch", "all-to-all", "ring", "mesh", "pairs", "tree"]
    between: f.Pair
    rate: Any = None
    latency: Any = None
    #: The endpoints that it joins if not all of them, as index pairs, each at the full rate.
    pairs: (
        Annotated[tuple[Annotated[tuple[f.NumberOrNone, ...], Field(min_length=2, max_length=2)], ...], Field(max_length=100_000)] | None
    ) = None
    dims: Annotated[tuple[f.Number, ...], Field(min_length=1, max_length=8)] | None = None
    price: f.PricePerTransfer | None = None
    energy: f.EnergyPerBit | None = None
    trace: Trace | None = None

    @field_validator("rate", mode="before")
    @classmethod
    def _rate(cls, found: object) -> Quantity | Duplex | None:
        return None if found is None else duplex(found, f.Reads("rate"))

    @field_validator("latency", mode="before")
    @classmethod
    def _latency(cls, found: object) -> Quantity | Duplex | None:
        return None if found is None else duplex(found, f.Reads("time", or_equal=True))

    @field_validator("trace", mode="before")
    @classmethod
    def _trace(cls, found: object, info: ValidationInfo) -> Trace | None:
        return None if found is None else read_trace(found, "bandwidth", info.context)

    @property
    def ends(self) -> tuple[str, str]:
        """The two kinds of part that it joins."""
        return (self.between, self.between) if isinstance(self.between, str) else (self.between[0], self.between[1])


class Usable(Table):
    """The part of the physical machine that limits (affinity, cgroups) leave."""

    cores: Annotated[Quantity, f.Shares(0.0, 1e7)] | None = None
    memory: f.Size | None = None


class Node(Table):
    """One node of a group."""

    #: The number of nodes per rack, for placement and failure domains.
    rack: f.Number | None = None
    power: NodePower | None = None
    #: Other operating points by name (a clock limit, a BIOS setting).
    power_profiles: dict[f.Name, NodePower] = Field(default={}, max_length=100)
    sockets: tuple[Socket, ...] = Field(default=(), alias="socket", max_length=1000)
    memories: tuple[Memory, ...] = Field(default=(), alias="memory", max_length=1000)
    devices: tuple[Device, ...] = Field(default=(), alias="device", max_length=1000)
    nics: tuple[Nic, ...] = Field(default=(), alias="nic", max_length=1000)
    links: tuple[Link, ...] = Field(default=(), alias="link", max_length=1000)
    usable: Usable | None = None
    price: f.Price | None = None


class NodeGroup(Table):
    """`count` nodes of one type. Failures are exponential with a mean of `mtbf` seconds per node, or Weibull if `shape` is given."""

    name: f.Name
    count: f.Number
    mtbf: f.Time | None = None
    shape: f.Factor | None = None
    repair: f.Delay | None = None
    #: The name of its site, if there are several.
    site: f.Name | None = None
    node: Node = Node()


class Pv(Table):
    """Solar panels of a site."""

    area_m2: f.Factor
    efficiency: Annotated[Quantity, f.Shares(0.0, 1.0)]


class Site(Table):
    """The site of the machine: its energy, carbon and cooling."""

    name: f.Name | None = None
    #: The power of the facility divided by the power of the machine.
    pue: Annotated[Quantity, f.Shares(1.0, 100.0)] | None = None
    #: g/kWh, constant or a trace over time.
    carbon_intensity: Any = None
    #: Currency/kWh, constant or a trace over time.
    energy_price: Any = None
    #: Grams of CO₂e of making the whole machine, which are spread over `lifetime` seconds.
    embodied: f.Mass | None = None
    lifetime: f.Time | None = None
    #: Watts of the whole machine under full load, as published.
    machine_power: f.Power | None = None
    latitude: Annotated[Quantity, f.Shares(-90.0, 90.0)] | None = None
    longitude: Annotated[Quantity, f.Shares(-180.0, 180.0)] | None = None
    grid_zone: f.Name | None = None
    pv: Pv | None = None

    @field_validator("carbon_intensity", mode="before")
    @classmethod
    def _carbon(cls, found: object, info: ValidationInfo) -> Quantity | Trace | None:
        return _constant_or_trace(found, f.Reads("carbon intensity", or_equal=True), "carbon", info)

    @field_validator("energy_price", mode="before")
    @classmethod
    def _price(cls, found: object, info: ValidationInfo) -> Quantity | Trace | None:
        return _constant_or_trace(found, f.Reads("price per energy", low=-1e6, or_equal=True), "price", info)


def _constant_or_trace(found: object, reads: f.Reads, kind: str, info: ValidationInfo) -> Quantity | Trace | None:
    if found is None or isinstance(found, Trace):
        return found
    if isinstance(found, dict) and "trace" in found:
        return read_trace(found, kind, info.context)
    return reads.value(found)


class Fact(Table):
    """One detected value and its source."""

    key: f.Text
    value: Any = None
    source: f.Text

    @field_validator("value")
    @classmethod
    def _plain(cls, found: object) -> object:
        if not isinstance(found, str | int | float | bool | type(None)):
            raise bad(f"found {shown(found)}; expected a text, a number, true or false")
        return found
