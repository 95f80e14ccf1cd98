"""Numbers of event types, those of nsys2prv 0.5.8, so that Paraver's configuration files for it work; and the values of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..readers.mpi_calls import FIRST_FREE, NUMBERS
from ..run.model import CALL, GRAPH, KERNEL, MEMORY, MPI, NVTX, Payload, Run

CALLS, COPIES, COPY_SIZE, KERNELS, NCCL, GRAPHS = 63_000_000, 63_000_001, 63_000_002, 63_000_006, 63_000_007, 63_000_008
GRAPH_ID, GRAPH_EXECUTION = 63_000_100, 63_000_101
LAUNCH = tuple(range(9101, 9111))
CORRELATION, METRICS, NCCL_RANGES, RANGES, RANGES_APART, START_END = 9200, 9400, 9500, 9600, 100, 9004
#: Fields that ranges of NCCL may have, up to the type of the first other range.
FIELDS = RANGES - NCCL_RANGES - 1
MPI_SENT, MPI_RECEIVED = 50_100_001, 50_100_002
TAG_LAUNCH, TAG_MEMORY = 55_001, 55_002
RUNNING, WAITING, GROUP_COMMUNICATION = 1, 3, 10
#: Red, green and blue of states.
COLOURS = {RUNNING: "0,0,255", WAITING: "255,0,0", GROUP_COMMUNICATION: "255,144,26"}
LAUNCH_TITLES = (
    "Grid X", "Grid Y", "Grid Z", "Block X", "Block Y", "Block Z", "Static shared memory", "Dynamic shared memory",
    "Local memory of the kernel", "Registers per thread",
)  # fmt: skip
MPI_TITLES = {
    50_000_001: "MPI point to point", 50_000_002: "MPI collectives", 50_000_003: "MPI other", 50_000_004: "MPI one-sided",
    50_000_005: "MPI input and output",
}  # fmt: skip


@dataclass(frozen=True)
class Values:
    """For each kind, the value of each of the run's names (0 where the kind does not use it), and the type of each NVTX domain."""

    of_name: Mapping[str, npt.NDArray[np.int64]]
    domain_types: tuple[int, ...]
    #: The fields that ranges of NCCL carry, and the values of their texts.
    fields: tuple[str, ...] = ()
    field_texts: tuple[Mapping[str, int], ...] = ()

    def payload(self, payload: Payload) -> str:
        """A payload as pairs of types and values, as records have them."""
        return "".join(
            f":{NCCL_RANGES + 1 + place}:{self.field_texts[place][value] if isinstance(value, str) else value}"
            for name, value in payload if name in self.fields for place in (self.fields.index(name),)
        )  # fmt: skip

    @property
    def no_payload(self) -> str:
        """All fields at 0."""
        return "".join(f":{NCCL_RANGES + 1 + place}:0" for place in range(len(self.fields)))


def values_of(run: Run) -> Values:
    """Numbers names in sorted order, so that two runs of a program agree; calls, kernels, copies and graphs share one numbering."""
    found, first = {}, 1
    for kind in (CALL, KERNEL, MEMORY, GRAPH):
        found[kind], first = _numbered(run, kind, first)
    found[NVTX], _ = _numbered(run, NVTX, 1)
    of_mpi = np.zeros(len(run.names), np.int64)
    free = FIRST_FREE
    for name, number in _used(run, MPI):
        of_mpi[number] = NUMBERS.get(name, free)
        free += name not in NUMBERS
    found[MPI] = of_mpi
    others = sorted(name for name in run.domains if name != "NCCL")
    types = tuple(NCCL_RANGES if name == "NCCL" else RANGES + RANGES_APART * others.index(name) for name in run.domains)
    return Values(found, types, *_fields_of(run))


def _fields_of(run: Run) -> tuple[tuple[str, ...], tuple[dict[str, int], ...]]:
    """The fields that ranges of NCCL carry, sorted, and for each the values of its texts."""
    spans = run.of(NVTX)
    if "NCCL" not in run.domains or not len(spans):
        return (), ()
    used = np.unique(spans.more["payload"][spans.more["domain"] == run.domains.index("NCCL")]).tolist()
    pairs = [pair for number in used for pair in run.payloads[number]]
    fields = tuple(sorted({name for name, _ in pairs}))[:FIELDS]
    texts = [sorted({value for name, value in pairs if name == field and isinstance(value, str)}) for field in fields]
    return fields, tuple({text: number for number, text in enumerate(one, 1)} for one in texts)


def _numbered(run: Run, kind: str, first: int) -> tuple[npt.NDArray[np.int64], int]:
    numbers = np.zeros(len(run.names), np.int64)
    for _, number in _used(run, kind):
        numbers[number] = first
        first += 1
    return numbers, first


def _used(run: Run, kind: str) -> Iterable[tuple[str, int]]:
    """(name, number) of the names that a kind uses, sorted."""
    spans = run.of(kind)
    used = np.zeros(len(run.names), np.bool_)
    used[spans.name] = True
    return sorted((run.names[number], int(number)) for number in np.flatnonzero(used))
