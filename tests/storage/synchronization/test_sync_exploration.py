"""Every interleaving of small scripts, and machines that drive each protocol at random."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import Phase as Part
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from armillary.storage.synchronization import Archive, BaseRevision, Crdt, DagMerge, DottedVersionVector, LwwCloud, Operation, VersionVector
from armillary.storage.synchronization.replicas import link_register as registers
from armillary.storage.synchronization.replicas.link_register import LinkEnd, Phase
from armillary.storage.synchronization.transactional_link import TransactionalLink
from armillary.storage.synchronization.world import explore
from armillary.storage.synchronization.world.explore import FAULTS, Explored, Script, explore_links, scripts
from armillary.storage.synchronization.world.protocol import SyncProtocol
from armillary.testing import SyncMachine


def script(*words: str) -> Script:
    """Reads words such as `a write f` and `b rename f g`; `a begin g1` opens a group that `a end g1` closes."""
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


#: Faults that lose no message while the link is up: then nothing may wait for a timer.
LOSSLESS = tuple(fault for fault in FAULTS if fault != "loss")


def holds(words: tuple[str, ...], *, budget: int = 1, most: int = 1_000_000) -> list[Explored]:
    found = [explore_links(script(*words), faults=faults, budget=budget, most=most) for faults in (LOSSLESS, ("loss",))]
    assert [explored.violations for explored in found] == [(), ()]
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("a write f",),
        ("a write f", "b write f"),
        ("a write f", "b delete f"),
        ("a begin x", "a write f", "a write g", "a end x"),
        pytest.param(("a write f", "b append f", "b delete f"), marks=pytest.mark.slow),
        pytest.param(("a write f", "a rename f g", "b write f"), marks=pytest.mark.slow),
        pytest.param(("a begin x", "a write f", "a write g", "a end x", "b write f"), marks=pytest.mark.slow),
    ],
    ids=" / ".join,
)
def test_all_interleavings_with_a_fault_anywhere(words: tuple[str, ...]) -> None:
    lossless, lossy = holds(words)
    assert lossless.complete
    assert lossy.complete
    assert lossless.states > 500
    assert lossless.ends > 1


def test_all_interleavings_of_a_write_with_two_faults_anywhere() -> None:
    lossless, lossy = holds(("a write f",), budget=2)
    assert lossless.complete
    assert lossy.complete
    assert lossless.states > 5000


@pytest.mark.slow
def test_all_interleavings_of_two_writes_with_two_faults_anywhere() -> None:
    for faults in (LOSSLESS, ("loss", "duplication", "crash")):
        explored = explore_links(script("a write f", "b write f"), faults=faults, budget=2)
        assert explored.violations == ()
        assert explored.complete


def test_every_script_of_two_operations_without_faults() -> None:
    every = list(scripts(("f",), 2))
    assert len(every) == 56
    for one in every:
        explored = explore_links(one, budget=0)
        assert explored.complete, one
        assert explored.violations == (), one


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
    holds(words, most=100_000)


@pytest.mark.slow
def test_scripts_of_three_operations_with_a_fault_anywhere() -> None:
    for one in itertools.islice(scripts(("f",), 3), 0, None, 29):
        explored = explore_links(one, most=40_000)
        assert explored.violations == (), one


#: The pairs that one fault can lead to.
MET = [
    (Phase.IDLE, Phase.IDLE), (Phase.IDLE, Phase.OFFERED), (Phase.OFFERED, Phase.OFFERED), (Phase.OFFERED, Phase.HELD),
    (Phase.HELD, Phase.OFFERED), (Phase.HELD, Phase.COMMITTING), (Phase.COMMITTING, Phase.DONE), (Phase.DONE, Phase.COMMITTING),
]  # fmt: skip
UNSAFE: list[tuple[Phase, Phase, str, str]] = [
    (Phase.HELD, Phase.OFFERED, "complete", "half a transaction"),
    *((Phase.HELD, Phase.COMMITTING, wrong, "half a transaction") for wrong in ("reverse", "answer done")),
    *((Phase.COMMITTING, Phase.HELD, wrong, "half a transaction") for wrong in ("reverse", "complete", "error")),
    (Phase.COMMITTING, Phase.DONE, "reverse", "half a transaction"),
    *((mine, theirs, "error", "a pair of phases that cannot be") for mine, theirs in MET),
]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives the table of resumption a wrong entry; one violation is enough."""

    def wrong(mine: Phase, theirs: Phase, answer: str) -> None:
        right = registers.resume
        monkeypatch.setattr(explore, "ENOUGH", 1)
        monkeypatch.setattr(registers, "resume", lambda *pair: answer if pair == (mine, theirs) else right(*pair))

    return wrong


