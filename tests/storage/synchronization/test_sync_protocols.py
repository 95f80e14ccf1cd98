"""What each protocol does to five small histories, by hand; then what must hold in every history."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import catalogue
from armillary.storage.synchronization import (
    LwwCloud,
    Operation,
    Outage,
    Outcome,
    Schedule,
    TransactionalLink,
    Truth,
    VersionVector,
    World,
    generate,
    simulate,
)  # fmt: skip
from armillary.storage.synchronization.lww_cloud import Record
from armillary.storage.synchronization.protocol import Act, Content, Message, Shown

DAY = 86400.0
KEEPERS = [VersionVector(), TransactionalLink()]


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
    """Whichever of the two uploads last."""
    outcome = simulate(both_write_apart(cut), LwwCloud())
    assert contents(outcome, "A") == contents(outcome, "B") == {(1,)}
    assert outcome.counts["lost_updates"] == 1
    assert outcome.counts["concurrent_pairs"] == 1
    assert set(outcome.statuses.values()) == {"in sync"}


@pytest.mark.parametrize("protocol", KEEPERS, ids=lambda p: type(p).__name__)
def test_both_versions_are_shown_and_one_write_merges_them(protocol: VersionVector | TransactionalLink) -> None:
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


@pytest.mark.parametrize("protocol", KEEPERS, ids=lambda p: type(p).__name__)
def test_the_rename_of_a_file_in_conflict_moves_both_and_orders_neither(protocol: VersionVector | TransactionalLink) -> None:
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


@pytest.mark.parametrize("protocol", [*KEEPERS, LwwCloud(tombstone_days=40.0)], ids=lambda p: type(p).__name__)
def test_a_delete_that_is_remembered_stays(protocol: VersionVector) -> None:
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


def test_a_repeated_message_is_recognised() -> None:
    outcome = simulate(lost_answer(), VersionVector())
    assert outcome.counts["resurrected"] == outcome.counts["duplicates"] == 0
    # The link transaction shows B nothing before A's COMMIT, so B's delete finds no file and is refused: one version in the end.
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
    assert simulate(cut_group(), VersionVector()).counts["torn_groups"] == 1


def test_a_group_is_never_torn_by_a_link_transaction() -> None:
    shown: list[int] = []
    outcome = simulate(cut_group(), TransactionalLink(), step=lambda world: shown.append(len(world.nodes["B"].tree())))
    assert set(shown) == {0, 3}
    assert outcome.counts["torn_groups"] == 0


def test_a_file_that_never_gets_across_is_silent_there_and_waiting_here() -> None:
    stuck = schedule(Operation(1, "A", "write", "f", size=77), Operation(2, "A", "write", "g"), stuck=frozenset({"f"}))
    outcome = simulate(stuck, LwwCloud())
    assert outcome.counts["silent_divergence"] == 77
    assert outcome.counts["open_divergence"] == 0
    outcome = simulate(stuck, TransactionalLink())
    assert outcome.counts["silent_divergence"] == 0
    assert outcome.counts["open_divergence"] >= 77
    assert outcome.statuses["A"] == "waiting"


def test_rename_here_and_edit_there_is_one_file_with_the_new_name_and_content() -> None:
    apart = schedule(
        Operation(1, "A", "write", "f"),
        Operation(100, "A", "rename", "f", "g"),
        Operation(101, "B", "write", "f"),
        outages=(Outage(50, 200, "A"),),
    )
    outcome = simulate(apart, TransactionalLink())
    assert all(set(tree) == {"g"} and contents(outcome, name, "g") == {(2,)} for name, tree in outcome.trees.items())
    assert set(outcome.statuses.values()) == {"in sync"}
    outcome = simulate(apart, TransactionalLink(automerge=False))
    assert set(outcome.statuses.values()) == {"conflict"}


@pytest.mark.parametrize("name", ["pair", "flapping", "lossy", "git-tree"])
def test_no_version_is_ever_without_a_home(name: str) -> None:
    """Conservation: what was created is in some store after every single event, and stores hold nothing else."""
    import numpy as np

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


@settings(max_examples=60, deadline=None)
@given(WORDS, WORLDS, st.sampled_from(KEEPERS))
def test_nothing_is_lost_and_no_ordered_edits_conflict(
    words: list[tuple[str, str, str, float]], world: dict[str, object], protocol: VersionVector
) -> None:
    outcome = simulate(schedule(*history(words), replicas="ABC", **world), protocol)
    for count in ("lost_updates", "spurious_conflicts", "silent_divergence", "open_divergence"):
        assert outcome.counts[count] == 0, count
    if isinstance(protocol, TransactionalLink):
        assert outcome.counts["resurrected"] == 0
        assert not any(link.errors for node in outcome.nodes.values() for link in node.links.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["pair", "team", "laptop", "long-offline", "skewed-clocks", "flapping", "lossy", "git-tree"])
def test_the_arena_runs_every_technique(name: str) -> None:
    arena = catalogue.arena("storage/synchronization")
    (case,) = (case for case in arena.built_in("tiny") if case.name == name)
    for technique in arena.techniques:
        first = dict(simulate(case.workload, arena.make(technique)).counts)  # type: ignore[arg-type]
        second = dict(simulate(case.workload, arena.make(technique)).counts)  # type: ignore[arg-type]
        assert set(first) == set(arena.metrics)
        assert first | {"ops_per_s": 0} == second | {"ops_per_s": 0}
