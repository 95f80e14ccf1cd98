"""What each protocol does to five small histories, by hand; then what must hold in every history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.storage.synchronization import (
    Archive,
    BaseRevision,
    Crdt,
    DagMerge,
    DottedVersionVector,
    LwwCloud,
    Truth,
    VersionVector,
    generate,
)
from armillary.storage.synchronization.lww_cloud import Record
from armillary.storage.synchronization.transactional_link import TransactionalLink
from armillary.storage.synchronization.world.protocol import Act, Content, Message, Shown, SyncProtocol
from armillary.storage.synchronization.world.schedule import Operation, Outage, Schedule
from armillary.storage.synchronization.world.simulation import Outcome, World, simulate

DAY = 86400.0
#: Those that show all concurrent versions under the path itself, and all that lose nothing.
KEEPERS = [VersionVector(), DottedVersionVector(), DagMerge(), Crdt(), TransactionalLink()]
CAREFUL = [*KEEPERS, BaseRevision(), Archive()]


def name_of(protocol: SyncProtocol) -> str:
    return type(protocol).__name__


def schedule(*ops: Operation, replicas: str = "AB", **world: object) -> Schedule:
    return Schedule(tuple(replicas), ops, **world)  # type: ignore[arg-type]


def both_write_apart(cut: str = "A") -> Schedule:
    """A and B write f while apart; B's clock is an hour behind."""
    return schedule(
        Operation(1, "A", "write", "f"), Operation(100, "A", "write", "f"), Operation(101, "B", "write", "f"),
        outages=(Outage(50, 200, cut),), clocks={"B": (-3600.0, 0.0)},
    )  # fmt: skip


def contents(outcome: Outcome, replica: str, path: str = "f") -> set[tuple[int, ...]]:
    return {content.lines for content in outcome.trees[replica].get(path, ())}


@pytest.mark.parametrize("cut", ["A", "B"])
def test_last_writer_wins_loses_the_work_of_the_slow_clock(cut: str) -> None:
    """It does so whichever of the two uploads last."""
    outcome = simulate(both_write_apart(cut), LwwCloud())
    assert contents(outcome, "A") == contents(outcome, "B") == {(1,)}
    assert outcome.counts["lost_updates"] == 1
    assert outcome.counts["concurrent_pairs"] == 1
    assert set(outcome.statuses.values()) == {"in sync"}


@pytest.mark.parametrize("protocol", KEEPERS, ids=name_of)
def test_both_versions_are_shown_and_one_write_merges_them(protocol: SyncProtocol) -> None:
    apart = both_write_apart()
    outcome = simulate(apart, protocol)
    assert contents(outcome, "A") == contents(outcome, "B") == {(1,), (2,)}
    assert outcome.counts["lost_updates"] == 0
    assert outcome.counts["conflict_copies"] == 1
    assert set(outcome.statuses.values()) == {"conflict"}
    merged = schedule(*apart.operations, Operation(300, "B", "write", "f"), outages=apart.outages, clocks=apart.clocks)
    outcome = simulate(merged, protocol)
    assert contents(outcome, "A") == contents(outcome, "B") == {(3,)}
    assert outcome.counts["lost_updates"] == outcome.counts["spurious_conflicts"] == 0
    assert set(outcome.statuses.values()) == {"in sync"}


def test_a_mismatch_of_the_base_revision_is_kept_as_one_copy() -> None:
    outcome = simulate(both_write_apart(), BaseRevision())
    for replica in "AB":
        assert {path: c.lines for path, (c,) in outcome.trees[replica].items()} == {"f": (2,), "f (conflicted copy)": (1,)}
    assert outcome.counts["conflict_copies"] == 1
    assert outcome.counts["lost_updates"] == outcome.counts["spurious_conflicts"] == 0
    assert set(outcome.statuses.values()) == {"in sync"}


def test_what_was_written_on_top_of_an_upload_goes_where_the_upload_went() -> None:
    """A's first upload becomes a copy; A's second edit, made before the answer came, is an edit of that copy."""
    apart = both_write_apart()
    more = schedule(*apart.operations, Operation(200.001, "A", "append", "f"), outages=apart.outages, delay_s=0.01)
    outcome = simulate(more, BaseRevision())
    assert contents(outcome, "B", "f (conflicted copy)") == {(1, 3)}
    assert contents(outcome, "B") == {(2,)}
    assert outcome.counts["lost_updates"] == 0


