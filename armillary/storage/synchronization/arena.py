"""If these people edit these files on these machines, which protocol loses work, and what does safety cost?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Constant, Metric

if TYPE_CHECKING:
    import numpy as np

    from .protocol import SyncProtocol
    from .schedule import Schedule

_COUNTS = {
    "lost_updates": "writes that nobody shows and nobody replaced or deleted in view of them",
    "lost_per_100_concurrent": "the same for 100 concurrent pairs",
    "resurrected": "contents shown that were deleted in view of them",
    "torn_groups": "moments, at reads and at the end, at which a group is there in part",
    "spurious_conflicts": "conflicts between versions of which one was made in view of the other",
    "conflict_copies": "versions shown beside the first, at the replica with the most",
    "duplicates": "further names of one and the same content in one tree that no user chose last",
    "stale_reads": "reads of a version that someone had replaced or deleted in view of it",
    "unavailable_reads": "reads of a content that was dropped here while no link was up",
    "refused_ops": "operations on a file that the replica does not show",
}

synchronization = Arena(
    "storage/synchronization",
    question="If these people edit these files on these machines, which protocol loses work, and what does safety cost?",
    metrics=[
        *(Metric(name, better="lower", kind="simulated", scale="difference", doc=doc) for name, doc in _COUNTS.items()),
        Metric("silent_divergence", unit="B", better="lower", kind="simulated", scale="difference",
               doc="bytes by which trees differ at the end while every replica says in sync"),
        Metric("open_divergence", unit="B", better="lower", kind="simulated", scale="difference",
               doc="bytes by which trees differ at the end while some replica says that it waits or has a conflict"),
        Metric("visible_delay_s", unit="s", better="lower", kind="simulated",
               doc="mean from a write to where it is seen, for replicas on line at the write"),
        Metric("traffic_bytes", unit="B", better="lower", kind="simulated", doc="all messages sent"),
        Metric("metadata_bytes", unit="B", better="lower", kind="simulated", doc="kept beside the contents, a replica and file"),
        Metric("concurrent_pairs", better=None, kind="simulated", doc="writes or deletes from a common version, two by two"),
        Metric("ops_per_s", unit="1/s", better="higher", kind="measured", doc="operations that our simulator gets through"),
    ],
    techniques={
        "lww-cloud": ".lww_cloud:LwwCloud",
        "base-revision": ".base_revision:BaseRevision",
        "version-vector": ".version_vector:VersionVector",
        "dotted-version-vector": ".dotted_version_vector:DottedVersionVector",
        "archive": ".archive:Archive",
        "dag-merge": ".dag_merge:DagMerge",
        "crdt": ".crdt:Crdt",
        "transactional-link": ".transactional_link:TransactionalLink",
    },
    papers={"transactional-link": "sync-semantics"},
    baseline="lww-cloud",
    tradeoff=("traffic_bytes", "lost_updates"),
    constants=(
        Constant("delay", "exponential, mean 0.05 s one way, at least a tenth of it", "s", "ours"),
        Constant("message", "32 B header, 64 B a record, 12 B a counter, 16 B an id", "", "ours"),
        Constant("users", "70 % edit, 10 % create, 8 % delete, 7 % rename, 5 % group; a tenth of the acts begins with a read", "", "ours"),
    ),
    uses=("armillary.engine",),
)  # fmt: skip

#: The cases in which somebody is cut off while others work.
_PARTITIONED = {"pair", "laptop", "long-offline", "skewed-clocks", "flapping", "rename-storm", "evicting", "year"}


@synchronization.cases
def cases(scale: str) -> Iterator[Case]:
    """Eleven kinds of people, networks and clocks."""
    from .workload import CASES, EDITS, YEARS

    for name in CASES:
        kinds = {name, *(("partition",) if name in _PARTITIONED else ())}
        replicas, edits = YEARS[scale] if name == "year" else (3, EDITS[scale])
        yield Case(name, _generate, {"edits": edits, "replicas": replicas}, frozenset(kinds))


@synchronization.read
def read(
    path: Path,
    *,
    delay: float = 0.05,
    loss: float = 0.0,
    duplication: float = 0.0,
    network: str = "",
    clocks: str = "",
    links: Literal["full", "ring"] = "full",
) -> Iterator[Case]:
    """A schedule, `t,replica,op,path[,to][,size][,content][,group]` as CSV with a header or as JSON lines (.jsonl), or a git log (.gitlog).

    `delay` in seconds; `network` and `clocks` are CSV files, as for `read_network` and `read_clocks`; `links` is full, or ring: protocols
    without a server then have the links between neighbours only.
    """
    how = {"path": str(path), "delay": delay, "loss": loss, "duplication": duplication}
    how |= {"network": network, "clocks": clocks, "links": links}
    _read(how)
    yield Case(path.name, _load, how, frozenset({"file"}), source=path)


@synchronization.run
def run(technique: SyncProtocol, case: Case) -> dict[str, float]:
    """Lets the schedule pass under the protocol and counts what came of it."""
    from .simulation import simulate

    return dict(simulate(case.workload, technique).counts)


def _generate(case: Case, rng: np.random.Generator) -> Schedule:
    from .workload import generate

    return generate(case.name, rng, case.parameters["edits"], case.parameters["replicas"])


def _load(case: Case, rng: np.random.Generator) -> Schedule:
    return _read(case.parameters)


def _read(how: Mapping[str, Any]) -> Schedule:
    from .histories import read_clocks, read_git_log, read_network
    from .schedule import read_schedule

    world: dict[str, Any] = {
        "delay_s": how["delay"],
        "loss": how["loss"],
        "duplication": how["duplication"],
        "ring": how["links"] == "ring",
    }
    if how["network"]:
        world |= read_network(how["network"])
    if how["clocks"]:
        world["clocks"] = read_clocks(how["clocks"])
    reader = read_git_log if str(how["path"]).endswith(".gitlog") else read_schedule
    return reader(how["path"], **world)
