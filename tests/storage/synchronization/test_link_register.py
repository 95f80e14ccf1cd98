"""The two ends of a link: the table of resumption, and an exchange cut at every message."""

from __future__ import annotations

import itertools

import pytest

from armillary.storage.synchronization import LinkEnd, Phase, Register, VersionStore, resume
from armillary.storage.synchronization.replicas.versions import digest, merge_lines, version
from armillary.storage.synchronization.world.protocol import Content, Message

I, O, H, C, D = Phase.IDLE, Phase.OFFERED, Phase.HELD, Phase.COMMITTING, Phase.DONE  # noqa: E741
EXPECTED = {
    (I, I): "nothing", (I, O): "reverse", (I, H): "error", (I, C): "error", (I, D): "error",
    (O, I): "reverse", (O, O): "reverse", (O, H): "reverse", (O, C): "error", (O, D): "error",
    (H, I): "error", (H, O): "reverse", (H, H): "error", (H, C): "complete", (H, D): "error",
    (C, I): "error", (C, O): "error", (C, H): "commit again", (C, C): "error", (C, D): "complete",
    (D, I): "error", (D, O): "error", (D, H): "error", (D, C): "answer done", (D, D): "nothing",
}  # fmt: skip


@pytest.mark.parametrize(("mine", "theirs"), list(itertools.product(Phase, Phase)))
def test_every_pair_of_phases(mine: Phase, theirs: Phase) -> None:
    assert resume(mine, theirs) == EXPECTED[mine, theirs]


def ends() -> tuple[LinkEnd, LinkEnd]:
    made = []
    for name in "ab":
        store = VersionStore(name)
        store.create(version((), "", f"of-{name}", Content((0,), 10), "", ()))
        made.append(LinkEnd(store, name == "a", store.insert))
    return made[0], made[1]


def carry(a: LinkEnd, b: LinkEnd, to_a: list[Message], to_b: list[Message], most: int = 10**6) -> int:
    """Delivers at most `most` messages in turn and returns how many were delivered."""
    carried = 0
    while (to_a or to_b) and carried < most:
        if to_b:
            to_a += b.receive(to_b.pop(0))
        else:
            to_b += a.receive(to_a.pop(0))
        carried += 1
    return carried


def have_both(*ends: LinkEnd) -> bool:
    return all(sorted(v.path for v in end.store.versions.values()) == ["of-a", "of-b"] for end in ends)


def in_phases(mine: Phase, theirs: Phase) -> tuple[LinkEnd, LinkEnd]:
    """Makes two ends in these phases of their first transaction, whose first party is the end that offered or commits."""
    a, b = ends()
    of_a, of_b = (tuple(end.store.log) for end in (a, b))
    name = digest(of_b, of_a) if theirs in (O, C) and mine not in (O, C) else digest(of_a, of_b)
    for end, phase, own, other in ((a, mine, of_a, of_b), (b, theirs, of_b, of_a)):
        if phase is O:
            end.register = Register(phase=O, outgoing=own)
        elif phase is not I:
            end.register = Register(phase=phase, outgoing=own, staged=other, digest=name)
        if phase is D:
            end.store.insert(other)
    return a, b


#: After a, and only a, asked and was answered, no timer helping: the messages carried, then phase, number and versions of a and of b.
AFTERWARDS = {
    (I, I): (2, (I, 1, 1), (I, 1, 1)), (I, O): (2, (I, 2, 1), (I, 2, 1)), (O, I): (2, (I, 2, 1), (I, 1, 1)),
    (O, O): (2, (I, 2, 1), (I, 2, 1)), (O, H): (2, (I, 2, 1), (H, 1, 1)), (H, O): (2, (I, 2, 1), (I, 2, 1)),
    (C, H): (5, (I, 2, 2), (I, 2, 2)), (H, C): (4, (I, 2, 2), (I, 2, 2)), (C, D): (3, (I, 2, 2), (I, 2, 2)),
    (D, C): (4, (I, 2, 2), (I, 2, 2)), (D, D): (2, (D, 1, 2), (D, 1, 2)),
}  # fmt: skip