def test_an_archive_skips_a_conflict_and_says_so() -> None:
    outcome = simulate(both_write_apart(), Archive())
    assert (contents(outcome, "A"), contents(outcome, "B")) == ({(1,)}, {(2,)})
    assert "conflict" in outcome.statuses.values()
    assert outcome.counts["open_divergence"] > 0
    assert outcome.counts["silent_divergence"] == outcome.counts["lost_updates"] == 0


@pytest.mark.parametrize("protocol", KEEPERS, ids=name_of)
def test_the_rename_of_a_file_in_conflict_moves_both_and_orders_neither(protocol: SyncProtocol) -> None:
    apart = both_write_apart()
    outcome = simulate(schedule(*apart.operations, Operation(300, "A", "rename", "f", "g"), outages=apart.outages), protocol)
    assert contents(outcome, "A", "g") == contents(outcome, "B", "g") == {(1,), (2,)}
    assert outcome.counts["spurious_conflicts"] == outcome.counts["lost_updates"] == 0


def test_a_conflict_between_ordered_versions_is_counted_as_spurious_once() -> None:
    truth = Truth()
    for number, seen in ((0, ()), (1, (0,)), (2, (0,))):
        shown = tuple(Shown((n,), Content((n,), 1)) for n in seen)
        truth.happened(Act(number, Operation(number, "A", "write", "f")), shown)
    truth.conflict((1,), (2,))
    assert (truth.conflicts, truth.spurious) == (1, 0)
    truth.conflict((0,), (1,))
    truth.conflict((1,), (0,))
    assert (truth.conflicts, truth.spurious) == (2, 1)
    truth.conflict((0,), (0, 1))
    assert truth.spurious == 2


def test_the_server_keeps_the_newer_stamp_whichever_comes_last() -> None:
    world = World(schedule(), LwwCloud())
    server = world.nodes["server"]
    for number, mtime in enumerate((5.0, 9.0, 7.0)):
        server.receive("A", Message("upload", (number, Record("f", mtime, Content((number,), 1), (number,)))))
    assert server.records["f"].mtime == 9.0  # type: ignore[attr-defined]


def long_away() -> Schedule:
    return schedule(
        Operation(1, "A", "write", "f"), Operation(2 * DAY, "A", "delete", "f"), Operation(35 * DAY, "B", "write", "g"),
        replicas="ABC", outages=(Outage(DAY, 33 * DAY, "C"),),
    )  # fmt: skip


def test_last_writer_wins_brings_a_deleted_file_back() -> None:
    outcome = simulate(long_away(), LwwCloud())
    assert outcome.counts["resurrected"] == 1
    assert "f" in outcome.trees["A"]


@pytest.mark.parametrize("protocol", [*CAREFUL, LwwCloud(tombstone_days=40.0)], ids=name_of)
def test_a_delete_that_is_remembered_stays(protocol: SyncProtocol) -> None:
    outcome = simulate(long_away(), protocol)
    assert outcome.counts["resurrected"] == 0
    assert all(set(tree) == {"g"} for tree in outcome.trees.values())


def lost_answer() -> Schedule:
    """A's upload arrives; every answer to A is lost until B has seen f and deleted it."""
    return schedule(
        Operation(1, "A", "write", "f"), Operation(8, "B", "delete", "f"), outages=(Outage(0.5, 12, "*", "A", one_way=True),), delay_s=0.01,
    )  # fmt: skip


def test_a_retry_as_a_new_operation_re_creates_what_was_deleted_since() -> None:
    outcome = simulate(lost_answer(), LwwCloud())
    assert outcome.counts["refused_ops"] == 0
    assert outcome.counts["resurrected"] == 1


@pytest.mark.parametrize("protocol", CAREFUL, ids=name_of)
def test_a_repeated_message_is_recognised(protocol: SyncProtocol) -> None:
    outcome = simulate(lost_answer(), protocol)
    assert outcome.counts["resurrected"] == outcome.counts["duplicates"] == outcome.counts["spurious_conflicts"] == 0
    assert outcome.trees["A"].keys() == outcome.trees["B"].keys()


