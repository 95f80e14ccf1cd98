"""If these people edit these files on these machines, which protocol loses work, and what does safety cost?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Constant, Metric, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from .world.protocol import SyncProtocol
    from .world.schedule import Schedule

_COUNTS = {
    "lost_updates": "writes that nobody shows and nobody replaced or deleted in view of them",
    "lost_per_100_concurrent": "lost updates per 100 concurrent pairs",
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
               doc="mean time from a write until it is seen, for replicas on line at the write"),
        Metric("traffic_bytes", unit="B", better="lower", kind="simulated", doc="all messages sent"),
        Metric("metadata_bytes", unit="B", better="lower", kind="simulated", doc="kept beside the contents, per replica and file"),
        Metric("concurrent_pairs", better=None, kind="simulated", doc="pairs of writes or deletes from a common version"),
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
    # The counts are simulated, and cases differ far more than two draws of one.
    repeats=2,
    telling=("pair", "team", "laptop", "skewed-clocks", "flapping", "lossy", "git-tree"),
    constants=(
        Constant("delay", "exponential, mean 0.05 s one way, at least a tenth of it", "s", "ours"),
        Constant("message", "32 B header, 64 B per record, 12 B per counter, 16 B per id", "", "ours"),
        Constant("users", "70 % edit, 10 % create, 8 % delete, 7 % rename, 5 % group; a tenth of the acts begins with a read", "", "ours"),
    ),
)  # fmt: skip

#: The cases in which somebody is cut off while others work.
_PARTITIONED = {
    "pair", "laptop", "long-offline", "skewed-clocks", "flapping", "flapping-slowly", "rename-storm", "evicting", "year",
}  # fmt: skip
#: The cases whose network fails in the ways that the paper blames for silent divergence, and people at work over a sound one.
_UNRELIABLE = {"flapping", "flapping-slowly", "long-offline", "lossy", "very-lossy"}
_TEAMS = {"team", "team-of-3", "team-of-8", "team-of-days"}


@synchronization.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields eleven kinds of people, networks and clocks, and further teams and bad networks."""
    from .workload import CASES, EDITS, YEARS

    for name in CASES:
        tags = (("partition", _PARTITIONED), ("unreliable", _UNRELIABLE), ("team", _TEAMS))
        kinds = {name, *(tag for tag, names in tags if name in names)}
        replicas, edits = YEARS[scale] if name == "year" else (3, EDITS[scale])
        yield Case(name, _generate, {"edits": edits, "replicas": replicas}, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """The network and the clocks under which a schedule passes."""

    delay: float = parameter(0.05, "mean seconds that a message takes", range=(0.0, 1e6))
    loss: float = parameter(0.0, "share of messages that are lost", range=(0.0, 1.0))
    duplication: float = parameter(0.0, "share of messages that arrive twice", range=(0.0, 1.0))
    network: str = parameter("", "a CSV file that says when which replicas reach each other, as `read_network` reads it", file=True)
    clocks: str = parameter("", "a CSV file of the replicas' clocks, as `read_clocks` reads it", file=True)
    links: Literal["full", "ring"] = parameter("full", "with ring, protocols without a server have only the links between neighbours")


@synchronization.read(Reading)
def read(path: Path, how: Reading) -> Schedule:
    """Reads a schedule, `t,replica,op,path[,to][,size][,content][,group]` as CSV or JSON lines (.jsonl), or a git log (.gitlog)."""
    from .world.histories import read_clocks, read_git_log, read_network
    from .world.schedule import read_schedule

    world: dict[str, Any] = {"delay_s": how.delay, "loss": how.loss, "duplication": how.duplication, "ring": how.links == "ring"}
    if how.network:
        world |= read_network(how.network)
    if how.clocks:
        world["clocks"] = read_clocks(how.clocks)
    return (read_git_log if path.suffix == ".gitlog" else read_schedule)(str(path), **world)


@synchronization.example
def example(folder: Path) -> Path:
    """Writes a schedule in which two replicas edit one file."""
    file = folder / "schedule.csv"
    file.write_text("t,replica,op,path\n0,0,write,a.txt\n1,1,write,b.txt\n2,0,write,a.txt\n9,1,write,a.txt\n")
    return file


@synchronization.run
def run(technique: SyncProtocol, case: Case) -> dict[str, float]:
    """Lets the schedule pass under the protocol and counts what came of it."""
    from .world.simulation import simulate

    return dict(simulate(case.workload, technique).counts)


@synchronization.answer
def answer(result: Result) -> str:
    """Says who loses work, and what the others cost."""
    lost = {name: sum(result.medians(name, "lost_updates").values()) for name in result.techniques if result.medians(name, "lost_updates")}
    if not lost:
        return "Nothing was run to the end."
    cases = counted(len(result.cases), "case")
    losers = [f"{name} ({counted(round(many), 'update')})" for name, many in lost.items() if many]
    safe = [name for name, many in lost.items() if not many]
    verb = "loses" if len(losers) == 1 else "lose"
    said = f"On {cases}, {listed(losers)} {verb} work" if losers else f"No protocol loses work on {cases}"
    if not safe:
        return f"{said}; none of those that were run is safe."
    delays = {name: [delay for delay in result.medians(name, "visible_delay_s").values() if delay > 0] for name in safe}
    means = {name: math.exp(sum(map(math.log, d)) / len(d)) for name, d in delays.items() if d}
    whole = [name for name in safe if not sum(result.medians(name, "torn_groups").values())]
    if len(means) > 1:
        soonest = min(means, key=lambda name: means[name])
        equal = [name for name in means if means[name] <= 1.05 * means[soonest]]
        said += f"; of those that do not, {listed(equal)} {'shows' if len(equal) == 1 else 'show'} changes soonest ({means[soonest]:.2g} s)"
    return said + (f", and {listed(whole)} never {'shows' if len(whole) == 1 else 'show'} part of a group." if whole else ".")


def _generate(case: Case, rng: np.random.Generator) -> Schedule:
    from .workload import generate

    return generate(case.name, rng, case.parameters["edits"], case.parameters["replicas"])