@pytest.mark.parametrize(("mine", "theirs"), list(itertools.product(Phase, Phase)))
def test_what_every_pair_of_phases_comes_to_when_one_end_asks(mine: Phase, theirs: Phase) -> None:
    a, b = in_phases(mine, theirs)
    carried = carry(a, b, [], a.reconnect())
    if (mine, theirs) in AFTERWARDS:
        seen = [(end.register.phase, end.register.n, len(end.store.versions)) for end in (a, b)]
        assert (carried, *seen) == AFTERWARDS[mine, theirs]
        assert a.errors + b.errors == 0
    else:
        assert a.errors == 1
        assert a.register.epoch == b.register.epoch == 2
    for end in (a, b):
        carry(a, b, *((end.offer(), []) if end is b else ([], end.offer())))
    carry(a, b, b.reconnect(), a.reconnect())
    carry(a, b, b.offer(), a.offer())
    assert have_both(a, b)
    assert all(len(end.store.log) == 2 for end in (a, b)), "applied twice"


@pytest.mark.parametrize("cut", range(6))
def test_an_exchange_cut_after_any_message_ends_whole_after_reconnection(cut: int) -> None:
    a, b = ends()
    carry(a, b, [], a.offer(), cut)
    before = [(len(e.store.versions), e.register.phase) for e in (a, b)]
    assert all(count == 2 for count, phase in before if phase is D), "shown before it was committed"
    carry(a, b, b.reconnect(), a.reconnect())
    carry(a, b, b.offer(), a.offer())
    assert have_both(a, b)
    assert a.errors == b.errors == 0
    assert all(len(e.store.log) == 2 for e in (a, b)), "applied twice"


def test_in_doubt_the_committer_shows_nothing_and_a_message_of_the_next_transaction_settles_it() -> None:
    a, b = ends()
    carry(a, b, [], a.offer(), 3)
    assert (a.register.phase, b.register.phase) == (C, D)
    assert have_both(b)
    assert not have_both(a)
    b.store.create(version((), "", "later", Content((1,), 10), "", ()))
    carry(a, b, b.offer(), [])
    assert len(a.store.versions) == len(b.store.versions) == 3


def test_every_message_doubled_changes_nothing() -> None:
    a, b = ends()
    to_b, to_a = a.offer() * 2, []
    for _ in range(20):
        to_a += [m for word in to_b for m in b.receive(word) * 2]
        to_b = [m for word in to_a for m in a.receive(word) * 2]
        to_a = []
        if not to_b:
            break
    assert not to_b
    assert have_both(a, b)
    assert len(a.store.log) == len(b.store.log) == 2


def test_of_crossed_offers_the_lower_stands() -> None:
    a, b = ends()
    from_a, from_b = a.offer(), b.offer()
    assert a.receive(from_b[0]) == []
    carry(a, b, b.receive(from_a[0]), [])
    assert have_both(a, b)
    assert (a.register.n, a.register.phase) == (2, I)


def test_a_lost_register_opens_a_new_epoch_and_loses_nothing() -> None:
    a, b = ends()
    carry(a, b, [], a.offer(), 2)
    assert a.register.phase is C
    b.register = type(b.register)()
    carry(a, b, b.reconnect(), a.reconnect())
    carry(a, b, b.offer(), a.offer())
    assert a.errors + b.errors >= 1
    assert a.register.epoch == b.register.epoch == 2
    assert have_both(a, b)


def test_a_set_without_its_parents_is_not_taken() -> None:
    a, b = ends()
    (first,) = a.store.versions.values()
    a.store.create(version((first.id,), first.file, "of-a", Content((1,), 10), "", ()))
    a.theirs = {"a": 1}
    carry(a, b, [], a.offer(), 1)
    assert b.register.phase is I
    assert len(b.store.versions) == 1


@pytest.mark.parametrize(
    ("base", "left", "right", "merged"),
    [((1, 2, 3), (1, 9, 2, 3), (1, 2, 3, 8), (1, 9, 2, 3, 8)), ((1, 2, 3), (1, 2, 3), (1, 3), (1, 3)), ((1, 2, 3), (1, 7, 3), (1, 8, 3), None),
     ((1, 2, 3), (1, 7, 3), (1, 7, 3), (1, 7, 3)), ((1,), (1, 5), (1, 6), None), ((), (), (4,), (4,))],
)  # fmt: skip
def test_three_way_merge(base: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...], merged: tuple[int, ...] | None) -> None:
    assert merge_lines(base, left, right) == merged
    assert merge_lines(base, right, left) == merged