def test_a_link_transaction_shows_a_version_once() -> None:
    # The link transaction shows B nothing before A's COMMIT, so B's delete finds no file and is refused, which leaves one version.
    outcome = simulate(lost_answer(), TransactionalLink())
    assert outcome.counts["duplicates"] == outcome.counts["resurrected"] == 0
    assert contents(outcome, "A") == contents(outcome, "B") == {(0,)}
    assert all(len(node.store.versions) == 1 for node in outcome.nodes.values())  # type: ignore[attr-defined]


def cut_group() -> Schedule:
    """Three files that belong together, and a link that is cut in the middle of them."""
    ops = [Operation(10, "A", "begin", group="g")]
    ops += [Operation(10 + 2 * i, "A", "write", f"f{i}", group="g") for i in (1, 2, 3)]
    ops += [Operation(17, "A", "end", group="g"), Operation(30, "B", "read", "f1")]
    return schedule(*ops, outages=(Outage(15, 60, "A"),))


def test_a_group_is_torn_by_uploads_one_by_one() -> None:
    assert simulate(cut_group(), LwwCloud(debounce=0.5)).counts["torn_groups"] == 1
    for protocol in (VersionVector(), DottedVersionVector(), Crdt(), BaseRevision(debounce=0.5), Archive(debounce=0.5)):
        assert simulate(cut_group(), protocol).counts["torn_groups"] == 1, name_of(protocol)


@pytest.mark.parametrize("protocol", [TransactionalLink(), DagMerge(debounce=0.0)], ids=name_of)
def test_a_group_is_never_torn_where_it_travels_whole(protocol: SyncProtocol) -> None:
    shown: list[int] = []
    outcome = simulate(cut_group(), protocol, step=lambda world: shown.append(len(world.nodes["B"].tree())))
    assert set(shown) == {0, 3}
    assert outcome.counts["torn_groups"] == 0


def test_a_file_that_never_gets_across_is_silent_there_and_waiting_here() -> None:
    stuck = schedule(Operation(1, "A", "write", "f", size=77), Operation(2, "A", "write", "g"), stuck=frozenset({"f"}))
    outcome = simulate(stuck, LwwCloud())
    assert outcome.counts["silent_divergence"] == 77
    assert outcome.counts["open_divergence"] == 0
    for protocol in CAREFUL:
        outcome = simulate(stuck, protocol)
        assert outcome.counts["silent_divergence"] == 0, name_of(protocol)
        assert outcome.counts["open_divergence"] >= 77, name_of(protocol)
        assert outcome.statuses["A"] == "waiting", name_of(protocol)


def test_rename_here_and_edit_there_is_one_file_with_the_new_name_and_content() -> None:
    ops = (Operation(1, "A", "write", "f"), Operation(100, "A", "rename", "f", "g"), Operation(101, "B", "write", "f"))
    apart = schedule(*ops, outages=(Outage(50, 200, "A"),))
    for protocol in (TransactionalLink(), DagMerge(), Crdt()):
        outcome = simulate(apart, protocol)
        assert all(set(tree) == {"g"} and contents(outcome, name, "g") == {(2,)} for name, tree in outcome.trees.items()), name_of(protocol)
        assert set(outcome.statuses.values()) == {"in sync"}, name_of(protocol)
    outcome = simulate(apart, TransactionalLink(automerge=False))
    assert set(outcome.statuses.values()) == {"conflict"}
    for copying in (VersionVector(), DottedVersionVector(), BaseRevision()):
        outcome = simulate(apart, copying)
        assert contents(outcome, "A", "f") == {(2,)}, name_of(copying)
        assert contents(outcome, "B", "g") == {(0,)}, "a rename that is a delete and a create leaves both"


ODD = ["F", "line\nbreak", "f/x", "ünï", "(conflicted copy)"]


@pytest.mark.parametrize("protocol", [LwwCloud(), *CAREFUL], ids=name_of)
def test_odd_names_empty_files_and_a_folder_in_a_files_place(protocol: SyncProtocol) -> None:
    ops = [Operation(1.0 + i, "A", "write", path, size=0) for i, path in enumerate(["f", *ODD[:2], *ODD[3:]])]
    ops += [Operation(100, "A", "rename", "f", "f0"), Operation(120, "A", "rename", "f0", "F0"), Operation(140, "B", "delete", "F")]
    ops += [Operation(150, "A", "write", "f/x", size=0), Operation(160, "B", "delete", ODD[1]), Operation(161, "B", "write", f"{ODD[1]}/y")]
    outcome = simulate(schedule(*ops), protocol)
    assert all(set(tree) == {"F0", "f/x", "line\nbreak/y", *ODD[3:]} for tree in outcome.trees.values())
    assert outcome.counts["lost_updates"] == outcome.counts["spurious_conflicts"] == outcome.counts["refused_ops"] == 0


