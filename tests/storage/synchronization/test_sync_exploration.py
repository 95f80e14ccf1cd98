"""Every interleaving of small scripts, and machines that drive each protocol at random."""

from __future__ import annotations

import itertools
from typing import ClassVar

import pytest
from hypothesis import Phase as Part
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from armillary.storage.synchronization import (
    Archive,
    BaseRevision,
    Crdt,
    DagMerge,
    DottedVersionVector,
    LwwCloud,
    Operation,
    SyncMachine,
    SyncProtocol,
    TransactionalLink,
    VersionVector,
    explore_links,
)  # fmt: skip
from armillary.storage.synchronization import link_register as registers
from armillary.storage.synchronization.explore import Script, scripts
from armillary.storage.synchronization.link_register import LinkEnd, Phase


def script(*words: str) -> Script:
    """`a write f`, `b rename f g`; `a begin g1` opens a group that `a end g1` closes."""
    users: dict[str, list[Operation]] = {"a": [], "b": []}
    group = {"a": "", "b": ""}
    for word in words:
        who, op, *rest = word.split()
        if op in ("begin", "end"):
            group[who] = rest[0] if op == "begin" else ""
            users[who].append(Operation(0.0, who, op, group=rest[0]))
        else:
            users[who].append(Operation(0.0, who, op, rest[0], rest[1] if op == "rename" else "", 10, group[who]))
    return tuple(users["a"]), tuple(users["b"])


@pytest.mark.parametrize(
    "words",
    [
        ("a write f",),
        ("a write f", "b write f"),
        ("a write f", "b append f", "b delete f"),
        ("a write f", "a rename f g", "b write f"),
        ("a begin x", "a write f", "a write g", "a end x"),
    ],
    ids=" / ".join,
)
def test_all_interleavings_with_a_fault_anywhere(words: tuple[str, ...]) -> None:
    explored = explore_links(script(*words))
    assert explored.violations == ()
    assert explored.complete
    assert explored.states > 400
    assert explored.ends > 1


def test_every_script_of_two_operations_without_faults() -> None:
    count = 0
    for one in scripts(("f",), 2):
        explored = explore_links(one, budget=0)
        assert explored.complete, one
        assert explored.violations == (), one
        count += 1
    assert count == 56


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("a write f", "b write f", "b delete f", "a append f", "b rename f h"),
        ("a write f", "a write g", "b write f", "b delete g"),
        ("a begin x", "a write f", "a write g", "a end x", "b write f", "b write g"),
        ("a write f", "a rename f g", "b append f", "b delete f", "a write f"),
    ],
    ids=" / ".join,
)
def test_long_scripts_with_a_fault_anywhere(words: tuple[str, ...]) -> None:
    explored = explore_links(script(*words), most=600_000)
    assert explored.violations == ()


@pytest.mark.slow
def test_every_script_of_three_operations_with_a_fault_anywhere() -> None:
    for one in itertools.islice(scripts(("f",), 3), 0, None, 7):
        explored = explore_links(one, most=60_000)
        assert explored.violations == (), one


def test_the_explorer_finds_a_table_that_reverses_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(mine: Phase, theirs: Phase) -> str:
        return "reverse" if (mine, theirs) == (Phase.COMMITTING, Phase.DONE) else registers_resume(mine, theirs)

    registers_resume = registers.resume
    monkeypatch.setattr(registers, "resume", wrong)
    explored = explore_links(script("a write f", "b write f"))
    assert explored.violations


def test_the_explorer_finds_an_end_that_shows_what_it_only_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = LinkEnd._offered

    def eager(self: LinkEnd, word: object) -> object:
        answer = hold(self, word)  # type: ignore[arg-type]
        self.show(self.register.staged)
        return answer

    monkeypatch.setattr(LinkEnd, "_offered", eager)
    monkeypatch.setattr(LinkEnd, "_finish", lambda self: self._save(phase=Phase.IDLE, n=self.register.n + 1, staged=(), outgoing=()))
    explored = explore_links(script("a write f", "b write f"))
    assert explored.violations


PROMISES = ("lost_updates", "resurrected", "silent_divergence", "open_divergence", "spurious_conflicts", "duplicates")
KEPT: list[tuple[SyncProtocol, tuple[str, ...]]] = [
    (TransactionalLink(), SyncMachine.promises),
    (DagMerge(), SyncMachine.promises),
    (VersionVector(), PROMISES),
    (DottedVersionVector(), PROMISES),
    (Crdt(), PROMISES),
    (BaseRevision(), PROMISES),
    (Archive(), tuple(name for name in PROMISES if name != "open_divergence")),
]


def drive(tried: SyncProtocol, held: tuple[str, ...], examples: int, parts: tuple[Part, ...] = tuple(Part)) -> None:
    class Machine(SyncMachine):
        protocol: ClassVar[SyncProtocol] = tried
        promises: ClassVar[tuple[str, ...]] = held

    run_state_machine_as_test(Machine, settings=settings(max_examples=examples, stateful_step_count=20, deadline=None, phases=parts))


@pytest.mark.parametrize(("tried", "held"), KEPT, ids=[type(p).__name__ for p, _ in KEPT])
def test_a_machine_holds_each_protocol_to_its_promises(tried: SyncProtocol, held: tuple[str, ...]) -> None:
    drive(tried, held, 12)


@pytest.mark.slow
@pytest.mark.parametrize(("tried", "held"), KEPT, ids=[type(p).__name__ for p, _ in KEPT])
def test_a_machine_holds_each_protocol_to_its_promises_for_long(tried: SyncProtocol, held: tuple[str, ...]) -> None:
    drive(tried, held, 300)


def test_the_machine_catches_a_protocol_that_loses_work() -> None:
    with pytest.raises(AssertionError, match="LwwCloud broke its promises"):
        drive(LwwCloud(), ("lost_updates",), 200, (Part.generate,))