@pytest.mark.parametrize(("mine", "theirs", "wrong", "what"), UNSAFE)
def test_the_explorer_finds_every_unsafe_entry_of_the_table(answers: Any, mine: Phase, theirs: Phase, wrong: str, what: str) -> None:
    """The entries that are left only waste a number or wait for a repetition, and `test_link_register` has those."""
    answers(mine, theirs, wrong)
    # One write is enough for most of them, and the search among two is six times as long.
    tried = (explore_links(script(*words), faults=LOSSLESS) for words in (("a write f",), ("a write f", "b write f")))
    assert any(what in one.what for explored in tried for one in explored.violations)


@pytest.mark.parametrize(("mine", "theirs"), [(Phase.OFFERED, Phase.HELD), (Phase.HELD, Phase.COMMITTING), (Phase.COMMITTING, Phase.DONE)])
def test_with_two_crashes_the_explorer_finds_an_end_that_waits_for_a_timer(answers: Any, mine: Phase, theirs: Phase) -> None:
    answers(mine, theirs, "nothing")
    explored = explore_links(script("a write f"), faults=("crash",), budget=2)
    assert "nothing is on the way, and a transaction is open" in {one.what for one in explored.violations}


def test_the_count_of_questions_has_to_survive_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a doubled answer to a question from before the crash passes for one to the question after it."""

    def forgets(state: Any, i: int) -> Any:
        nodes = explore._copied(state.nodes, i)
        (link,) = nodes[i].links.values()
        link.register = replace(link.register, asked=0)
        return crash(state._replace(nodes=nodes), i)

    crash = explore._crashed
    monkeypatch.setattr(explore, "_crashed", forgets)
    explored = explore_links(script("a write f"), faults=("duplication", "crash"), budget=2)
    assert any("a pair of phases that cannot be" in one.what for one in explored.violations)


def test_the_explorer_finds_an_end_that_shows_what_it_only_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = LinkEnd._offered

    def eager(self: LinkEnd, word: object) -> object:
        answer = hold(self, word)  # type: ignore[arg-type]
        self.show(self.register.staged)
        return answer

    monkeypatch.setattr(explore, "ENOUGH", 1)
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


def drive(tried: SyncProtocol, held: tuple[str, ...], examples: int, parts: tuple[Part, ...] = tuple(Part), steps: int = 20) -> None:
    class Machine(SyncMachine):
        protocol: ClassVar[SyncProtocol] = tried
        promises: ClassVar[tuple[str, ...]] = held

    how = settings(max_examples=examples, stateful_step_count=steps, phases=parts, report_multiple_bugs=False)
    run_state_machine_as_test(Machine, settings=how)


@pytest.mark.parametrize("examples", [5, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("tried", "held"), KEPT, ids=[type(p).__name__ for p, _ in KEPT])
def test_a_machine_holds_each_protocol_to_its_promises(tried: SyncProtocol, held: tuple[str, ...], examples: int) -> None:
    drive(tried, held, examples)


def test_the_machine_catches_a_protocol_that_loses_work() -> None:
    with pytest.raises(AssertionError, match="LwwCloud broke its promises"):
        drive(LwwCloud(), ("lost_updates",), 100, (Part.generate,), steps=40)