@pytest.mark.parametrize("protocol", [LwwCloud(), *CAREFUL], ids=name_of)
def test_a_deep_history(protocol: SyncProtocol) -> None:
    many = 1200
    ops = [Operation(0.05 * i, "A", "write", "f", size=1) for i in range(many)]
    outcome = simulate(schedule(*ops, Operation(0.05 * many + 200, "B", "write", "f")), protocol)
    assert contents(outcome, "A") == contents(outcome, "B") == {(many,)}
    assert outcome.counts["lost_updates"] == outcome.counts["spurious_conflicts"] == 0


def test_a_read_of_what_was_replaced_elsewhere_is_stale() -> None:
    apart = schedule(
        Operation(1, "A", "write", "f"), Operation(60, "B", "write", "f"), Operation(70, "A", "read", "f"), Operation(300, "A", "read", "f"),
        outages=(Outage(50, 200, "A"),),
    )  # fmt: skip
    for protocol in (LwwCloud(), *CAREFUL):
        assert simulate(apart, protocol).counts["stale_reads"] == 1, name_of(protocol)


def test_a_content_that_was_dropped_cannot_be_read_off_line() -> None:
    ops = [Operation(1, "A", "write", "f"), *(Operation(t, "A", "read", "f") for t in (100, 2000, 5000))]
    for protocol in (LwwCloud(), *CAREFUL):
        away = schedule(*ops, outages=(Outage(1500, 3000, "A"),), evicts={"A": 600.0})
        assert simulate(away, protocol).counts["unavailable_reads"] == 1, name_of(protocol)
        kept = simulate(schedule(*ops, outages=(Outage(0.5, 3000, "A"),), evicts={"A": 600.0}), protocol)
        assert kept.counts["unavailable_reads"] == 0, f"{name_of(protocol)} dropped the only copy"


@pytest.mark.parametrize("name", ["pair", "flapping", "lossy", "git-tree"])
def test_no_version_is_ever_without_a_home(name: str) -> None:
    """What was created is in some store after every single event, and stores hold nothing else."""
    created: set[str] = set()

    def check(world: World) -> None:
        stores = [node.store.versions for node in world.nodes.values()]  # type: ignore[attr-defined]
        now = set().union(*stores)
        assert created <= now
        created.update(now)

    outcome = simulate(generate(name, np.random.default_rng(5), 40), TransactionalLink(), step=check)
    assert created == set(outcome.nodes["r0"].store.versions)  # type: ignore[attr-defined]
    assert not any(link.errors for node in outcome.nodes.values() for link in node.links.values())  # type: ignore[attr-defined]


WORDS = st.lists(
    st.tuples(st.sampled_from("ABC"), st.sampled_from(["write", "append", "delete", "rename"]), st.sampled_from("fgh"), st.floats(0.0, 30.0)),
    min_size=1, max_size=12,
)  # fmt: skip
WORLDS = st.fixed_dictionaries({
    "seed": st.integers(0, 1000), "loss": st.sampled_from([0.0, 0.3]), "duplication": st.sampled_from([0.0, 0.5]), "delay_s": st.sampled_from([0.05, 5.0]),
    "outages": st.lists(st.builds(lambda t, d, a: Outage(t, t + d, a), st.floats(0, 100), st.floats(1, 200), st.sampled_from("ABC")), max_size=2).map(tuple),
})  # fmt: skip


def history(words: list[tuple[str, str, str, float]]) -> list[Operation]:
    t, out = 0.0, []
    for i, (who, op, path, wait) in enumerate(words):
        t += wait
        out.append(Operation(t, who, op, path, f"{path}{i}" if op == "rename" else ""))
    return out


