"""The description, its translation and the compiled code are one lock: same operations, same words, same values."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from locks_lockstep import REGIONS, Lockstep

from armillary.kernels import kernel
from armillary.runtime.locks.arena import locks
from armillary.runtime.locks.clh import Clh
from armillary.runtime.locks.description.steps import SPREAD, slot
from armillary.runtime.locks.hapax import Hapax
from armillary.runtime.locks.hapax_vw import HapaxVw
from armillary.runtime.locks.hemlock import Hemlock
from armillary.runtime.locks.mcs import Mcs
from armillary.runtime.locks.reciprocating import Reciprocating
from armillary.runtime.locks.ticket import Ticket
from armillary.runtime.locks.ttas import Ttas
from armillary.runtime.locks.twa import Twa

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")
ALL: list[Any] = [
    Hapax(slots=2, block=2), Hapax(), HapaxVw(slots=1, block=3), HapaxVw(), Ticket(), Twa(slots=2), Mcs(), Clh(), Hemlock(), Reciprocating(),
    Ttas(),
]  # fmt: skip


def test_every_lock_with_a_description_is_compared() -> None:
    described = {type(made).__name__ for name in locks.techniques if (made := locks.make(name)).described() is not None}  # type: ignore[attr-defined]
    assert described == set(REGIONS) == {type(lock).__name__ for lock in ALL}


@pytest.mark.parametrize("lock", ALL, ids=lambda lock: f"{type(lock).__name__}-{getattr(lock, 'slots', 0)}")
def test_three_forms_ask_for_the_same_steps(lock: Any) -> None:
    for seed in range(6):
        whole = Lockstep(lock, 3, 4)
        whole.run(np.random.default_rng(seed))
        assert Counter(whole.entries) == {0: 4, 1: 4, 2: 4}


def test_the_comparison_finds_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Ticket().compiled("spin")
    monkeypatch.setattr(Mcs, "compiled", lambda self, policy: other)
    with pytest.raises(AssertionError):
        Lockstep(Mcs(), 2, 2).run(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("lock", "counts"),
    [
        (Hapax(), {"xchg": 1, "load": 1, "store": 2}),
        (Ticket(), {"add": 1, "load": 1, "store": 1}),
        (Mcs(), {"store": 1, "xchg": 1, "load": 1, "cas": 1}),
        (Clh(), {"store": 2, "xchg": 1, "until": 1}),
        (Hemlock(), {"xchg": 1, "cas": 1}),
        (Reciprocating(), {"store": 1, "xchg": 1, "cas": 1}),
        (Ttas(), {"load": 1, "xchg": 1, "store": 1}),
        (Twa(), {"add": 2, "load": 1, "store": 1}),
        (HapaxVw(), {"xchg": 2, "load": 2}),
    ],
)
def test_the_steps_of_an_episode_without_contention(lock: Any, counts: dict[str, int]) -> None:
    whole = Lockstep(lock, 1, 2)
    whole.run(np.random.default_rng(0))
    first, second = whole.log[: len(whole.log) - sum(counts.values())], whole.log[-sum(counts.values()) :]
    assert Counter(kind for _, kind in second) == counts
    drawn = {"add": 1} if isinstance(lock, Hapax) else {}  # The first episode takes a block of values.
    assert Counter(kind for _, kind in first) == Counter(counts) + Counter(drawn)


def test_one_who_stops_in_the_doorway_stops_its_successors_only() -> None:
    whole = Lockstep(Hapax(), 4, 2)
    whole.until_blocked(0)
    assert whole.holder == 0
    with np.errstate(over="ignore"):
        while whole.log[-1] != (1, "xchg"):  # Thread 1 has its place in the order, and stops.
            whole.threads[1].step()
    whole.threads[0].step()
    assert whole.until_blocked(0, most=2) == 2, "the holder's release is two steps, whoever has stopped"
    whole.until_blocked(2)
    whole.until_blocked(3)
    assert whole.holder is None
    assert not whole.threads[2].able()
    assert not whole.threads[3].able()
    whole.until_blocked(1)
    assert whole.holder == 1


@pytest.mark.parametrize(
    "lock", [Hapax(), HapaxVw(), Ticket(), Twa(), Mcs(), Clh(), Hemlock(), Ttas()], ids=lambda lock: type(lock).__name__
)
def test_one_who_comes_back_passes_one_who_waits_only_where_no_order_is_kept(lock: Any) -> None:
    whole = Lockstep(lock, 2, 2)
    whole.until_blocked(0)
    whole.until_blocked(1)
    assert whole.entries == [0]
    whole.threads[0].step()
    whole.until_blocked(0)  # It releases, comes again, and is inside or must wait.
    whole.until_blocked(1)
    assert whole.entries == ([0, 1] if lock.fifo else [0, 0])


def test_a_release_is_two_stores_in_machine_code_too() -> None:
    at = Hapax().places(1, 1)
    release = Hapax().compiled("spin").release

    @kernel
    def released(words, at, token):  # type: ignore[no-untyped-def]
        release(words, at, 0, 0, token)

    released._cache.disable()
    released(np.zeros(at.size, np.uint64), at, np.uint64(1))
    (text,) = released.inspect_llvm().values()
    body = text[text.index("define") :].split("\n}", 1)[0]
    assert body.count("store atomic") == 2
    assert "atomicrmw" not in text
    assert "cmpxchg" not in text
    assert "br i1" not in body


def test_slots_of_one_threads_values_are_spread() -> None:
    assert slot(1, 4096) == SPREAD >> 52
    places = {slot(value, 4096) for value in range(1, 1001)}
    assert len(places) > 900
    assert all(0 <= place < 8 for place in (slot(value, 8) for value in range(100)))


def test_waits_are_counted_only_by_those_who_wait() -> None:
    assert {name: locks.make(name).space.lock for name in ("hapax", "ticket", "mcs", "hemlock")} == {  # type: ignore[attr-defined]
        "hapax": 16, "ticket": 16, "mcs": 8, "hemlock": 8,
    }  # fmt: skip
    at = Hapax().places(3, 2, held=1, pad=False)
    assert 8 * at.lock_stride == 24