@settings(max_examples=50)
@given(WORDS, WORLDS, st.sampled_from(CAREFUL))
def test_nothing_is_lost_and_no_ordered_edits_conflict(
    words: list[tuple[str, str, str, float]], world: dict[str, object], protocol: SyncProtocol
) -> None:
    outcome = simulate(schedule(*history(words), replicas="ABC", **world), protocol)
    for count in ("lost_updates", "spurious_conflicts", "silent_divergence", "duplicates", "resurrected"):
        assert outcome.counts[count] == 0, count
    assert outcome.counts["open_divergence"] == 0 or isinstance(protocol, Archive)
    if isinstance(protocol, TransactionalLink):
        assert not any(link.errors for node in outcome.nodes.values() for link in node.links.values())  # type: ignore[attr-defined]


def test_two_merges_of_the_same_changes_crosswise_are_no_conflict() -> None:
    # A has the rename and B's first write, B the rename and both writes: neither merge knows the other, and they have two common ancestors.
    words = [("A", "write", "g", 0.0), ("A", "rename", "g", 11.0), ("B", "write", "g", 0.0), ("B", "write", "g", 0.0)]
    outcome = simulate(schedule(*history(words), replicas="ABC", delay_s=0.05), TransactionalLink(automerge=True))
    assert outcome.counts["spurious_conflicts"] == 0
    assert [{path: [c.lines for c in contents] for path, contents in tree.items()} for tree in outcome.trees.values()] == [
        {"g1": [(3,)]}
    ] * 3


MESHED = [VersionVector(), DottedVersionVector(), Crdt(), TransactionalLink()]


@pytest.mark.parametrize("protocol", MESHED, ids=name_of)
def test_in_a_ring_work_goes_from_neighbour_to_neighbour(protocol: SyncProtocol) -> None:
    ops = [Operation(10.0 + i, "ABCDE"[i % 5], "write", f"f{i % 7}") for i in range(60)]
    ops += [Operation(200.0, "C", "delete", "f1"), Operation(300.0, "E", "rename", "f2", "moved")]
    # B is away, so the ring is a line; D writes beside the delete.
    ring = schedule(*ops, Operation(301.0, "D", "append", "f3"), replicas="ABCDE", ring=True, outages=(Outage(5, 400, "B"),))
    world = World(ring, protocol)
    assert sorted(world.links) == [("A", "B"), ("A", "E"), ("B", "C"), ("C", "D"), ("D", "E")]
    outcome = world.run()
    for count in ("lost_updates", "resurrected", "silent_divergence", "open_divergence", "spurious_conflicts", "duplicates"):
        assert outcome.counts[count] == 0, count
    assert "moved" in outcome.trees["B"]
    assert all(tree == outcome.trees["A"] for tree in outcome.trees.values())
    assert len(set(outcome.statuses.values())) == 1


def test_in_a_ring_a_delete_is_kept_for_those_one_cannot_ask() -> None:
    ops = [Operation(1.0 + i, "ABCD"[i], "write", f"f{i}") for i in range(4)]
    ops.append(Operation(100.0, "A", "delete", "f0"))
    ops += [Operation(200.0 + 100 * i, "ABCD"[i % 4], "write", "f1") for i in range(8)]
    heads = {}
    for ring in (False, True):
        outcome = simulate(schedule(*ops, replicas="ABCD", ring=ring), TransactionalLink())
        assert outcome.statuses == dict.fromkeys("ABCD", "in sync")
        heads[ring] = [len(node.store.heads) for node in outcome.nodes.values()]  # type: ignore[attr-defined]
    assert heads[False] == [3] * 4
    assert heads[True] == [4] * 4


@pytest.mark.parametrize("protocol", [LwwCloud(), *CAREFUL], ids=name_of)
@pytest.mark.parametrize("gone", [Operation(600, "B", "delete", "f"), Operation(600, "B", "rename", "f", "g")], ids=["delete", "rename"])
def test_a_write_in_view_of_a_delete_is_not_concurrent_with_what_was_deleted(protocol: SyncProtocol, gone: Operation) -> None:
    """Not every protocol keeps its deletes, but the user saw that the file had gone."""
    history = schedule(Operation(1, "A", "write", "f"), gone, Operation(1200, "C", "write", "f"), replicas="ABC")
    assert simulate(history, protocol).counts["concurrent_pairs"] == 0
    apart = schedule(*history.operations, replicas="ABC", outages=(Outage(0.5, 1300, "C"),))
    assert simulate(apart, protocol).counts["concurrent_pairs"] >= 1
